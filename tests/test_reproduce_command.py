"""Data that are missing are replaced or left out, with word of what to do."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from rich.console import Console
from typer.testing import CliRunner

from eigengp.cli.app import app
from eigengp.reproduce import command
from eigengp.reproduce.availability import DataError, Missing, with_what_is_here
from eigengp.reproduce.experiments import EXPERIMENTS
from eigengp.reproduce.problems import SOURCES, problem
from eigengp.reproduce.progress import Bars
from eigengp.reproduce.runs import Run, with_starts
from eigengp.reproduce.scale import FULL, QUICK, Scale
from eigengp.reproduce.workers import Failure
from fake_data import fail
from fake_runs import fake_record, stored

NEEDED = {"snelson", "nonstationary", "california", "protein", "pole"}


@pytest.fixture
def without_data(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the data folder, which is empty; there is no network, and nothing is remembered."""
    fail(monkeypatch, URLError("Name or service not known"))
    problem.cache_clear()
    yield home
    problem.cache_clear()


def test_missing_data_are_replaced_or_left_out(without_data: Path) -> None:
    scale, missing = with_what_is_here(FULL, NEEDED)
    assert scale == replace(FULL, first="snelson-like", second="nonstationary-made", large=())
    assert {each.name: each.stand_in for each in missing} == {
        "snelson": "snelson-like",
        "nonstationary": "nonstationary-made",
        "california": None,
        "protein": None,
        "pole": None,
    }


def test_word_of_missing_data_says_which_file_goes_where(without_data: Path) -> None:
    told = {each.name: str(each) for each in with_what_is_here(FULL, NEEDED)[1]}
    for name, text in told.items():
        assert f"put {name}.parquet" in text
        assert str(without_data / "eigengp") in text
        assert "EIGENGP_DATA" in text
    assert told["pole"].startswith("Pole Telecomm is left out: ")
    assert told["snelson"].startswith(
        "data set 1 (stand-in) takes the place of data set 1 (Snelson's): "
    )


def test_only_data_that_are_needed_are_looked_for(without_data: Path) -> None:
    assert with_what_is_here(FULL, set()) == (FULL, [])
    scale, missing = with_what_is_here(FULL, {"nonstationary"})
    assert scale == replace(FULL, second="nonstationary-made")
    assert [each.name for each in missing] == ["nonstationary"]


def damaged(home: Path, name: str) -> Path:
    """Return a file of the data folder that should be Parquet and is not."""
    path = home / "eigengp" / f"{name}.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1 cut off")
    return path


def test_the_quick_scale_needs_no_data(without_data: Path) -> None:
    needed = {run.data for each in EXPERIMENTS.values() for run in each.runs(QUICK)}
    assert with_what_is_here(QUICK, needed) == (QUICK, [])


@pytest.mark.parametrize("name", ["snelson", "pole"])
def test_nothing_takes_the_place_of_data_that_there_are_results_for(
    name: str, without_data: Path
) -> None:
    with pytest.raises(DataError, match="its data are not here any more: ") as caught:
        with_what_is_here(FULL, NEEDED, {name, "protein-of-old"})
    assert str(caught.value).startswith(f"There are results for {SOURCES[name].title}, but ")
    assert f"put {name}.parquet" in str(caught.value)
    assert with_what_is_here(FULL, NEEDED - {name}, {name})[0].large == tuple({"pole"} & {name})


def test_damaged_data_are_not_replaced(without_data: Path) -> None:
    path = damaged(without_data, "snelson")
    assert with_what_is_here(FULL, NEEDED - {"snelson"})[0].first == "snelson"
    with pytest.raises(DataError, match="Replace it by a sound copy") as caught:
        with_what_is_here(FULL, NEEDED)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no"), ValueError("no"), ImportError("pyarrow is needed")]
)
def test_data_that_cannot_be_read_are_not_replaced(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: object) -> None:
        raise error

    monkeypatch.setattr("eigengp.reproduce.availability.problem", look)
    with pytest.raises(DataError, match=re.escape(str(error))):
        with_what_is_here(FULL, {"pole"})


@dataclass
class Called:
    """What the command has asked for, and what it is to be answered."""

    runs: list[Run]
    scale: Scale
    remarks: Sequence[str]
    failures: list[Failure]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    """Let the command carry out and draw nothing, but write down what it would have."""
    called = Called([], FULL, [], [])

    def carry_out(runs: list[Run], *_: Any) -> list[Failure]:
        called.runs = runs
        return called.failures

    def write_page(results: Any, out: Path, remarks: Sequence[str]) -> Path:
        called.scale, called.remarks = results.scale, remarks
        return out / "index.html"

    monkeypatch.setattr(command, "carry_out", carry_out)
    monkeypatch.setattr(command, "write_page", write_page)
    return called


def reproduce(parts: Sequence[str], scale: Scale, out: Path) -> tuple[bool, str]:
    told = io.StringIO()
    complete = command.reproduce(parts, scale, out, 2, Console(file=told, width=60))
    return complete, told.getvalue()


def test_the_full_command_without_data_uses_stand_ins_and_is_not_complete(
    without_data: Path, called: Called, tmp_path: Path
) -> None:
    complete, told = reproduce(list(EXPERIMENTS), FULL, tmp_path / "new" / "out")
    assert not complete
    assert {run.data for run in called.runs} == {"snelson-like", "nonstationary-made"}
    assert called.scale.large == ()
    assert len(called.remarks) == 5
    for remark in called.remarks:
        assert f"Note: {remark}\n" in told
    assert told.endswith(f" s. Open {tmp_path / 'new' / 'out' / 'index.html'}\n")
    assert (tmp_path / "new" / "out").is_dir()


def test_stand_ins_alone_make_a_page_complete(
    without_data: Path, called: Called, tmp_path: Path
) -> None:
    complete, _ = reproduce(["table1"], FULL, tmp_path)
    assert complete
    assert [remark.split(" takes")[0] for remark in called.remarks] == [
        "data set 2, x·sin(x³)",
        "data set 1 (stand-in)",
    ]


def some_stored(out: Path, name: str, data: str, leave: int) -> None:
    """Store made-up results of an experiment on some data, all but a few."""
    runs = [run for run in with_starts(EXPERIMENTS[name].runs(FULL)) if run.data == data]
    stored(out / command.RUNS, [fake_record(run) for run in runs[: len(runs) - leave]])


def test_data_of_stored_results_are_not_looked_for(
    without_data: Path, called: Called, tmp_path: Path
) -> None:
    some_stored(tmp_path, "figure4", "pole", leave=0)
    reproduce(["figure4"], FULL, tmp_path)
    assert called.scale == replace(
        FULL, first="snelson-like", second="nonstationary-made", large=("pole",)
    )
    assert {run.data for run in called.runs} == {"pole"}
    assert sum(" is left out: " in remark for remark in called.remarks) == 2


@pytest.mark.parametrize(
    ("part", "data", "leave"), [("figure4", "pole", 1), ("figure3", "nonstationary", 0)]
)
def test_vanished_data_of_stored_results_end_the_command(
    part: str, data: str, leave: int, without_data: Path, called: Called, tmp_path: Path
) -> None:
    some_stored(tmp_path, part, data, leave)
    before = (tmp_path / command.RUNS).read_bytes()
    result = CliRunner().invoke(app, ["reproduce", part, "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith(f"eigengp: There are results for {SOURCES[data].title}, but ")
    assert f"put {data}.parquet" in result.stderr
    assert "Traceback" not in result.output
    assert (called.runs, (tmp_path / command.RUNS).read_bytes()) == ([], before)


def test_damaged_data_end_the_command(without_data: Path, called: Called, tmp_path: Path) -> None:
    path = damaged(without_data, "nonstationary")
    result = CliRunner().invoke(app, ["reproduce", "figure3", "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith(f"eigengp: Cannot read {path}: ")
    assert result.stderr.endswith(" Replace it by a sound copy.\n")
    assert called.runs == []
    assert not (tmp_path / "out" / "index.html").exists()


def test_a_failed_run_makes_the_page_incomplete(called: Called, tmp_path: Path) -> None:
    run = EXPERIMENTS["figure3"].runs(QUICK)[0]
    called.failures = [Failure(run, ValueError("no"))]
    complete, told = reproduce(["figure3"], QUICK, tmp_path)
    assert not complete
    assert "Failed: 1 of the runs" in told
    called.failures = []
    assert reproduce(["figure3"], QUICK, tmp_path)[0]


def test_runs_that_several_parts_need_are_carried_out_once(called: Called, tmp_path: Path) -> None:
    reproduce(list(EXPERIMENTS), QUICK, tmp_path)
    assert len(called.runs) == len(set(called.runs))
    assert set(called.runs) >= {run for each in EXPERIMENTS.values() for run in each.runs(QUICK)}
    for run in called.runs:
        assert run.start is None or run.start in called.runs


def test_missing_data_say_what_takes_their_place() -> None:
    assert str(Missing("pole", None, "put it there")) == "Pole Telecomm is left out: put it there"


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_told_on_terminals_and_elsewhere(terminal: bool) -> None:
    told = io.StringIO()
    console = Console(file=told, force_terminal=terminal, width=120, _environ={})
    runs = {name: EXPERIMENTS[name].runs(QUICK) for name in ("table1", "figure3")}
    first, second, third = runs["figure3"][:3]
    with Bars(console, runs, {first}) as bars:
        bars.began(second)
        bars.ended(second, fake_record(second, nmse=0.25, mnlp=-1.5, seconds=2.04))
        bars.began(third)
        bars.failed(third, ValueError("the [width] is /odd/"))
    total = len(runs["table1"])
    assert f"[3/{total}] {third.label} failed: the [width] is /odd/" in told.getvalue()
    line = f"[2/{total}] {second.label}: NMSE 0.250, MNLP −1.50, 2.0 s"
    assert (line in told.getvalue()) != terminal
    assert (f"3/{total}" in told.getvalue().replace(f"[3/{total}]", "")) == terminal
