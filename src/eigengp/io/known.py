"""The classes of which fitted models are made, and how each is stored.

Whatever can be computed from the rest is omitted: cached properties, and the index of the
neighbour search.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from eigengp.baselines.nystrom import NystromRegressor
from eigengp.baselines.rvm.regressor import RVMRegressor
from eigengp.data.encode import TableEncoder
from eigengp.data.neighbors import Approximate, Exact, Nearest
from eigengp.data.standardize import Extent, Scaling
from eigengp.estimators.classifier import EigenGPClassifier
from eigengp.estimators.eigengp import EigenGPRegressor
from eigengp.estimators.exact import ExactGPRegressor
from eigengp.estimators.sparse import FITCRegressor, PowerEPRegressor, VFERegressor
from eigengp.estimators.ssgp import SSGPRegressor
from eigengp.estimators.target_maps import LogMap, YeoJohnsonMap
from eigengp.estimators.transformed_target import TargetTransformed
from eigengp.fitting.model_selection import Decision, Selection
from eigengp.fitting.online import Online
from eigengp.fitting.settings import LBFGS, Stochastic
from eigengp.fitting.stochastic import Adam, Belief, Reservoir, StochasticLearner
from eigengp.gp.approximations import SpectralPass
from eigengp.gp.blocks import RowBlock
from eigengp.gp.exact_posterior import (
    ConditionalPosterior,
    DenseCovariance,
    LowRankCovariance,
    MixturePosterior,
)
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior, VarianceScale
from eigengp.gp.latent import NeighborLatent
from eigengp.gp.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Coregionalized,
    Gaussian,
    Heteroscedastic,
    Softmax,
)
from eigengp.gp.linalg import CholeskyFactor, Spectrum
from eigengp.gp.mean import MEANS
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.posterior import Posterior
from eigengp.gp.precision import Arithmetic
from eigengp.gp.residual import ResidualPass
from eigengp.gp.sparse_spectrum import SpectralFeatures
from eigengp.gp.sums import Sums
from eigengp.gp.variational import Exposure, LatentPosterior
from eigengp.gp.vecchia import VecchiaPass
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.io.errors import SavedModelError
from eigengp.io.record import EstimatorRecord, Fields, Record
from eigengp.kernels import KERNELS, Kernel, KernelColumns, Product, Sum, Warped

_ESTIMATORS: tuple[Any, ...] = (
    *(EigenGPRegressor, ExactGPRegressor, FITCRegressor, VFERegressor, PowerEPRegressor),
    *(SSGPRegressor, NystromRegressor, RVMRegressor, TargetTransformed, EigenGPClassifier),
)
_PLAIN = (
    *(*KERNELS.values(), Sum, Product, Warped),
    *(LBFGS, Stochastic, Gaussian, Heteroscedastic, LatentPosterior, NeighborLatent, Exposure),
    *(*LIKELIHOODS.values(), Bernoulli, Softmax, Coregionalized),
    *(Scaling, Extent, *MEANS.values(), LogMap, YeoJohnsonMap),
    *(EigenGP, Jitter, Arithmetic, Spectrum, CholeskyFactor),
    *(SpectralFeatures, SpectralPass, ResidualPass, VecchiaPass, Sums),
    *(Posterior, ConditionalPosterior, MixturePosterior, DenseCovariance, LowRankCovariance),
    *(HeteroscedasticPosterior, VarianceScale, Decision, Selection),
    *(Online, StochasticLearner, Reservoir, Belief, Adam),
)


def _random_state_fields(rng: np.random.RandomState) -> Fields:
    state: Any = rng.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        raise SavedModelError(
            f"A RandomState of {state['bit_generator']} cannot be saved; use a seed, or "
            "RandomState(seed), as random_state."
        )
    return {"state": state}


def _random_state(state: dict[str, Any]) -> np.random.RandomState:
    rng = np.random.RandomState(0)
    rng.set_state(state)
    return rng


def _row_block(**found: Any) -> RowBlock:
    """Return rows of which every array has as many; `predict` may need few of them."""
    rows = RowBlock(**found)
    each_row = (rows.y, rows.sample_weight, rows.scatter)
    if rows.X.ndim != 2 or any(a.shape != rows.X.shape[:1] for a in each_row if a is not None):
        raise SavedModelError("its training rows have arrays of different lengths.")
    return rows


def _vecchia_fields(posterior: VecchiaPosterior) -> Fields:
    """Return all but the search, of which the kind is enough: the rows make the same again."""
    index = getattr(posterior.search, "index", None)
    kept = {each.name: getattr(posterior, each.name) for each in fields(posterior) if each.init}
    del kept["search"]
    return {**kept, "approximate": isinstance(index, Approximate)}


def _vecchia_posterior(approximate: bool, **found: Any) -> VecchiaPosterior:
    """Return the posterior with a search among its rows, as the fit made it."""
    rows = found["rows"]
    metric = found["flow"].features.kernel.metric(rows.X.shape[1])
    index = (Approximate if approximate else Exact).of(rows.X * metric)
    search = Nearest(index, metric, min(found["n_neighbors"], rows.n_rows))
    return VecchiaPosterior(search=search, **found)


def _encoder_fields(encoder: TableEncoder) -> Fields:
    fitted = hasattr(encoder, "columns_")
    return {"values": encoder.to_dict() if fitted else {"parameters": encoder.get_params()}}


def _encoder(values: dict[str, Any]) -> TableEncoder:
    fitted = "columns" in values
    return TableEncoder.from_dict(values) if fitted else TableEncoder(**values["parameters"])


def records() -> list[Record | EstimatorRecord]:
    """Return how each class is stored."""
    own, columns = Record.of(VecchiaPosterior), {"kernel": Kernel, "points": np.ndarray}
    vecchia = {**own.hints, "approximate": bool}
    del vecchia["search"]
    return [
        *map(Record.of, _PLAIN),
        *map(EstimatorRecord, _ESTIMATORS),
        replace(Record.of(RowBlock), make=_row_block),
        Record(np.random.RandomState, {"state": dict}, (), _random_state, _random_state_fields),
        Record(TableEncoder, {"values": dict}, (), _encoder, _encoder_fields),
        Record(VecchiaPosterior, vecchia, own.optional, _vecchia_posterior, _vecchia_fields),
        Record(KernelColumns, columns, make=lambda kernel, points: kernel.at(points)),
    ]
