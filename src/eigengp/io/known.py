"""The classes of which fitted models are made: nothing else is ever made from a file.

Whatever can be computed from the rest is not stored: cached properties, and the index of the
neighbour search.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from eigengp.data.encode import TableEncoder
from eigengp.data.neighbors import Approximate, Exact, Nearest
from eigengp.estimators.base import GPEstimator
from eigengp.gp.blocks import RowBlock
from eigengp.gp.likelihoods import LIKELIHOODS
from eigengp.gp.mean import MEANS
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.io.container import SavedModelError
from eigengp.io.record import EstimatorRecord, Fields, Record
from eigengp.kernels import KERNELS, Kernel, KernelColumns

ClassT = TypeVar("ClassT", bound=type)
AnyRecord = Record | EstimatorRecord

# The classes of each module; kernels, likelihoods and means with names are known by these.
_MODULES = {
    "baselines.nystrom": "NystromRegressor",
    "baselines.rvm.regressor": "RVMRegressor",
    "data.encode": "TableEncoder Column",
    "data.standardize": "Scaling Extent",
    "estimators.classifier": "EigenGPClassifier",
    "estimators.eigengp": "EigenGPRegressor",
    "estimators.exact": "ExactGPRegressor",
    "estimators.sparse": "FITCRegressor VFERegressor PowerEPRegressor SSGPRegressor",
    "fitting.model_selection": "Decision Selection",
    "fitting.online": "Online",
    "fitting.settings": "LBFGS Stochastic",
    "fitting.stochastic": "StochasticLearner Reservoir Belief Adam",
    "gp.approximations": "SpectralPass",
    "gp.blocks": "RowBlock",
    "gp.exact_posterior": "ConditionalPosterior MixturePosterior DenseCovariance LowRankCovariance",
    "gp.heteroscedastic": "HeteroscedasticPosterior VarianceScale",
    "gp.latent": "NeighborLatent",
    "gp.likelihoods": "Gaussian Heteroscedastic Bernoulli Softmax Coregionalized",
    "gp.linalg": "CholeskyFactor Spectrum",
    "gp.model": "EigenGP Jitter",
    "gp.posterior": "Posterior",
    "gp.precision": "Arithmetic",
    "gp.residual": "ResidualPass",
    "gp.sparse_spectrum": "SpectralFeatures",
    "gp.sums": "Sums",
    "gp.target_maps": "LogMap StraightTail YeoJohnsonMap",
    "gp.variational": "LatentPosterior Exposure",
    "gp.vecchia": "VecchiaPass",
    "gp.vecchia_posterior": "VecchiaPosterior",
    "kernels": "Sum Product Warped",
}
# The module of each class.
HOMES = {
    **{each: f"eigengp.{module}" for module, own in _MODULES.items() for each in own.split()},
    **{
        each.__name__: each.__module__
        for each in (*KERNELS.values(), *LIKELIHOODS.values(), *MEANS.values())
    },
}


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
    kept: Fields = {name: getattr(posterior, name) for name in _KEPT}
    return {**kept, "approximate": isinstance(index, Approximate)}


def _vecchia_posterior(approximate: bool, **found: Any) -> VecchiaPosterior:
    """Return the posterior with a search among its rows, as the fit made it."""
    rows = found["rows"]
    metric = found["flow"].features.kernel.metric(rows.X.shape[1])
    index = (Approximate if approximate else Exact).of(rows.X * metric)
    search = Nearest(index, metric, min(found["n_neighbors"], rows.n_rows))
    return VecchiaPosterior(search=search, **found)


_VECCHIA = Record.of(VecchiaPosterior)
_KEPT = {name: hint for name, hint in _VECCHIA.hints.items() if name != "search"}
_COLUMNS = Record(
    KernelColumns,
    {"kernel": Kernel, "points": np.ndarray},
    make=lambda kernel, points: kernel.at(points),
)
# What is not stored as its fields or attributes, and classes of users.
_RECORDS: dict[str, AnyRecord] = {
    "RandomState": Record(
        np.random.RandomState, {"state": dict}, make=_random_state, take=_random_state_fields
    ),
    "RowBlock": replace(Record.of(RowBlock), make=_row_block),
    "VecchiaPosterior": replace(
        _VECCHIA, hints=_KEPT | {"approximate": bool}, make=_vecchia_posterior, take=_vecchia_fields
    ),
    "KernelColumns": _COLUMNS,
}
_OURS = HOMES.keys() | _RECORDS.keys()


def register(cls: ClassT) -> ClassT:
    """Register a custom class, so that models that contain it can be saved and loaded.

    Files refer to the class by its `__name__`. Call this function, or use it as a decorator, in
    every program that saves or loads such a model, before it does.

    Parameters
    ----------
    cls : type
        A kernel or another dataclass that is part of fitted models, with the constructor that
        `dataclass` generates; or a subclass of an estimator.

    Returns
    -------
    cls : type
        The same class.

    Raises
    ------
    SavedModelError
        If it is no such class, or another one has its name.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp.kernels import Stationary
    >>> from eigengp.io import register
    >>> @register
    ... class Hyperbolic(Stationary):
    ...     def profile(self, t):
    ...         return 1.0 / (1.0 + t)
    ...
    ...     def slope(self, t, rho):
    ...         return -rho * rho
    """
    name = cls.__name__
    if name in _OURS:
        raise SavedModelError(f"eigengp has a {name} of its own; give your class another name.")
    known = _RECORDS.get(name)
    if known and _origin(known.kind) != _origin(cls):
        raise SavedModelError(
            f"{known.kind.__module__} has registered a {name} already; give your class another "
            "name."
        )
    own = {each.name for each in fields(cls) if each.init} if is_dataclass(cls) else None
    if set(signature(cls).parameters) != own and not issubclass(cls, GPEstimator):
        raise SavedModelError(
            f"{name} must be a dataclass without an __init__ of its own, so that its fields say "
            "all there is to store."
        )
    _RECORDS[name] = _make_record(cls)
    return cls


def record_of(kind: type) -> AnyRecord | None:
    """Return how objects of this very class are stored; None if they are not.

    A kernel makes its columns again, whatever their class.
    """
    found = _find(kind.__name__)
    if found is not None and found.kind is kind:
        return found
    return _COLUMNS if issubclass(kind, KernelColumns) else None


def record_named(name: str) -> AnyRecord:
    """Return how objects of the class of this name are made."""
    found = _find(name)
    if found is None:
        raise SavedModelError(
            f"the saved model holds a {name!r}, which is not known here. If it is a class of "
            "yours, call eigengp.io.register with it before you load."
        )
    return found


def _find(name: str) -> AnyRecord | None:
    if name not in _RECORDS and name in HOMES:
        _RECORDS[name] = _make_record(getattr(import_module(HOMES[name]), name))
    return _RECORDS.get(name)


def _make_record(kind: Any) -> AnyRecord:
    by_attributes = issubclass(kind, GPEstimator | TableEncoder)
    return EstimatorRecord(kind) if by_attributes else Record.of(kind)


def _origin(cls: type) -> tuple[str, str]:
    """Tell a class that was defined anew, as notebooks do, from another of its name."""
    return cls.__module__, cls.__qualname__
