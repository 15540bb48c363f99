"""Model files that are damaged or forged: refused, or a model that predicts finite numbers."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import eigengp
from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    Gaussian,
    RVMRegressor,
    SSGPRegressor,
    Stochastic,
    VFERegressor,
)
from eigengp.io import SavedModelError, container
from faults import promise
from faults.fits import Rng

_SHORT: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=2), "random_state": 0}
_MODELS = (
    lambda: EigenGPRegressor(random_state=0),
    lambda: EigenGPRegressor(5, residual=None, likelihood="heteroscedastic", **_SHORT),
    lambda: EigenGPRegressor(5, residual="neighbors", n_neighbors=6, **_SHORT),
    lambda: EigenGPRegressor(5, mean="linear", residual="diagonal", **_SHORT),
    lambda: EigenGPRegressor(5, optimizer=Stochastic(batch_size=20, max_iter=1), random_state=0),
    lambda: ExactGPRegressor(eigengp.Matern32() + eigengp.Linear() * eigengp.Matern52(), **_SHORT),
    lambda: VFERegressor(5, **_SHORT),
    lambda: SSGPRegressor(6, **_SHORT),
    lambda: RVMRegressor(lengthscale=0.6),
    lambda: EigenGPRegressor(
        5, residual=None, likelihood=Gaussian(transform="yeo-johnson"), **_SHORT
    ),
)


@cache
def _rows() -> Any:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    return X, np.sin(5.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=60)


@cache
def _saved(kind: int, folder: Path) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
    """Return a file as it should be: its bytes, header and arrays."""
    path = folder / f"whole{kind}.eigengp"
    _MODELS[kind]().fit(*_rows()).save(path)
    return (path.read_bytes(), *container.read(path))


def check(seed: int, folder: Path) -> str:
    """Change a file, and load it."""
    rng = np.random.default_rng(seed)
    whole, header, arrays = _saved(int(rng.integers(len(_MODELS))), folder)
    path = folder / "forged.eigengp"
    how = rng.integers(5)
    if how <= 1:
        path.write_bytes(seal(damage(rng, whole)) if how else damage(rng, whole))
    else:
        header = forge_header(rng, header) if how != 3 else header
        arrays = {**arrays, **forge_array(rng, arrays)} if how >= 3 else arrays
        try:
            container.write(path, header, arrays)
        except (ValueError, TypeError):  # Safetensors does not write everything.
            return "refused"
    try:
        model = eigengp.load(path)
    except SavedModelError as error:
        promise(str(path) in str(error), "an error does not name the file")
        return "refused"
    with np.errstate(all="ignore"):
        mean, std = model.predict(_rows()[0][:7], return_std=True)
        model.predict_interval(_rows()[0][:7])
    promise(len(repr(model)) < 1_000_000, "a model is too long to print")
    promise(mean.shape == std.shape == (7,), "shape of predictions")
    promise(bool(np.isfinite(mean).all() and np.isfinite(std).all()), "a prediction is not finite")
    promise(bool((std >= 0.0).all()), "a variance is negative")
    return "predicted"


def damage(rng: Rng, whole: bytes) -> bytes:
    """Return a file with some of its bytes wrong, gone or too many."""
    content = bytearray(whole)
    header = int.from_bytes(whole[:8], "little") + 8
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(header if rng.random() < 0.5 else len(content)))
        match rng.integers(5):
            case 0:
                content[at % len(content)] ^= 1 << int(rng.integers(8))
            case 1:
                content[at : at + 8] = rng.bytes(8)
            case 2:
                del content[at : at + int(rng.integers(1, 200))]
            case 3:
                content[at:at] = rng.bytes(int(rng.integers(1, 20)))
            case _:
                digits = [each.start() for each in re.finditer(rb"\d", content)]
                content[int(rng.choice(digits))] = int(rng.integers(48, 58))
        if not content:
            break
    return bytes(content)


def seal(whole: bytes) -> bytes:
    """Return a file with the checksum that it should have."""
    found = re.search(rb'"eigengp":"sha256 ([0-9a-f]{64}) ', whole)
    if found is None:
        return whole
    zeros = whole[: found.start(1)] + b"0" * 64 + whole[found.end(1) :]
    return zeros.replace(b"0" * 64, sha256(zeros).hexdigest().encode(), 1)


def _inside(node: Any) -> list[tuple[Any, Any]]:
    """Return where everything in a header stands: containers and keys."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    found = [(node, key) for key in keys]
    for key in keys:
        if isinstance(node[key], dict | list):
            found += _inside(node[key])
    return found


def forge_header(rng: Rng, header: dict[str, Any]) -> dict[str, Any]:
    """Return a header in which something is something else, twice, or gone."""
    forged = deepcopy(header)
    for _ in range(int(rng.integers(1, 4))):
        places = _inside(forged)
        where, key = places[int(rng.integers(len(places)))]
        other, its_key = places[int(rng.integers(len(places)))]
        if isinstance(where, dict) and rng.random() < 0.2:
            names = ["__class__", "__reduce__", "fit", "x_", "left", "kernel", "_posterior"]
            where[str(rng.choice(names))] = where.pop(key)
            continue
        new = [None, -1, 0, 10**30, 0.5, -1e300, 1e-320, "", "os.system", [], {}, True]
        new += [{"class": ["Sum", {}]}, {"array": str(rng.integers(8))}]
        new += [{"float": "nan"}, {"float": "-inf"}, deepcopy(other[its_key])]
        value = new[int(rng.integers(len(new)))]
        try:
            json.dumps(value)
            where[key] = value
        except (ValueError, RecursionError):
            continue
    return forged


def forge_array(rng: Rng, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return one array with other values, another shape or another type."""
    name = str(rng.choice(sorted(arrays)))
    array = arrays[name].copy()
    flat = array.reshape(-1)
    at = int(rng.integers(max(flat.size, 1)))
    match rng.integers(8):
        case 0 if array.dtype.kind == "f" and flat.size:
            flat[at] = rng.choice([np.nan, np.inf, -np.inf])
        case 1 if flat.size:
            flat[at] = flat[at] * -1 if array.dtype.kind == "f" else 0
        case 2 if array.dtype.kind == "f" and flat.size:
            flat[at] = rng.choice([0.0, 1e300, -1e300, 5e-324, 1e18])
        case 3:
            array = array[:-1]
        case 4:
            array = array[..., None]
        case 5:
            array = np.concatenate([array, array]) if array.ndim else array[None]
        case 6:
            array = array.astype(rng.choice(["float32", "int64", "uint8", "bool"]))
        case _:
            array = np.zeros_like(array) if rng.random() < 0.5 else array.T
    return {name: np.ascontiguousarray(array)}
