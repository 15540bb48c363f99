"""A model of BoTorch says what the regressor says, and its gradients are the regressor's."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Gaussian,
    Matern12,
    Matern32,
    NystromRegressor,
    PowerEPRegressor,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    VFERegressor,
)
from eigengp._typing import Array

pytest.importorskip("botorch", reason='needs pip install "eigengp[botorch]"')

import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.acquisition.logei import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelList
from botorch.optim import optimize_acqf

from eigengp.export.botorch import BoTorchModel

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, size=(50, 2))
Y = 3.0 + 20.0 * (np.sin(3.0 * X[:, 0]) + X[:, 1] ** 2) + RNG.normal(size=50)
NEW = RNG.uniform(-1.0, 1.0, size=(4, 3, 2))
BOUNDS = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
QUICK: dict[str, Any] = {
    "kernel": SquaredExponential(0.7, 300.0),
    "optimizer": LBFGS(n_restarts=1, max_iter=2),
    "random_state": 0,
}

MODELS: dict[str, Any] = {
    "EigenGP": EigenGPRegressor(8, **QUICK),
    "EigenGP+": EigenGPRegressor(8, residual="diagonal", **QUICK),
    "linear mean": EigenGPRegressor(8, mean="linear", **QUICK),
    "not_standardized": EigenGPRegressor(8, standardize=False, **QUICK),
    "single": EigenGPRegressor(8, precision="single", **QUICK),
    "FITC": FITCRegressor(8, **{**QUICK, "kernel": Matern32(0.7, 300.0)}),
    "VFE": VFERegressor(8, **QUICK),
    "PowerEP": PowerEPRegressor(n_components=8, **QUICK),
    "SSGP": SSGPRegressor(8, **QUICK),
    "RVM": RVMRegressor(lengthscale=1.0),
    "ExactGP": ExactGPRegressor(**QUICK),
}
any_model = pytest.mark.parametrize("name", MODELS)
SCALE = float(np.std(Y))


@cache
def fitted(name: str) -> Any:
    return clone(MODELS[name]).fit(X, Y)


def tensor(points: Array) -> Any:
    return torch.tensor(points, requires_grad=True)


def close(own: Any, known: Array, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(own.detach().numpy(), known, rtol=0.0, atol=tolerance * SCALE)


@any_model
def test_mean_and_std_of_observations_are_the_regressors(name: str) -> None:
    regressor = fitted(name)
    posterior = BoTorchModel(regressor).posterior(tensor(NEW), observation_noise=True)
    mean, std = regressor.predict(NEW.reshape(-1, 2), return_std=True)
    assert posterior.mean.shape == posterior.variance.shape == (4, 3, 1)
    # Predictions of low precision are good to float32.
    tolerance = 1e-4 if name == "single" else 1e-6
    close(posterior.mean, mean.reshape(4, 3, 1), tolerance)
    close(posterior.variance.sqrt(), std.reshape(4, 3, 1), tolerance)


@any_model
def test_the_joint_covariance_is_the_regressors_without_noise(name: str) -> None:
    regressor = fitted(name)
    posterior = BoTorchModel(regressor).posterior(tensor(NEW))
    for batch, covariance in zip(NEW, posterior.distribution.covariance_matrix, strict=True):
        _, noisy = regressor.predict(batch, return_cov=True)
        close(covariance, noisy - regressor.noise_variance_ * np.eye(3))


@any_model
def test_gradients_of_mean_and_variance_are_the_regressors(name: str) -> None:
    regressor, points = fitted(name), tensor(NEW)
    posterior = BoTorchModel(regressor).posterior(points, observation_noise=True)
    known = regressor.predict_gradient(NEW.reshape(-1, 2), return_variance=True)
    for part, expected in zip((posterior.mean, posterior.variance), known, strict=True):
        (own,) = torch.autograd.grad(part.sum(), points, retain_graph=True)
        largest = np.abs(expected).max()
        np.testing.assert_allclose(
            own.numpy().reshape(-1, 2), expected, rtol=0.0, atol=1e-8 * largest
        )


@pytest.mark.parametrize("name", ["EigenGP", "EigenGP+", "FITC", "VFE", "SSGP", "ExactGP"])
def test_gradients_of_the_joint_covariance_are_finite_differences(name: str) -> None:
    model = BoTorchModel(fitted(name))
    points = tensor(NEW[:2])
    assert torch.autograd.gradcheck(
        lambda x: model.posterior(x).distribution.covariance_matrix, (points,), atol=1e-4
    )


@pytest.mark.parametrize("kernel", [SquaredExponential(0.7), Matern12(0.7), Matern32(0.7)])
@pytest.mark.parametrize("kind", [EigenGPRegressor, FITCRegressor])
def test_gradients_at_basis_points_are_finite(kind: Any, kernel: Any) -> None:
    regressor = kind(
        8, kernel=kernel, inducing_points=X[:8], optimizer=LBFGS(n_restarts=1, max_iter=0)
    ).fit(X, Y)
    points = tensor(np.stack([X[:2], X[2:4]]))
    posterior = BoTorchModel(regressor).posterior(points)
    (own,) = torch.autograd.grad(posterior.mean.sum() + posterior.variance.sum(), points)
    assert torch.all(torch.isfinite(own))


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1), (2, 1, 3)])
def test_any_batch_shape(shape: tuple[int, ...]) -> None:
    regressor, points = fitted("VFE"), np.resize(NEW, (*shape, 2))
    posterior = BoTorchModel(regressor).posterior(torch.tensor(points))
    assert posterior.distribution.covariance_matrix.shape == (*shape, shape[-1])
    close(posterior.mean, regressor.predict(points.reshape(-1, 2)).reshape(*shape, 1))


def test_float32_is_computed_in_float64() -> None:
    model, points = BoTorchModel(fitted("EigenGP+")), NEW.astype(np.float32)
    single = model.posterior(torch.tensor(points))
    double = model.posterior(torch.tensor(points.astype(np.float64)))
    assert single.mean.dtype == torch.float64
    assert torch.equal(single.mean, double.mean)


def test_noise_of_ones_own() -> None:
    model, points = BoTorchModel(fitted("EigenGP")), torch.tensor(NEW)
    noise = torch.rand(4, 3, 1, dtype=torch.float64)
    own, latent = model.posterior(points, observation_noise=noise), model.posterior(points)
    torch.testing.assert_close(own.variance - latent.variance, noise, atol=1e-8, rtol=0.0)


def test_samples_of_a_singular_covariance() -> None:
    model, points = BoTorchModel(fitted("EigenGP")), torch.rand(30, 2, dtype=torch.float64)
    posterior = model.posterior(points)
    draws = posterior.rsample(torch.Size([4000]))
    error = draws.mean(0) - posterior.mean
    assert torch.all(error.abs() < 5.0 * posterior.variance.sqrt() / 4000**0.5 + 1e-6 * SCALE)


def test_it_is_one_output_of_one_model() -> None:
    model, points = BoTorchModel(fitted("EigenGP")), torch.tensor(NEW)
    assert model.num_outputs == 1
    assert model.batch_shape == torch.Size()
    assert model.subset_output([0]) is model
    twice = ModelList(model, BoTorchModel(fitted("VFE"))).posterior(points)
    torch.testing.assert_close(twice.mean[..., :1], model.posterior(points).mean)
    double = ScalarizedPosteriorTransform(torch.tensor([2.0], dtype=torch.float64))
    scaled = model.posterior(points, posterior_transform=double)
    torch.testing.assert_close(scaled.mean, 2.0 * model.posterior(points).mean)


@pytest.mark.parametrize("name", ["EigenGP+", "ExactGP"])
def test_expected_improvement_is_maximised(name: str) -> None:
    """The best of a grid is reached in the half with one peak, and is an improvement."""
    torch.manual_seed(0)
    model = BoTorchModel(fitted(name))
    gain = LogExpectedImprovement(model, best_f=Y.max())
    half = torch.tensor([[-1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    point, value = optimize_acqf(gain, half, q=1, num_restarts=3, raw_samples=32)
    sides = torch.linspace(-1.0, 1.0, 25), torch.linspace(0.0, 1.0, 13)
    assert value >= gain(torch.cartesian_prod(*sides)[:, None, :]).max() - 1e-6
    truth = 3.0 + 20.0 * (torch.sin(3.0 * point[0, 0]) + point[0, 1] ** 2)
    assert truth > Y.max() - 1.0


@pytest.mark.parametrize("name", ["EigenGP+", "VFE"])
def test_several_points_at_once(name: str) -> None:
    torch.manual_seed(0)
    model = BoTorchModel(fitted(name))
    gain = qLogExpectedImprovement(model, best_f=Y.max())
    points, value = optimize_acqf(gain, BOUNDS, q=2, num_restarts=2, raw_samples=16)
    random = torch.rand(64, 2, 2, dtype=torch.float64) * 2.0 - 1.0
    assert value >= gain(random).max()
    assert points.shape == (2, 2)


def test_noisy_expected_improvement() -> None:
    torch.manual_seed(0)
    model, rows = BoTorchModel(fitted("EigenGP+")), torch.tensor(X)
    gain = qLogNoisyExpectedImprovement(model, X_baseline=rows)
    point, value = optimize_acqf(gain, BOUNDS, q=1, num_restarts=2, raw_samples=16)
    assert value >= gain(rows[:, None, :]).max()
    assert point.shape == (1, 2)


def test_a_loop_finds_a_better_value_than_it_began_with() -> None:
    def cost(x: Array) -> Array:
        return (x[:, 0] - 0.3) ** 2 + (x[:, 1] + 0.5) ** 2

    torch.manual_seed(0)
    rows = X[1:7]
    for _ in range(5):
        y = cost(rows)
        kernel = SquaredExponential(1.0, float(np.var(y)))
        regressor = EigenGPRegressor(
            len(y),
            kernel=kernel,
            likelihood=Gaussian(variance=1e-4),
            inducing_points=rows,
            optimizer=LBFGS(n_restarts=1, max_iter=0),
        )
        model = BoTorchModel(regressor.fit(rows, y))
        gain = LogExpectedImprovement(model, best_f=y.min(), maximize=False)
        point, _ = optimize_acqf(gain, BOUNDS, q=1, num_restarts=2, raw_samples=32)
        rows = np.vstack([rows, point.numpy()])
    assert cost(rows).min() < 0.1 * cost(rows[:6]).min()


def test_what_cannot_be_a_model_says_so() -> None:
    with pytest.raises(NotFittedError):
        BoTorchModel(EigenGPRegressor(5))
    with pytest.raises(ValueError, match="Fit an EigenGPRegressor with residual=None"):
        BoTorchModel(
            EigenGPRegressor(5, residual="neighbors", optimizer=LBFGS(max_iter=0)).fit(X, Y)
        )
    with pytest.raises(ValueError, match="the Nyström method do not have"):
        BoTorchModel(NystromRegressor(5, optimizer=LBFGS(max_iter=0)).fit(X, Y))


def test_what_a_model_cannot_do_says_so() -> None:
    model, points = BoTorchModel(fitted("EigenGP")), torch.tensor(NEW)
    with pytest.raises(ValueError, match=r"shape \(..., q, 2\), got \(4, 3, 1\)"):
        model.posterior(points[..., :1])
    with pytest.raises(ValueError, match="only output is 0"):
        model.posterior(points, output_indices=[1])
    with pytest.raises(ValueError, match="only output is 0"):
        model.subset_output([1])
    with pytest.raises(NotImplementedError):
        model.condition_on_observations(points, points[..., :1])


def test_without_botorch_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botorch.models.model", None)
    monkeypatch.delitem(sys.modules, "eigengp.export.botorch")
    with pytest.raises(ImportError, match=r'pip install "eigengp\[botorch\]"'):
        import_module("eigengp.export.botorch")
