"""SSGP: the sparse spectrum Gaussian process."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import on_host
from eigengp.estimators.base import GPRegressor
from eigengp.fitting.learn import learn_sparse_spectrum


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

    spectral_points_: Array = field(init=False)
    _learn = staticmethod(learn_sparse_spectrum)

    n_components: int | Literal["auto"] = field(default="auto", kw_only=False)
    likelihood: Any = "gaussian"
    mean: Any = "constant"
    optimizer: Any = "auto"
    precision: Literal["auto", "double", "mixed", "single"] = "auto"
    device: str | None = None

    def _prior_correlation(self, apart: Array) -> Array:
        phase = apart @ on_host(self.spectral_points_).T
        return np.mean(np.cos(phase), axis=1)
