"""Saving and loading fitted models."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from eigengp._atomic import check_target
from eigengp.estimators.base import GPEstimator
from eigengp.io import container
from eigengp.io.container import SavedModelError
from eigengp.io.tree import Writer, make_value

FORMAT = 2  # The newest format: raised when files change so that earlier versions cannot read them.
SUFFIX = ".eigengp"
_SHOWN = ("format", "class", "versions", "n_features", "feature_names")


@dataclass(frozen=True)
class Saved:
    """What a file holds."""

    model: GPEstimator
    """The fitted model."""
    about: dict[str, Any]
    """What was stored beside it."""
    header: dict[str, Any]
    """Format, class, versions, number and names of the inputs."""


def save(model: GPEstimator, path: str | Path, *, about: Mapping[str, Any] | None = None) -> None:
    """Write a fitted model to one file, which `load` reads.

    Parameters
    ----------
    model : GPEstimator
        A fitted estimator of eigengp.
    path : path
        The file, which ends in `.eigengp`. It is written atomically, and replaces a file of the
        same name.
    about : mapping or None
        Information of your own to store with the model, as JSON.

    Raises
    ------
    SavedModelError
        If a part of the model cannot be stored.

    Notes
    -----
    The file has the safetensors format: arrays, and a JSON header in the metadata. A `RandomState`
    is stored with its state. Arrays of other libraries are stored, and loaded, as NumPy arrays.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from eigengp import ExactGPRegressor, io
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = ExactGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     io.save(model, f"{folder}/sine.eigengp", about={"unit": "m"})
    ...     saved = io.read(f"{folder}/sine.eigengp")
    >>> bool(np.all(saved.model.predict(X) == model.predict(X))), saved.about["unit"]
    (True, 'm')
    """
    check_is_fitted(model)
    check_target(Path(path), [SUFFIX])
    writer = Writer()
    names = getattr(model, "feature_names_in_", None)
    header = {
        "format": FORMAT,
        "class": type(model).__name__,
        "versions": get_versions(),
        "n_features": int(model.n_features_in_),
        "feature_names": None if names is None else list(map(str, names)),
        "model": writer.node(model, "The model"),
    }
    try:
        header["about"] = json.loads(json.dumps(dict(about or {})))
    except (TypeError, ValueError) as error:
        raise SavedModelError(f"about must be what JSON can hold: {error}.") from error
    container.write(Path(path), header, writer.arrays)


def load(path: str | Path) -> GPEstimator:
    """Read a model that `save` wrote.

    No code from the file is executed. Only classes of the library, and those registered with
    `eigengp.io.register`, are created.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    model : GPEstimator
        The fitted model. Its predictions are bit-identical to those of the saved model.

    Raises
    ------
    SavedModelError
        If the file is incomplete or was changed, has a newer format, or is not a saved model.
    ImportError
        If the model needs a package that is not installed.

    Examples
    --------
    >>> import numpy as np, tempfile, eigengp
    >>> X = np.linspace(0, 6, 30)[:, None]
    >>> model = eigengp.ExactGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/sine.eigengp")
    ...     again = eigengp.load(f"{folder}/sine.eigengp")
    >>> bool(np.all(again.predict(X) == model.predict(X)))
    True
    """
    return read(path).model


def read(path: str | Path) -> Saved:
    """Read a model with all information stored in its file.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    saved : Saved
        The model, the `about` passed to `save`, and the header.
    """
    source = Path(path)
    if source.is_dir():
        raise IsADirectoryError(f"{source} is a folder, not a saved model.")
    if source.exists() and not source.is_file():  # A pipe or a device may never end.
        raise SavedModelError(f"{source} is not a regular file.")
    header, arrays = container.read(source)
    try:
        model, about = _made(header, arrays), dict(header["about"])
        shown = {name: header[name] for name in _SHOWN}
    except ImportError as error:
        raise ImportError(f"{source}: {error}") from error
    except Exception as error:  # Of ours, or of a constructor that was given nonsense.
        known = isinstance(error, SavedModelError)
        told = error if known else f"its header does not describe a model ({error!r})."
        raise SavedModelError(f"{source}: {told}{_other_version(header)}") from error
    return Saved(model, about, shown)


def _other_version(header: Any) -> str:
    """Return what to do about a file of a version that is not this one."""
    try:
        wrote = str(header["versions"]["eigengp"])
    except (KeyError, TypeError):
        return ""
    own = get_versions()["eigengp"]
    return "" if wrote == own else f" eigengp {wrote} wrote it, and this is {own}: upgrade."


def get_versions() -> dict[str, str]:
    """Return the versions of the libraries that a model depends on."""
    from eigengp import __version__

    others = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    return {"eigengp": __version__, **others, "python": platform.python_version()}


def _made(header: dict[str, Any], arrays: dict[str, Any]) -> GPEstimator:
    """Return the model that a header describes."""
    if header["format"] != FORMAT:
        found = header["format"]
        raise SavedModelError(f"it is in format {found!r}, and eigengp reads {FORMAT} here.")
    model: GPEstimator = make_value(header["model"], arrays)
    if not isinstance(model, GPEstimator) or type(model).__name__ != header["class"]:
        raise SavedModelError(f"it holds a {type(model).__name__}, not a {header['class']}.")
    check_is_fitted(model)
    return model
