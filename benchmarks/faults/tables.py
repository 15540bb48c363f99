"""Malformed tables on the command line: one line that says what is wrong, and no output."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from eigengp.cli.app import app
from faults import promise
from faults.fits import Rng

_LONGEST = 4_000
_NAMES = ("a", "b [km]", "x[/b]", "\x1b[2J", "", " ", "y", "ü", "'", '"', "=cmd()", "long" * 999)
_CELLS = ("", "nan", "inf", "-inf", "1e400", "1e200", "text", "[/b]", "\x1b[0m", "1999-01-02")


def check(seed: int, folder: Path) -> str:
    """Call a command with a table that is not as it should be."""
    rng = np.random.default_rng(seed)
    endings, shares = (".csv", ".tsv", ".parquet", ".arrow", ".txt"), (0.8, 0.05, 0.05, 0.05, 0.05)
    table = folder / f"rows{rng.choice(endings, p=shares)}"
    table.write_bytes(make_table(rng))
    model, out = _model(folder), folder / "out.eigengp"
    out.unlink(missing_ok=True)
    commands: list[list[Any]] = [
        ["fit", table, "-t", "y", "-o", out, "--method", "vfe", "-m", 3, *_options(rng)],
        ["predict", model, table, *_options(rng)[:2]],
        ["evaluate", model, table],
        ["compare", table, "-t", "y", "--method", "mean", "--folds", 2],
        ["inspect", table],
    ]
    command = commands[int(rng.choice(5, p=[0.5, 0.2, 0.1, 0.1, 0.1]))]
    json = ["--json"] if rng.random() < 0.2 else []
    done = CliRunner().invoke(app, [*map(str, command), *json], env={"COLUMNS": "100"})
    promise(done.exit_code in (0, 1, 2), f"exit code {done.exit_code}")
    promise("Traceback" not in done.stderr, "a traceback")
    promise("Unexpected" not in done.stderr, f"a fault of the program: {done.stderr[:200]}")
    promise(len(done.stderr) < _LONGEST, "a message is too long")
    for text in (done.stdout, done.stderr):
        harmless = all(each.isprintable() or each == "\n" for each in text)
        promise(harmless, "control characters reach the terminal")
    if command[0] == "fit":
        promise(out.exists() == (done.exit_code == 0), "output after a failure, or none")
    return "refused" if done.exit_code else "predicted"


def _model(folder: Path) -> Path:
    path = folder / f"tables{os.getpid()}.eigengp"
    if not path.exists():
        table = folder / "good.csv"
        rng = np.random.default_rng(0)
        table.write_text("\n".join(["a,y", *(f"{v:.3f},{v**2:.3f}" for v in rng.normal(size=20))]))
        arguments = ["fit", str(table), "-t", "y", "-o", str(path), "--method", "vfe", "-q"]
        promise(CliRunner().invoke(app, arguments).exit_code == 0, "no model")
    return path


def _options(rng: Rng) -> list[str]:
    options = [["--impute"], ["--drop", "a"], ["--only", "a"], ["--categorical", "a"]]
    options += [["--weights", "a"], ["--holdout", "0.3"], []]
    return options[int(rng.integers(len(options)))]


def make_table(rng: Rng) -> bytes:
    """Return the bytes of a table with several faults, or of no table."""
    if rng.random() < 0.1:
        return rng.bytes(int(rng.integers(0, 300)))
    n, D = int(rng.integers(0, 25)), int(rng.integers(0, 3))
    names = ["a", *(str(each) for each in rng.choice(_NAMES, D)), "y"]
    rows = [[f"{value:.3f}" for value in rng.normal(size=len(names))] for _ in range(n)]
    for _ in range(int(rng.integers(0, 3)) if n else 0):
        cell = str(rng.choice(_CELLS))
        column = int(rng.integers(len(names)))
        for row in rows if rng.random() < 0.3 else rows[:1]:
            row[column % len(row)] = cell
        if rng.random() < 0.2:
            rows[-1] = rows[-1][:-1] or [""]
    separator = str(rng.choice([",", ",", ",", ";", "\t", "|"]))
    text = "\n".join(separator.join(row) for row in [names, *rows])
    changes: list[Callable[[bytes], bytes]] = [
        lambda raw: raw,
        lambda raw: raw[: int(rng.integers(len(raw) + 1))],
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: b"\xef\xbb\xbf" + raw,
        lambda raw: raw.decode().encode("utf-16"),
        lambda raw: raw.replace(b"a", b"\x00", 3),
        lambda raw: raw.replace(b"y", b"\xff\xfe", 1),
        lambda raw: raw.replace(b".", b'"', 2),
    ]
    change = changes[0 if rng.random() < 0.5 else int(rng.integers(len(changes)))]
    return change(text.encode())
