"""Which classes a saved model may hold: nothing else is ever made from a file."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, TypeVar

from eigengp.estimators.base import GPRegressor
from eigengp.io.errors import SavedModelError
from eigengp.io.estimators import Estimator, record_of_estimator
from eigengp.io.known import ESTIMATORS, records
from eigengp.io.record import Record

ClassT = TypeVar("ClassT", bound=type)

_RECORDS: dict[str, Record] = {each.kind.__name__: each for each in records()}
_ESTIMATORS: dict[str, type[Estimator]] = {each.__name__: each for each in ESTIMATORS}
_OURS = frozenset(_RECORDS) | frozenset(_ESTIMATORS)


def register(cls: ClassT) -> ClassT:
    """Make a class of your own known, so that models that hold it can be saved and loaded.

    A file names it by its `__name__`. Call this, or use it as a decorator, in
    every program that saves or loads such a model, before it does.

    Parameters
    ----------
    cls : type
        A kernel or another dataclass of which a fitted model is made, with the
        constructor that `dataclass` made; or a subclass of an estimator.

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
    ... class Lorentzian(Stationary):
    ...     def profile(self, t):
    ...         return 1.0 / (1.0 + t)
    ...
    ...     def slope(self, t, rho):
    ...         return -rho * rho
    """
    name = cls.__name__
    if name in _OURS:
        raise SavedModelError(f"eigengp has a {name} of its own; give your class another name.")
    known: Any = _ESTIMATORS.get(name) or (name in _RECORDS and _RECORDS[name].kind)
    if known and _origin(known) != _origin(cls):
        raise SavedModelError(
            f"{known.__module__} has registered a {name} already; give your class another name."
        )
    if issubclass(cls, GPRegressor):
        _ESTIMATORS[name] = cls
        _RECORDS[name] = record_of_estimator(cls)
        return cls
    if not (is_dataclass(cls) and _made_by_dataclass(cls)):
        raise SavedModelError(
            f"{name} must be a dataclass without an __init__ of its own, so that its fields say "
            "all there is to store."
        )
    _RECORDS[name] = Record.of_dataclass(cls)
    return cls


def record_of(kind: type) -> Record | None:
    """Return how objects of this very class are stored; None if they are not."""
    found = _RECORDS.get(kind.__name__)
    return found if found is not None and found.kind is kind else None


def record_named(name: str) -> Record:
    """Return how objects of the class of this name are made."""
    if name not in _RECORDS:
        raise _unknown(name)
    return _RECORDS[name]


def is_registered(kind: type) -> bool:
    """Say whether models of this very class can be saved."""
    return _ESTIMATORS.get(kind.__name__) is kind


def estimator_named(name: str) -> type[Estimator]:
    """Return the estimator of this name."""
    if name not in _ESTIMATORS:
        raise _unknown(name)
    return _ESTIMATORS[name]


def _unknown(name: str) -> SavedModelError:
    return SavedModelError(
        f"the saved model holds a {name!r}, which is not known here. If it is a class of yours, "
        "call eigengp.io.register with it before you load."
    )


def _origin(cls: type) -> tuple[str, str]:
    """Tell a class that was defined anew, as notebooks do, from another of its name."""
    return cls.__module__, cls.__qualname__


def _made_by_dataclass(cls: type) -> bool:
    """Say whether the constructor takes the fields and nothing else."""
    owner = next(each for each in cls.__mro__ if "__init__" in vars(each))
    own = vars(owner).get("__dataclass_params__")
    return own is not None and bool(own.init)
