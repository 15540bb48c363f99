"""Arrays that record what is done to them as an ONNX graph.

A `TracedArray` follows as much of the array API standard as predictions need. Operations on it
become nodes of its graph; constants beside it stay in NumPy until they meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from eigengp._typing import Array

Shape = tuple[int | None, ...]  # None is the number of rows, which is unknown until the graph runs.

_OPSET, _IR_VERSION = 17, 8  # Versions of ONNX that runtimes have supported since 2022.


class Graph:
    """The operations on one input, in their order, and the constants that they need."""

    def __init__(self, n_features: int, dtype: str) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[tuple[Any, ...], TensorProto] = {}
        self.argument = TracedArray(self, "X", (None, n_features), np.dtype(dtype))

    def add(
        self, operator: str, inputs: Sequence[Any], shape: Shape, dtype: Any, **attributes: Any
    ) -> TracedArray:
        """Record an operation on arrays, traced or constant, and return its result."""
        output = attributes.pop("output", f"{operator.lower()}_{len(self.nodes)}")
        names = [self._name(x) for x in inputs]
        self.nodes.append(helper.make_node(operator, names, [output], **attributes))
        return TracedArray(self, output, shape, np.dtype(dtype))

    def _name(self, x: Any) -> str:
        """Return the name of an array; equal constants are stored once."""
        if isinstance(x, TracedArray):
            return x.name
        value = np.asarray(x)
        key = (value.dtype, value.shape, value.tobytes())
        if key not in self.constants:
            name = f"constant_{len(self.constants)}"
            self.constants[key] = numpy_helper.from_array(value, name)
        return str(self.constants[key].name)

    def model(self, outputs: Mapping[str, TracedArray], **description: Any) -> ModelProto:
        """Return the graph in ONNX's format; `description` goes to `onnx.helper.make_model`."""
        X = self.argument
        named = [x.astype(X.dtype, output=name) for name, x in outputs.items()]
        infos = [
            helper.make_tensor_value_info(
                x.name, helper.np_dtype_to_tensor_dtype(x.dtype), [size or "n" for size in x.shape]
            )
            for x in (X, *named)
        ]
        body = helper.make_graph(
            self.nodes, "predict", infos[:1], infos[1:], list(self.constants.values())
        )
        opset = [helper.make_opsetid("", _OPSET)]
        return helper.make_model(body, opset_imports=opset, ir_version=_IR_VERSION, **description)


def _elementwise(operator: str, dtype: Any = None) -> Any:
    """Return an elementwise function; `dtype` is that of its result, if not of its arguments."""

    def function(*arrays: Any) -> TracedArray:
        shape = _broadcast(*arrays)
        like = next(x for x in arrays if isinstance(x, TracedArray))
        typed = _same_type(arrays)
        if len(shape) == 2:
            typed = [_spread(x, shape, like) for x in typed]
        return like.graph.add(operator, typed, shape, dtype or typed[0].dtype)

    return function


_NUMBERS = {"add": "Add", "multiply": "Mul", "subtract": "Sub", "divide": "Div", "power": "Pow"}
_TRUTHS = {"greater": "Greater", "less": "Less", "bitwise_and": "And"}
_TRUTHS |= {"greater_equal": "GreaterOrEqual", "less_equal": "LessOrEqual"}
_OPERATORS = {name: _elementwise(own) for name, own in {**_NUMBERS, "negative": "Neg"}.items()}
_OPERATORS |= {name: _elementwise(own, bool) for name, own in _TRUTHS.items()}
"""The operators of ONNX by the names of NumPy's."""


class TracedArray(NDArrayOperatorsMixin):
    """An array of a graph."""

    device = "graph"
    __iter__ = None

    def __init__(self, graph: Graph, name: str, shape: Shape, dtype: Any) -> None:
        self.graph, self.name, self.shape, self.dtype = graph, name, shape, dtype
        self.ndim = len(shape)

    def __array_namespace__(self, *, api_version: str | None = None) -> type[Namespace]:
        return Namespace

    def __array_ufunc__(self, ufunc: Any, method: str, *arrays: Any, **_: Any) -> Any:
        """Record what an operator does; other functions of NumPy are refused."""
        if ufunc is np.matmul:
            return _product(*arrays)
        operator = _OPERATORS.get(ufunc.__name__)
        return operator(*arrays) if operator else NotImplemented

    @property
    def T(self) -> TracedArray:
        """The transpose of a matrix."""
        return self.graph.add("Transpose", [self], self.shape[::-1], self.dtype, perm=[1, 0])

    def __getitem__(self, key: Any) -> TracedArray:
        """Return a part: slices with a step of one for each axis, or None for a new axis."""
        found = self
        for axis, part in enumerate(key if isinstance(key, tuple) else (key,)):
            if part is None:
                shape = (*found.shape[:axis], 1, *found.shape[axis:])
                found = self.graph.add("Unsqueeze", [found, [axis]], shape, self.dtype)
            elif not isinstance(part, slice) or part.step not in (None, 1):
                raise TypeError("Traced arrays support slices with a step of one only.")
            elif part != slice(None):
                found = found._cut(axis, part)
        return found

    def _cut(self, axis: int, part: slice) -> TracedArray:
        size = self.shape[axis]
        if size is None:
            raise TypeError("Traced arrays cannot be sliced by rows: their number is unknown.")
        start, stop, _ = part.indices(size)
        shape = _resized(self.shape, axis, max(0, stop - start))
        return self.graph.add("Slice", [self, [start], [stop], [axis]], shape, self.dtype)

    def astype(self, dtype: Any, **attributes: Any) -> TracedArray:
        """Return the array in another data type; itself if it has that type already."""
        if self.dtype == dtype and not attributes:
            return self
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.graph.add("Cast", [self], self.shape, dtype, to=code, **attributes)

    def __bool__(self) -> NoReturn:
        raise TypeError("The entries of a traced array are unknown until the graph runs.")

    __float__ = __int__ = __index__ = __bool__


class Namespace:
    """The functions of the standard for traced arrays, and for constants beside them."""

    float64, float32 = np.float64, np.float32
    abs, exp, log, sin, sqrt, tanh, maximum, minimum = (
        staticmethod(_elementwise(operator))
        for operator in ("Abs", "Exp", "Log", "Sin", "Sqrt", "Tanh", "Max", "Min")
    )
    asarray: Callable[..., Array] = staticmethod(
        lambda x, *, dtype=None, device=None: np.asarray(x, dtype=dtype)
    )
    log1p = staticmethod(lambda x: Namespace.log(1.0 + x))
    expm1 = staticmethod(lambda x: Namespace.exp(x) - 1.0)
    # onnxruntime has no cosine in float64.
    cos = staticmethod(lambda x: Namespace.sin(x + 0.5 * np.pi))
    astype = staticmethod(TracedArray.astype)
    ones_like = staticmethod(lambda x: _full_like(x, 1.0))
    zeros_like = staticmethod(lambda x: _full_like(x, 0.0))

    @staticmethod
    def clip(x: TracedArray, low: float, high: float) -> TracedArray:
        """Return `x` held between two numbers."""
        bounds = (np.asarray(bound, dtype=x.dtype) for bound in (low, high))
        return x.graph.add("Clip", [x, *bounds], x.shape, x.dtype)

    @staticmethod
    def where(condition: TracedArray, x: Any, z: Any) -> TracedArray:
        """Return `x` where the condition holds, and `z` elsewhere."""
        either, shape = _same_type([x, z]), _broadcast(condition, x, z)
        return condition.graph.add("Where", [condition, *either], shape, either[0].dtype)

    @staticmethod
    def sum(x: TracedArray, *, axis: int, keepdims: bool = False) -> TracedArray:
        """Return sums along an axis."""
        axis %= x.ndim
        shape = _resized(x.shape, axis, *(1,) * keepdims)
        return x.graph.add("ReduceSum", [x, [axis]], shape, x.dtype, keepdims=int(keepdims))

    @staticmethod
    def concat(arrays: Sequence[Any], *, axis: int) -> TracedArray:
        """Return arrays side by side; those without entries are left out."""
        parts = _same_type([x for x in arrays if x.shape[axis] != 0])
        graph = next(x.graph for x in parts if isinstance(x, TracedArray))
        sizes = [x.shape[axis] for x in parts]
        shape = _resized(parts[0].shape, axis, None if None in sizes else sum(sizes))
        return graph.add("Concat", parts, shape, parts[0].dtype, axis=axis)


def _product(left: Any, right: Any) -> TracedArray:
    """Return a product; one with a vector is one with a column, see `_spread`."""
    left, right = _same_type([left, right])
    graph = (left if isinstance(left, TracedArray) else right).graph
    if right.ndim == 1:
        column = _product(left, right[:, None])
        return graph.add("Squeeze", [column, [1]], column.shape[:1], column.dtype)
    return graph.add("MatMul", [left, right], (*left.shape[:-1], *right.shape[1:]), left.dtype)


def _full_like(x: TracedArray, value: float) -> TracedArray:
    size = x.graph.add("Shape", [x], (x.ndim,), np.int64)
    filling = numpy_helper.from_array(np.full(1, value, dtype=x.dtype))
    return x.graph.add("ConstantOfShape", [size], x.shape, x.dtype, value=filling)


def _spread(x: Any, shape: Shape, like: TracedArray) -> Any:
    """Return a number beside a matrix as several: one for each column, or each row.

    onnxruntime fuses a scalar beside a product into the product, and stores it there in float32.
    """
    if isinstance(x, TracedArray) or x.size > 1:
        return x
    sizes = tuple(size or 1 for size in shape)
    if np.prod(sizes) > 1 or like.shape != shape:
        return np.full(sizes, x)
    return _full_like(like, x.item())


def _same_type(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays and numbers as arrays of their common data type."""
    common = np.result_type(*(getattr(x, "dtype", x) for x in arrays))
    return [
        x.astype(common) if isinstance(x, TracedArray) else np.asarray(x, dtype=common)
        for x in arrays
    ]


def _resized(shape: Shape, axis: int, *sizes: int | None) -> Shape:
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def _broadcast(*arrays: Any) -> Shape:
    """Return the shape of the result; an unknown length broadcasts with one only."""
    shapes = [np.shape(x) for x in arrays]
    unknown = 1 + max((size or 0 for shape in shapes for size in shape), default=0)
    known = [[unknown if size is None else size for size in shape] for shape in shapes]
    return tuple(None if size == unknown else size for size in np.broadcast_shapes(*known))
