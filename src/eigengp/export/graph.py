"""Arrays that are not there yet: what is done to them becomes a graph.

A `Traced` array follows as much of the array API standard as predictions need. What depends on
the input becomes a node of the graph, and what does not stays in NumPy and is computed at once, so
the graph is as short as the formula. The nodes are those of ONNX (operators of version 17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from eigengp._typing import Array

Shape = tuple[int | None, ...]
"""None is the number of rows, which is not known."""


class Node(NamedTuple):
    """One operation."""

    operator: str
    """Its name in ONNX."""
    inputs: tuple[str, ...]
    output: str
    attributes: dict[str, Any]


@dataclass
class Graph:
    """The operations on one input, in their order, and the constants that they need."""

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def argument(self, name: str, shape: Shape, dtype: str) -> Traced:
        """Return the array that the graph will be given."""
        return Traced(self, name, shape, np.dtype(dtype))

    def constant(self, value: Any, dtype: Any) -> str:
        """Return the name of a constant; equal ones are stored once."""
        x = np.asarray(value, dtype=dtype)
        key = (x.dtype, x.shape, x.tobytes())
        name = self._known.setdefault(key, f"constant_{len(self._known)}")
        self.constants.setdefault(name, x)
        return name

    def add(
        self, operator: str, inputs: Sequence[str], shape: Shape, dtype: Any, **attributes: Any
    ) -> Traced:
        """Record an operation and return its result."""
        output = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(Node(operator, tuple(inputs), output, attributes))
        return Traced(self, output, shape, np.dtype(dtype))

    def elementwise(self, operator: str, *arrays: Any, dtype: Any = None) -> Traced:
        """Record an operation entry by entry, with the rules of broadcasting and of types.

        `dtype` is that of the result, where it is not that of the operands.
        """
        common = np.result_type(*(x if _is_number(x) else x.dtype for x in arrays))
        shape = _broadcast([np.shape(x) for x in arrays])
        if len(shape) == 2:
            like = next(x for x in arrays if isinstance(x, Traced))
            arrays = tuple(_spread(x, shape, like) for x in arrays)
        inputs = [self.name_of(x, common) for x in arrays]
        return self.add(operator, inputs, shape, dtype or common)

    def name_of(self, x: Any, dtype: Any) -> str:
        """Return the name of an array, traced or constant, in this data type."""
        return x.astype(dtype).name if isinstance(x, Traced) else self.constant(x, dtype)

    def needed(self, outputs: Iterable[str]) -> list[Node]:
        """Return the operations that the outputs depend on, in their order."""
        wanted, found = set(outputs), []
        for node in reversed(self.nodes):
            if node.output in wanted:
                wanted.update(node.inputs)
                found.append(node)
        return found[::-1]


def _binary(operator: str, swapped: bool = False, dtype: Any = None) -> Any:
    def method(self: Traced, other: Any) -> Traced:
        pair = (other, self) if swapped else (self, other)
        return self.graph.elementwise(operator, *pair, dtype=dtype)

    return method


@dataclass(frozen=True, eq=False)
class Traced:
    """An array of a graph."""

    graph: Graph
    name: str
    shape: Shape
    dtype: Any

    device = "graph"
    __array_ufunc__ = None  # NumPy leaves operations with a traced array to it.
    __iter__ = None

    __add__ = __radd__ = _binary("Add")
    __mul__ = __rmul__ = _binary("Mul")
    __sub__ = _binary("Sub")
    __rsub__ = _binary("Sub", swapped=True)
    __truediv__ = _binary("Div")
    __rtruediv__ = _binary("Div", swapped=True)
    __pow__ = _binary("Pow")
    __gt__ = _binary("Greater", dtype=bool)
    __lt__ = _binary("Less", dtype=bool)
    __ge__ = _binary("GreaterOrEqual", dtype=bool)
    __le__ = _binary("LessOrEqual", dtype=bool)

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        return NAMESPACE

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    @property
    def T(self) -> Traced:
        """The transpose of a matrix."""
        return self.graph.add("Transpose", [self.name], self.shape[::-1], self.dtype, perm=[1, 0])

    def __neg__(self) -> Traced:
        return self.graph.elementwise("Neg", self)

    def __matmul__(self, other: Any) -> Traced:
        return self._product(self, other)

    def __rmatmul__(self, other: Any) -> Traced:
        return self._product(other, self)

    def _product(self, left: Any, right: Any) -> Traced:
        """Return a product; one with a vector is one with a column, see `_spread`."""
        if len(right.shape) == 1:
            column = self._product(left, right[:, None])
            axis = self.graph.constant([1], np.int64)
            return self.graph.add("Squeeze", [column.name, axis], column.shape[:1], column.dtype)
        common = np.result_type(left.dtype, right.dtype)
        inputs = [self.graph.name_of(x, common) for x in (left, right)]
        shape = (*left.shape[:-1], *right.shape[1:])
        return self.graph.add("MatMul", inputs, shape, common)

    def __getitem__(self, key: Any) -> Traced:
        """Return a part: slices with a step of one for each axis, or None for a new axis."""
        key = key if isinstance(key, tuple) else (key,)
        found = self
        for axis, part in enumerate(key):
            if part is None:
                found = found._with_axis(axis)
                continue
            if not isinstance(part, slice) or part.step not in (None, 1):
                raise TypeError("A traced array can be cut by slices with a step of one alone.")
            if part != slice(None):
                found = found._cut(axis, part)
        return found

    def _with_axis(self, axis: int) -> Traced:
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        axes = self.graph.constant([axis], np.int64)
        return self.graph.add("Unsqueeze", [self.name, axes], shape, self.dtype)

    def _cut(self, axis: int, part: slice) -> Traced:
        size = self.shape[axis]
        if size is None:
            raise TypeError("The rows of a traced array cannot be cut: their number is not known.")
        start, stop, _ = part.indices(size)
        bounds = [self.graph.constant([x], np.int64) for x in (start, stop, axis)]
        shape = (*self.shape[:axis], max(0, stop - start), *self.shape[axis + 1 :])
        return self.graph.add("Slice", [self.name, *bounds], shape, self.dtype)

    def astype(self, dtype: Any) -> Traced:
        """Return the array in another data type; itself where it is so already."""
        if self.dtype == dtype:
            return self
        code = _TENSOR_TYPES[np.dtype(dtype).name]
        return self.graph.add("Cast", [self.name], self.shape, dtype, to=code)

    def __bool__(self) -> NoReturn:
        raise TypeError("The entries of a traced array are not known until the graph runs.")

    __float__ = __int__ = __index__ = __bool__


_TENSOR_TYPES = {"float32": 1, "int64": 7, "bool": 9, "float64": 11}
"""The numbers of the data types in ONNX."""


def _unary(operator: str) -> Callable[[Traced], Traced]:
    def function(x: Traced, /) -> Traced:
        return x.graph.elementwise(operator, x)

    return function


class Namespace:
    """The functions of the standard for traced arrays, and for constants beside them."""

    __name__ = "eigengp.export.graph"
    float64, float32 = np.float64, np.float32
    abs = staticmethod(_unary("Abs"))
    exp = staticmethod(_unary("Exp"))
    log = staticmethod(_unary("Log"))
    sin = staticmethod(_unary("Sin"))
    sqrt = staticmethod(_unary("Sqrt"))
    tanh = staticmethod(_unary("Tanh"))

    def cos(self, x: Traced, /) -> Traced:
        """Return the sine a quarter turn on: some runtimes have no cosine in float64."""
        return self.sin(x + 0.5 * np.pi)

    def log1p(self, x: Traced, /) -> Traced:
        """Return `ln(1 + x)`."""
        return self.log(1.0 + x)

    def asarray(self, x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
        """Return a constant, which stays in NumPy."""
        return np.asarray(x, dtype=dtype)

    def astype(self, x: Traced, dtype: Any, /) -> Traced:
        """Return `x` in another data type."""
        return x.astype(dtype)

    def maximum(self, x: Traced, z: Any, /) -> Traced:
        """Return the larger of two."""
        return x.graph.elementwise("Max", x, z)

    def minimum(self, x: Traced, z: Any, /) -> Traced:
        """Return the smaller of two."""
        return x.graph.elementwise("Min", x, z)

    def clip(self, x: Traced, low: float, high: float, /) -> Traced:
        """Return `x` held between two numbers."""
        bounds = [x.graph.constant(value, x.dtype) for value in (low, high)]
        return x.graph.add("Clip", [x.name, *bounds], x.shape, x.dtype)

    def where(self, condition: Traced, x: Any, z: Any, /) -> Traced:
        """Return `x` where the condition holds, and `z` elsewhere."""
        graph = condition.graph
        common = np.result_type(*(each if _is_number(each) else each.dtype for each in (x, z)))
        shape = _broadcast([np.shape(each) for each in (condition, x, z)])
        inputs = [condition.name, *(graph.name_of(each, common) for each in (x, z))]
        return graph.add("Where", inputs, shape, common)

    def sum(self, x: Traced, /, *, axis: int, keepdims: bool = False) -> Traced:
        """Return sums along an axis."""
        axis %= x.ndim
        axes = x.graph.constant([axis], np.int64)
        rest = (1,) if keepdims else ()
        shape = (*x.shape[:axis], *rest, *x.shape[axis + 1 :])
        inputs = [x.name, axes]
        return x.graph.add("ReduceSum", inputs, shape, x.dtype, keepdims=int(keepdims))

    def concat(self, arrays: Sequence[Any], /, *, axis: int) -> Traced:
        """Return arrays side by side; those without entries are left out."""
        parts = [each for each in arrays if each.shape[axis] != 0]
        graph = next(each.graph for each in parts if isinstance(each, Traced))
        common = np.result_type(*(each.dtype for each in parts))
        sizes = [each.shape[axis] for each in parts]
        shape = list(parts[0].shape)
        shape[axis] = None if None in sizes else sum(sizes)
        inputs = [graph.name_of(each, common) for each in parts]
        return graph.add("Concat", inputs, tuple(shape), common, axis=axis)

    def ones_like(self, x: Traced, /) -> Traced:
        """Return ones in the shape of `x`."""
        return _filled(x, 1.0)

    def zeros_like(self, x: Traced, /) -> Traced:
        """Return zeros in the shape of `x`."""
        return _filled(x, 0.0)


NAMESPACE = Namespace()


def _filled(x: Traced, value: float) -> Traced:
    size = x.graph.add("Shape", [x.name], (x.ndim,), np.int64)
    filling = np.full(1, value, dtype=x.dtype)
    return x.graph.add("ConstantOfShape", [size.name], x.shape, x.dtype, value=filling)


def _spread(x: Any, shape: Shape, like: Traced) -> Any:
    """Return a number beside a matrix as several: one for each column, or each row.

    onnxruntime pulls a scalar beside a product into the product, and holds it there in float32.
    """
    if isinstance(x, Traced) or np.size(x) > 1:
        return x
    sizes = tuple(size or 1 for size in shape)
    if np.prod(sizes) > 1 or like.shape != shape:
        return np.full(sizes, x)
    return _filled(like, np.asarray(x).item())


def _is_number(x: Any) -> bool:
    return isinstance(x, float | int) and not isinstance(x, np.generic)


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape of the result; an axis whose length is not known stays so."""
    rank = max(map(len, shapes))
    padded = [(*(1,) * (rank - len(each)), *each) for each in shapes]
    return tuple(_length({*sizes} - {1}) for sizes in zip(*padded, strict=True))


def _length(sizes: set[int | None]) -> int | None:
    if len(sizes) > 1:
        raise ValueError(f"Axes of the lengths {sizes} do not go together.")
    return sizes.pop() if sizes else 1
