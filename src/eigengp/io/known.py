"""The classes of which fitted models are made, and how each is stored.

Whatever can be computed from the rest is left out: cached properties, and the
search for neighbours.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp.baselines.nystrom import NystromRegressor
from eigengp.baselines.rvm.regressor import RVMRegressor
from eigengp.data.neighbors import Approximate, Exact, Nearest
from eigengp.data.standardize import Extent, Scaling
from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.estimators.exact import ExactGPRegressor
from eigengp.estimators.sparse import FITCRegressor, PowerEPRegressor, VFERegressor
from eigengp.estimators.ssgp import SSGPRegressor
from eigengp.estimators.target_maps import LogMap, QuantileMap, YeoJohnsonMap
from eigengp.estimators.transformed_target import TargetTransformed
from eigengp.fitting.model_selection import Decision, Selection
from eigengp.fitting.online import Online
from eigengp.fitting.settings import LBFGS, Stochastic
from eigengp.fitting.stochastic import Adam, Belief, Reservoir, StochasticLearner
from eigengp.gp.approximations import ResidualPass, SpectralPass
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact_posterior import ConditionalPosterior, DenseCovariance, LowRankCovariance
from eigengp.gp.features import KernelFeatures, SpectralFeatures
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior, VarianceScale
from eigengp.gp.likelihoods import Gaussian, Heteroscedastic
from eigengp.gp.mean import LinearMean
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
    Kernel,
    Matern12,
    Matern32,
    Matern52,
    RationalQuadratic,
    SquaredExponential,
)
from eigengp.kernels.base import Product, Sum

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

_KERNELS = (SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic)
_PLAIN = (
    *(Posterior, KernelFeatures, SpectralFeatures, Arithmetic),
    *(ConditionalPosterior, DenseCovariance, LowRankCovariance),
    *(
        VecchiaPass,
        CholeskyFactor,
        RowBlock,
        VarianceScale,
        HeteroscedasticPosterior,
        Decision,
        Selection,
    ),
    *(Online, EigenGP, Jitter, SpectralPass, ResidualPass, Spectrum, Sums),
    *(Scaling, LinearMean, Belief, Adam, Gaussian, Heteroscedastic),
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
    metric = found["flow"].features.kernel.metric
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


def _parameters(kind: type) -> dict[str, Any]:
    """Return the parameters of an object with scikit-learn's `get_params`."""
    return dict.fromkeys(inspect.signature(kind).parameters, Any)


def _special() -> list[Record]:
    """Return the records of classes whose constructors take something else than they keep."""
    state = {"key": np.ndarray, "pos": int, "has_gauss": int, "gauss": float}
    pair, ends = {"left": Kernel, "right": Kernel}, {"low": np.ndarray, "high": np.ndarray}
    local = {**hints_of(VecchiaPosterior, *_LOCAL), "approximate": bool}
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
        Record(LBFGS, _parameters(LBFGS)),
        Record(Stochastic, _parameters(Stochastic)),
    ]


def records() -> list[Record]:
    """Return how each class is stored."""
    plain = map(Record.of_dataclass, (*_KERNELS, *_PLAIN))
    return [*plain, *map(record_of_estimator, ESTIMATORS), *_special()]
