"""A fit that is killed goes on where it was, and ends at the same optimum."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigengp import EigenGPRegressor, SSGPRegressor
from eigengp._typing import Array
from eigengp.fitting import checkpoint as journals
from eigengp.fitting.checkpoint import Checkpoint, CheckpointedObjective, CheckpointWarning
from eigengp.fitting.objectives import RowObjective
from eigengp.fitting.optimizer import Evaluation

rng = np.random.default_rng(0)
X = rng.normal(size=(7_000, 2))
y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=7_000)

FIT = """
import sys, time
import numpy as np
from eigengp import EigenGPRegressor
from eigengp.fitting.checkpoint import Checkpoint

add = Checkpoint.add
Checkpoint.add = lambda self, *found: (time.sleep(0.03), add(self, *found))[1]
rng = np.random.default_rng(0)
X = rng.normal(size=(7_000, 2))
y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=7_000)
model = EigenGPRegressor(
    10, residual=None, n_restarts=1, max_iter=10, checkpoint=sys.argv[1], random_state=0
).fit(X, y)
np.save(sys.argv[2], np.append(model.inducing_points_.ravel(), model.log_marginal_likelihood_))
"""


def model(**settings: Any) -> EigenGPRegressor:
    own = {"residual": None, "n_restarts": 1, "max_iter": 25, "random_state": 0} | settings
    return EigenGPRegressor(10, **own)


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_after(count: int, monkeypatch: pytest.MonkeyPatch, path: Path, **settings: Any) -> None:
    """Begin a fit and end it after some records, as the process would end."""
    add, seen = Checkpoint.add, []

    def counted(self: Checkpoint, key: bytes, evaluation: Evaluation) -> None:
        if len(seen) == count:
            raise Killed
        seen.append(1)
        add(self, key, evaluation)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "add", counted)
        with pytest.raises(Killed):
            model(checkpoint=path, **settings).fit(X, y)


def test_a_fit_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fit.checkpoint"
    whole = model().fit(X, y)
    for count in (1, 7, 20):
        killed_after(count, monkeypatch, path)
        assert path.exists()
    own = model(checkpoint=str(path)).fit(X, y)
    assert own.log_marginal_likelihood_ == whole.log_marginal_likelihood_
    np.testing.assert_array_equal(own.inducing_points_, whole.inducing_points_)
    assert own.n_iter_ == whole.n_iter_
    assert not path.exists()


def test_nothing_is_evaluated_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, calls = tmp_path / "fit.checkpoint", []
    evaluate = RowObjective.__call__

    def counted(self: RowObjective, vector: Array) -> Evaluation:
        calls.append(1)
        return evaluate(self, vector)

    killed_after(12, monkeypatch, path)
    monkeypatch.setattr(RowObjective, "__call__", counted)
    model(checkpoint=path).fit(X, y)
    resumed = len(calls)
    calls.clear()
    model(checkpoint=path).fit(X, y)
    assert len(calls) - resumed == 12


def test_draws_without_a_seed_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fit.checkpoint"
    for expected in (9, 12):
        killed_after(9 if expected == 9 else 3, monkeypatch, path, random_state=None)
        journal = Checkpoint(path, _fingerprint_of(path), np.random.RandomState())
        assert len(journal) == expected
        journal.close()


def _fingerprint_of(path: Path) -> str:
    record, _ = next(iter(journals._records(path.read_bytes())))
    return str(json.loads(record)["fingerprint"])


def test_sigkill_at_two_moments_changes_nothing(tmp_path: Path) -> None:
    path, out = tmp_path / "fit.checkpoint", tmp_path / "found.npy"
    command = [sys.executable, "-c", FIT, str(path), str(out)]
    for records in (1, 12):
        process = subprocess.Popen(command)
        try:
            _wait_for(path, records, process)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert path.exists()
        assert not out.exists()
    subprocess.run(command, check=True)
    assert not path.exists()
    whole = model(max_iter=10).fit(X, y)
    expected = np.append(whole.inducing_points_.ravel(), whole.log_marginal_likelihood_)
    np.testing.assert_array_equal(np.load(out), expected)


def _wait_for(path: Path, records: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the checkpoint has so many records more than its header."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and len(list(journals._records(path.read_bytes()))) > records:
            return
        time.sleep(0.01)


def test_a_torn_record_is_as_if_it_never_was(tmp_path: Path) -> None:
    path, state = tmp_path / "a.checkpoint", np.random.RandomState(0)
    journal = Checkpoint(path, "f", state)
    for i in range(3):
        journal.add(bytes([i]) * 16, Evaluation(float(i), np.full(5, i, dtype=float), -1.0))
    journal.close()
    whole = path.read_bytes()
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        again = Checkpoint(path, "f", np.random.RandomState(1))
        assert len(again) <= 2
        assert again.found(b"x" * 16) is None
        again.add(b"x" * 16, Evaluation(9.0, np.zeros(5), 0.0))
        again.close()
        last = Checkpoint(path, "f", np.random.RandomState(2))
        found = last.found(b"x" * 16)
        assert found is not None
        assert found.value == 9.0
        last.close()
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    path.write_bytes(bytes(flipped))
    journal = Checkpoint(path, "f", state)
    assert len(journal) == 2
    journal.close()


def test_a_checkpoint_of_another_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fit.checkpoint"
    killed_after(3, monkeypatch, path)
    with pytest.raises(ValueError, match="belongs to a fit with other data or settings"):
        model(checkpoint=path, max_iter=24).fit(X, y)
    with pytest.raises(ValueError, match="belongs to a fit with other data or settings"):
        model(checkpoint=path).fit(X[:-1], y[:-1])
    assert path.exists()
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        model(checkpoint=other).fit(X, y)
    assert other.read_text() == "mine"


def test_a_full_disk_keeps_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fit.checkpoint"
    journal = Checkpoint(path, "f", np.random.RandomState(0))
    journal.add(b"a" * 16, Evaluation(1.0, np.zeros(2), 0.0))
    size = path.stat().st_size

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journals.os, "fsync", full)
        with pytest.warns(CheckpointWarning, match="No space left on device"):
            journal.add(b"b" * 16, Evaluation(2.0, np.zeros(2), 0.0))
        journal.add(b"c" * 16, Evaluation(3.0, np.zeros(2), 0.0))
    assert path.stat().st_size == size
    journal = Checkpoint(path, "f", np.random.RandomState(0))
    assert len(journal) == 1
    journal.close()

    monkeypatch.setattr(journals.os, "fsync", full)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own = model(checkpoint=tmp_path / "other").fit(X, y)
    assert any(each.category is CheckpointWarning for each in caught)
    assert own.log_marginal_likelihood_ == model().fit(X, y).log_marginal_likelihood_


def test_other_methods_have_checkpoints_too(tmp_path: Path) -> None:
    path = tmp_path / "fit.checkpoint"
    settings = {"n_restarts": 1, "max_iter": 5, "random_state": 0}
    own = SSGPRegressor(10, checkpoint=path, **settings).fit(X, y)
    assert own.log_marginal_likelihood_ == pytest.approx(
        SSGPRegressor(10, **settings).fit(X, y).log_marginal_likelihood_
    )
    assert not path.exists()


def test_a_known_point_is_not_evaluated(tmp_path: Path) -> None:
    asked = []

    class Counting:
        bounds = (np.zeros(2), np.ones(2))

        def __call__(self, vector: Array) -> Evaluation:
            asked.append(vector)
            return Evaluation(1.0, vector.copy(), 2.0)

    journal = Checkpoint(tmp_path / "a", "f", np.random.RandomState(0))
    own, other = (CheckpointedObjective(Counting(), journal, name) for name in ("a", "b"))
    for objective in (own, own, other):
        assert objective(np.ones(2)).evidence == 2.0
    journal.close()
    again = Checkpoint(tmp_path / "a", "f", np.random.RandomState(0))
    assert CheckpointedObjective(Counting(), again, "a")(np.ones(2)).value == 1.0
    assert len(asked) == 2
    again.close()
