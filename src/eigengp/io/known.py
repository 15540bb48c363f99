"""The classes of which fitted models are made, and how each is stored.

Whatever can be computed from the rest is left out: cached properties, and the
search for neighbours.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp.baselines.nystrom import NystromRegressor
from eigengp.baselines.rvm.regressor import RVMRegressor
from eigengp.data.array_source import ArraySource
from eigengp.data.neighbor_search import Approximate, Exact
from eigengp.data.neighbors import Nearest
from eigengp.data.summary import Extent
from eigengp.data.views import Scaling
from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.estimators.exact import ExactGPRegressor
from eigengp.estimators.fitc import FITCRegressor
from eigengp.estimators.power_ep import PowerEPRegressor
from eigengp.estimators.ssgp import SSGPRegressor
from eigengp.estimators.target_maps import LogMap, QuantileMap, YeoJohnsonMap
from eigengp.estimators.transformed_target import TargetTransformed
from eigengp.estimators.vfe import VFERegressor
from eigengp.fitting.model_selection import Choices
from eigengp.fitting.online import Online
from eigengp.fitting.progress import Monitor
from eigengp.fitting.stochastic import Adam, Belief, Reservoir, StochasticLearner
from eigengp.fitting.streaming import Stream
from eigengp.fitting.training import Training
from eigengp.gp.approximations import ResidualPass, SpectralPass
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact_posterior import ConditionalPosterior, DenseCovariance, LowRankCovariance
from eigengp.gp.features import KernelFeatures, SpectralFeatures
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior, VarianceScale
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.posterior import Posterior
from eigengp.gp.precision import Arithmetic
from eigengp.gp.prior import CholeskyFactor, Spectrum
from eigengp.gp.sums import Sums
from eigengp.gp.vecchia import VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.io.errors import SavedModelError
from eigengp.io.estimators import record_of_estimator
from eigengp.io.record import Fields, Record, hints_of
from eigengp.kernels import (
    KERNELS,
    Kernel,
    Product,
    Sum,
)

ESTIMATORS = (
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    VFERegressor,
    PowerEPRegressor,
    SSGPRegressor,
    NystromRegressor,
    RVMRegressor,
    TargetTransformed,
)

_PLAIN = (
    *(Posterior, KernelFeatures, SpectralFeatures, Arithmetic),
    *(ConditionalPosterior, DenseCovariance, LowRankCovariance),
    *(VecchiaPass, CholeskyFactor, RowBlock, VarianceScale, HeteroscedasticPosterior, Choices),
    *(Online, EigenGP, Jitter, SpectralPass, ResidualPass, Spectrum, Sums),
    *(Scaling, Stream, Belief, Adam),
    *(LogMap, YeoJohnsonMap, QuantileMap),
)
_LOCAL = [each.name for each in fields(VecchiaPosterior) if each.name != "search"]


def _random_state_fields(rng: np.random.RandomState) -> Fields:
    state: Any = rng.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        raise SavedModelError(
            f"A RandomState of {state['bit_generator']} cannot be saved; use a seed, or "
            "RandomState(seed), as random_state."
        )
    twister = state.pop("state")
    return {**twister, "has_gauss": state["has_gauss"], "gauss": state["gauss"]}


def _random_state(
    key: NDArray[np.uint32], pos: int, has_gauss: int, gauss: float
) -> np.random.RandomState:
    rng = np.random.RandomState(0)
    rng.set_state(("MT19937", key, pos, has_gauss, gauss))
    return rng


def _local_posterior_fields(posterior: VecchiaPosterior) -> Fields:
    """Return all but the search, of which the kind is enough: the rows make the same again."""
    kept = {name: getattr(posterior, name) for name in _LOCAL}
    search = posterior.search
    if isinstance(search, Nearest) and isinstance(search.index, Approximate):
        kept["approximate"] = True
    return kept


def _local_posterior(approximate: bool = False, **found: Any) -> VecchiaPosterior:
    """Return the posterior with a search among its rows, as the fit made it."""
    metric = found["flow"].features.kernel.metric(found["rows"].X.shape[1])
    kind = Approximate if approximate else Exact
    count = min(found["n_neighbors"], found["rows"].n_rows)
    search = Nearest(kind.of(found["rows"].X * metric), metric, count)
    return VecchiaPosterior(search=search, **found)


def _reservoir(capacity: int, rng: np.random.RandomState, seen: int, rows: RowBlock) -> Reservoir:
    reservoir = Reservoir(capacity, rng)
    reservoir.seen, reservoir.rows = seen, rows
    return reservoir


def _learner(**found: Any) -> StochasticLearner:
    # Its constructor would make the belief of one who has seen no row.
    learner = object.__new__(StochasticLearner)
    vars(learner).update(found)
    return learner


def _training(scaling: Scaling, **found: Any) -> Training:
    """Return what further rows need of the first fit, which kept none of its rows."""
    none = ArraySource.of(RowBlock.empty())
    given = np.empty((0, scaling.input_centre.size))
    return Training(rows=none, source=none, scaling=scaling, given=given, **found)


def _special() -> list[Record]:
    """Return the records of classes whose constructors take something else than they keep."""
    state = {"key": np.ndarray, "pos": int, "has_gauss": int, "gauss": float}
    pair, ends = {"left": Kernel, "right": Kernel}, {"low": np.ndarray, "high": np.ndarray}
    local = {**hints_of(VecchiaPosterior, *_LOCAL), "approximate": bool}
    begun = ("scaling", "monitor", "rng", "offset", "box", "sized", "notes")
    kept = {"capacity": int, "rng": np.random.RandomState, "seen": int, "rows": RowBlock}
    learner = {
        **{"box": Extent, "model": EigenGP, "reservoir": Reservoir},
        **{"belief": Belief, "optimizer": Adam, "weight": float, "steps": int},
    }
    return [
        Record(np.random.RandomState, state, make=_random_state, take=_random_state_fields),
        Record(Sum, pair),
        Record(Product, pair),
        Record(Extent, ends),
        Record(
            VecchiaPosterior,
            local,
            optional=frozenset({"approximate"}),
            make=_local_posterior,
            take=_local_posterior_fields,
        ),
        Record(Reservoir, kept, make=_reservoir),
        Record(StochasticLearner, learner, make=_learner),
        Record(Monitor, hints_of(Monitor, "verbose", "n_rows", "offset", "history")),
        Record(Training, hints_of(Training, *begun), make=_training),
    ]


def records() -> list[Record]:
    """Return how each class is stored."""
    plain = map(Record.of_dataclass, (*KERNELS.values(), *_PLAIN))
    return [*plain, *map(record_of_estimator, ESTIMATORS), *_special()]
