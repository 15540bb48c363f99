"""Likelihoods: what the targets are, given the latent function.

`gaussian` holds Gaussian noise, whose variance is learned with the kernel. All others fulfil the
seam in `base`: given mean and variance of the latent functions at a row, they return the expected
log density and its derivatives, from which the row counts as a Gaussian observation.
"""

from eigengp.gp.likelihoods.base import Expectation, NonGaussian
from eigengp.gp.likelihoods.classes import Bernoulli, Softmax
from eigengp.gp.likelihoods.counts import NegativeBinomial, Poisson
from eigengp.gp.likelihoods.gaussian import Gaussian, Heteroscedastic
from eigengp.gp.likelihoods.outputs import Coregionalized
from eigengp.gp.likelihoods.robust import Quantile, StudentT

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Coregionalized",
    "Expectation",
    "Gaussian",
    "Heteroscedastic",
    "NegativeBinomial",
    "NonGaussian",
    "Poisson",
    "Quantile",
    "Softmax",
    "StudentT",
]

# The non-Gaussian likelihoods that a regressor takes by name.
LIKELIHOODS: dict[str, type[NonGaussian]] = {
    "student_t": StudentT,
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "quantile": Quantile,
}
