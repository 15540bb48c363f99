"""Runs are carried out in other processes, stored as they end, and survive what may happen."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eigengp.cli import app
from eigengp.reproduce import workers
from eigengp.reproduce.command import RUNS
from eigengp.reproduce.experiments import EXPERIMENTS
from eigengp.reproduce.page import PAGE
from eigengp.reproduce.runs import Record, Run
from eigengp.reproduce.scale import QUICK
from eigengp.reproduce.store import Store
from eigengp.reproduce.workers import Failure, WorkerDiedError, carry_out, with_starts

JOBS = 2
TINY = (("max_iter", 2), ("n_restarts", 1))
GOOD = [Run("nonstationary-made", "EigenGP", 5, seed, TINY) for seed in range(2)]
AFTER = Run("nonstationary-made", "EigenGP", 5, options=(("max_iter", 0),), start=GOOD[1])
REFUSED = replace(GOOD[0], options=(("max_iter", -1),))
LOST = replace(AFTER, start=REFUSED)


@dataclass
class Listener:
    """Writes down what it is told."""

    heard: list[tuple[str, Run]] = field(default_factory=list)

    def began(self, run: Run) -> None:
        self.heard.append(("began", run))

    def ended(self, run: Run, record: Record) -> None:
        self.heard.append(("ended", run))

    def failed(self, run: Run, error: BaseException) -> None:
        self.heard.append(("failed", run))


@dataclass(frozen=True)
class Outcome:
    """What carrying out some runs has left."""

    store: Store
    failures: list[Failure]
    heard: list[tuple[str, Run]]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Return what good runs, a bad one, and those that begin from each have left."""
    store, listener = Store(tmp_path_factory.mktemp("runs") / RUNS), Listener()
    failures = carry_out([LOST, AFTER, *GOOD], store, JOBS, listener)
    return Outcome(store, failures, listener.heard)


def test_starts_come_first_and_each_run_once() -> None:
    assert with_starts([LOST, AFTER, *GOOD, AFTER]) == [REFUSED, GOOD[1], LOST, AFTER, GOOD[0]]


def test_each_run_is_stored_and_can_be_read_again(outcome: Outcome) -> None:
    again = Store(outcome.store.path)
    assert len(again) == 3
    for run in (*GOOD, AFTER):
        record = again.find(run)
        assert record is not None
        assert record == outcome.store.find(run)
        assert (record["key"], record["method"], record["size"]) == (run.key, "EigenGP", 5)
        assert record["setting"]["threads"] <= max(1, workers._cores() // JOBS)


def test_a_run_that_fails_is_reported_and_the_rest_goes_on(outcome: Outcome) -> None:
    assert [failure.run for failure in outcome.failures] == [REFUSED, LOST]
    assert "max_iter" in str(outcome.failures[0].error)
    assert outcome.store.find(REFUSED) is outcome.store.find(LOST) is None
    assert [run for word, run in outcome.heard if word == "failed"] == [REFUSED, LOST]
    assert {run for word, run in outcome.heard if word == "ended"} == {*GOOD, AFTER}


def test_runs_that_begin_from_another_wait_for_it_and_not_without_it(outcome: Outcome) -> None:
    assert outcome.heard.index(("began", AFTER)) > outcome.heard.index(("ended", GOOD[1]))
    assert ("began", LOST) not in outcome.heard


def test_no_more_runs_than_jobs_are_under_way(outcome: Outcome) -> None:
    busy, most = 0, 0
    for word, run in outcome.heard:
        busy += 1 if word == "began" else -1 if run != LOST else 0
        most = max(most, busy)
    assert (busy, most) == (0, JOBS)


def test_kernel_and_noise_of_the_start_reach_the_run(outcome: Outcome) -> None:
    start, after = (outcome.store.find(run)["hyperparameters"] for run in (GOOD[1], AFTER))
    for name in ("lengthscale", "variance", "noise_variance"):
        assert after[name] == pytest.approx(start[name], rel=1e-7)
    other = outcome.store.find(GOOD[0])["hyperparameters"]
    assert other["noise_variance"] != pytest.approx(start["noise_variance"], rel=1e-7)


def test_what_is_stored_is_not_run_again(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_pool", lambda jobs: pytest.fail("a worker was asked for"))
    before, listener = outcome.store.path.read_bytes(), Listener()
    assert carry_out([AFTER, *GOOD], Store(outcome.store.path), JOBS, listener) == []
    assert listener.heard == []
    assert outcome.store.path.read_bytes() == before


def test_a_worker_that_is_killed_ends_the_command_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_and_wait(busy: Any, **how: Any) -> Any:
        for worker in multiprocessing.active_children():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        return wait(busy, **how)

    monkeypatch.setattr(workers, "wait", kill_and_wait)
    result = CliRunner().invoke(app, ["reproduce", "figure3", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr == f"eigengp: {WorkerDiedError()}\n"
    assert "run the same command again, with --jobs 1 if memory is short" in result.stderr
    assert not (tmp_path / PAGE).exists()


Begin = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begin the command in a session of its own; whatever is left of it ends with the test."""
    begun: list[subprocess.Popen[str]] = []

    def begin(out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "eigengp.cli", "reproduce", "figure3", "--quick"]
        with (out.parent / "output.txt").open("w") as output:
            process = subprocess.Popen(
                [*command, "--out", str(out)],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        for left in alive(process.pid):
            os.kill(left, signal.SIGKILL)
        process.wait()


def alive(session: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, owner = path.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(owner) == session and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to see which processes live")
def test_a_command_that_is_killed_leaves_no_process_and_goes_on_where_it_was(
    tmp_path: Path, begin: Begin
) -> None:
    out = tmp_path / "results"
    path = out / RUNS
    process = begin(out)
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 2, 120)
    assert process.poll() is None
    assert len(alive(process.pid)) >= 1 + JOBS
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not alive(process.pid), 10)

    before = path.read_bytes()
    kept = [json.loads(line)["key"] for line in before.splitlines(keepends=True) if line[-1] == 10]
    expected = [run.key for run in EXPERIMENTS["figure3"].runs(QUICK)]
    assert 2 <= len(kept) < len(expected)
    assert not (out / PAGE).exists()

    again = begin(out)
    assert again.wait(120) == 0
    after = path.read_bytes()
    assert after.startswith(before)
    added = [json.loads(line)["key"] for line in after[len(before) :].splitlines() if line]
    assert sorted(kept + added) == sorted(expected)
    assert (out / PAGE).stat().st_size > 10_000
    output = (tmp_path / "output.txt").read_text()
    assert f"{len(kept)} of {len(expected)} runs are stored already in {path}." in output
    assert not alive(again.pid)
