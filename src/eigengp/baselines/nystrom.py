"""The Nyström method, and Nyström* with its evidence maximised."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import AnyArray, on_host, positive
from eigengp.estimators.inducing import InducingRegressor
from eigengp.fitting.settings import Plan
from eigengp.fitting.subset import subset_plan
from eigengp.fitting.training import Training
from eigengp.gp.approximations import Outcome
from eigengp.gp.exact import ExactGP
from eigengp.gp.exact_posterior import ConditionalPosterior, nystrom_posterior
from eigengp.gp.model import EigenGP
from eigengp.kernels import Kernel

_ROUNDING = 1e-8


class NegativeVarianceWarning(UserWarning):
    """A predictive variance came out negative, and the noise alone was used instead."""


class NystromRegressor(InducingRegressor):
    """GP regression with the Nyström approximation (Williams and Seeger, 2001).

    The covariance of the training targets is replaced by
    `K_XB K_BB⁻¹ K_BX + σ²I`, while predictions use the exact kernel between
    new inputs and all training rows. The two do not belong together: the
    mean can be far off, and **the predictive variance can be negative**.
    Where it is, `predict(..., return_std=True)` warns and returns the
    standard deviation of the noise alone; `raw_variance` returns what the
    formula gives, and so does `return_cov`. Training rows are kept, and each
    prediction costs O(N·M). It is here for comparison; `VFERegressor` is its
    consistent counterpart.

    Parameters
    ----------
    n_components : int or None
        M, how many basis points. None takes 100, or a quarter of the rows if
        that is fewer.
    optimize : bool
        False places the basis points by `init`, and learns kernel and noise
        by the full GP on a tenth of the rows (at least 500, at most 2,000),
        unless `max_iter` is 0; `n_restarts` and `tol` are then not used.
        True maximises the evidence over basis points, kernel and noise
        (Nyström*).
    kernel, noise_variance, init, n_restarts, max_iter, tol, standardize, \
precision, memory_limit, device, checkpoint, random_state, verbose
        As in `EigenGPRegressor`; predictions are always in double precision
        on the CPU.

    Attributes
    ----------
    inducing_points_, kernel_, noise_variance_, log_marginal_likelihood_, history_, n_iter_, \
jitter_, target_mean_
        As in `EigenGPRegressor`.

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

    _posterior: ConditionalPosterior
    _draws_jointly = True

    _predicts_on_host = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **InducingRegressor._parameter_constraints,
        "optimize": ["boolean"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        optimize: bool = False,
        kernel: Kernel | Literal["exact"] | None = None,
        noise_variance: float | None = None,
        init: Literal["kmeans", "random", "greedy"] | ArrayLike = "kmeans",
        n_restarts: int | None = None,
        max_iter: int | None = None,
        tol: float = 1e-9,
        standardize: Standardize = True,
        precision: Literal["double", "mixed", "single"] = "double",
        memory_limit: int | str | None = None,
        device: str | None = None,
        checkpoint: str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ) -> None:
        super().__init__(
            n_components,
            kernel=kernel,
            noise_variance=noise_variance,
            init=init,
            n_restarts=n_restarts,
            max_iter=max_iter,
            tol=tol,
            standardize=standardize,
            precision=precision,
            memory_limit=memory_limit,
            device=device,
            checkpoint=checkpoint,
            random_state=random_state,
            verbose=verbose,
        )
        self.optimize = optimize

    def _start(self, training: Training) -> ExactGP:
        start = super()._start(training)
        if self.optimize or self.max_iter == 0 or self.kernel == "exact":
            return start
        return training.learn_exact(start, subset_plan(training.rows.n_rows))

    def _plan(self, training: Training, points: Array | None, kernel: Kernel) -> Plan:
        plan = super()._plan(training, points, kernel)
        return plan if self.optimize else replace(plan, max_iter=0)

    def _condition(
        self, model: EigenGP, outcome: Outcome, training: Training
    ) -> ConditionalPosterior:
        rows = training.source.take(np.arange(training.rows.n_rows))
        return nystrom_posterior(model.posterior(outcome), model.features, rows)

    def raw_variance(self, X: ArrayLike) -> Array:
        """Return the predictive variance as the formula gives it, noise included.

        Parameters
        ----------
        X : array of shape (n, D)
            Where to predict.

        Returns
        -------
        variance : array of shape (n,)
            Negative in places, perhaps.
        """
        _, raw = self._raw(self._inputs(X, "raw_variance"))
        return self._scaling.target_scale**2 * (raw + self._posterior.noise_variance)

    def _raw(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        return self._pairs(self._posterior.mean_and_raw_variance, X)

    def _mean_and_variance(self, X: AnyArray) -> tuple[AnyArray, AnyArray]:
        mean, raw = self._raw(X)
        consequence = "the noise alone is used there, and `raw_variance` tells"
        self._warn_of_negative(on_host(raw), consequence)
        return mean, positive(raw) + self._posterior.noise_variance

    def _joint_covariance(self, inputs: Array) -> Array:
        joint = super()._joint_covariance(inputs)
        latent = np.diagonal(joint) - self._posterior.noise_variance
        self._warn_of_negative(latent, "the covariance is returned as it is")
        return joint

    def _warn_of_negative(self, raw: Array, consequence: str) -> None:
        negative = np.count_nonzero(raw < -_ROUNDING * self._posterior.features.prior_scale)
        if negative:
            warnings.warn(
                f"{negative} of {raw.size} variances of the Nyström method, without the noise, are "
                f"negative: {consequence}. Use more basis points, or VFERegressor, whose "
                "variances are consistent.",
                NegativeVarianceWarning,
                stacklevel=5,
            )
