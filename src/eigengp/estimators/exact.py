"""The exact GP as a scikit-learn regressor."""

from __future__ import annotations

from dataclasses import field
from numbers import Integral
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval

from eigengp.estimators.base import GPRegressor
from eigengp.fitting.learn import learn_exact
from eigengp.fitting.run import EXACT_BLOCK_ROWS
from eigengp.kernels import Kernel


class ExactGPRegressor(GPRegressor):
    """The exact Gaussian process, in O(N³) time and O(N²) memory.

    Kernel hyperparameters and noise variance are learned by maximising the log marginal likelihood
    of all rows. Beyond 4,000 rows they are first learned from 2,000 random rows, and the
    optimisation on all rows starts from the result. There is no approximation, so this is the
    reference for sparse methods.

    With few rows, `EigenGPRegressor` usually predicts better. Its exact GP (`residual="exact"`)
    also chooses the kernel, averages over hyperparameters and fits heteroscedastic noise; beyond
    2,000 rows, however, it learns hyperparameters from 2,000 of them only.

    Parameters
    ----------
    max_rows : int
        The largest number of rows; `fit` raises an error for more. N rows need 16·N² bytes of
        memory, and about 32·N² bytes on a GPU.
    device : str or None
        Where the matrices of 1,000 and more rows are computed, in float64: None is the CPU, "cuda"
        a GPU (through PyTorch), and "auto" a GPU if there is one.

    Notes
    -----
    `sample_y` draws the values at all inputs of a call jointly. A call with other inputs gives
    other functions, even with the same `random_state`.

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

    _learn = staticmethod(learn_exact)
    _block_rows = EXACT_BLOCK_ROWS
    _learns_in_memory = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_rows": [Interval(Integral, 1, None, closed="left")]
    }

    kernel: Kernel | str = field(default="squared_exponential", kw_only=False)
    likelihood: Any = "gaussian"
    mean: Any = "constant"
    optimizer: Any = "auto"
    max_rows: int = 20_000
    device: str | None = None
