"""From a fitted model to JSON and arrays, and back.

Numbers and texts stand for themselves; whatever else is a dict with one key that says what it is.
An array that several objects share is stored once and shared again; other things are stored
wherever they are used, so that a file describes no more than it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from eigengp.backend.namespace import is_numpy, on_host
from eigengp.io.container import AnArray, SavedModelError
from eigengp.io.known import record_named, record_of
from eigengp.io.record import check_finite

Node = Any  # What JSON can hold.

_SEQUENCES = {each.__name__: each for each in (list, tuple, set, frozenset)}
_KINDS, _WIDEST = "fiub", 8  # What kinds of numbers arrays may hold, and in how many bytes each.
# Ends the names of arrays that are stored transposed, because they lie column by column.
_TURNED = "T"


class Writer:
    """Takes values apart, and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, AnArray] = {}
        self._names: dict[int, tuple[str, Any]] = {}  # By `id` of arrays, which stays taken.

    def node(self, value: Any, where: str) -> Node:
        """Return what stands for a value; `where` it is says which one cannot be stored."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, Path):
            return {"path": str(value)}
        if type(value) in _SEQUENCES.values():
            return {type(value).__name__: [self.node(each, where) for each in value]}
        if type(value) is dict:
            pairs = value.items()
            return {"dict": [[self.node(each, where) for each in pair] for pair in pairs]}
        if record := record_of(type(value)):
            own, kind = record.fields_of(value), record.kind.__name__
            check_finite(kind, own)
            fields = {name: self.node(each, f"{kind}.{name}") for name, each in own.items()}
            return {"class": [kind, fields]}
        if hasattr(value, "__dlpack__"):
            return self._array(value, where)
        name = type(value).__name__
        raise SavedModelError(
            f"{where} is a {name}, and a saved model holds only classes that eigengp knows. If it "
            f"is a class of yours, call eigengp.io.register({name}) before you save, and wherever "
            "you load; else leave it out."
        )

    def _array(self, value: Any, where: str) -> Node:
        if id(value) in self._names:
            return {"array": self._names[id(value)][0]}
        array = value if is_numpy(value) else on_host(value)
        if array.dtype.kind in "OU":
            return {array.dtype.kind: [self.node(each, where) for each in array.tolist()]}
        if array.dtype.kind not in _KINDS or array.dtype.itemsize > _WIDEST:
            raise SavedModelError(f"{where} is an array of {array.dtype}, which cannot be saved.")
        turned = array.flags.f_contiguous and not array.flags.c_contiguous
        name = f"{len(self.arrays)}{_TURNED * turned}"
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        self.arrays[name] = np.asarray(native.T if turned else native, order="C")
        self._names[id(value)] = name, value
        return {"array": name}


def make_value(node: Node, arrays: Mapping[str, AnArray]) -> Any:
    """Return the value that a node stands for."""
    turned = {name: a.T if name.endswith(_TURNED) else a for name, a in arrays.items()}

    def make(node: Node) -> Any:
        if isinstance(node, list):
            raise SavedModelError("a saved model contains an unexpected list.")
        if not isinstance(node, dict):
            return node
        ((kind, content),) = node.items()
        match kind:
            case "array":
                return turned[content]
            case "float":
                return float(content)
            case "path":
                return Path(content)
            case "list" | "tuple" | "set" | "frozenset":
                return _SEQUENCES[kind](map(make, content))
            case "dict":
                return {make(key): make(each) for key, each in content}
            case "O" | "U":
                return np.array([make(each) for each in content], dtype=kind)
            case "class":
                name, fields = content
                return record_named(name).made({own: make(each) for own, each in fields.items()})
        raise SavedModelError(f"a saved model holds an unknown {kind!r}.")

    return make(node)
