"""Gaussian noise, whose variance is learned with the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from eigengp.gp.target_maps import MAPS


@dataclass(frozen=True)
class _GaussianNoise:
    """Gaussian noise with a variance to learn."""

    variance: float | None = None
    transform: Any = None

    def __post_init__(self) -> None:
        names, own = (None, "auto", *MAPS), self.transform
        is_map = all(hasattr(own, each) for each in ("values", "targets", "log_slope"))
        if not (is_map or (isinstance(own, str | None) and own in names)):
            raise ValueError(
                f"transform must be one of {', '.join(map(repr, names))}, or an object with the "
                f"methods values(y), targets(t) and log_slope(y), got {own!r}."
            )
        own = self.variance
        if own is not None and (not isinstance(own, Real) or not 0.0 < own < float("inf")):
            raise ValueError(f"variance must be positive and finite, or None, got {own!r}.")


class Gaussian(_GaussianNoise):
    """Gaussian noise of one variance, `y = f(x) + ε` with `ε ~ N(0, σ²)`.

    Parameters
    ----------
    variance : float or None
        The initial noise variance, in the units of the data; None is a tenth of the variance of
        the targets.
    transform : {"log", "yeo-johnson", "auto"}, object or None
        The strictly increasing map m in `m(y) = f(x) + ε`, for skewed targets; None is the
        identity. "log" is the logarithm, for positive targets. "yeo-johnson" is the power transform
        of Yeo and Johnson in units of the median size of the targets; its power, between 0 and 2,
        has the largest likelihood of the targets under a normal distribution. From one
        standard deviation beyond the largest target on, or the smallest if the power is above 1, it
        is a straight line. "auto" is "yeo-johnson" if that clearly improves the leave-one-out log
        density of up to 2,000 rows (with neighbours, also their squared errors), and None
        otherwise. An object with the methods `values(y)`, `targets(t)` and `log_slope(y)` is a map
        onto all real numbers, its inverse, and the logarithm of its slope.

    Notes
    -----
    With a transform, a prediction is the distribution of `m⁻¹(t)` for a normal value t. `predict`
    returns its mean and standard deviation. Intervals and quantiles are those of t, mapped back, so
    that intervals are asymmetric. `kernel_`, `noise_variance_` and `mean` refer to `m(y)`, with
    the map in `target_map_`; the log marginal likelihood is that of the targets.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import LBFGS, EigenGPRegressor, Gaussian
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(0, 6, 150)[:, None]
    >>> y = np.exp(np.sin(X[:, 0]) + 0.4 * rng.normal(size=150))
    >>> model = EigenGPRegressor(8, residual=None, optimizer=LBFGS(n_restarts=1), random_state=0)
    >>> model = model.set_params(likelihood=Gaussian(transform="log")).fit(X, y)
    >>> lower, upper = model.predict_interval([[1.5], [4.5]], coverage=0.9)
    >>> bool(np.all(lower > 0)), bool(upper[0] > 2 * upper[1])
    (True, True)
    >>> bool(np.mean(model.log_density(X, y)) > -1.2)
    True
    """


class Heteroscedastic(_GaussianNoise):
    """Gaussian noise whose variance depends on the input.

    The predictive variance is multiplied by a factor whose logarithm is linear in covariates. The
    factor is fitted to leave-one-out errors, and kept only if it clearly improves the leave-one-out
    density.

    Parameters
    ----------
    variance : float or None
        The initial noise variance without this factor, as in `Gaussian`.
    transform : {"log", "yeo-johnson", "auto"}, object or None
        The map of the targets, as in `Gaussian`.
    """
