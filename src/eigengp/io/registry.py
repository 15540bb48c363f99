"""Which classes a saved model may hold: nothing else is ever made from a file."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TypeVar

from eigengp.estimators.base import GPEstimator
from eigengp.io.errors import SavedModelError
from eigengp.io.known import records
from eigengp.io.record import EstimatorRecord, Record
from eigengp.kernels import KernelColumns

ClassT = TypeVar("ClassT", bound=type)

_RECORDS = {each.name: each for each in records()}
_COLUMNS = next(each for each in _RECORDS.values() if each.kind is KernelColumns)
_OURS = frozenset(_RECORDS)


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
    if issubclass(cls, GPEstimator):
        _RECORDS[name] = EstimatorRecord(cls)
    elif is_dataclass(cls) and _made_by_dataclass(cls):
        _RECORDS[name] = Record.of(cls)
    else:
        raise SavedModelError(
            f"{name} must be a dataclass without an __init__ of its own, so that its fields say "
            "all there is to store."
        )
    return cls


def record_of(kind: type) -> Record | EstimatorRecord | None:
    """Return how objects of this very class are stored; None if they are not.

    A kernel makes its columns again, whatever their class.
    """
    found = _RECORDS.get(kind.__name__)
    if found is not None and found.kind is kind:
        return found
    return _COLUMNS if issubclass(kind, KernelColumns) else None


def record_named(name: str) -> Record | EstimatorRecord:
    """Return how objects of the class of this name are made."""
    if name not in _RECORDS:
        raise SavedModelError(
            f"the saved model holds a {name!r}, which is not known here. If it is a class of "
            "yours, call eigengp.io.register with it before you load."
        )
    return _RECORDS[name]


def _origin(cls: type) -> tuple[str, str]:
    """Tell a class that was defined anew, as notebooks do, from another of its name."""
    return cls.__module__, cls.__qualname__


def _made_by_dataclass(cls: type) -> bool:
    """Return whether the constructor takes the fields and nothing else."""
    owner = next(each for each in cls.__mro__ if "__init__" in vars(each))
    own = vars(owner).get("__dataclass_params__")
    return own is not None and bool(own.init)
