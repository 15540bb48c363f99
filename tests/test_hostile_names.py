"""Names and cells that look like markup, commands to a terminal, or formulas; wide tables."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import call
from eigengp import LBFGS, ExactGPRegressor
from eigengp._format import make_printable

ODD = (
    *("distance [km]", "x[/b]", ":smile:", "\x1b[2Jclear", "\x1b]0;title\x07", "a\x9b31m"),
    *("right\u202eleft", "a\rb", "[link=http://a]b"),
)


def write(path: Path, columns: dict[str, Any]) -> Path:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_bytes("\n".join(lines).encode())
    return path


def is_harmless(text: str) -> bool:
    return all(each.isprintable() or each == "\n" for each in text)


def odd_table(names: tuple[str, ...], n_rows: int = 12) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=n_rows).round(3) for name in names}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("odd")
    names = tuple(name for name in ODD if "\r" not in name)
    write(path / "odd[b].csv", odd_table((*names, "y[/i]")))
    done = call("fit", path / "odd[b].csv", "-t", "y[/i]", "-o", path / "m.eigengp")
    assert done.exit_code == 0, done.stderr
    return path


def test_names_are_shown_as_they_are_and_cannot_command_the_terminal(folder: Path) -> None:
    done = call("inspect", folder / "m.eigengp")
    assert done.exit_code == 0, done.stderr
    shown = (make_printable(name)[:9] for name in ODD if "\r" not in name)
    assert all(name in done.stdout for name in shown)
    for command in ("evaluate", "predict"):
        also = call(command, folder / "m.eigengp", folder / "odd[b].csv")
        assert also.exit_code == 0, also.stderr
        done.stdout_bytes += also.stdout_bytes + also.stderr_bytes
    assert is_harmless(done.stdout)
    assert call("inspect", folder / "m.eigengp", "--json").stdout.isprintable() is False
    facts = json.loads(call("inspect", folder / "m.eigengp", "--json").stdout)
    assert "\x1b[2Jclear" in {each["name"] for each in facts["inputs"]}


@pytest.mark.parametrize("name", ODD)
def test_errors_and_notes_cannot_command_the_terminal(name: str, folder: Path) -> None:
    path = write(folder / "other.csv", odd_table(("a", name.replace("\r", ""))))
    for arguments in (
        ("predict", folder / "m.eigengp", path),
        ("fit", path, "-t", name, "-o", folder / "n.eigengp", "--drop", "a"),
        ("compare", path, "-t", name.replace("\r", ""), "--method", "mean", "--folds", "2"),
        ("evaluate", folder / "m.eigengp", path, "--target", name, "--debug"),
        ("fit", path, "-t", name, "-o", folder / "n.eigengp", "--json"),
    ):
        done = call(*arguments)
        assert done.exit_code in (0, 1)
        assert "Unexpected" not in done.stderr
        for text in (done.stdout, done.stderr):
            assert is_harmless(text)


def test_junk_in_a_model_or_table_cannot_command_the_terminal(tmp_path: Path) -> None:
    junk = b"\x1b[2J\x9b31m\x07,\x00\xff\n\x1b]0;a\x07,1\n"
    for name in ("a.csv", "a.parquet", "a.eigengp"):
        (tmp_path / name).write_bytes(junk)
    for arguments in (
        ("fit", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "b.eigengp"),
        ("fit", tmp_path / "a.parquet", "-t", "y", "-o", tmp_path / "b.eigengp"),
        ("inspect", tmp_path / "a.eigengp"),
    ):
        done = call(*arguments)
        assert done.exit_code == 1
        assert is_harmless(done.stderr)


def test_a_kept_column_is_never_lost(folder: Path) -> None:
    columns = odd_table((*(name for name in ODD if "\r" not in name), "mean", "upper"))
    path = write(folder / "kept.csv", columns)
    for names in (("mean", "upper"), ("upper", "mean")):
        keep = [each for name in names for each in ("--keep", name)]
        done = call("predict", folder / "m.eigengp", path, *keep)
        assert done.exit_code == 1
        assert "mean, upper cannot be kept" in done.stderr


def test_formulas_are_escaped_on_request(folder: Path) -> None:
    columns = odd_table(tuple(name for name in ODD if "\r" not in name), n_rows=6)
    cells = ["=cmd()", "+1", "-a", "@b", "plain", "a=b"]
    path = write(folder / "formulas.csv", {**columns, "id": cells, "number": [-1, -2, 3, 4, 5, 6]})
    arguments = ("predict", folder / "m.eigengp", path, "--keep", "id", "--keep", "number")
    assert '"=cmd()",-1,' in call(*arguments).stdout
    escaped = call(*arguments, "--escape-formulas").stdout
    for cell in ("'=cmd()", "'+1", "'-a", "'@b", "plain", "a=b"):
        assert f'"{cell}",' in escaped
    assert '"\'=cmd()",-1,' in escaped


def test_long_names_are_shortened_in_messages(folder: Path) -> None:
    name = "long" * 2500
    path = write(folder / "long.csv", {name: ["a"] * 5 + ["b"], "y": range(6)})
    for arguments in (
        ("predict", folder / "m.eigengp", path),
        ("fit", path, "-t", name, "-o", folder / "n.eigengp", "--method", "fitc"),
        ("compare", path, "-t", name),
        ("fit", path, "-t", "absent", "-o", folder / "n.eigengp"),
    ):
        done = call(*arguments)
        assert done.exit_code == 1
        assert len(done.stderr) < 600 + len(str(folder))
        assert "longlong" in done.stderr


def test_a_wide_table_takes_seconds(tmp_path: Path) -> None:
    names = (*(f"c{index}" for index in range(3_000)), "y")
    path, model = write(tmp_path / "wide.csv", odd_table(names, 4)), tmp_path / "m.eigengp"
    began = time.process_time()
    done = call("fit", path, "-t", "y", "-o", model)
    assert done.exit_code == 0, done.stderr
    for arguments in (("inspect", model), ("predict", model, path)):
        assert call(*arguments).exit_code == 0
    assert time.process_time() - began < 9.0  # About 3.5 s.


def test_a_model_of_many_inputs_shows_itself_at_once() -> None:
    X = np.random.default_rng(0).normal(size=(4, 2_000))
    model = ExactGPRegressor(optimizer=LBFGS(n_restarts=1, max_iter=1)).fit(X, X[:, 0])
    began = time.process_time()
    assert "Log marginal likelihood" in model._repr_html_()
    assert time.process_time() - began < 2.0


def test_characters_of_all_planes_stay_json() -> None:
    text = "".join(map(chr, (0x1B, 0x9B, 0x202E, 0xE0001, 0xD800, 0x1F600, 0xE9)))
    shown = make_printable(json.dumps(text, ensure_ascii=False))
    assert shown.isprintable()
    assert json.loads(shown) == text
    io.StringIO(shown).read().encode()
