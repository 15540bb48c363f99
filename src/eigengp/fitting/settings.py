"""Settings of a fit: every parameter of an estimator, typed, and resolved against the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions

from eigengp._typing import Array
from eigengp.backend.namespace import find_gpu, on_host
from eigengp.data.open import Dataset, ReadOptions
from eigengp.data.stream_source import StreamSource
from eigengp.gp.blocks import RowSource
from eigengp.gp.likelihoods import LIKELIHOODS, Heteroscedastic, NonGaussian
from eigengp.gp.precision import KEPT_BYTES, Arithmetic
from eigengp.kernels import Kernel

# The default of scikit-learn, in MiB; any other value is set by the user.
_DEFAULT_WORKING_MEMORY = 1024
# The jitter of the kernel matrix at inducing points, relative to the prior variance.
RELATIVE_JITTER = 1e-6
# The largest number of neighbours while the coefficients are learned; more change little.
MOST_NEIGHBORS = 32
_SMALL_PROBLEM = 1e7
_DEFAULT_COMPONENTS = 100
_MANY_ROWS = 500_000
# The guard's share of the trace term for one inducing point per row (benchmarks/README.md).
_GUARD_STRENGTH = 1.5
_SCARCE_ROWS_PER_POINT = 10
_HOLD_OUT_FROM = 2_000
_SAMPLE_ROWS = 2_000  # The least number of rows among which distinct inputs are counted first.
# The number of rows from which float32 pays on a GPU that has fast float64: the compilation of its
# kernels takes seconds.
_FEWEST_FOR_FLOAT32 = 1 << 24
_LAST_FAST = 10  # The last major version of CUDA's capabilities whose first chip has fast float64.
_COUNT = Interval(Integral, 1, None, closed="left")


# scikit-learn ships no types, so its classes are Any to mypy.
@dataclass(eq=False, repr=False)
class LBFGS(BaseEstimator):  # type: ignore[misc]
    """Maximise the log marginal likelihood with L-BFGS-B.

    Each iteration uses all rows rather than mini-batches; with many rows, the first iterations run
    on subsets.

    Parameters
    ----------
    strategy : {"auto", "sequential", "joint", "direct"}
        How `EigenGPRegressor` learns. "sequential" learns inducing points, kernel hyperparameters
        and noise variance in stage 1; in stage 2 it learns the prior variances of the
        eigenfunctions, and the noise variance again (EigenGP). "joint" continues from there with
        all of them at once (EigenGP*). "direct" learns all of them at once from the initial values,
        which finds poor optima more often. "auto" is "sequential". Other regressors learn in one
        stage and accept "auto" only.
    n_restarts : int or "auto"
        Number of initial values; each is optimised briefly, and only the best run continues. On
        large data (N·M² beyond 10⁷) these brief runs use a sample of the rows and at most 50
        inducing points. "auto" is 32 on small data; on large data it is 4, or 1 if `kernel` is
        "auto". It is 64 for `SSGPRegressor` and 8 for `ExactGPRegressor`. There are no restarts on
        large data with `exact_start`, and never if the residual is "exact", which tries a short and
        a long lengthscale, or "neighbors", which tries a few lengthscales of a `Kernel` object.
        With `n_restarts=1` and a `Kernel` object, the fit starts from that kernel and, without
        neighbours, from the best of a few noise variances, unless `guard` compares several numbers
        of inducing points.
    max_iter : int or "auto"
        The largest number of iterations in each stage. "auto" is 200, or 1000 on small data, or 40
        to 10 beyond 500,000 rows, after others on up to a third of them. With
        `residual="neighbors"` it is 10 to 25: rounds have 10 to 15 iterations, and 25 with a map of
        the inputs. With `residual="exact"` at most 60 are used to compare kernels, and 40 to learn
        the best. `max_iter=0` learns nothing: all hyperparameters keep their initial values.
    tol : float or "auto"
        Relative change of the log marginal likelihood at which a stage stops. "auto" is 1e-9, 1e-7
        for `ExactGPRegressor` and `residual="exact"`, and 1e-6 for `residual="neighbors"`.
    exact_start : bool
        Whether the initial kernel hyperparameters and noise variance of a sparse method are those
        of an exact GP fitted to a tenth of the rows (at least 500, at most 2,000), as in the paper
        on large data.
    checkpoint : path or None
        A file that stores every evaluation while the fit runs. If the process is killed, the same
        call resumes from it and ends at the same optimum. The file is removed after the fit.

    Examples
    --------
    >>> from eigengp import LBFGS, EigenGPRegressor
    >>> EigenGPRegressor(14, optimizer=LBFGS("joint", max_iter=100))
    EigenGPRegressor(n_components=14,
                     optimizer=LBFGS(max_iter=100, strategy='joint'))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "strategy": [StrOptions({"auto", "sequential", "joint", "direct"})],
        "n_restarts": [_COUNT, StrOptions({"auto"})],
        "max_iter": [Interval(Integral, 0, None, closed="left"), StrOptions({"auto"})],
        "tol": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "exact_start": ["boolean"],
        "checkpoint": [str, Path, None],
    }

    strategy: Literal["auto", "sequential", "joint", "direct"] = "auto"
    _: KW_ONLY
    n_restarts: int | Literal["auto"] = "auto"
    max_iter: int | Literal["auto"] = "auto"
    tol: float | Literal["auto"] = "auto"
    exact_start: bool = False
    checkpoint: str | Path | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class Stochastic(BaseEstimator):  # type: ignore[misc]
    """Learn from batches by stochastic variational inference with natural gradients.

    `EigenGPRegressor` starts with a short L-BFGS run on a sample of the rows, and then learns
    inducing points, kernel hyperparameters and noise variance from batches. The prior variances of
    the eigenfunctions are those of the GP prior. `partial_fit` continues in this way.

    Parameters
    ----------
    batch_size : int
        Rows in a batch.
    max_iter : int
        Passes over the rows. 0 learns nothing from the batches.
    n_restarts : int or "auto"
        As in `LBFGS`, for the run on the sample.

    Examples
    --------
    >>> from eigengp import EigenGPRegressor, Stochastic
    >>> EigenGPRegressor(100, residual=None, optimizer=Stochastic(batch_size=500))
    EigenGPRegressor(n_components=100, optimizer=Stochastic(batch_size=500),
                     residual=None)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "batch_size": [_COUNT],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_restarts": [_COUNT, StrOptions({"auto"})],
    }

    batch_size: int = 1000
    max_iter: int = 1
    n_restarts: int | Literal["auto"] = "auto"


def get_working_memory() -> int:
    """Return the memory limit for features between passes over the rows, in bytes.

    64 MiB, unless scikit-learn's `working_memory` is set.
    """
    own = get_config()["working_memory"]
    return KEPT_BYTES if own == _DEFAULT_WORKING_MEMORY else int(own * 2**20)


def find_likelihood(given: object) -> NonGaussian | None:
    """Return the non-Gaussian likelihood of this name, or that is given; None if it is another."""
    if isinstance(given, str) and given in LIKELIHOODS:
        return LIKELIHOODS[given]()
    return given if isinstance(given, NonGaussian) else None


@dataclass(frozen=True)
class Settings:
    """The parameters of an estimator, typed; those that it does not have are at their defaults."""

    reading: ReadOptions  # How its rows are read.
    # All parameters as the user gave them, which identify a checkpoint.
    parameters: Mapping[str, Any]
    kernel: Kernel | str  # A kernel in the units of the data, or the name of one; "auto" chooses.
    # The initial noise variance, in the units of the data; None is a tenth of the variance of the
    # targets.
    noise_variance: float | None
    # "gaussian", "heteroscedastic", or "auto": heteroscedastic where a fit keeps its rows.
    noise: str
    transform: Any  # The transform of the targets: its name, "auto", a map, or None.
    # A likelihood other than Gaussian noise; None is Gaussian noise.
    likelihood: NonGaussian | None
    optimizer: LBFGS | Stochastic
    n_components: int | None
    n_inducing: int | None
    # How inducing points are initialised, or an array in the units of the data.
    inducing_points: str | Array
    has_weights: bool  # Whether the weights of the eigenfunctions are learned (EigenGP).
    residual: str | None  # None, "diagonal", "neighbors", "exact", or "auto".
    power: float | None  # See `EigenGP.power`; None without a residual.
    n_neighbors: int
    guard: bool
    precision: str
    device: str | None  # The device of PyTorch on which an exact GP is computed; None is the CPU.
    max_time: float | None
    random_state: Any
    verbose: bool | int | None
    keeps_rows: bool = True  # False in the first `partial_fit`, which cannot keep its rows.
    # These three are parameters of the optimizer; None is the default of the method.
    n_restarts: int | None = field(init=False)
    max_iter: int | None = field(init=False)
    tol: float | None = field(init=False)
    is_stochastic: bool = field(init=False)  # Whether the model is learned from batches.
    learns_nothing: bool = field(init=False)  # Whether all hyperparameters stay where they start.
    # The stages of the fit; "prior" keeps the weights of the GP prior.
    strategy: str = field(init=False)

    def __post_init__(self) -> None:
        own = self.optimizer
        strategy = own.strategy if isinstance(own, LBFGS) and self.has_weights else "prior"
        for name in ("n_restarts", "max_iter", "tol"):
            given = getattr(own, name, "auto")
            object.__setattr__(self, name, None if isinstance(given, str) else given)
        object.__setattr__(self, "is_stochastic", isinstance(own, Stochastic))
        object.__setattr__(self, "learns_nothing", own.max_iter == 0)
        object.__setattr__(self, "strategy", "sequential" if strategy == "auto" else strategy)

    @classmethod
    def from_estimator(cls, estimator: Any) -> Settings:
        """Read all parameters of an estimator, once; no later code reads the estimator."""
        own, method = estimator.get_params(deep=False), type(estimator).__name__
        has_weights = estimator._has_weights
        size, points = own.get("n_components", "auto"), own.get("inducing_points", "auto")
        likelihood = own.get("likelihood", "gaussian")
        other = find_likelihood(likelihood)
        likelihood = "gaussian" if other is not None else likelihood
        heteroscedastic = isinstance(likelihood, Heteroscedastic)
        kind = "heteroscedastic" if heteroscedastic else "gaussian"
        device = own.get("device")
        device = find_gpu() if device == "auto" else None if device == "cpu" else device
        return cls(
            reading=_make_reading(estimator, own, other, device),
            parameters=estimator.get_params(deep=True),
            kernel=own["kernel"],
            noise_variance=None if isinstance(likelihood, str) else likelihood.variance,
            noise=likelihood if isinstance(likelihood, str) else kind,
            transform=getattr(likelihood, "transform", "auto" if likelihood == "auto" else None),
            likelihood=other,
            optimizer=_check_optimizer(method, own.get("optimizer", "auto"), has_weights),
            n_components=None if isinstance(size, str) else size,
            n_inducing=int(points) if isinstance(points, Integral) else None,
            inducing_points=_check_points(points),
            has_weights=has_weights,
            residual=own.get("residual"),
            power=own.get("alpha", estimator._power),
            n_neighbors=own.get("n_neighbors", 0),
            guard=bool(own.get("guard", False)),
            precision=own.get("precision", "double"),
            device=device,
            max_time=own.get("max_time"),
            random_state=own["random_state"],
            verbose=own["verbose"],
        )


def _make_reading(
    estimator: Any, own: Mapping[str, Any], other: NonGaussian | None, device: str | None
) -> ReadOptions:
    """Return how an estimator with these parameters and this likelihood reads its rows."""
    residual = own.get("residual")
    # A chosen device takes the rows only of models that are computed there.
    in_place = own.get("device") == "auto" and residual not in (None, "diagonal")
    keeps = other is not None or residual in ("neighbors", "exact")
    return ReadOptions(
        name=type(estimator).__name__,
        standardize=own["standardize"],
        memory=get_working_memory(),
        device=None if in_place else device,
        in_memory=estimator._learns_in_memory or keeps,
        block_rows=estimator._block_rows,
        max_rows=own.get("max_rows"),
        mean=own.get("mean", "constant" if own["standardize"] else "zero"),
        orders_inputs=isinstance(own["kernel"], str)
        and not isinstance(own.get("optimizer"), Stochastic)
        and getattr(other, "exposure", None) is None,
        scales_targets=other is None or other.scales_targets,
        categorical=own["categorical_features"],
        takes_unlabelled=estimator._takes_unlabelled,
    )


def _check_optimizer(method: str, optimizer: Any, staged: bool) -> LBFGS | Stochastic:
    """Return the validated optimizer of an estimator."""
    if optimizer is None:
        return LBFGS(max_iter=0, exact_start=True)
    own: Any = LBFGS() if isinstance(optimizer, str) else optimizer
    own._validate_params()
    if not staged and (isinstance(own, Stochastic) or own.strategy != "auto"):
        raise ValueError(
            f"{method} learns all parameters in one stage by L-BFGS: use LBFGS(strategy='auto'). "
            "Strategies and Stochastic belong to EigenGPRegressor."
        )
    return own


def _check_points(inducing_points: Any) -> str | Array:
    """Return the validated initialisation of inducing points: a method or an array."""
    if isinstance(inducing_points, str):
        return "kmeans" if inducing_points == "auto" else inducing_points
    if isinstance(inducing_points, Integral):
        return "kmeans"
    return check_array(inducing_points, dtype=np.float64, input_name="inducing_points")


def is_small(n_rows: int, n_inducing: int) -> bool:
    """Return whether a problem is cheap enough to search as a whole, by N·M²."""
    return n_rows * n_inducing**2 <= _SMALL_PROBLEM


def _count_iterations(n_rows: int) -> int:
    """Return the number of iterations over all rows of a large problem.

    With many rows, iterations over subsets of up to a third of them leave little to learn.
    """
    if n_rows <= _MANY_ROWS:
        return 200
    return max(10, round(2e7 / n_rows))


def get_default_size(n_rows: int) -> int:
    """Return the default number of components: 100, or a quarter of few rows."""
    return max(1, min(_DEFAULT_COMPONENTS, n_rows // 4))


@dataclass(frozen=True)
class Plan:
    """How one model is learned from rows of a known size.

    Parameters
    ----------
    n_components, n_inducing : int
        R and M; both are the number of features, or of rows, without inducing points.
    n_restarts : int
        The number of starts that are screened.
    max_iter : int
        The largest number of iterations in each stage.
    tol : float
        Relative change at which a stage stops.
    strategy : {"prior", "sequential", "joint", "direct"}
        Stage 1; stages 1 and 2; both and then all parameters jointly; all jointly from the start.
    settled : bool
        Whether the initial kernel needs no screening on large data.
    gamma : float
        The weight of the trace term while inducing points are learned.
    grow : bool
        Whether fewer inducing points may be used if there are few rows.
    hold_out : bool
        Whether learned weights must improve the predictions of a held-out set.
    groups : bool
        Whether rows with equal inputs are merged.
    arithmetic : Arithmetic
        The arithmetic of passes over all rows; those over a subset are in float64.
    """

    n_components: int
    n_inducing: int
    n_restarts: int
    max_iter: int
    tol: float
    strategy: str = "prior"
    settled: bool = False
    gamma: float = 0.0
    grow: bool = False
    hold_out: bool = False
    groups: bool = True
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    # Whether there is nothing to search for: one start with a settled kernel.
    begins_at_once: bool = field(init=False)

    def __post_init__(self) -> None:
        at_once = self.settled and self.n_restarts == 1 and not self.grow
        object.__setattr__(self, "begins_at_once", at_once)

    @classmethod
    def with_points(cls, settings: Settings, dataset: Dataset, default: int | None = None) -> Plan:
        """Resolve the settings of a model with inducing points, as many as there are inputs.

        `default` is the default number of components; None is 100, or a quarter of few rows.
        """
        weight, given = dataset.summary.weight, not isinstance(settings.inducing_points, str)
        usual = get_default_size(max(dataset.n_rows, int(weight)))
        R, M = resolve_sizes(settings, default or usual)
        plan = cls.of(settings, dataset, R, M)
        possible = M if given else count_distinct(dataset.rows, M)
        if possible < M:
            M = possible
            plan = cls.of(settings, dataset, min(R, M), M)
        if not settings.has_weights:
            return replace(plan, groups=False)
        if settings.is_stochastic:
            return plan
        scarce = weight < _SCARCE_ROWS_PER_POINT * M
        return replace(
            plan,
            gamma=min(1.0, _GUARD_STRENGTH * M / weight) if settings.guard else 0.0,
            strategy=settings.strategy,
            grow=settings.guard and scarce and not given and settings.n_inducing is None,
            hold_out=settings.guard and dataset.n_rows >= _HOLD_OUT_FROM,
        )

    @classmethod
    def of(
        cls,
        settings: Settings,
        dataset: Dataset,
        n_components: int,
        n_inducing: int | None = None,
        *,
        max_iter: int | None = None,
        n_restarts: int | None = None,
        tol: float = 1e-9,
    ) -> Plan:
        """Resolve the settings of a method; keywords override the general defaults."""
        own, M = settings.optimizer, n_inducing or n_components
        small = is_small(dataset.n_rows, M)
        n_restarts = settings.n_restarts or n_restarts or (32 if small else 4)
        max_iter = max_iter or (1000 if small else _count_iterations(dataset.n_rows))
        max_iter = max_iter if settings.max_iter is None else settings.max_iter
        tol = tol if settings.tol is None else settings.tol
        if isinstance(settings.kernel, Kernel):
            settled = settings.n_restarts == 1
        else:
            settled = settings.kernel == "auto" and settings.n_restarts in (None, 1)
        settled = bool(settled or getattr(own, "exact_start", False))
        memory = settings.reading.memory // (2 if isinstance(dataset.rows, StreamSource) else 1)
        precision = choose_precision(settings.precision, dataset.device, dataset.n_rows)
        arithmetic = Arithmetic(precision, memory)  # Streamed rows share the memory.
        limits = (n_restarts, max_iter, tol)
        return cls(n_components, M, *limits, settled=settled, arithmetic=arithmetic)


def choose_precision(asked: str, device: str | None, n_rows: int) -> str:
    """Return the precision of passes over so many rows on a device of PyTorch; None is the CPU.

    "single" and "mixed" allow float32, where it is faster.
    """
    if device is None or not device.startswith("cuda"):
        return "double" if asked == "auto" else asked
    if n_rows >= _FEWEST_FOR_FLOAT32:
        return asked
    if _has_fast_float64(device):
        return "double"
    return "mixed" if asked == "auto" else asked


def _has_fast_float64(device: str) -> bool:
    """Return whether a GPU has float64 at half of the speed of float32, as in data centres."""
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return minor == 0 and major <= _LAST_FAST


def resolve_sizes(settings: Settings, default: int) -> tuple[int, int]:
    """Return R and M as set by the user, or their defaults."""
    own = settings.inducing_points
    given = None if isinstance(own, str) else own.shape[0]
    default = given or default
    M = given or settings.n_inducing
    R = settings.n_components or min(M or default, default)
    M = M or R
    if R > M:
        raise ValueError(
            f"n_components={R} eigenfunctions need at least as many inducing points, but "
            f"inducing_points gives {M}."
        )
    if not settings.has_weights and R != M:
        raise ValueError(
            f"inducing_points gives {M} points but n_components is {R}; "
            f"{settings.reading.name} needs equal numbers."
        )
    return R, M


def count_distinct(rows: RowSource, wanted: int) -> int:
    """Count the distinct inputs, up to `wanted`.

    A sample of the rows is nearly always enough; all rows are compared only if it has many
    duplicates.
    """
    stride = max(1, rows.n_rows // max(2 * wanted, _SAMPLE_ROWS))
    sample = np.unique(rows.take(np.arange(0, rows.n_rows, stride)).X, axis=0)
    if sample.shape[0] >= wanted:
        return wanted
    whole = rows.total(
        lambda block: _Distinct(np.unique(on_host(block.X), axis=0)[:wanted], wanted)
    )
    return int(whole.inputs.shape[0])


@dataclass(frozen=True)
class _Distinct:
    """Distinct inputs, at most `wanted`; the sum of two holds those of both."""

    inputs: Array
    wanted: int

    def __add__(self, other: _Distinct) -> _Distinct:
        if self.inputs.shape[0] >= self.wanted:
            return self
        both = np.concatenate([self.inputs, other.inputs])
        return _Distinct(np.unique(both, axis=0)[: self.wanted], self.wanted)
