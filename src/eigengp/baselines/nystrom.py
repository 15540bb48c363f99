"""The Nyström method, and Nyström* with its log marginal likelihood maximised."""

from __future__ import annotations

import warnings
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, on_host, positive
from eigengp.backend.threads import use_one_blas_thread
from eigengp.estimators.sparse import InducingPointRegressor
from eigengp.fitting.learn import learn_sparse
from eigengp.fitting.run import FitResult, Run
from eigengp.gp.exact_posterior import ConditionalPosterior, nystrom_posterior

_ROUNDING = 1e-8


class NegativeVarianceWarning(UserWarning):
    """A predictive variance is negative, and the noise variance is used instead."""


def _learn(run: Run) -> FitResult:
    result = learn_sparse(run)
    rows = run.dataset.source.take(np.arange(run.dataset.n_rows))
    low_rank: Any = result.posterior
    with use_one_blas_thread():
        posterior = nystrom_posterior(low_rank, result.model.features, rows)
    return replace(result, attributes={**result.attributes, "_posterior": posterior})


class NystromRegressor(InducingPointRegressor):
    """GP regression with the Nyström approximation (Williams and Seeger, 2001).

    The covariance of the training targets is replaced by `K_XB K_BB⁻¹ K_BX + σ²I`, while
    predictions use the exact kernel between new inputs and all training rows. The two are not
    consistent: the mean can be far off, and **the predictive variance can be negative**. Where it
    is, `predict(..., return_std=True)` warns and returns the standard deviation of the noise
    alone; `raw_variance` returns what the formula gives, and so does `return_cov`. Training rows
    are kept, and each prediction costs O(N·M), in double precision on the CPU. It is here for
    comparison; `VFERegressor` is its consistent counterpart.

    Parameters
    ----------
    optimizer : LBFGS, "auto" or None
        None places the inducing points by `inducing_points`; kernel hyperparameters and noise
        variance are those of an exact GP fitted to a tenth of the rows (at least 500, at most
        2,000). "auto" or an `LBFGS` learns inducing points, kernel hyperparameters and noise
        variance by maximising the log marginal likelihood (Nyström*).

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import NystromRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = NystromRegressor(40, random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.1)
    True
    """

    _posterior: ConditionalPosterior = field(init=False)
    _learn = staticmethod(_learn)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "optimizer": [*InducingPointRegressor._parameter_constraints["optimizer"], None]
    }

    optimizer: Any = None

    def raw_variance(self, X: ArrayLike) -> Array:
        """Return the predictive variance as the formula gives it, noise included.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.

        Returns
        -------
        variance : array of shape (n,)
            Possibly negative.
        """
        inputs = self._inputs(X, "raw_variance")
        _, raw = self._by_blocks(self._posterior.mean_and_raw_variance, inputs)
        return self._scaling.target_scale**2 * (raw + self._posterior.noise_variance)

    def _mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        mean, raw = self._by_blocks(self._posterior.mean_and_raw_variance, X)
        consequence = "the noise variance is used there; see `raw_variance`"
        self._warn_of_negative(on_host(raw), consequence)
        return mean, positive(raw) + self._posterior.noise_variance

    def _joint_covariance(self, inputs: Array) -> Array:
        joint = super()._joint_covariance(inputs)
        latent = np.diagonal(joint) - self._posterior.noise_variance
        self._warn_of_negative(latent, "the covariance is returned unchanged")
        return joint

    def _warn_of_negative(self, raw: Array, consequence: str) -> None:
        negative = np.count_nonzero(raw < -_ROUNDING * self._posterior.features.prior_scale)
        if negative:
            warnings.warn(
                f"{negative} of {raw.size} variances of the Nyström method, without the noise, are "
                f"negative: {consequence}. Use more inducing points, or VFERegressor, whose "
                "variances are consistent.",
                NegativeVarianceWarning,
                stacklevel=6,
            )
