"""Estimators taken apart, and made again: parameters, and what was learned."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, TypeAlias, get_origin

from eigengp.estimators.base import GPRegressor
from eigengp.estimators.transformed_target import TargetTransformed
from eigengp.gp.mean import check_mean
from eigengp.io.errors import SavedModelError
from eigengp.io.record import Fields, Record, check_fields, resolved_hints

Estimator: TypeAlias = GPRegressor | TargetTransformed
"""What a file can hold."""
_NEEDED = {"_posterior", "_scaling", "_place", "n_features_in_"}
_NEEDED_AROUND = {"regressor_", "target_map_"}


def parts_of(model: Any) -> dict[str, Fields]:
    """Return the parameters of an estimator, and its state, which is empty before `fit`."""
    parameters = model.get_params(deep=False)
    if hasattr(model, "_scaling"):
        check_mean(model, "saved")
    state = {name: value for name, value in vars(model).items() if name not in parameters}
    if "_place" in state:
        state["_place"] = "numpy"
    _check_names(type(model), state)
    return {"parameters": parameters, "state": state}


def made_of(kind: Any, parameters: Fields, state: Fields) -> Any:
    """Return the estimator that has these parts, checked."""
    check_fields(kind.__name__, parameters, dict.fromkeys(kind._get_param_names(), Any))
    check_fields(kind.__name__, state, _state_hints(kind, state))
    missing = needed_by(kind) - state.keys()
    if state and missing:
        raise SavedModelError(f"it has no {', '.join(sorted(missing))}.")
    model = kind(**parameters)
    model.__dict__.update(state)
    return model


def needed_by(kind: type) -> set[str]:
    """Return the attributes without which an estimator is not fitted."""
    return _NEEDED_AROUND if issubclass(kind, TargetTransformed) else _NEEDED


def record_of_estimator(kind: type) -> Record:
    """Return how an estimator is stored inside another one."""
    hints = {"parameters": dict, "state": dict}
    return Record(kind, hints, make=partial(made_of, kind), take=parts_of)


def _state_hints(kind: type, names: Fields) -> dict[str, Any]:
    """Return what the attributes of a fitted model may be.

    They are those that its class declares, and all with the ending that
    scikit-learn has for what is learned.
    """
    hints = resolved_hints(kind)
    declared = {
        name: hint
        for name, hint in hints.items()
        if name.startswith("_") and get_origin(hint) is not ClassVar
    }
    learned = (each for each in names if each.endswith("_") and not each.startswith("_"))
    own = {each: hints.get(each, Any) for each in learned if not hasattr(kind, each)}
    return {**declared, **own}


def _check_names(kind: type, state: Fields) -> None:
    unknown = state.keys() - _state_hints(kind, state).keys()
    if unknown:
        raise SavedModelError(
            f"A {kind.__name__} has no attribute {min(unknown)!r} of its own, so it cannot be "
            "saved; delete it, or store it as `about`."
        )
