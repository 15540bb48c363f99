"""Files that are damaged, forged, new or not to be written: each is refused, none does harm."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import struct
import tracemalloc
from copy import deepcopy
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import eigengp
from eigengp import EigenGPRegressor, io
from eigengp.io import SavedModelError, container
from eigengp.io.models import FORMAT
from saved_models import assert_same_answers, fitted, rows

_MOST_MEMORY = 20_000_000
_COMMANDS = ("os.system", "posix.system", "builtins.eval", "subprocess.Popen", "__import__")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.eigengp"


@cache
def content() -> bytes:
    """Return a file as it should be."""
    return Path(__file__).with_name("saved").joinpath("joint-2.eigengp").read_bytes()


def parts(tmp_path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return header and arrays of that file, to be forged."""
    path = tmp_path / "whole.eigengp"
    path.write_bytes(content())
    return container.read(path)


def with_fields(header: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the header with some attributes of the model set."""
    forged = deepcopy(header)
    forged["model"]["class"][1].update(fields)
    return forged


def damaged(rng: random.Random) -> bytes:
    """Return the file with some of its bytes wrong, gone or too many."""
    whole = bytearray(content())
    at = rng.randrange(len(whole))
    in_header = rng.randrange(struct.unpack_from("<Q", whole)[0] + 8)
    match rng.randrange(8):
        case 0:
            whole[at] ^= 1 << rng.randrange(8)
        case 1:
            whole[in_header] ^= 1 << rng.randrange(8)
        case 2:
            del whole[at:]
        case 3:
            whole[at:at] = rng.randbytes(rng.randint(1, 20))
        case 4:
            whole[in_header : in_header + 20] = rng.randbytes(20)
        case 5:
            whole[:8] = struct.pack("<Q", rng.getrandbits(rng.randint(1, 64)))
        case 6:
            del whole[in_header : in_header + rng.randint(1, 200)]
        case _:
            whole = bytearray(rng.randbytes(rng.randrange(2000)))
    return bytes(whole)


def test_every_damaged_file_is_refused(path: Path) -> None:
    tracemalloc.start()
    try:
        for seed in range(1000):
            now = damaged(random.Random(seed))
            if now == content():
                continue
            path.write_bytes(now)
            with pytest.raises(SavedModelError, match=r"model\.eigengp"):
                eigengp.load(path)
        assert tracemalloc.get_traced_memory()[1] < _MOST_MEMORY
    finally:
        tracemalloc.stop()


def sealed(whole: bytes) -> bytes:
    """Return a file with the checksum that it should have."""
    found = re.search(rb'"eigengp":"sha256 ([0-9a-f]{64}) ', whole)
    if found is None:
        return whole
    zeros = whole[: found.start(1)] + b"0" * 64 + whole[found.end(1) :]
    return zeros.replace(b"0" * 64, sha256(zeros).hexdigest().encode(), 1)


def test_damaged_files_with_a_right_checksum_make_a_model_or_are_refused(path: Path) -> None:
    assert sealed(content()) == content()
    made = 0
    for seed in range(400):
        path.write_bytes(sealed(damaged(random.Random(seed))))
        try:
            made += isinstance(eigengp.load(path), EigenGPRegressor)
        except SavedModelError as error:
            assert str(path) in str(error)  # noqa: PT017
    assert 0 < made < 300


def test_no_bit_of_a_file_can_change_unnoticed(path: Path) -> None:
    for at in range(0, len(content()), 31):
        now = bytearray(content())
        now[at] ^= 1
        path.write_bytes(now)
        with pytest.raises(SavedModelError):
            eigengp.load(path)


def _inside(node: Any) -> list[tuple[Any, Any]]:
    """Return where everything in a header stands: containers and keys."""
    keys = node.keys() if isinstance(node, dict) else range(len(node))
    found = [(node, key) for key in keys]
    for each in [node[key] for key in keys]:
        if isinstance(each, dict | list):
            found += _inside(each)
    return found


def _forged(header: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a header in which something is something else, or gone."""
    header = deepcopy(header)
    for _ in range(rng.randint(1, 3)):
        where, key = rng.choice(_inside(header))
        _, other = rng.choice(_inside(header))
        new = [None, -1, 10**30, "", "os.system", [], {}, {"class": 3}, {"array": "0"}, other]
        if isinstance(where, dict) and rng.random() < 0.3:
            where[rng.choice(["__class__", "__reduce__", "fit", "x_"])] = where.pop(key)
        else:
            where[key] = rng.choice(new)
    return header


def test_forged_headers_with_a_right_checksum_make_a_model_or_are_refused(path: Path) -> None:
    header, arrays = parts(path.parent)
    refused = 0
    for seed in range(300):
        container.write(path, _forged(header, random.Random(seed)), arrays)
        try:
            model = eigengp.load(path)
        except SavedModelError:
            refused += 1
        else:
            assert type(model).__module__ == "eigengp.estimators.eigengp"
            assert callable(model.fit)
    assert refused > 150


@pytest.mark.parametrize("name", _COMMANDS)
def test_a_file_cannot_name_what_is_to_be_called(name: str, path: Path) -> None:
    header, arrays = parts(path.parent)
    harm = path.with_name("harm")
    command = {"class": [name, {"command": f"touch {harm}"}]}
    for forged in (
        {**header, "class": name},
        {**header, "model": command},
        with_fields(header, kernel=command),
        {**header, "model": {name: [f"touch {harm}"]}},
        with_fields(header, _posterior={name: [f"touch {harm}"]}),
    ):
        container.write(path, forged, arrays)
        with pytest.raises(SavedModelError):
            eigengp.load(path)
    assert not harm.exists()


def test_fields_of_a_newer_version_are_told_from_damage(path: Path) -> None:
    header, arrays = parts(path.parent)
    header["versions"]["eigengp"] = "0.9"
    container.write(path, with_fields(header, depth=3), arrays)
    with pytest.raises(SavedModelError, match=r"unknown field 'depth'.*eigengp 0\.9 wrote it"):
        eigengp.load(path)
    del header["model"]["class"][1]["guard"]
    container.write(path, header, arrays)
    assert eigengp.load(path).guard is True


def test_a_file_cannot_replace_methods_or_set_what_is_no_parameter(path: Path) -> None:
    header, arrays = parts(path.parent)
    for name in ("predict", "_get_param_names", "__class__", "_parameter_constraints"):
        container.write(path, with_fields(header, **{name: 1}), arrays)
        with pytest.raises(SavedModelError, match=name):
            eigengp.load(path)


def test_a_header_must_describe_a_fitted_model(path: Path) -> None:
    header, arrays = parts(path.parent)
    bare, unfitted = deepcopy(header), deepcopy(header)
    del bare["model"]["class"][1]["_posterior"]
    unfitted["model"]["class"][1].clear()
    kernel = header["model"]["class"][1]["kernel"]
    others = ({**header, "class": "FITCRegressor"}, {**header, "model": kernel})
    broken = ({"format": FORMAT}, [], None, {**header, "about": 3}, {**header, "model": None})
    for forged in (bare, unfitted, *others, *broken):
        container.write(path, forged, arrays)
        with pytest.raises(SavedModelError, match=r"model\.eigengp"):
            eigengp.load(path)


def test_sizes_that_a_file_only_claims_take_no_memory(path: Path) -> None:
    header, arrays = parts(path.parent)
    container.write(path, header, {**arrays, "0": np.empty((10**9, 0))})
    assert b'"shape":[5,5]' in content()
    huge = sealed(content().replace(b'"shape":[5,5]', b'"shape":[9,99999999]'))
    tracemalloc.start()
    try:
        for each in (path.read_bytes(), huge, struct.pack("<Q", 1 << 62) + b'{"a":1}'):
            path.write_bytes(each)
            with pytest.raises(SavedModelError):
                eigengp.load(path)
        assert tracemalloc.get_traced_memory()[1] < _MOST_MEMORY
    finally:
        tracemalloc.stop()


def test_headers_nested_too_deep_are_refused(path: Path) -> None:
    header, arrays = parts(path.parent)
    node: Any = 0
    for _ in range(400):
        node = {"tuple": [node]}
    container.write(path, {**header, "about": {"x": node}}, arrays)
    assert "x" in io.read(path).about
    whole = json.dumps({**header, "about": "@"}).replace('"@"', "[" * 100_000 + "]" * 100_000)
    metadata = {"eigengp": f"sha256 {'0' * 64} {whole}"}
    _write_raw(path, metadata)
    with pytest.raises(SavedModelError):
        eigengp.load(path)


def _write_raw(path: Path, metadata: dict[str, str]) -> None:
    """Write a file without arrays, with the right checksum."""
    path.write_bytes(sealed(save({}, metadata)))


def test_errors_say_what_is_wrong_and_what_to_do(path: Path) -> None:
    header, arrays = parts(path.parent)
    newer = {**header, "format": FORMAT + 1, "versions": {"eigengp": "9.1"}}
    container.write(path, newer, arrays)
    with pytest.raises(SavedModelError, match=r"format 3.*eigengp 9\.1 wrote it.*upgrade"):
        eigengp.load(path)
    for size in (200, len(content()) - 1):
        path.write_bytes(content()[:size])
        with pytest.raises(SavedModelError, match=rf"is incomplete, or.* {size} bytes"):
            eigengp.load(path)
    altered = bytearray(content())
    altered[-5] ^= 1
    path.write_bytes(altered)
    with pytest.raises(SavedModelError, match="changed or damaged"):
        eigengp.load(path)
    for other in (b"", b"x,y\n1,2\n", b"\x80\x04\x95 a pickle", content()[:8]):
        path.write_bytes(other)
        with pytest.raises(SavedModelError, match="is not a saved model"):
            eigengp.load(path)
    _write_raw(path, {"format": "pt"})
    with pytest.raises(SavedModelError, match="is not a saved model"):
        eigengp.load(path)


def test_paths_that_will_not_do_are_told(tmp_path: Path) -> None:
    model = fitted("VFE")
    for name in ("model.pkl", "model"):
        with pytest.raises(ValueError, match=r"must end in \.eigengp"):
            model.save(str(tmp_path / name))
    with pytest.raises(FileNotFoundError, match="create it first"):
        model.save(tmp_path / "none" / "model.eigengp")
    (tmp_path / "folder.eigengp").mkdir()
    for use in (model.save, eigengp.load):
        with pytest.raises(IsADirectoryError, match="folder"):
            use(tmp_path / "folder.eigengp")
    with pytest.raises(FileNotFoundError):
        eigengp.load(tmp_path / "none.eigengp")
    assert [each.name for each in tmp_path.iterdir()] == ["folder.eigengp"]


def test_a_disk_that_is_full_leaves_the_old_file(path: Path) -> None:
    resource = pytest.importorskip("resource")
    fitted("VFE").save(path)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            fitted("exact").save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "as it was" in caught.value.__notes__[0]
    assert path.read_bytes() == before
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(
    step: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    fitted("VFE").save(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(OSError, match="broken"):
            fitted("SSGP").save(path)
    assert [*path.parent.iterdir()] == [path]
    assert_same_answers(fitted("VFE"), eigengp.load(path))
    fitted("SSGP").save(path)
    assert_same_answers(fitted("SSGP"), eigengp.load(path))


def test_a_kernel_of_very_many_parts_comes_back_or_is_refused(path: Path) -> None:
    header, arrays = parts(path.parent)
    part = kernel = header["model"]["class"][1]["kernel"]
    for depth in range(1, 201):
        kernel = {"class": ["Sum", {"left": kernel, "right": part}]}
        if depth == 10:
            container.write(path, with_fields(header, kernel=kernel), arrays)
            assert len(repr(eigengp.load(path).kernel)) < 10_000
    container.write(path, with_fields(header, kernel=kernel), arrays)
    with contextlib.suppress(SavedModelError):
        eigengp.load(path)


def test_a_model_that_could_not_be_loaded_is_not_saved(path: Path) -> None:
    model = deepcopy(fitted("exact"))
    model._scaling.input_centre[0] = np.nan
    with pytest.raises(SavedModelError, match=r"input_centre of a Scaling.* not finite"):
        model.save(path)
    assert not path.exists()


_FORGERIES: tuple[Any, ...] = (
    *(lambda a: a * np.nan, lambda a: a[:-1], lambda a: a[..., None], np.zeros_like),
)


@pytest.mark.parametrize("kind", ["sequential", "neighbors", "exact", "FITC", "SSGP", "RVM"])
def test_arrays_that_a_model_cannot_use_are_refused(kind: str, path: Path) -> None:
    fitted(kind).save(path)
    header, arrays = container.read(path)
    X = rows(20, seed=9)[0]
    refused = 0
    for name, value in arrays.items():
        for forge in _FORGERIES if value.dtype.kind == "f" else ():
            container.write(path, header, {**arrays, name: np.ascontiguousarray(forge(value))})
            try:
                model = eigengp.load(path)
            except SavedModelError:
                refused += 1
                continue
            mean, std = model.predict(X, return_std=True)
            assert np.isfinite([mean, std]).all()
    assert refused > sum(each.dtype.kind == "f" for each in arrays.values())


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.eigengp")
    with pytest.raises(SavedModelError, match="not a regular file"):
        eigengp.load(tmp_path / "pipe.eigengp")


@pytest.mark.parametrize("kind", ["neighbors", "heteroscedastic"])
def test_rows_of_different_lengths_are_refused(kind: str, path: Path) -> None:
    fitted(kind).save(path)
    header, arrays = container.read(path)
    places = [where[key] for where, key in _inside(header)]
    block = next(each[1] for each in places if isinstance(each, list) and each[:1] == ["RowBlock"])
    targets = block["y"]["array"]
    container.write(path, header, {**arrays, targets: arrays[targets][:-1]})
    with pytest.raises(SavedModelError, match="different lengths"):
        eigengp.load(path)
