"""What a run has left is found again, whatever happened to the file in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigengp.reproduce.runs import Run
from eigengp.reproduce.store import Store
from fake_runs import fake_record, stored

RUNS = [Run("snelson-like", "EigenGP", 7, seed) for seed in range(3)]
RECORDS = [fake_record(run, nmse=0.1 * run.seed, note="Nyström\n\r\u2028") for run in RUNS]
LINES = [json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in RECORDS]


def test_records_survive_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "runs.jsonl"
    store = Store(path)
    for record in RECORDS:
        store.add(record)
    again = Store(path)
    assert [again.find(run) for run in RUNS] == [store.find(run) for run in RUNS] == RECORDS
    assert len(again) == len(store) == 3
    assert again.broken_lines == 0
    assert path.read_bytes() == b"".join(LINES)


def test_a_store_without_a_file_is_empty_and_makes_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "none" / "runs.jsonl")
    assert len(store) == 0
    assert store.find(RUNS[0]) is None
    assert not store.path.parent.exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 1e-300])
def test_numbers_that_json_does_not_know_survive_too(value: float, tmp_path: Path) -> None:
    Store(tmp_path / "runs.jsonl").add(fake_record(RUNS[0], nmse=value))
    assert repr(Store(tmp_path / "runs.jsonl").find(RUNS[0])["nmse"]) == repr(value)


@given(cut=st.integers(1, len(LINES[1]) - 2), again=st.booleans())
def test_a_last_line_that_was_cut_off_is_passed_over_and_loses_nothing_else(
    cut: int, again: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "runs.jsonl"
    path.write_bytes(LINES[0] + LINES[1][:cut])
    store = Store(path)
    assert store.broken_lines == 1
    assert [store.find(run) for run in RUNS] == [RECORDS[0], None, None]
    added = RECORDS[1:] if again else RECORDS[2:]
    for record in added:
        store.add(record)
    for reader in (store, Store(path)):
        assert reader.broken_lines == 1
        assert reader.find(RUNS[0]) == RECORDS[0]
        assert reader.find(RUNS[1]) == (RECORDS[1] if again else None)
        assert reader.find(RUNS[2]) == RECORDS[2]
    assert path.read_bytes() == LINES[0] + LINES[1][:cut] + b"\n" + b"".join(
        LINES[3 - len(added) :]
    )


def test_a_line_that_lacks_only_its_end_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(LINES[0].rstrip(b"\n"))
    store = Store(path)
    assert store.broken_lines == 0
    store.add(RECORDS[1])
    assert path.read_bytes() == LINES[0] + LINES[1]
    assert [Store(path).find(run) for run in RUNS] == [*RECORDS[:2], None]


@pytest.mark.parametrize(
    "garbage",
    [b"{", b"null", b"3", b'"key"', b"[]", b"{}", b'{"key": []}', b"\xff\xfe", b"\x00" * 40],
)
def test_a_line_of_garbage_loses_no_other(garbage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_bytes(LINES[0] + garbage + b"\n" + LINES[1])
    store = Store(path)
    assert store.broken_lines == 1
    assert [store.find(run) for run in RUNS] == [*RECORDS[:2], None]


def test_the_last_of_two_records_of_one_run_counts(tmp_path: Path) -> None:
    records = [fake_record(RUNS[0], nmse=nmse) for nmse in (0.3, 0.2)]
    store = stored(tmp_path / "runs.jsonl", records)
    assert len(store) == 1
    assert store.find(RUNS[0]) == records[1]


def test_results_of_another_version_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored(tmp_path / "runs.jsonl", RECORDS)
    monkeypatch.setattr("eigengp.__version__", "999.0")
    assert Store(store.path).find(RUNS[0]) is None
    monkeypatch.undo()
    assert Store(store.path).find(RUNS[0]) == RECORDS[0]
