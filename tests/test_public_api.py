"""Public names and their signatures are those of `tests/data/api.json`.

`python tests/test_public_api.py` writes the file anew, after a change that is meant. Annotations
are left out: mypy checks them.
"""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

STORED = Path(__file__).parent / "data" / "api.json"
MODULES = (
    "eigengp",
    *(
        f"eigengp.{name}"
        for name in (
            *("kernels", "metrics", "datasets", "plot", "io", "export", "conformal"),
            "inspection",
        )
    ),
)
Described = str | dict[str, Any]


def described_module(name: str) -> dict[str, Described]:
    """Return all public names of a module: those of `__all__`, or those that are defined in it."""
    module = import_module(name)
    names = getattr(module, "__all__", None) or [
        each for each, value in vars(module).items() if _is_own(each, value, name)
    ]
    return {each: _described(getattr(module, each)) for each in sorted(names)}


def _is_own(name: str, value: Any, module: str) -> bool:
    return not name.startswith("_") and getattr(value, "__module__", None) == module


def _described(value: Any) -> Described:
    if isinstance(value, ModuleType):
        return "module"
    if inspect.isclass(value):
        return _described_class(value)
    return _signature(value) if inspect.isfunction(value) else type(value).__name__


def _described_class(kind: type) -> dict[str, Any]:
    """Return the constructor and all public methods that this package defines."""
    found: dict[str, Any] = {"__init__": _signature(kind)}
    for base in kind.__mro__:
        if base.__module__.startswith("eigengp"):
            for name in vars(base):
                # scikit-learn adds the methods of metadata routing; `fit` stores attributes.
                private = name.startswith("_") or name.endswith("_request")
                private |= name in getattr(kind, "__dataclass_fields__", ())  # In `__init__`.
                if not private and hasattr(kind, name):
                    found[name] = _described_member(getattr(kind, name))
    return dict(sorted(found.items()))


def _described_member(value: Any) -> str:
    return _signature(value) if callable(value) else type(value).__name__


def _signature(function: Any) -> str:
    """Return names, kinds and defaults of all parameters."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # Some exceptions have none.
        return "(...)"
    empty = inspect.Parameter.empty
    own = [each.replace(annotation=empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=own, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize("name", MODULES)
def test_public_names_and_signatures_are_the_stored_ones(name: str) -> None:
    stored = json.loads(STORED.read_text())
    assert set(stored) == set(MODULES)
    assert described_module(name) == stored[name]


if __name__ == "__main__":
    content = {name: described_module(name) for name in MODULES}
    STORED.write_text(json.dumps(content, indent=1) + "\n")
