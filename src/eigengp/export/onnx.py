"""A fitted model as an ONNX graph, which runs without Python and without this library.

The graph is what the posterior's own formulas do to a traced array, so there is no second set of
formulas, and every kernel that works with rows of any array library works here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

import eigengp
from eigengp._atomic import write_atomically
from eigengp.backend.namespace import cast
from eigengp.estimators.base import GPRegressor
from eigengp.export.graph import NAMESPACE, Graph, Node, Traced
from eigengp.gp.heteroscedastic import HeteroscedasticPosterior
from eigengp.gp.posterior import Posterior, Predictive
from eigengp.gp.precision import Arithmetic
from eigengp.gp.vecchia_posterior import VecchiaPosterior

if TYPE_CHECKING:
    from onnx import ModelProto

InputType = Literal["float64", "float32"]

_OPERATORS, _FORMAT = 17, 8
"""Versions of ONNX that runtimes have known since 2022."""
_MOST_BYTES = 2_000_000_000
"""A graph with its numbers must fit into one message of protobuf."""


def to_onnx(model: GPRegressor, *, input_type: InputType = "float64") -> ModelProto:
    """Return the predictions of a fitted model as an ONNX graph.

    Its input `X` has the shape (n, D), in the units of the data, with any number of rows. Its
    outputs `mean` and `std`, each of shape (n,), are those of `predict(X, return_std=True)`:
    noise is included. Everything is computed in float64, also where the model has
    `precision="mixed"` or `"single"`. A row with NaN gives NaN, where `predict` raises an error.

    The metadata of the graph hold the names of the inputs (`feature_names`, a JSON list), the
    method, the kernel and the noise variance; its producer is this library, with its version.

    Parameters
    ----------
    model : GPRegressor
        A fitted regressor: any but one with `residual="local"`, whose predictions search for the
        nearest training rows.
    input_type : {"float64", "float32"}
        The type of the input, and of the outputs.

    Returns
    -------
    graph : onnx.ModelProto
        The graph, checked.

    Raises
    ------
    ValueError
        If the posterior cannot be a graph: with the local residual, with a kernel of your own
        that calls NumPy, or if it is larger than ONNX allows (2 GB).

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> from eigengp.export import to_onnx
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = EigenGPRegressor(8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> graph = to_onnx(model)
    >>> [each.name for each in graph.graph.output]
    ['mean', 'std']
    """
    onnx = _onnx()
    check_is_fitted(model)
    if input_type not in ("float64", "float32"):
        raise ValueError(f'input_type must be "float64" or "float32", got {input_type!r}.')
    posterior = _exportable(model)
    X = Graph().argument("X", (None, model.n_features_in_), input_type)
    outputs = _traced(model, posterior, X)
    proto = _proto({name: cast(x, input_type) for name, x in outputs.items()}, X)
    proto.graph.name = type(model).__name__
    onnx.helper.set_model_props(proto, _about(model))
    onnx.checker.check_model(proto, full_check=True)
    return proto


def write_onnx(model: GPRegressor, path: str | Path, *, input_type: InputType = "float64") -> None:
    """Write the predictions of a fitted model to an ONNX file; see `to_onnx`.

    The file appears when it is whole; an error leaves what was there before.

    Parameters
    ----------
    model : GPRegressor
        A fitted regressor.
    path : path
        The file, which should end in `.onnx`.
    input_type : {"float64", "float32"}
        The type of the input, and of the outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> from eigengp import SSGPRegressor
    >>> from eigengp.export import write_onnx
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = SSGPRegressor(8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> with TemporaryDirectory() as folder:
    ...     write_onnx(model, Path(folder) / "waves.onnx")
    ...     [each.name for each in Path(folder).iterdir()]
    ['waves.onnx']
    """
    write_atomically(Path(path), to_onnx(model, input_type=input_type).SerializeToString())


def _onnx() -> Any:
    """Return ONNX with its parts, or say what is to be installed."""
    try:
        import array_api_compat  # noqa: F401
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError(
            f'ONNX graphs need the package {error.name}: pip install "eigengp[onnx]".'
        ) from error
    return onnx


def _exportable(model: GPRegressor) -> Predictive:
    """Return a copy of the posterior, in double precision, or say why it cannot be a graph.

    A copy, for a posterior remembers what it has moved beside the rows.
    """
    posterior = model._posterior
    if isinstance(posterior, VecchiaPosterior):
        raise ValueError(
            'A model with residual="local" searches for the nearest training rows in each '
            'prediction, which is more than a graph can hold. Fit with residual=None or "diagonal" '
            "to export, or keep this model in Python."
        )
    size = 8 * posterior.n_columns**2
    if size > _MOST_BYTES:
        raise ValueError(
            f"The posterior has {posterior.n_columns} features for each row, and its graph would "
            f"take {1e-9 * size:.1f} GB, where ONNX allows 2 GB. Use a sparse method such as "
            "EigenGPRegressor, or fit fewer rows."
        )
    own = deepcopy(posterior)
    if isinstance(own, HeteroscedasticPosterior):
        return replace(own, own=replace(own.own, arithmetic=Arithmetic()))
    return replace(own, arithmetic=Arithmetic()) if isinstance(own, Posterior) else own


def _traced(model: GPRegressor, posterior: Predictive, X: Traced) -> dict[str, Traced]:
    """Return mean and standard deviation, in the units of the data, of a traced input."""
    scaling = deepcopy(model._scaling)
    try:
        mean, variance = posterior.mean_and_variance(scaling.inputs(cast(X, "float64")))
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"The kernel {model.kernel_!r} cannot be written as a graph ({error}). A kernel of "
            "your own must take its functions from the array it is given, by `xp = "
            "eigengp.backend.namespace.namespace(t)`, and not from NumPy; `Matern32` shows how."
        ) from error
    std = scaling.target_scale * NAMESPACE.sqrt(variance)
    return {"mean": model._mean(mean), "std": std}


def _proto(outputs: Mapping[str, Traced], X: Traced) -> ModelProto:
    """Return what was traced in ONNX's own format."""
    onnx, graph = _onnx(), X.graph
    make, as_tensor = onnx.helper, onnx.numpy_helper.from_array
    names = {x.name: name for name, x in outputs.items()}
    nodes = graph.needed(names)
    used = {name for node in nodes for name in node.inputs}

    def value(x: Traced, name: str) -> Any:
        code = make.np_dtype_to_tensor_dtype(x.dtype)
        return make.make_tensor_value_info(name, code, [size or "n" for size in x.shape])

    body = make.make_graph(
        [_node(node, names) for node in nodes],
        "predict",
        [value(X, X.name)],
        [value(x, name) for name, x in outputs.items()],
        [as_tensor(x, name) for name, x in graph.constants.items() if name in used],
    )
    proto: ModelProto = make.make_model(
        body,
        opset_imports=[make.make_opsetid("", _OPERATORS)],
        ir_version=_FORMAT,
        producer_name="eigengp",
        producer_version=eigengp.__version__,
        doc_string="Predictive mean and standard deviation, noise included.",
    )
    return proto


def _node(node: Node, names: Mapping[str, str]) -> Any:
    """Return an operation in ONNX's own format; `names` are those of the outputs."""
    onnx = _onnx()
    attributes = {
        name: onnx.numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in node.attributes.items()
    }
    output = names.get(node.output, node.output)
    inputs = [names.get(name, name) for name in node.inputs]
    return onnx.helper.make_node(node.operator, inputs, [output], **attributes)


def _about(model: GPRegressor) -> dict[str, str]:
    """Return what the metadata say of a model."""
    unnamed = [f"x{d}" for d in range(model.n_features_in_)]
    return {
        "feature_names": json.dumps(list(getattr(model, "feature_names_in_", unnamed))),
        "method": type(model).__name__,
        "kernel": repr(model.kernel_),
        "noise_variance": repr(float(model.noise_variance_)),
    }
