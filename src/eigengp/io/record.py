"""How objects are taken apart into fields, and made again from fields that are checked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, is_dataclass
from inspect import Parameter, signature
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from eigengp.data.frames import encoded_inputs
from eigengp.estimators.base import GPEstimator
from eigengp.gp.likelihoods import Quantile
from eigengp.gp.mean import check_mean
from eigengp.io.container import SavedModelError

Fields = dict[str, Any]
# Learned attributes on which predictions depend.
_USED = ("conformity_", "leave_one_out_errors_", "target_map_")


@dataclass(frozen=True)
class Record:
    """How objects of one class are stored.

    Parameters
    ----------
    kind : type
        The class.
    hints : mapping
        The fields, and what each may be.
    optional : collection of str
        Fields that a file need not have.
    make : callable or None
        Takes the fields, as keywords, to an object; None calls the class.
    take : callable or None
        Returns the fields of an object; None reads the attributes of their names.
    """

    kind: type
    hints: Mapping[str, Any]
    optional: Collection[str] = ()
    make: Callable[..., Any] | None = None
    take: Callable[[Any], Fields] | None = None

    @classmethod
    def of(cls, kind: Any) -> Record:
        """Return the record of a class whose attributes are what its constructor takes."""
        takes = signature(kind).parameters
        declared = is_dataclass(kind) or issubclass(kind, tuple)
        hints = resolved_hints(kind) if declared else get_type_hints(kind.__init__)
        optional = (name for name, each in takes.items() if each.default is not Parameter.empty)
        return cls(kind, {name: hints.get(name, Any) for name in takes}, set(optional))

    def fields_of(self, value: Any) -> Fields:
        """Return what is stored of an object."""
        if self.take is not None:
            return self.take(value)
        return {name: getattr(value, name) for name in self.hints}

    def made(self, found: Fields) -> Any:
        """Return an object with these fields."""
        name = self.kind.__name__
        _check_fields(name, found, self.hints)
        if missing := self.hints.keys() - found.keys() - set(self.optional):
            raise SavedModelError(f"a saved {name} has no {', '.join(sorted(missing))}.")
        return (self.make or self.kind)(**found)


@dataclass(frozen=True)
class EstimatorRecord:
    """How estimators of one class are stored, and encoders: parameters, and what was learned."""

    kind: Any

    def fields_of(self, model: Any) -> Fields:
        """Return all attributes; those that were learned are absent before `fit`."""
        found = dict(vars(model))
        if "_scaling" in found:
            check_mean(model, "saved")
        if unknown := found.keys() - self._hints(found).keys():
            raise SavedModelError(
                f"A {self.kind.__name__} has no attribute {min(unknown)!r} of its own, so it "
                "cannot be saved; delete it, or store it as `about`."
            )
        return found | {"_place": "numpy"} if "_place" in found else found

    def made(self, found: Fields) -> Any:
        """Return the estimator with these attributes."""
        _check_fields(self.kind.__name__, found, self._hints(found))
        names = found.keys() & set(self.kind._get_param_names())
        model = self.kind(**{each: found[each] for each in names})
        vars(model).update(found)
        if found.keys() - names and isinstance(model, GPEstimator):
            _check_predictions(model)
        return model

    def _hints(self, found: Fields) -> dict[str, Any]:
        """Return what attributes may be: parameters, those that the class declares, and learned.

        Learned attributes have scikit-learn's ending.
        """
        kind, hints = self.kind, resolved_hints(self.kind)
        learned = (each for each in found if each.endswith("_") and not each.startswith("_"))
        private = (each for each in hints if each.startswith("_"))
        return {
            **{each: hints[each] for each in private if get_origin(hints[each]) is not ClassVar},
            **{each: hints.get(each, Any) for each in learned if not hasattr(kind, each)},
            **dict.fromkeys(kind._get_param_names(), Any),
        }


def resolved_hints(kind: type) -> dict[str, Any]:
    """Return the type hints of a class, or those of its bases where its own cannot be resolved."""
    try:
        return get_type_hints(kind)
    except NameError:
        return resolved_hints(kind.__mro__[1])


def _check_fields(owner: str, found: Fields, hints: Mapping[str, Any]) -> None:
    """Raise unless all fields are known, finite, and what their hints allow."""
    for name, value in found.items():
        if name not in hints:
            raise SavedModelError(f"a saved {owner} has the unknown field {name!r}.")
        if not _fits(value, hints[name]):
            raise SavedModelError(f"{name} of a saved {owner} is a {type(value).__name__}.")
    check_finite(owner, found)


def check_finite(owner: str, found: Fields) -> None:
    """Raise if a field that predictions may depend on is NaN, or an array that is not finite.

    What an estimator shows of its search, such as errors of lengthscales that failed, may be.
    """
    for name, value in found.items():
        shown = name.endswith("_") and name not in _USED
        if not (shown or _is_finite(value)):
            raise SavedModelError(f"{name} of a {owner} has values that are not finite.")


def _is_finite(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not (isinstance(value, float) and math.isnan(value))


def _check_predictions(model: Any) -> None:
    """Raise unless a model predicts in the middle of its training rows."""
    scaling = model._scaling
    n_rows = 7 + (scaling.input_centre.size == 7)  # Arrays of wrong shapes may fit a square.
    X = scaling.input_centre + scaling.input_scale * np.linspace(-0.5, 0.5, n_rows)[:, None]
    with warnings.catch_warnings(), np.errstate(all="ignore"), encoded_inputs():
        warnings.simplefilter("ignore")
        if hasattr(model, "predict_proba"):
            mean = std = low = high = model.predict_proba(X).sum(axis=1)
        else:
            mean, std = model.predict(X, return_std=True)
            ranges = not isinstance(getattr(model, "likelihood_", None), Quantile)
            # One calibration row is enough for this coverage.
            low, high = model.predict_interval(X, 0.5) if ranges else (mean, mean)
    usable = np.isfinite(mean) & np.isfinite(std) & (std >= 0.0) & (low <= high)
    shape = (n_rows, *np.shape(scaling.target_scale))
    if usable.shape != shape or not usable.all():
        raise SavedModelError("its predictions are not finite.")


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a hint allows a value; `Any` and protocols allow everything."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    kind = origin or hint
    if kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if kind in (int, float):
        return isinstance(value, int | kind) and not isinstance(value, bool)
    return isinstance(value, kind)
