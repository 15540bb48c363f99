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
from concurrent.futures import Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import paper
from fake_runs import fake_record
from paper import workers
from paper.cli import main
from paper.command import RUNS
from paper.experiments import EXPERIMENTS
from paper.page import PAGE
from paper.runs import Record, Run, with_starts
from paper.scale import QUICK
from paper.store import Store
from paper.workers import Failure, WorkerDiedError, carry_out

JOBS = 2
TINY = (("max_iter", 2), ("n_restarts", 1))
GOOD = [Run("nonstationary", "EigenGP", 5, seed, TINY) for seed in range(2)]
AFTER = Run("nonstationary", "EigenGP", 5, options=(("max_iter", 0),), start=GOOD[1])
REFUSED = replace(GOOD[0], options=(("max_iter", -1),))
LAST = replace(AFTER, seed=1, start=AFTER)
LOST = replace(AFTER, start=REFUSED)
LOST_TOO = replace(LAST, start=LOST)

QUICKER = replace(QUICK, searched=(("n_restarts", 1), ("max_iter", 5)))
COMMAND = f"""
from paper import scale

scale.QUICK = scale.{QUICKER!r}

from paper.cli import main

raise SystemExit(main())
"""


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
    failures = carry_out([LOST_TOO, LAST, *GOOD], store, JOBS, listener)
    return Outcome(store, failures, listener.heard)


def test_starts_come_first_and_each_run_once() -> None:
    assert with_starts([LOST, AFTER, *GOOD, AFTER]) == [REFUSED, GOOD[1], GOOD[0], LOST, AFTER]
    assert with_starts(iter([AFTER])) == [GOOD[1], AFTER]


def test_a_chain_of_starts_is_in_order() -> None:
    assert LAST.before == (GOOD[1], AFTER)
    assert with_starts([LAST]) == [GOOD[1], AFTER, LAST]
    assert with_starts([LAST, AFTER, GOOD[0]]) == [GOOD[1], GOOD[0], AFTER, LAST]


def test_each_run_is_stored_and_can_be_read_again(outcome: Outcome) -> None:
    again = Store(outcome.store.path)
    assert len(again) == 4
    for run in (*GOOD, AFTER, LAST):
        record = again.find(run)
        assert record is not None
        assert record == outcome.store.find(run)
        assert (record["key"], record["method"], record["size"]) == (run.key, "EigenGP", 5)
        assert record["setting"]["threads"] <= max(1, workers._cores() // JOBS)


def test_a_run_that_fails_is_reported_and_the_rest_goes_on(outcome: Outcome) -> None:
    assert [failure.run for failure in outcome.failures] == [REFUSED, LOST, LOST_TOO]
    assert "max_iter" in str(outcome.failures[0].error)
    assert [outcome.store.find(run) for run in (REFUSED, LOST, LOST_TOO)] == [None] * 3
    assert [run for word, run in outcome.heard if word == "failed"] == [REFUSED, LOST, LOST_TOO]
    assert {run for word, run in outcome.heard if word == "ended"} == {*GOOD, AFTER, LAST}


def test_runs_that_begin_from_another_wait_for_it_and_not_without_it(outcome: Outcome) -> None:
    chain = [("ended", GOOD[1]), ("began", AFTER), ("ended", AFTER), ("began", LAST)]
    assert [each for each in outcome.heard if each in chain] == chain
    assert ("began", LOST) not in outcome.heard
    assert ("began", LOST_TOO) not in outcome.heard


def test_no_more_runs_than_jobs_are_under_way(outcome: Outcome) -> None:
    busy, most = 0, 0
    for word, run in outcome.heard:
        busy += 1 if word == "began" else -1 if run not in (LOST, LOST_TOO) else 0
        most = max(most, busy)
    assert (busy, most) == (0, JOBS)


def test_kernel_and_noise_of_the_start_reach_the_run(outcome: Outcome) -> None:
    start, after, last = (
        outcome.store.find(run)["hyperparameters"] for run in (GOOD[1], AFTER, LAST)
    )
    for name in ("lengthscale", "variance", "noise_variance"):
        assert after[name] == pytest.approx(start[name], rel=1e-7)
        assert last[name] == pytest.approx(start[name], rel=1e-7)
    other = outcome.store.find(GOOD[0])["hyperparameters"]
    assert other["noise_variance"] != pytest.approx(start["noise_variance"], rel=1e-7)


def test_what_is_stored_is_not_run_again(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_pool", lambda jobs: pytest.fail("a worker was asked for"))
    before, listener = outcome.store.path.read_bytes(), Listener()
    assert carry_out([LAST, *GOOD], Store(outcome.store.path), JOBS, listener) == []
    assert listener.heard == []
    assert outcome.store.path.read_bytes() == before


def test_a_worker_that_is_killed_ends_the_command_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kill_and_wait(busy: Any, **how: Any) -> Any:
        for worker in multiprocessing.active_children():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        return wait(busy, **how)

    monkeypatch.setattr(workers, "wait", kill_and_wait)
    assert main(["figure3", "--quick", "--out", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told == f"paper: {WorkerDiedError()}\n"
    assert "run the same command again, with --jobs 1 if memory is short" in told
    assert not (tmp_path / PAGE).exists()


class Broken:
    """A pool in which all has ended at once: one run well, the other with its worker."""

    _processes = None

    def submit(self, measure: Any, run: Run, start: Any) -> Future[Record]:
        future: Future[Record] = Future()
        if run == GOOD[1]:
            future.set_result(fake_record(run))
        else:
            future.set_exception(BrokenProcessPool("killed"))
        return future

    def shutdown(self, **how: Any) -> None:
        pass


@pytest.mark.parametrize("runs", [GOOD, GOOD[::-1]])
def test_a_worker_that_dies_takes_no_other_result_with_it(
    runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_pool", lambda jobs: Broken())
    store, listener = Store(tmp_path / RUNS), Listener()
    with pytest.raises(WorkerDiedError):
        carry_out(runs, store, JOBS, listener)
    assert Store(tmp_path / RUNS).find(GOOD[1]) == fake_record(GOOD[1])
    assert [each for each in listener.heard if each[0] != "began"] == [("ended", GOOD[1])]


class Changed(Broken):
    """A pool whose workers see other sources than those that the command began with."""

    def submit(self, measure: Any, run: Run, start: Any) -> Future[Record]:
        future: Future[Record] = Future()
        future.set_result(fake_record(run, key=f"eigengp 0.1.0+0123456789ab: {run.label}"))
        return future


def test_sources_that_change_meanwhile_stop_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_pool", lambda jobs: Changed())
    monkeypatch.setattr(workers, "wait", wait_for_some)
    store = Store(tmp_path / RUNS)
    assert carry_out([LAST], store, JOBS, Listener()) == []
    assert [store.find(run) for run in (*LAST.before, LAST)] == [
        fake_record(run) for run in (*LAST.before, LAST)
    ]


def wait_for_some(busy: Any, **how: Any) -> Any:
    assert busy, "nothing is under way, so the command would wait for ever"
    return wait(busy, **how)


Begin = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begin the command in a session of its own; whatever is left of it ends with the test."""
    begun: list[subprocess.Popen[str]] = []

    def begin(out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", COMMAND, "figure3", "--quick"]
        with (out.parent / "output.txt").open("w") as output:
            process = subprocess.Popen(
                [*command, "--out", str(out)],
                cwd=Path(paper.__file__).parents[1],
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
    expected = [run.key for run in EXPERIMENTS["figure3"].runs(QUICKER)]
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
    wait_until(lambda: not alive(again.pid), 10)
