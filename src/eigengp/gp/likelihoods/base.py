"""The seam for likelihoods: rows as Gaussian observations of the latent functions.

The posterior of the latent functions is approximated by a Gaussian `q`, which maximises the bound
`L = Σ_n s_n E_q ln p(y_n|f_n) − KL(q‖p) ≤ ln p(y)`. A row enters it only through the mean `μ_n` and
the variance `v_n` of `q` there, so a likelihood is one function `ℓ(y, μ, v) = E ln p(y|f)`, or a
lower bound of it, with its derivatives. At the maximum each row acts on `q` as the Gaussian factor

    exp(β f − ½ ω f²),   ω = −2 ∂ℓ/∂v,   β = ω μ + ∂ℓ/∂μ,

that is as an observation `β/ω` with the noise variance `1/ω` (a weight and a pseudo-target). By the
envelope theorem, the gradient of `L` with respect to kernel and inducing points is that of the
Gaussian model with these factors fixed.

Scale mixtures of Gaussians have such a bound in closed form: the log density is convex in a square
`(f − a)²`, so `ℓ` may replace that square by its expectation. Updates of the factors then never
lower `L`. Other likelihoods use the expectation itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize_scalar

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, beside, namespace

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
_CHUNK = 1 << 17  # The largest number of values at quadrature nodes that exist at once.
_BISECTIONS = 60
_SEARCH_STEPS, _SEARCH_TOLERANCE = 14, 1e-3


class Expectation(NamedTuple):
    """The expected log density of rows, or a lower bound of it, and its derivatives."""

    value: Array  # `ℓ`, shape (n,).
    by_mean: Array  # `∂ℓ/∂μ`, shape (n, C).
    by_variance: Array  # `∂ℓ/∂v`, never positive, shape (n, C).


class NonGaussian(ABC):
    """A likelihood of C latent functions; subclasses are frozen dataclasses.

    `expect` is all that learning needs. `distribution` gives a regressor its predictions.
    """

    n_latent: int = 1  # The number C of latent functions.
    # Whether targets are standardised, as they may be where `f` has their unit.
    scales_targets: ClassVar[bool] = False
    # Whether the prior means of the latent functions are learned.
    learns_offset: ClassVar[bool] = True
    # Whether `expect` takes arrays of any library, and returns such.
    takes_any_library: ClassVar[bool] = False
    # The positive parameters that are learned, and their bounds, for standardised targets if they
    # are. None is a parameter that `start` estimates.
    learned: ClassVar[dict[str, tuple[float, float]]] = {}
    # The input that holds the exposure of each row; None is one for all rows.
    exposure: int | str | None = None

    def __post_init__(self) -> None:
        for name in self.learned:
            value = getattr(self, name)
            if value is not None and not 0.0 < value < np.inf:
                raise ValueError(f"{name} must be positive and finite, or None, got {value!r}.")

    @property
    def refits(self) -> bool:
        """Whether `refit` may change parameters; it then needs the moments at all rows."""
        return bool(self.learned)

    @property
    def theta(self) -> Array:
        """The logarithms of the parameters that are learned; None counts as one."""
        return np.log([getattr(self, name) or 1.0 for name in self.learned])

    def with_theta(self, theta: Array) -> Self:
        """Return the likelihood with other parameters, given by their logarithms."""
        own: Any = self
        other: Self = replace(own, **dict(zip(self.learned, np.exp(theta).tolist(), strict=True)))
        return other

    def rescaled(self, unit: float) -> Self:
        """Return the likelihood of targets in units that are `unit` times smaller."""
        return self

    def check_targets(self, y: Array) -> None:
        """Raise ValueError if targets cannot have this distribution."""
        return

    @abstractmethod
    def start(self, y: Array, weight: Array) -> tuple[Self, Array, float]:
        """Return first parameters, prior means of the latent functions, and a prior variance."""

    @abstractmethod
    def expect(self, y: Array, mean: Array, variance: Array) -> Expectation:
        """Return the expected log density of targets.

        Parameters
        ----------
        y : array of shape (n,)
            Targets.
        mean, variance : arrays of shape (n, C)
            Of the latent functions at these rows.
        """

    def refit(self, y: Array, weight: Array, mean: Array, variance: Array) -> Self:
        """Return the likelihood with the parameters that maximise the expected log density.

        A few steps of a search along each parameter are enough: the posterior changes too.
        """
        best = self
        for i, bounds in enumerate(self.learned.values()):
            best = _search_line(best, i, np.log(bounds), (y, weight, mean, variance))
        return best

    def distribution(self, f: Array) -> Any:
        """Return the distribution of targets given latent values, a frozen one of SciPy's."""
        raise ValueError(f"{type(self).__name__} has no predictive distribution.")

    def predict(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of targets, each of shape (n,)."""
        own = self.distribution(_nodes(mean[:, 0], variance[:, 0]))
        first = own.mean() @ WEIGHTS
        return first, (own.var() + (own.mean() - first[:, None]) ** 2) @ WEIGHTS

    def predict_quantile(self, level: float, mean: Array, variance: Array) -> Array:
        """Return a quantile of targets, shape (n,).

        That of a mixture is between the quantiles of its parts; bisection finds it.
        """
        own = self.distribution(_nodes(mean[:, 0], variance[:, 0]))
        each = own.ppf(level)
        low, high = each.min(axis=1), each.max(axis=1)
        whole = getattr(own.dist, "pmf", None) is not None
        low = low - 1.0 if whole else low
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            enough = own.cdf(middle[:, None]) @ WEIGHTS >= level
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.floor(high + 1e-6) if whole else high

    def draw(self, f: Array, rng: np.random.RandomState) -> Array:
        """Draw targets given latent values of shape (n, S, C), shape (n, S)."""
        drawn = self.distribution(f[..., 0]).rvs(random_state=rng)
        return np.asarray(drawn, dtype=np.float64)


def _nodes(mean: AnyArray, variance: AnyArray) -> AnyArray:
    """Return latent values at the nodes of Gauss–Hermite quadrature, shape (n, Q)."""
    return mean[:, None] + namespace(mean).sqrt(variance)[:, None] * beside(NODES, mean)


def expect_by_quadrature(
    function: Any, y: AnyArray, mean: AnyArray, variance: AnyArray
) -> Expectation:
    """Return the expectation of a log density of one latent function, in any array library.

    `function(y, f)` returns the log density and its first two derivatives by `f`. Then
    `∂ℓ/∂μ = E ∂ln p/∂f` and `∂ℓ/∂v = ½ E ∂²ln p/∂f²`.
    """
    step, parts, xp = max(1, _CHUNK // NODES.size), [], namespace(mean)
    weights = beside(WEIGHTS, mean)
    for i in range(0, max(1, y.shape[0]), step):
        own = slice(i, i + step)
        f = _nodes(mean[own, 0], variance[own, 0])
        parts.append([each @ weights for each in function(y[own, None], f)])
    value, slope, curvature = (xp.concat(each) for each in zip(*parts, strict=True))
    return Expectation(value, slope[:, None], 0.5 * xp.clip(curvature, None, 0.0)[:, None])


def _search_line(own: Any, i: int, ends: Array, rows: tuple[Array, ...]) -> Any:
    """Return a likelihood with entry `i` of `theta` improved, within a factor of e."""
    y, weight, mean, variance = rows

    def move(value: float) -> Any:
        theta = own.theta
        theta[i] = value
        return own.with_theta(theta)

    def loss(value: float) -> float:
        return -float(weight @ move(value).expect(y, mean, variance).value)

    centre = float(own.theta[i])
    around = max(ends[0], centre - 1.0), min(ends[1], centre + 1.0)
    options = {"maxiter": _SEARCH_STEPS, "xatol": _SEARCH_TOLERANCE}
    found = minimize_scalar(loss, bounds=around, method="bounded", options=options)
    return move(found.x) if found.fun < loss(centre) else own
