"""The evidence as one plain function of data and hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_X_y
from sklearn.utils._param_validation import Interval, StrOptions, validate_params

from eigengp._typing import Array
from eigengp.data.array_source import ArraySource
from eigengp.gp.blocks import RowBlock, group_rows
from eigengp.gp.model import EigenGP, Jitter
from eigengp.kernels import Kernel


@dataclass(frozen=True)
class EvidenceGradient:
    """Derivatives of the log marginal likelihood.

    Positive hyperparameters are differentiated through their natural
    logarithms: the derivative by the hyperparameter itself is the entry
    divided by its value.
    """

    inducing_points: Array
    """With respect to the inducing points, shape (M, D)."""
    kernel: Array
    """With respect to `kernel.theta`, the logarithms named by `kernel.parameter_names`."""
    log_noise_variance: float
    """With respect to `ln σ²`."""
    log_weights: Array | None
    """With respect to `ln w`, shape (R,); None in stage 1."""


# scikit-learn ships no types.
@validate_params(  # type: ignore[untyped-decorator]
    {
        "kernel": [Kernel],
        "noise_variance": [Interval(Real, 0, None, closed="neither")],
        "residual": [StrOptions({"diagonal"}), None],
        "power": [Interval(Real, 0, 1, closed="both")],
        "jitter": [Interval(Real, 0, None, closed="left")],
        "eval_gradient": ["boolean"],
    },
    prefer_skip_nested_validation=True,
)
def log_marginal_likelihood(
    X: ArrayLike,
    y: ArrayLike,
    *,
    inducing_points: ArrayLike,
    kernel: Kernel,
    noise_variance: float,
    weights: ArrayLike | None = None,
    residual: Literal["diagonal"] | None = None,
    power: float = 1.0,
    jitter: float = 1e-6,
    eval_gradient: bool = False,
) -> Any:
    """Return the log marginal likelihood `ln N(y | 0, C)` of a model with eigenfunctions.

    Data and hyperparameters are used unchanged: nothing is centred, scaled or learned.

    Parameters
    ----------
    X : array of shape (N, D)
        Inputs.
    y : array of shape (N,)
        Targets; the model has mean zero.
    inducing_points : array of shape (M, D)
        The inducing points `B`.
    kernel : Kernel
        The covariance function of the GP prior.
    noise_variance : float
        `σ²`.
    weights : array of shape (R,) or None
        Prior variances `w_j` of the eigenfunctions `φ_j(x) = (√M/λ_j) k(x,B) u_j`,
        in descending order of eigenvalue; fewer than M keep the top ones.
        None is stage 1, `w_j = λ_j/M` for all M.
    residual : {None, "diagonal"}
        "diagonal" adds `δ(x − x′) max(0, k(x,x) − k̃(x,x))` to the covariance, which rows with equal
        inputs share (EigenGP+; FITC in stage 1 if all inputs differ).
    power : float
        With `residual`, the power α of power EP: 1 is FITC, and 0 VFE, whose value is a lower bound
        on the log marginal likelihood of the exact GP.
    jitter : float
        Added to the diagonal of `K_BB`, in the units of the kernel.
    eval_gradient : bool
        Whether to return the gradient too.

    Returns
    -------
    value : float
        The log marginal likelihood.
    gradient : EvidenceGradient
        Only if `eval_gradient`.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import SquaredExponential, log_marginal_likelihood
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> value, gradient = log_marginal_likelihood(
    ...     X, np.sin(6 * X[:, 0]), inducing_points=X[::5], kernel=SquaredExponential(0.2),
    ...     noise_variance=0.01, eval_gradient=True)
    >>> round(value, 3), gradient.inducing_points.shape
    (10.419, (4, 1))
    """
    inputs, targets = check_X_y(X, y, dtype=np.float64, y_numeric=True)
    kernel.with_ard(inputs.shape[1])
    if power != 1.0 and residual is None:
        raise ValueError(f"power={power!r} has no meaning without residual='diagonal'.")
    if power == 0.0 and weights is not None:
        raise ValueError("power=0 is the bound of VFE, which has no weights: leave them out.")
    rows = RowBlock(inputs, np.asarray(targets, dtype=np.float64))
    source = ArraySource.of(rows if residual is None else group_rows(rows).rows)
    B = _checked_points(inducing_points, inputs.shape[1])
    size = B.shape[0]
    added = Jitter(absolute=jitter)
    model = EigenGP(kernel, B, noise_variance, size, None, residual is not None, added, power)
    if weights is not None:
        w = _checked_weights(weights, size)
        shrinkage = model.spectrum.shrinkage(w)
        model = replace(model, n_components=w.size, shrinkage=shrinkage)
    if not eval_gradient:
        return -model.value(source)

    value, own = model.value_and_gradient(source)
    theta, points = own.theta, own.inducing_points
    if own.log_shrinkage is not None:
        through = model.gram_pull_back(model.spectrum.shrinkage_pull_back(own.log_shrinkage))
        theta, points = theta + through.theta, points + through.points
    log_weights = None if own.log_shrinkage is None else -own.log_shrinkage
    return -value, EvidenceGradient(-points, -theta, -own.log_noise_variance, log_weights)


def _checked_points(inducing_points: ArrayLike, n_features: int) -> Array:
    B: Array = check_array(inducing_points, dtype=np.float64, input_name="inducing_points")
    if B.shape[1] != n_features:
        raise ValueError(
            f"inducing_points have {B.shape[1]} columns but X has {n_features}; "
            "each inducing point needs one value for each input."
        )
    return B


def _checked_weights(weights: ArrayLike, size: int) -> Array:
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not 1 <= w.size <= size:
        raise ValueError(
            f"weights must be a vector of 1 to {size} values, one for each eigenfunction kept, "
            f"got shape {w.shape}."
        )
    if not np.all(np.isfinite(w) & (w > 0)):
        raise ValueError("weights must be positive and finite: they are prior variances.")
    return w
