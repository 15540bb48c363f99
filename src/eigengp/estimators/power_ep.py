"""Power EP: one family of sparse GPs between VFE and FITC."""

from __future__ import annotations

from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils._param_validation import Interval

from eigengp._typing import Standardize
from eigengp.estimators.inducing import InducingRegressor
from eigengp.kernels import Kernel


class PowerEPRegressor(InducingRegressor):
    """Sparse GP by power expectation propagation (Bui, Yan and Turner, 2017).

    A share α of what the basis leaves out is noise to the rows, and the rest
    is paid for in the evidence: α = 1 is FITC, α → 0 is VFE, and α = 0 is
    taken as that limit. Values in between often predict best.

    Parameters
    ----------
    alpha : float
        The power, between 0 and 1.
    n_components : int or None
        M, how many inducing inputs. None takes 100, or a quarter of the rows
        if that is fewer.
    kernel, noise_variance, init, n_restarts, max_iter, tol, standardize, \
precision, memory_limit, device, checkpoint, random_state, verbose
        As in `EigenGPRegressor`.

    Attributes
    ----------
    log_marginal_likelihood_ : float
        The power EP approximation of the log evidence of the training data.
    inducing_points_, kernel_, noise_variance_, history_, n_iter_, jitter_, target_mean_
        As in `EigenGPRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import PowerEPRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = PowerEPRegressor(0.5, n_components=8, n_restarts=4, random_state=0).fit(X, y)
    >>> bool(abs(model.predict([[2.0]])[0] - np.sin(2.0)) < 0.1)
    True
    """

    _draws_jointly = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **InducingRegressor._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        alpha: float = 0.5,
        *,
        n_components: int | None = None,
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
        self.alpha = alpha

    @property
    def _power(self) -> float:
        return float(self.alpha)
