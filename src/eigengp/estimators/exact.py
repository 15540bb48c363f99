"""The full GP as a scikit-learn regressor."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from eigengp._typing import Standardize
from eigengp.estimators.base import GPRegressor
from eigengp.fitting.families import ExactFamily
from eigengp.fitting.settings import Plan
from eigengp.fitting.subset import EXACT_BLOCK_ROWS, SUBSET_RANGE
from eigengp.fitting.training import Training
from eigengp.gp.exact import ExactGP
from eigengp.kernels import Kernel

_ITERATIONS = 200


class ExactGPRegressor(GPRegressor):
    """The full Gaussian process: every row counts in full, at O(N³) time and O(N²) memory.

    Kernel and noise are learned by maximising the evidence. Nothing is
    approximated, so it is what sparse methods are measured against, and the
    method of choice up to some thousand rows. With more than 4,000 rows the
    kernel is settled on 2,000 of them first.

    Parameters
    ----------
    kernel : Kernel or None
        The GP prior, in the units of the data; its parameters are where
        learning begins, and a single lengthscale becomes one for each input.
        None is the squared exponential.
    max_rows : int
        More rows than this are refused, for they would need 16·N² bytes.
    max_iter : int or None
        At most so many iterations; None is 200. 0 learns nothing and keeps
        `kernel` and `noise_variance` as they are.
    noise_variance, n_restarts, tol, standardize, random_state, verbose
        As in `EigenGPRegressor`; with few parameters, fewer starts and a
        larger `tol` will do.

    Attributes
    ----------
    kernel_, noise_variance_, log_marginal_likelihood_, history_, n_iter_, target_mean_
        As in `EigenGPRegressor`.

    Notes
    -----
    `sample_y` draws the values at all its inputs together, so a function is
    the same only where the inputs are.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import ExactGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)
    >>> model = ExactGPRegressor(random_state=0).fit(X, y)
    >>> mean, std = model.predict([[2.0], [60.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(2.0)) < 0.1), bool(std[1] > 5 * std[0])
    (True, True)
    """

    _draws_jointly = True
    _block_rows = EXACT_BLOCK_ROWS

    _learns_on_host = True
    _predicts_on_host = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "kernel": [Kernel, None],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        "max_rows": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        noise_variance: float | None = None,
        n_restarts: int = 8,
        max_iter: int | None = None,
        tol: float = 1e-7,
        max_rows: int = 20_000,
        standardize: Standardize = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.max_rows = max_rows
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, training: Training) -> ExactGP:
        n_rows = training.rows.n_rows
        if n_rows > self.max_rows:
            raise ValueError(
                f"The full GP of {n_rows} rows would need {16e-9 * n_rows**2:.2g} GB of memory. "
                f"Fit a sample of the rows, use a sparse method such as EigenGPRegressor, or "
                f"raise max_rows (now {self.max_rows}) if the machine can do it."
            )
        template = training.start(self.kernel, self.noise_variance)
        max_iter = _ITERATIONS if self.max_iter is None else self.max_iter
        large = n_rows > 2 * SUBSET_RANGE[1]
        if large and max_iter > 0:
            count = SUBSET_RANGE[1]
            plan = Plan(count, count, self.n_restarts, max_iter, self.tol)
            template = training.learn_exact(template, plan)
        plan = Plan(n_rows, n_rows, self.n_restarts, max_iter, self.tol, settled=large)
        model: ExactGP = training.learn(ExactFamily(), plan, template)
        return model
