"""The sparse spectrum GP: cosines and sines at learned spectral points."""

from __future__ import annotations

from dataclasses import dataclass, field

from eigengp._typing import Array
from eigengp.gp.approximations import Outcome, WhitePass
from eigengp.gp.blocks import RowSource
from eigengp.gp.features import SpectralFeatures
from eigengp.gp.likelihoods import Likelihood, as_likelihood
from eigengp.gp.posterior import Posterior
from eigengp.gp.precision import Arithmetic, Kept
from eigengp.kernels import Stationary


@dataclass(frozen=True)
class SpectrumGradient:
    """Derivatives of `−ln p(y)`; positive parameters through their logarithms."""

    theta: Array
    """With respect to `kernel.theta`."""
    spectral_points: Array
    """With respect to the spectral points, shape (m, D)."""
    log_noise_variance: float
    """With respect to `ln σ²`."""


@dataclass(frozen=True)
class SparseSpectrum:
    """The model: amplitudes and phases of waves integrated out, their frequencies learned.

    Parameters
    ----------
    kernel : Stationary
        Lengthscales, one for each input, and variance.
    spectral_points : array of shape (m, D)
        Angular frequencies in units of the inverse lengthscales.
    likelihood : Likelihood
        What targets are; a number is the variance `σ²` of Gaussian noise.
    arithmetic : Arithmetic
        How passes over the rows are computed.
    """

    kernel: Stationary
    spectral_points: Array
    likelihood: Likelihood
    arithmetic: Arithmetic = field(default_factory=Arithmetic)

    def __post_init__(self) -> None:
        object.__setattr__(self, "likelihood", as_likelihood(self.likelihood))

    @property
    def noise_variance(self) -> float:
        """`σ²`."""
        return self.likelihood.scale

    @property
    def features(self) -> SpectralFeatures:
        """The 2m cosines and sines."""
        return SpectralFeatures(self.kernel, self.spectral_points)

    @property
    def flow(self) -> WhitePass:
        """The pass over the rows."""
        return WhitePass(self.features, self.noise_variance, self.arithmetic)

    def forward(self, source: RowSource, gamma: float = 0.0, kept: Kept | None = None) -> Outcome:
        """Go over the rows once."""
        return self.flow.forward(source, gamma, kept)

    def posterior(self, outcome: Outcome) -> Posterior:
        """Return the posterior after a pass over the rows."""
        return Posterior.of(self.features, self.noise_variance, outcome, arithmetic=self.arithmetic)

    def evaluate(self, source: RowSource, gamma: float = 0.0) -> tuple[Outcome, SpectrumGradient]:
        """Return what a pass over the rows found, and the gradient of its value."""
        outcome = self.forward(source, gamma, self.arithmetic.kept())
        bar = outcome.flow.pull_back(source, outcome)
        gradient = SpectrumGradient(bar.theta, bar.points, self.noise_variance * bar.noise_variance)
        return outcome, gradient
