"""`log_marginal_likelihood` and its gradient, against reference values and dense formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from eigengp import EvidenceGradient, Matern32, SquaredExponential, log_marginal_likelihood
from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.gp.model import EigenGP, Jitter
from eigengp.kernels import Kernel
from finite_differences import assert_close, gradient

JITTER = 1e-6
QUANTITIES = (
    "upd_kerB",
    "upd_W",
    "upd_kerBW",
    "upd_unscaledkerBW",
    "delta_kerB",
    "delta_W",
    "bnd_delta_W",
)
INEXACT_LOG_SF = ("upd_kerB", "upd_kerBW", "delta_kerB")
any_quantity = pytest.mark.parametrize("quantity", QUANTITIES)


@dataclass(frozen=True)
class Golden:
    """One quantity of one reference case, in the terms of this package."""

    X: Array
    y: Array
    X_test: Array
    B: Array
    kernel: SquaredExponential
    noise_variance: float
    eigenvalues: Array
    log_w: Array | None
    unscaled: bool
    residual: bool
    outputs: dict[str, Any]

    @classmethod
    def of(cls, case: dict[str, Any], quantity: str) -> Golden:
        inputs, outputs = case["inputs"], case["outputs"][quantity]
        rows = {name: np.array(inputs[name], dtype=float) for name in ("x", "x_test", "B")}
        rows = {name: value.reshape(-1, case["D"]) for name, value in rows.items()}
        kernel = SquaredExponential(
            np.exp(np.atleast_1d(inputs["log_ell"])), float(np.exp(2.0 * inputs["log_sf"]))
        )
        source = outputs["weights_input"]
        return cls(
            X=rows["x"],
            y=np.array(inputs["y"], dtype=float).ravel(),
            X_test=rows["x_test"],
            B=rows["B"],
            kernel=kernel,
            noise_variance=float(np.exp(2.0 * inputs["log_sn"])),
            eigenvalues=np.array(case["kbb_eigenvalues_desc"], dtype=float),
            log_w=None if source is None else np.array(inputs[source], dtype=float).ravel(),
            unscaled=quantity == "upd_unscaledkerBW",
            residual="delta" in quantity,
            outputs=outputs,
        )

    @property
    def weights(self) -> Array | None:
        """The reference leaves √M out of φ_j, and λ_j too where it is unscaled."""
        if self.log_w is None:
            return None
        scale = self.eigenvalues**2 if self.unscaled else 1.0
        return np.exp(self.log_w) * scale / self.B.shape[0]

    def evidence(self, **changes: Any) -> Any:
        """Return the public function's answer, with some arguments changed."""
        arguments: dict[str, Any] = {
            "inducing_points": self.B,
            "kernel": self.kernel,
            "noise_variance": self.noise_variance,
            "weights": self.weights,
            "residual": "diagonal" if self.residual else None,
            "jitter": JITTER,
        }
        return log_marginal_likelihood(self.X, self.y, **{**arguments, **changes})

    def gradient(self) -> dict[str, Array]:
        """Return the gradient of `−ln p(y)` in the parameters of the reference."""
        own = self.evidence(eval_gradient=True)[1]
        assert isinstance(own, EvidenceGradient)
        log_ell, log_variance, B = -own.kernel[:-1], -own.kernel[-1], -own.inducing_points
        log_sf = 2.0 * log_variance
        if self.unscaled:
            assert own.log_weights is not None
            through = self.through_eigenvalues(-own.log_weights)
            log_ell, log_sf, B = log_ell + through[0], log_sf + through[1], B + through[2]
        return {
            "grad_log_sn": -2.0 * np.atleast_1d(own.log_noise_variance),
            "grad_log_ell": log_ell,
            "grad_log_sf": np.atleast_1d(log_sf),
            "grad_B": B,
            "grad_log_w": np.zeros(0) if own.log_weights is None else -own.log_weights,
        }

    def through_eigenvalues(self, log_w_bar: Array) -> tuple[Array, float, Array]:
        """Return what `ln w = ln w_unscaled + 2 ln λ − ln M` adds for log ell, log sf and B.

        `dλ_j = u_jᵀ dK u_j`, the derivatives of the kernel written out entry by entry.
        """
        K = self.kernel(self.B)
        lam, U = np.linalg.eigh(K + JITTER * np.eye(K.shape[0]))
        lam, U = lam[::-1], U[:, ::-1]
        K_bar = (U * (2.0 * log_w_bar / lam)) @ U.T
        delta = self.B[:, None, :] - self.B[None, :, :]
        ell = self.kernel.lengthscale
        log_ell = np.einsum("ij,ij,ijd->d", K_bar, K, delta**2) / ell**2
        B = -2.0 * np.einsum("ij,ij,ijd->id", K_bar, K, delta) / ell**2
        return log_ell, 2.0 * float(np.vdot(K_bar, K)), B

    def model(self) -> EigenGP:
        model = EigenGP(
            self.kernel,
            self.B,
            self.noise_variance,
            self.B.shape[0],
            residual=self.residual,
            jitter=Jitter(absolute=JITTER),
        )
        if self.weights is None:
            return model
        return replace(model, shrinkage=model.spectrum.shrinkage(self.weights))


@any_quantity
def test_value_is_that_of_the_authors(golden_case: dict[str, Any], quantity: str) -> None:
    golden = Golden.of(golden_case, quantity)
    assert golden.evidence() == pytest.approx(-golden.outputs["nlZ"], rel=1e-10)
    assert golden.evidence(eval_gradient=True)[0] == pytest.approx(golden.evidence(), rel=1e-13)


@any_quantity
def test_gradient_is_that_of_the_authors(golden_case: dict[str, Any], quantity: str) -> None:
    golden = Golden.of(golden_case, quantity)
    own = golden.gradient()
    exact = [name for name in own if name in golden.outputs]
    if quantity in INEXACT_LOG_SF:
        exact.remove("grad_log_sf")
    assert exact
    expected = {name: np.array(golden.outputs[name], dtype=float).ravel() for name in exact}
    assert_close(
        np.concatenate([own[name].ravel() for name in exact]),
        np.concatenate([expected[name] for name in exact]),
        1e-8,
    )


@pytest.mark.parametrize("quantity", [*INEXACT_LOG_SF, "upd_unscaledkerBW"])
def test_derivative_by_log_sf_is_near_that_of_the_authors(
    golden_case: dict[str, Any], quantity: str
) -> None:
    golden = Golden.of(golden_case, quantity)
    own = golden.gradient()["grad_log_sf"]
    assert own == pytest.approx(golden.outputs["grad_log_sf"], abs=1e-3)


@any_quantity
def test_derivative_by_log_sf_is_exact(golden_case: dict[str, Any], quantity: str) -> None:
    golden = Golden.of(golden_case, quantity)
    own = golden.evidence(eval_gradient=True)[1]

    def value(log_variance: Array) -> float:
        theta = np.append(golden.kernel.theta[:-1], log_variance)
        return golden.evidence(kernel=golden.kernel.with_theta(theta))

    # Small steps: no row may cross the kink of the clipped residual.
    numeric = gradient(value, golden.kernel.theta[-1], step=5e-4)
    largest = max(np.abs(own.kernel).max(), np.abs(own.inducing_points).max())
    assert own.kernel[-1] == pytest.approx(float(numeric), rel=0.0, abs=1e-8 * largest)


@any_quantity
def test_predictions_are_those_of_the_authors(golden_case: dict[str, Any], quantity: str) -> None:
    golden = Golden.of(golden_case, quantity)
    model = golden.model()
    posterior = model.posterior(model.forward(ArraySource(golden.X, golden.y)))
    mean, variance = posterior.mean_and_variance(golden.X_test)
    expected = (golden.outputs[name] for name in ("pred_mean", "pred_var"))
    for own, reference in zip((mean, variance), expected, strict=True):
        np.testing.assert_allclose(own, np.array(reference).ravel(), rtol=0.0, atol=1e-10)


rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, size=(25, 2))
y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=25)
B = np.array([[-1.3, -1.1], [-0.9, 1.2], [0.1, -0.2], [1.2, 1.4], [1.5, -0.8]])
KERNEL = SquaredExponential([0.9, 1.3], 1.4)
WEIGHTS = np.array([0.5, 0.2, 0.3])


def evidence(**changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "X": X,
        "y": y,
        "inducing_points": B,
        "kernel": KERNEL,
        "noise_variance": 0.1,
    }
    return log_marginal_likelihood(**{**arguments, **changes})


def dense_evidence(weights: Array, jitter: float = JITTER, residual: bool = False) -> float:
    """Return `ln N(y | 0, Φ diag(w) Φᵀ + σ²I)` with the eigenfunctions of the paper."""
    lam, U = np.linalg.eigh(KERNEL(B) + jitter * np.eye(5))
    R = weights.size
    lam, U = lam[::-1][:R], U[:, ::-1][:, :R]
    Phi = np.sqrt(5) * KERNEL(X, B) @ U / lam
    low_rank = Phi * weights @ Phi.T
    rest = np.maximum(KERNEL.constant_diagonal - np.diag(low_rank), 0.0) if residual else 0.0
    C = low_rank + np.diag(0.1 + rest * np.ones(25))
    return float(multivariate_normal(np.zeros(25), C).logpdf(y))


@pytest.mark.parametrize("residual", [None, "diagonal"])
@pytest.mark.parametrize("R", [1, 2, 3])
def test_fewer_weights_than_inducing_points_keep_the_top_eigenfunctions(
    R: int, residual: str | None
) -> None:
    expected = dense_evidence(WEIGHTS[:R], residual=residual is not None)
    assert evidence(weights=WEIGHTS[:R], residual=residual) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("residual", [None, "diagonal"])
def test_weights_of_the_prior_are_stage_1(residual: str | None) -> None:
    lam = np.linalg.eigvalsh(KERNEL(B) + JITTER * np.eye(5))[::-1]
    with_weights = evidence(weights=lam / 5, residual=residual)
    assert with_weights == pytest.approx(evidence(residual=residual), rel=1e-10)


@pytest.mark.parametrize("jitter", [0.0, 1e-8, 1e-2, 1.0])
def test_jitter_is_added_as_it_stands(jitter: float) -> None:
    own = evidence(weights=WEIGHTS, jitter=jitter)
    assert own == pytest.approx(dense_evidence(WEIGHTS, jitter), rel=1e-10)


def test_jitter_is_one_millionth_unless_told() -> None:
    assert evidence() == evidence(jitter=1e-6)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["stage_1", "three_weights"])
@pytest.mark.parametrize("residual", [None, "diagonal"])
@pytest.mark.parametrize(
    "kernel",
    [KERNEL, SquaredExponential(1.1, 1.4), Matern32(1.2) + SquaredExponential([0.9, 1.3])],
    ids=["ard", "scalar", "sum"],
)
def test_gradient_is_the_derivative(
    kernel: Kernel, residual: str | None, weights: Array | None
) -> None:
    given = {"kernel": kernel, "residual": residual, "weights": weights}
    value, own = evidence(**given, eval_gradient=True)
    assert value == pytest.approx(evidence(**given), rel=1e-13)

    def by(name: str, of: Callable[[Array], Any], at: Any) -> Array:
        return gradient(lambda moved: evidence(**{**given, name: of(moved)}), at, step=4e-3)

    numeric = [
        by("kernel", kernel.with_theta, kernel.theta),
        by("inducing_points", lambda at: at, B).ravel(),
        by("noise_variance", lambda at: float(np.exp(at[0])), [np.log(0.1)]),
    ]
    analytic = [own.kernel, own.inducing_points.ravel(), [own.log_noise_variance]]
    if weights is None:
        assert own.log_weights is None
    else:
        numeric.append(by("weights", np.exp, np.log(weights)))
        analytic.append(own.log_weights)
    assert_close(np.concatenate(analytic), np.concatenate(numeric), 2e-8)


def test_a_scalar_lengthscale_sums_the_derivatives_of_the_separate_ones() -> None:
    scalar = evidence(kernel=SquaredExponential(1.1, 1.4), eval_gradient=True)
    separate = evidence(kernel=SquaredExponential([1.1, 1.1], 1.4), eval_gradient=True)
    assert scalar[0] == pytest.approx(separate[0], rel=1e-13)
    assert scalar[1].kernel.shape == (2,)
    assert scalar[1].kernel[0] == pytest.approx(separate[1].kernel[:2].sum(), rel=1e-10)
    assert_close(scalar[1].inducing_points, separate[1].inducing_points, 1e-12)


def test_lists_and_integers_are_welcome() -> None:
    own = log_marginal_likelihood(
        [[0], [1], [2]],
        [0, 1, 0],
        inducing_points=[[0], [2]],
        kernel=SquaredExponential(),
        noise_variance=1,
        weights=[1, 2],
    )
    assert isinstance(own, float)


def test_inputs_are_left_as_they_were() -> None:
    before = [array.copy() for array in (X, y, B, WEIGHTS)]
    evidence(weights=WEIGHTS, eval_gradient=True)
    for array, copy in zip((X, y, B, WEIGHTS), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_nothing_is_centred_or_scaled() -> None:
    assert evidence(y=y + 5.0) < evidence() - 10.0
    assert evidence(X=X + 3.0, inducing_points=B + 3.0) == pytest.approx(evidence(), rel=1e-10)


WITH_NAN = np.where(np.arange(50).reshape(25, 2) == 7, np.nan, X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": WITH_NAN}, "X contains NaN"),
        ({"X": X[:, 0]}, "Expected 2D array"),
        ({"X": X[:10]}, "inconsistent numbers of samples"),
        ({"y": np.where(np.arange(25) == 3, np.inf, y)}, "y contains infinity"),
        ({"y": np.column_stack([y, y])}, "1d array"),
        ({"inducing_points": np.where(B > 1.4, np.nan, B)}, "inducing_points contains NaN"),
        ({"inducing_points": B[:, 0]}, "Expected 2D array"),
        ({"inducing_points": B[:0]}, "minimum of 1 is required"),
        ({"inducing_points": B[:, :1]}, "have 1 columns but X has 2"),
        ({"kernel": SquaredExponential([1.0, 1.0, 1.0])}, "3 lengthscales but X has 2"),
        ({"noise_variance": 0.0}, "'noise_variance' parameter.* Got 0.0"),
        ({"noise_variance": -1.0}, "'noise_variance' parameter"),
        ({"noise_variance": np.nan}, "'noise_variance' parameter"),
        ({"noise_variance": np.inf}, "'noise_variance' parameter"),
        ({"residual": "full"}, "'residual' parameter.*'diagonal'.*Got 'full'"),
        ({"residual": True}, "'residual' parameter.*Got True"),
        ({"jitter": -1e-6}, "'jitter' parameter"),
        ({"jitter": np.nan}, "'jitter' parameter"),
        ({"weights": []}, "vector of 1 to 5 values"),
        ({"weights": np.ones(6)}, "vector of 1 to 5 values"),
        ({"weights": np.ones((5, 1))}, "vector of 1 to 5 values"),
        ({"weights": [1.0, 0.0]}, "weights must be positive and finite"),
        ({"weights": [1.0, -1.0]}, "weights must be positive and finite"),
        ({"weights": [1.0, np.nan]}, "weights must be positive and finite"),
    ],
)
def test_a_bad_value_is_named_in_the_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evidence(**changes)


@pytest.mark.parametrize("name", ["noise_variance", "jitter"])
@pytest.mark.parametrize("bad", ["0.1", None, [0.1, 0.2]])
def test_what_is_not_a_number_is_named_in_the_error(name: str, bad: object) -> None:
    with pytest.raises((TypeError, ValueError), match=name):
        evidence(**{name: bad})


@pytest.mark.parametrize("kernel", ["rbf", None, SquaredExponential, np.eye(2)])
def test_only_a_kernel_is_a_kernel(kernel: object) -> None:
    with pytest.raises(TypeError, match=r"'kernel' parameter.*must be an instance of.*Kernel"):
        evidence(kernel=kernel)


@pytest.mark.parametrize("name", ["inducing_points", "kernel", "noise_variance"])
def test_what_has_no_default_must_be_given(name: str) -> None:
    arguments = {"inducing_points": B, "kernel": KERNEL, "noise_variance": 0.1}
    del arguments[name]
    with pytest.raises(TypeError, match=name):
        log_marginal_likelihood(X, y, **arguments)


def test_a_power_between_is_between_the_bound_of_vfe_and_more() -> None:
    vfe, between, fitc = (evidence(residual="diagonal", power=alpha) for alpha in (0, 0.5, 1.0))
    assert vfe < between
    assert fitc == pytest.approx(evidence(residual="diagonal"), rel=1e-12)
    near = evidence(residual="diagonal", power=1e-7)
    assert near == pytest.approx(vfe, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"power": 1.5, "residual": "diagonal"}, "'power' parameter"),
        ({"power": 0.5}, "no meaning without residual"),
        ({"power": 0.0, "residual": "diagonal", "weights": [1.0]}, "has no weights"),
    ],
)
def test_powers_without_a_meaning_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evidence(**changes)
