"""SSGP: the sparse spectrum Gaussian process."""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import Interval

from eigengp._typing import Array, Standardize
from eigengp.backend.namespace import on_host
from eigengp.estimators.base import LARGE_DATA_CONSTRAINTS, GPRegressor
from eigengp.fitting.families import SpectralFamily
from eigengp.fitting.settings import default_size
from eigengp.fitting.training import Training
from eigengp.gp.sparse_spectrum import SparseSpectrum
from eigengp.kernels import Kernel, Stationary


class SSGPRegressor(GPRegressor):
    """Sparse spectrum GP (Lázaro-Gredilla et al., 2010).

    The latent function is a sum of waves; their frequencies (spectral
    points), lengthscales and variance are learned by maximising the
    evidence, with amplitudes and phases integrated out. The waves are
    global: what they do where there is data they also do where there is
    none, and learned frequencies can over-fit when there are many.

    Parameters
    ----------
    n_components : int or None
        How many waves. Each spectral point is two of them, a cosine and a
        sine, so that any method with as many components costs the same; an
        odd number is rounded up. None takes 100, or a quarter of the rows if
        that is fewer.
    kernel : Kernel, "exact" or None
        A single stationary kernel, in the units of the data; spectral points
        begin as a draw from its spectral density. None is the squared
        exponential, "exact" the one that the full GP learns on a part of the
        rows.
    n_restarts : int
        How many starts are screened by short runs before the best goes on:
        twice as many as elsewhere, where basis points are also relocated.
    noise_variance, max_iter, tol, standardize, \
precision, memory_limit, device, checkpoint, random_state, verbose
        As in `EigenGPRegressor`.

    Attributes
    ----------
    spectral_points_ : array of shape (m, D)
        The learned angular frequencies, in the units of the data.
    kernel_ : Kernel
        Holds the learned lengthscales and variance; the covariance of the
        model is that of its waves, and other parameters of the kernel keep
        their first values.
    noise_variance_, log_marginal_likelihood_, history_, n_iter_, target_mean_
        As in `EigenGPRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import SSGPRegressor
    >>> X = np.linspace(0, 6, 120)[:, None]
    >>> y = np.sin(5 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    >>> model = SSGPRegressor(6, n_restarts=8, random_state=0).fit(X, y)
    >>> bool(np.abs(np.abs(model.spectral_points_) - 5).min() < 0.1)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GPRegressor._parameter_constraints,
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_restarts": [Interval(Integral, 1, None, closed="left")],
        **LARGE_DATA_CONSTRAINTS,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: Kernel | Literal["exact"] | None = None,
        noise_variance: float | None = None,
        n_restarts: int = 64,
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
        self.n_components = n_components
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.precision = precision
        self.memory_limit = memory_limit
        self.device = device
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, training: Training) -> SparseSpectrum:
        rows = training.rows
        start = training.start(self.kernel, self.noise_variance)
        if not isinstance(start.kernel, Stationary):
            raise TypeError(
                "A sparse spectrum GP needs one stationary kernel, not a sum or product, got "
                f"{self.kernel!r}."
            )
        size = self.n_components or default_size(rows.n_rows)
        plan = training.plan(self, size, size)
        none_yet = np.zeros((0, rows.n_features))
        template = SparseSpectrum(start.kernel, none_yet, start.noise_variance)
        model: SparseSpectrum = training.learn(SpectralFamily(), plan, template)
        return model

    def _prior_correlation(self, apart: Array) -> Array:
        phase = apart @ on_host(self.spectral_points_).T
        correlation: Array = np.mean(np.cos(phase), axis=1)
        return correlation

    def _keep(self, model: SparseSpectrum, training: Training, outcome: Any = None) -> None:
        super()._keep(model, training, outcome)
        lengthscale = model.kernel.lengthscale * training.scaling.input_scale
        self.spectral_points_ = training.like_given(model.spectral_points / lengthscale)
