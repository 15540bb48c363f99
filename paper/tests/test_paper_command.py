"""Large data that are missing are left out, and runs are carried out once and reported."""

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

import realdata
from fake_runs import fake_record, stored
from paper import command
from paper.experiments import EXPERIMENTS
from paper.problems import DataError, find_missing, problem
from paper.progress import Bars
from paper.runs import Run, with_starts
from paper.scale import FULL, QUICK, Scale
from paper.workers import Failure


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the data folder, which is empty; there is no network, and nothing is remembered."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv(realdata.VARIABLE, str(folder))

    def fail(**_: object) -> None:
        raise URLError("Name or service not known")

    for name in ("fetch_california_housing", "fetch_openml"):
        monkeypatch.setattr(f"sklearn.datasets.{name}", fail)
    problem.cache_clear()
    yield folder
    problem.cache_clear()


def test_missing_data_are_named_with_what_to_do(data: Path) -> None:
    missing = find_missing(["snelson", "nonstationary", *FULL.large])
    assert set(missing) == set(FULL.large)
    for name, remedy in missing.items():
        assert f"put {name}.parquet" in remedy
        assert realdata.VARIABLE in remedy


def test_the_quick_scale_needs_no_data(data: Path) -> None:
    needed = {run.data for each in EXPERIMENTS.values() for run in each.runs(QUICK)}
    assert find_missing(needed) == {}


def test_damaged_data_are_not_taken_for_missing(data: Path) -> None:
    (data / "pole.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(DataError, match=r"pole\.parquet.* Replace it by a sound copy"):
        find_missing(["pole"])


@pytest.mark.parametrize(
    "error", [PermissionError(13, "no"), ValueError("no"), ImportError("pyarrow is needed")]
)
def test_data_that_cannot_be_read_are_not_taken_for_missing(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(*_: object) -> None:
        raise error

    monkeypatch.setattr("paper.problems.problem", look)
    with pytest.raises(DataError, match=re.escape(str(error))):
        find_missing(["pole"])


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


def test_large_data_that_are_missing_are_left_out(
    data: Path, called: Called, tmp_path: Path
) -> None:
    complete, told = reproduce(list(EXPERIMENTS), FULL, tmp_path / "new" / "out")
    assert not complete
    assert not {run.data for run in called.runs} & set(FULL.large)
    assert called.scale.large == ()
    assert len(called.remarks) == 3
    for remark in called.remarks:
        assert " is left out: " in remark
        assert f"Note: {remark}\n" in told
    assert told.endswith(f" s. Open {tmp_path / 'new' / 'out' / 'index.html'}\n")


def test_parts_without_large_data_are_complete_without_them(
    data: Path, called: Called, tmp_path: Path
) -> None:
    assert reproduce(["table1"], FULL, tmp_path)[0]
    assert called.remarks == []


def test_data_of_stored_results_are_not_looked_for(
    data: Path, called: Called, tmp_path: Path
) -> None:
    runs = [run for run in with_starts(EXPERIMENTS["figure4"].runs(FULL)) if run.data == "pole"]
    stored(tmp_path / command.RUNS, [fake_record(run) for run in runs])
    reproduce(["figure4"], FULL, tmp_path)
    assert called.scale == replace(FULL, large=("pole",))
    assert len(called.remarks) == 2


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
