"""A killed fit resumes from its checkpoint and ends at the same optimum."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigengp import LBFGS, EigenGPRegressor, SSGPRegressor
from eigengp._typing import Array
from eigengp.fitting.checkpoint import (
    Checkpoint,
    CheckpointWarning,
    open_checkpoint,
)
from eigengp.fitting.objectives import Evaluation, RowObjective, recall

rng = np.random.default_rng(0)
X = rng.normal(size=(7_000, 2))
y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=7_000)

FIT = """
import sys
import numpy as np
from eigengp import LBFGS, EigenGPRegressor
from eigengp.fitting.checkpoint import Checkpoint

add = Checkpoint.add
Checkpoint.add = lambda self, *found: (add(self, *found), print(len(self), flush=True))[0]
rng = np.random.default_rng(0)
X = rng.normal(size=(7_000, 2))
y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=7_000)
optimizer = LBFGS(n_restarts=1, max_iter=10, checkpoint=sys.argv[1])
model = EigenGPRegressor(10, residual=None, optimizer=optimizer, random_state=0).fit(X, y)
np.save(sys.argv[2], np.append(model.inducing_points_.ravel(), model.log_marginal_likelihood_))
"""


KEYS = tuple(bytes([i]) * 16 for i in range(6))
REFUSED = "cannot be used: .* Name another file, or remove this one to start again"


def model(random_state: int | None = 0, **settings: Any) -> EigenGPRegressor:
    optimizer = LBFGS(**{"n_restarts": 1, "max_iter": 25, **settings})
    return EigenGPRegressor(10, residual=None, optimizer=optimizer, random_state=random_state)


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
    for stop, expected in ((9, 9), (3, 12)):
        killed_after(stop, monkeypatch, path, random_state=None)
        assert len(stored(path)) == expected + 1


def stored(path: Path) -> list[tuple[bytes, bytes, bytes]]:
    """Return the records of a checkpoint; the first is its header."""
    database = sqlite3.connect(path)
    records = database.execute("SELECT * FROM records").fetchall()
    database.close()
    return records


def test_sigkill_at_two_moments_changes_nothing(tmp_path: Path) -> None:
    path, out = tmp_path / "fit.checkpoint", tmp_path / "found.npy"
    command = [sys.executable, "-c", FIT, str(path), str(out)]
    for count in (1, 12):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if int(line) >= count:
                    break
            process.send_signal(signal.SIGKILL)
        assert path.exists()
        assert not out.exists()
    assert len(stored(path)) > 12
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert [each.name for each in tmp_path.iterdir()] == ["found.npy"]
    whole = model(max_iter=10).fit(X, y)
    expected = np.append(whole.inducing_points_.ravel(), whole.log_marginal_likelihood_)
    np.testing.assert_array_equal(np.load(out), expected)


def evaluation(i: int) -> Evaluation:
    return Evaluation(i + 0.1, np.full(5, i / 3), -i / 7)


def write_checkpoint(path: Path, fingerprint: str = "f", seed: int = 0) -> None:
    checkpoint = Checkpoint(path, fingerprint, np.random.RandomState(seed))
    for i, key in enumerate(KEYS):
        checkpoint.add(key, evaluation(i))
    checkpoint.close()


def assert_refused_or_true(path: Path) -> bool:
    """Check that a file is refused with advice, or else gives nothing that is wrong."""
    rng = np.random.RandomState(1)
    try:
        checkpoint = Checkpoint(path, "f", rng)
    except ValueError as error:
        if re.search(REFUSED, str(error)):
            return True
        raise
    for i, key in enumerate(KEYS):
        found = checkpoint.look_up(key)
        if found is not None:
            np.testing.assert_equal(tuple(found), tuple(evaluation(i)))
    assert rng.normal() == np.random.RandomState(0 if len(checkpoint) else 1).normal()
    checkpoint.close()
    return False


def test_a_checkpoint_is_one_file_once_closed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_checkpoint(path)
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert not assert_refused_or_true(path)
    assert len(stored(path)) == len(KEYS) + 1


def test_a_damaged_file_is_refused_or_gives_what_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_checkpoint(path)
    whole, draw, refused = path.read_bytes(), np.random.default_rng(0), 0
    interesting = np.flatnonzero(np.frombuffer(whole, dtype=np.uint8))
    for at in draw.choice(interesting, 300, replace=False):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << draw.integers(8)
        path.write_bytes(flipped)
        refused += assert_refused_or_true(path)
    assert refused > 200
    for cut in range(1, len(whole), 997):
        path.write_bytes(whole[:cut])
        assert assert_refused_or_true(path)


def test_a_torn_log_keeps_all_records_before_the_tear(tmp_path: Path) -> None:
    path, log = tmp_path / "a", tmp_path / "a-wal"
    checkpoint = Checkpoint(path, "f", np.random.RandomState(0))
    for i, key in enumerate(KEYS):
        checkpoint.add(key, evaluation(i))
    main, whole = path.read_bytes(), log.read_bytes()  # As a kill leaves them.
    checkpoint.close()
    counts = []
    for cut in (*range(0, len(whole), 1777), len(whole)):
        path.write_bytes(main)
        log.write_bytes(whole[:cut])
        again = Checkpoint(path, "f", np.random.RandomState(0))
        counts.append(len(again))
        assert all(again.look_up(key) is not None for key in KEYS[: len(again)])
        again.add(KEYS[-1], evaluation(5))
        again.close()
        assert not assert_refused_or_true(path)
    assert counts == sorted(counts)
    assert counts[-1] == len(KEYS)


def test_the_log_of_another_fit_does_no_harm(tmp_path: Path) -> None:
    path, log = tmp_path / "a", tmp_path / "a-wal"
    other = Checkpoint(path, "g", np.random.RandomState(7))
    for i, key in enumerate(KEYS):
        other.add(key, evaluation(i + 1))
    left = log.read_bytes()
    other.close()
    log.write_bytes(left)
    assert assert_refused_or_true(path)
    path.unlink()
    log.write_bytes(left)
    assert not assert_refused_or_true(path)
    path.unlink()
    write_checkpoint(path)
    log.write_bytes(left)
    assert_refused_or_true(path)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _database(*statements: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        database = sqlite3.connect(path)
        for statement in statements:
            database.execute(statement)
        database.commit()
        database.close()

    return make


def _with_row(key: object, content: object) -> Callable[[Path], None]:
    """Return a writer of a checkpoint with a crafted record whose digest is right."""

    def make(path: Path) -> None:
        write_checkpoint(path)
        checkpoint = Checkpoint(path, "f", np.random.RandomState(0))
        parts = (each if isinstance(each, bytes) else str(each).encode() for each in (key, content))
        digest = checkpoint._digest(*parts)
        checkpoint.close()
        database = sqlite3.connect(path)
        database.execute("INSERT INTO records VALUES (?, ?, ?)", (key, content, digest))
        database.commit()
        database.close()

    return make


def _with_state(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Return a writer of a checkpoint with a crafted random state whose digest is right."""

    def make(path: Path) -> None:
        checkpoint = Checkpoint(path, "f", np.random.RandomState(0))
        checkpoint.close()
        state = json.loads(stored(path)[0][1])
        content = json.dumps(change(state) or state).encode()
        database = sqlite3.connect(path)
        record = content, checkpoint._digest(b"f", content)
        database.execute("UPDATE records SET content = ?, digest = ?", record)
        database.commit()
        database.close()

    return make


_TABLE = "CREATE TABLE records (key BLOB, content BLOB, digest BLOB)"
_KEY = b"k" * 16
NOT_CHECKPOINTS: dict[str, Callable[[Path], object]] = {
    "directory": Path.mkdir,
    "FIFO": _fifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop of links": lambda path: path.symlink_to(path),
    "text": lambda path: path.write_text("mine"),
    "letter": lambda path: path.write_text("a"),
    "zeros": lambda path: path.write_bytes(bytes(10_000)),
    "SQLite's first line": lambda path: path.write_bytes(b"SQLite format 3\0"),
    "SQLite's first line and noise": lambda path: path.write_bytes(
        b"SQLite format 3\0" + np.random.default_rng(0).bytes(8176)
    ),
    "other table": _database("CREATE TABLE mine (x)"),
    "view": _database("CREATE VIEW records AS SELECT 1 AS key, 2 AS content, 3 AS digest"),
    "trigger": _database(
        _TABLE, "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END"
    ),
    "escape sequences": _database(_TABLE.replace("key", '"\x1b[2J"')),
    "more columns": _database(_TABLE.replace(")", ", more)")),
    "no header": _database(_TABLE, "INSERT INTO records VALUES (x'00', x'00', x'00')"),
    "NULL": _database(_TABLE, "INSERT INTO records VALUES (NULL, NULL, NULL)"),
    "numbers": _database(_TABLE, "INSERT INTO records VALUES (1, 2.5, 3)"),
    "invalid UTF-8": _database(_TABLE, "INSERT INTO records VALUES (CAST(x'ff' AS TEXT), 1, 2)"),
    "header without digest": _database(_TABLE, "INSERT INTO records VALUES (x'66', x'7b7d', NULL)"),
    "empty record": _with_row(_KEY, b""),
    "one number": _with_row(_KEY, np.ones(1).tobytes()),
    "half a number": _with_row(_KEY, np.ones(7).tobytes()[:-4]),
    "text record": _with_row(_KEY, "text"),
    "number for a key": _with_row(7, np.ones(7).tobytes()),
    "NULL record": _with_row(_KEY, None),
    "NaN": _with_row(_KEY, np.array([1.0, 1.0, np.nan]).tobytes()),
    "infinity": _with_row(_KEY, np.array([np.inf, 1.0, 1.0]).tobytes()),
    "state is a list": _with_state(lambda state: [1]),
    "state is a number": _with_state(lambda state: 3),
    "no state": _with_state(lambda state: state.pop("state") and None),
    "other generator": _with_state(lambda state: state.update(bit_generator="PCG64")),
    "short key": _with_state(lambda state: state["state"].update(key=[1, 2])),
    "long key": _with_state(lambda state: state["state"].update(key=[1] * 700)),
    "fractions": _with_state(lambda state: state["state"].update(key=[0.5] * 624)),
    "position outside": _with_state(lambda state: state["state"].update(pos=10**6)),
    "position NaN": _with_state(lambda state: state["state"].update(pos=float("nan"))),
    "position text": _with_state(lambda state: state["state"].update(pos="1")),
    "Gauss NaN": _with_state(lambda state: state.update(has_gauss=1, gauss=float("nan"))),
}


@pytest.mark.parametrize("name", NOT_CHECKPOINTS)
def test_what_is_no_checkpoint_is_refused_and_left_alone(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    NOT_CHECKPOINTS[name](path)
    content = path.read_bytes() if path.is_file() else None
    with pytest.raises(ValueError, match=REFUSED) as caught:
        Checkpoint(path, "f", np.random.RandomState(0))
    assert str(caught.value).isprintable()
    if content is not None:
        assert path.read_bytes() == content


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_gradient_of_another_size_is_refused(size: int, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "a", "f", np.random.RandomState(0))
    for gradient in (np.ones(2), np.ones(size)):
        objective = recall(Counting(gradient), checkpoint, "a")
        checkpoint._known.clear()
        assert objective(np.ones(2)).value == 1.0
    with pytest.raises(ValueError, match=REFUSED):
        objective(np.ones(2))
    checkpoint.close()


def test_a_path_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent" / "a", tmp_path / ("a" * 300)):
        with pytest.raises(ValueError, match=REFUSED):
            Checkpoint(path, "f", np.random.RandomState(0))


def test_a_name_is_a_file_whatever_sqlite_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "file:a?mode=memory"):
        write_checkpoint(Path(name))
        assert len(stored(tmp_path / name)) == len(KEYS) + 1


def test_evaluations_that_are_not_finite_are_made_again(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "a", "f", np.random.RandomState(0))
    objective = recall(Counting(np.array([np.nan, 1.0])), checkpoint, "a")
    for _ in range(2):
        objective(np.ones(2))
    assert len(checkpoint) == 0
    checkpoint.remove()


def test_a_checkpoint_serves_any_thread(tmp_path: Path) -> None:
    path = tmp_path / "a"
    checkpoint = Checkpoint(path, "f", np.random.RandomState(0))

    def add(i: int) -> None:
        for j in range(20):
            checkpoint.add(bytes([i, j]) * 8, evaluation(i))

    threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    checkpoint.close()
    assert len(stored(path)) == 81


def test_two_fits_at_once_do_not_share_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    checkpoint = Checkpoint(tmp_path / "a", "f", np.random.RandomState(0))
    monkeypatch.setattr(sqlite3, "connect", lambda path, **own: connect(path, timeout=0, **own))
    with pytest.raises(ValueError, match="database is locked"):
        Checkpoint(tmp_path / "a", "f", np.random.RandomState(0))
    checkpoint.remove()
    assert not list(tmp_path.iterdir())


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
    with pytest.raises(ValueError, match=REFUSED):
        model(checkpoint=other).fit(X, y)
    assert other.read_text() == "mine"


def test_fits_are_told_apart_by_settings_and_data(tmp_path: Path) -> None:
    settings: dict[str, object] = {"a": 1, "points": np.zeros(2_000)}
    summary = (3, np.ones(2))

    def opens(settings: dict[str, object], summary: tuple[Any, ...]) -> bool:
        try:
            open_checkpoint(tmp_path / "a", settings, summary, np.random.RandomState(0)).close()
        except ValueError:
            return False
        return True

    assert opens(settings, summary)
    assert opens(dict(reversed(settings.items())), summary)
    points = np.zeros(2_000)
    points[1_000] = 1.0
    assert not opens(settings | {"a": 2}, summary)
    assert not opens(settings | {"points": points}, summary)
    assert not opens(settings, (4, np.ones(2)))
    assert not opens(settings, (3, np.array([1.0, 1.0 + 1e-15])))


def fill_disk(monkeypatch: pytest.MonkeyPatch, pages: int) -> None:
    """Let databases grow to so many pages, as a full disk would."""

    class Limited(sqlite3.Connection):
        def executescript(self, script: str) -> sqlite3.Cursor:
            return super().executescript(f"{script}; PRAGMA max_page_count = {pages}")

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda path, **own: connect(path, factory=Limited, **own)
    )


def test_a_full_disk_keeps_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fit.checkpoint"
    with monkeypatch.context() as patch:
        fill_disk(patch, 20)
        checkpoint = Checkpoint(path, "f", np.random.RandomState(0))
        checkpoint.add(KEYS[0], evaluation(0))
        with pytest.warns(CheckpointWarning, match="database or disk is full"):
            checkpoint.add(KEYS[1], Evaluation(2.0, np.zeros(20_000), 0.0))
        checkpoint.add(KEYS[2], evaluation(2))
        assert checkpoint.look_up(KEYS[1]) is not None
    assert [key for key, _, _ in stored(path)] == [b"f", KEYS[0]]
    assert not assert_refused_or_true(path)

    for pages in (1, 4):
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            fill_disk(patch, pages)
            warnings.simplefilter("always")
            own = model(checkpoint=tmp_path / "other").fit(X, y)
        assert sum(each.category is CheckpointWarning for each in caught) == 1
        assert own.log_marginal_likelihood_ == model().fit(X, y).log_marginal_likelihood_
        assert [each.name for each in tmp_path.iterdir()] == ["fit.checkpoint"]


def test_other_methods_have_checkpoints_too(tmp_path: Path) -> None:
    path = tmp_path / "fit.checkpoint"

    def fitted(checkpoint: Path | None) -> SSGPRegressor:
        optimizer = LBFGS(n_restarts=1, max_iter=5, checkpoint=checkpoint)
        return SSGPRegressor(10, optimizer=optimizer, random_state=0).fit(X, y)

    expected = pytest.approx(fitted(None).log_marginal_likelihood_)
    assert fitted(path).log_marginal_likelihood_ == expected
    assert not path.exists()


class Counting:
    """An objective that counts how often it is evaluated."""

    def __init__(self, gradient: Array) -> None:
        self.gradient, self.count = gradient, 0

    def __call__(self, vector: Array) -> Evaluation:
        self.count += 1
        return Evaluation(1.0, self.gradient, 2.0)


def test_a_known_point_is_not_evaluated(tmp_path: Path) -> None:
    inner = Counting(np.ones(2))
    checkpoint = Checkpoint(tmp_path / "a", "f", np.random.RandomState(0))
    own, other = (recall(inner, checkpoint, name) for name in ("a", "b"))
    for objective in (own, own, other):
        assert objective(np.ones(2)).evidence == 2.0
    checkpoint.close()
    again = Checkpoint(tmp_path / "a", "f", np.random.RandomState(0))
    assert recall(inner, again, "a")(np.ones(2)).value == 1.0
    assert inner.count == 2
    again.close()
