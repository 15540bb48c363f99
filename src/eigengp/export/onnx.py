"""A fitted model as an ONNX graph, which runs without Python and without this library.

The graph is what the posterior's own formulas do to a traced array, so there is no second set of
formulas, and every kernel that works with other array libraries can be exported.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from sklearn.utils.validation import check_is_fitted

import eigengp
from eigengp._atomic import write_atomically
from eigengp.backend.namespace import cast, namespace
from eigengp.estimators.base import GPEstimator
from eigengp.gp.latent import NeighborLatent
from eigengp.gp.mean import check_mean
from eigengp.gp.posterior import Posterior, Predictive
from eigengp.gp.precision import Arithmetic
from eigengp.gp.target_maps import compute_moments
from eigengp.gp.variational import LatentPosterior
from eigengp.gp.vecchia_posterior import VecchiaPosterior
from eigengp.inspection import feature_names

if TYPE_CHECKING:
    from onnx import ModelProto

    from eigengp.export.graph import TracedArray

InputType = Literal["float64", "float32"]

_MAX_BYTES = 2_000_000_000  # A graph with its constants must fit into one protobuf message.


def to_onnx(model: GPEstimator, *, input_type: InputType = "float64") -> ModelProto:
    """Return the predictions of a fitted model as an ONNX graph.

    Its input `X` has the shape (n, D), in the units of the data, with any number of rows. Its
    outputs `mean` and `std`, each of shape (n,), are those of `predict(X, return_std=True)`:
    noise is included. Everything is computed in float64, also where the model has
    `precision="mixed"` or `"single"`. A row with NaN gives NaN, where `predict` raises an error.
    A classifier has the output `probabilities`, of shape (n, C), and its labels in the metadata
    (`classes`, a JSON list).

    The metadata of the graph hold the names of the inputs (`feature_names`, a JSON list), the
    method, the kernel and the noise variance; its producer is this library, with its version.

    Parameters
    ----------
    model : GPRegressor or EigenGPClassifier
        A fitted model; `residual="neighbors"` is not supported: its predictions search for
        the nearest training rows.
    input_type : {"float64", "float32"}
        The type of the input, and of the outputs.

    Returns
    -------
    graph : onnx.ModelProto
        The graph, checked.

    Raises
    ------
    ValueError
        If ONNX cannot express the posterior: with `residual="neighbors"`, with a custom kernel
        that calls NumPy, or if it is larger than ONNX allows (2 GB).

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import EigenGPRegressor
    >>> from eigengp.export import to_onnx
    >>> X = np.linspace(0, 6, 80)[:, None]
    >>> model = EigenGPRegressor(8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> graph = to_onnx(model)
    >>> [each.name for each in graph.graph.output]
    ['mean', 'std']
    """
    try:
        import array_api_compat  # noqa: F401
        import onnx

        from eigengp.export.graph import Graph
    except ImportError as error:
        raise ImportError(
            f'ONNX graphs need the package {error.name}: pip install "eigengp[onnx]".'
        ) from error
    check_is_fitted(model)
    if input_type not in get_args(InputType):
        raise ValueError(f'input_type must be "float64" or "float32", got {input_type!r}.')
    posterior = _exportable(model)
    graph = Graph(model._scaling.input_scale.size, input_type)
    proto = graph.model(
        _predict(model, posterior, graph.argument),
        producer_name="eigengp",
        producer_version=eigengp.__version__,
        doc_string="Probabilities of classes."
        if isinstance(posterior, LatentPosterior)
        else "Predictive mean and standard deviation, noise included.",
    )
    proto.graph.name = type(model).__name__
    onnx.helper.set_model_props(proto, _metadata(model))
    onnx.checker.check_model(proto, full_check=True)
    return proto


def write_onnx(model: GPEstimator, path: str | Path, *, input_type: InputType = "float64") -> None:
    """Write the predictions of a fitted model to an ONNX file; see `to_onnx`.

    The file is replaced only once it is complete; an error leaves the previous file unchanged.

    Parameters
    ----------
    model : GPRegressor or EigenGPClassifier
        A fitted model.
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
    >>> model = SSGPRegressor(8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> with TemporaryDirectory() as folder:
    ...     write_onnx(model, Path(folder) / "waves.onnx")
    ...     [each.name for each in Path(folder).iterdir()]
    ['waves.onnx']
    """
    write_atomically(Path(path), to_onnx(model, input_type=input_type).SerializeToString())


def _exportable(model: GPEstimator) -> Predictive:
    """Return a copy of the posterior, in double precision, or raise an error.

    A copy, because a posterior caches what it has converted to other array libraries.
    """
    posterior: Any = deepcopy(model._posterior)
    check_mean(model, "exported to ONNX")
    if isinstance(posterior, LatentPosterior) and not hasattr(model, "classes_"):
        raise ValueError(
            "Several outputs and likelihoods other than Gaussian noise and classes cannot be "
            "exported to ONNX; save the model instead."
        )
    if isinstance(posterior, VecchiaPosterior | NeighborLatent):
        raise ValueError(
            'Models with residual="neighbors" search for the nearest rows in each prediction, '
            'which ONNX cannot express. Fit with residual=None or "diagonal" to export.'
        )
    size = 8 * posterior.n_columns**2
    if size > _MAX_BYTES:
        raise ValueError(
            f"The posterior has {posterior.n_columns} features for each row, and its graph would "
            f"take {1e-9 * size:.1f} GB, where ONNX allows 2 GB. Use a sparse method such as "
            "EigenGPRegressor, or fit fewer rows."
        )
    own = getattr(posterior, "own", posterior)  # Without heteroscedastic noise.
    double = replace(own, arithmetic=Arithmetic()) if isinstance(own, Posterior) else own
    return double if own is posterior else replace(posterior, own=double)


def _predict(model: GPEstimator, posterior: Predictive, X: TracedArray) -> dict[str, Any]:
    """Return mean and standard deviation of a traced input, or the probabilities of classes."""
    scaling = deepcopy(model._scaling)
    try:
        inputs = scaling.transform_inputs(cast(X, "float64"))
        if isinstance(posterior, LatentPosterior):
            likelihood: Any = posterior.likelihood
            return {"probabilities": likelihood.predict_classes(*posterior.latent(inputs))}
        mean, variance = posterior.mean_and_variance(inputs)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            f"The kernel {model.kernel_!r} cannot be exported ({error}). A custom kernel must take "
            "its functions from the array it is given, by `xp = "
            "eigengp.backend.namespace.namespace(t)`, and not from NumPy; see `Matern32`."
        ) from error
    std = scaling.target_scale * namespace(variance).sqrt(variance)
    found = scaling.restore_targets(X, mean), std
    if model._target_map is not None:
        found = compute_moments(model._target_map, *found)
    return dict(zip(("mean", "std"), found, strict=True))


def _metadata(model: GPEstimator) -> dict[str, str]:
    known = {
        "feature_names": json.dumps(feature_names(model)),
        "method": type(model).__name__,
        "kernel": repr(model.kernel_),
    }
    if (own := model._scaling.unit_map) is not None:
        known["input_map"] = json.dumps(own.tolist())
    if hasattr(model, "classes_"):
        return {**known, "classes": json.dumps(model.classes_.tolist())}
    return {**known, "noise_variance": repr(float(model.noise_variance_))}
