"""From a fitted model to JSON and arrays, and back.

Numbers and texts stand for themselves; whatever else is a dict with one key
that says what it is. Objects and lists are kept in one table, in which each
comes after all that it holds: what two of them share is stored once and shared
again, and there are no circles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigengp.backend.namespace import is_numpy, on_host
from eigengp.io.errors import SavedModelError
from eigengp.io.record import check_finite
from eigengp.io.registry import record_named, record_of

Node = Any
"""What JSON can hold."""
AnArray = NDArray[Any]

_KINDS, _WIDEST = "fiub", 8
"""What kinds of numbers arrays may hold, and in how many bytes each."""
_MOST_OBJECTS, _DEEPEST = 20_000, 100
"""How many objects, each with all that it holds, and how deep: a model has some hundreds."""


def check_size(objects: Sequence[Node]) -> None:
    """Raise if objects are too many or nested too deep, counted wherever they are used.

    What is shared takes little room in a file, but time wherever it is used: a chain of sums of a
    kernel with itself doubles with every link.
    """
    sizes: list[int] = []
    depths: list[int] = []
    total = 0
    for node in objects:
        held = [at for at in _references(node) if at in range(len(sizes))]
        sizes.append(sum(sizes[at] for at in held) + ("class" in node or bool(held)))
        depths.append(1 + max((depths[at] for at in held), default=0))
        total += sizes[-1]
        if total > _MOST_OBJECTS or depths[-1] > _DEEPEST:
            raise SavedModelError(
                f"a saved model has at most {_MOST_OBJECTS} objects, at most {_DEEPEST} deep; this "
                "one has more. Is its kernel a sum or product of very many?"
            )


def _references(node: Node) -> Iterator[int]:
    """Yield the numbers of the objects that a node holds."""
    if isinstance(node, dict) and isinstance(node.get("object"), int):
        yield node["object"]
    elif isinstance(node, dict | list):
        for each in node.values() if isinstance(node, dict) else node:
            yield from _references(each)


@dataclass
class Writer:
    """Takes values apart."""

    objects: list[Node] = field(default_factory=list)
    arrays: dict[str, AnArray] = field(default_factory=dict)
    _nodes: dict[int, tuple[Node, Any]] = field(default_factory=dict)
    """Nodes by the `id` of what they stand for, which is kept: its `id` stays taken."""

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
        if type(value) is dict:
            return self._dict(value, where)
        if type(value) is tuple:
            return {"tuple": [self.node(each, where) for each in value]}
        if id(value) not in self._nodes:
            self._nodes[id(value)] = self._once(value, where), value
        return self._nodes[id(value)][0]

    def _dict(self, value: dict[Any, Any], where: str) -> Node:
        nodes = [[self.node(key, where), self.node(each, where)] for key, each in value.items()]
        return {"dict": dict(nodes)} if all(type(key) is str for key in value) else {"pairs": nodes}

    def _once(self, value: Any, where: str) -> Node:
        """Return what stands for a value that may be shared."""
        if type(value) is list:
            return self._added({"list": [self.node(each, where) for each in value]})
        record = record_of(type(value))
        if record is not None:
            owner = record.name
            own = record.fields_of(value)
            check_finite(owner, own)
            nodes = {name: self.node(each, f"{owner}.{name}") for name, each in own.items()}
            return self._added({"class": owner, "fields": nodes})
        if hasattr(value, "__dlpack__"):
            return self._array(value if is_numpy(value) else on_host(value), where)
        name = type(value).__name__
        raise SavedModelError(
            f"{where} is a {name}, and a saved model holds only classes that eigengp knows. If it "
            f"is a class of yours, call eigengp.io.register({name}) before you save, and wherever "
            "you load; else leave it out."
        )

    def _added(self, node: Node) -> Node:
        self.objects.append(node)
        return {"object": len(self.objects) - 1}

    def _array(self, array: AnArray, where: str) -> Node:
        if array.dtype.kind in "OU":
            kind = "names" if array.dtype.kind == "O" else "text"
            return {kind: [self.node(each, where) for each in array.tolist()]}
        if array.dtype.kind not in _KINDS or array.dtype.itemsize > _WIDEST:
            raise SavedModelError(f"{where} is an array of {array.dtype}, which cannot be saved.")
        name = str(len(self.arrays))
        column_by_column = array.flags.f_contiguous and not array.flags.c_contiguous
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        self.arrays[name] = np.asarray(native.T if column_by_column else native, order="C")
        return {"transposed" if column_by_column else "array": name}


@dataclass
class Reader:
    """Makes values again."""

    objects: Sequence[Node]
    arrays: dict[str, AnArray]
    _made: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_size(self.objects)
        for each in self.objects:
            self._made.append(self._object(each))

    def _object(self, node: Node) -> Any:
        if "list" in node:
            return [self.value(each) for each in node["list"]]
        own = {name: self.value(each) for name, each in node["fields"].items()}
        return record_named(node["class"]).made(own)

    def value(self, node: Node) -> Any:
        """Return the value that a node stands for."""
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise SavedModelError("a saved model contains an unexpected list.")
            return node
        ((kind, content),) = node.items()
        match kind:
            case "object" if content in range(len(self._made)):
                return self._made[content]
            case "array":
                return self.arrays[content]
            case "transposed":
                return self.arrays[content].T
            case "float":
                return float(content)
            case "path":
                return Path(content)
            case "tuple":
                return tuple(self.value(each) for each in content)
            case "dict":
                return {key: self.value(each) for key, each in content.items()}
            case "pairs":
                return {self.value(key): self.value(each) for key, each in content}
            case "names":
                return np.array([self.value(each) for each in content], dtype=object)
            case "text":
                return np.array([self.value(each) for each in content], dtype=np.str_)
        raise SavedModelError(f"a saved model holds an unknown {kind!r}.")
