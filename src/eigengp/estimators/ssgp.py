"""SSGP: the sparse spectrum Gaussian process."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import on_host
from eigengp.estimators.base import GPRegressor
from eigengp.fitting.learn import learn_sparse_spectrum
from eigengp.fitting.settings import LBFGS
from eigengp.gp.likelihoods import Gaussian
from eigengp.kernels import Kernel


class SSGPRegressor(GPRegressor):
    """Sparse spectrum GP (Lázaro-Gredilla et al., 2010).

    The latent function is a sum of waves; their frequencies (spectral points), lengthscales and
    variance are learned by maximising the log marginal likelihood, with amplitudes and phases
    integrated out. The waves are global: they continue where there are no data, and learned
    frequencies can over-fit when there are many.

    Parameters
    ----------
    n_components : int or "auto"
        The number of waves. Each spectral point is two of them, a cosine and a sine, so that any
        method with as many components costs the same; an odd number is rounded up. "auto" is 100,
        or a quarter of the rows if that is fewer.
    kernel : Stationary or str
        A single stationary kernel; the initial spectral points are drawn from its spectral density.

    Attributes
    ----------
    spectral_points_ : array of shape (m, D)
        The learned angular frequencies, in the units of the data.
    kernel_ : Kernel
        Holds the learned lengthscales and variance; the covariance of the model is that of its
        waves, and other hyperparameters of the kernel keep their initial values.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import LBFGS, SSGPRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(5 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = SSGPRegressor(6, optimizer=LBFGS(n_restarts=8), random_state=0).fit(X, y)
    >>> bool(np.abs(np.abs(model.spectral_points_) - 5).min() < 0.1)
    True
    """

    spectral_points_: Array
    _learn = staticmethod(learn_sparse_spectrum)

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        kernel: Kernel | str = "squared_exponential",
        likelihood: Gaussian | Literal["gaussian"] = "gaussian",
        mean: Any = "constant",
        optimizer: LBFGS | Literal["auto"] = "auto",
        standardize: Standardize = True,
        precision: Literal["auto", "double", "mixed", "single"] = "auto",
        device: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | int = False,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.likelihood = likelihood
        self.mean = mean
        self.optimizer = optimizer
        self.standardize = standardize
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _prior_correlation(self, apart: Array) -> Array:
        phase = apart @ on_host(self.spectral_points_).T
        correlation: Array = np.mean(np.cos(phase), axis=1)
        return correlation
