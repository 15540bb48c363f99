"""What a run has left is found again, whatever happened to the file in between."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import eigengp
import paper
from fake_runs import fake_record, stored
from paper.runs import Run, code
from paper.store import Store

RUNS = [Run("snelson", "EigenGP", 7, seed) for seed in range(3)]
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


@pytest.mark.parametrize("cut", [1, 2, 20, len(LINES[1]) - 3, len(LINES[1]) - 2])
@pytest.mark.parametrize("again", [False, True])
def test_a_last_line_that_was_cut_off_is_passed_over_and_loses_nothing_else(
    cut: int, again: bool, tmp_path: Path
) -> None:
    path = tmp_path / "runs.jsonl"
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


def test_results_of_other_code_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored(tmp_path / "runs.jsonl", RECORDS)
    monkeypatch.setattr("paper.runs.code", lambda: "0.1.0+0123456789ab")
    assert Store(store.path).find(RUNS[0]) is None
    Store(store.path).add(fake_record(RUNS[0], nmse=9.0))
    assert Store(store.path).find(RUNS[0])["nmse"] == 9.0
    monkeypatch.undo()
    assert Store(store.path).find(RUNS[0]) == RECORDS[0]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the package and the experiments, which `code` then looks at."""
    ignored = shutil.ignore_patterns("__pycache__")
    for module in (eigengp, paper):
        folder = Path(module.__file__).parent
        shutil.copytree(folder, tmp_path / folder.name, ignore=ignored)
    monkeypatch.setattr("eigengp.__file__", str(tmp_path / "eigengp" / "__init__.py"))
    monkeypatch.setattr("paper.runs.__file__", str(tmp_path / "paper" / "runs.py"))
    return tmp_path


def test_the_digest_tells_code_that_decides_results_from_other_code(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = code.__wrapped__
    before = digest()
    assert before == code()
    assert before.startswith(f"{eigengp.__version__}+")
    for name in (
        *("eigengp/datasets.py", "eigengp/metrics.py", "eigengp/kernels/base.py"),
        *("paper/methods.py", "paper/data/snelson.csv"),
    ):
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(whole + b"\n")
        assert digest() != before
        (copy / name).write_bytes(whole)
    for name in ("eigengp/cli/app.py", "paper/page.py", "paper/experiments/table1.py"):
        (copy / name).write_text("other")
    assert digest() == before
    monkeypatch.setattr("eigengp.__version__", "999.0")
    assert digest() != before


def test_the_digest_knows_every_module_that_a_run_is_made_with(copy: Path) -> None:
    program = (
        "import sys, paper.measure\n"
        "from paper.methods import METHODS, build\n"
        "for name in METHODS: build(name, seed=0, standardize=True)\n"
        "print(*(n for n in sys.modules if n.partition('.')[0] in ('eigengp', 'paper')))"
    )
    root = Path(paper.__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, cwd=root
    )
    loaded = [copy / name.replace(".", "/") for name in answer.stdout.decode().split()]
    files = [path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for path in loaded]
    without_effect = {copy / "paper" / name for name in ("__init__.py", "runs.py")}
    assert len(files) > 40
    for path in sorted(set(files) - without_effect):
        before = code.__wrapped__()
        path.write_text("other")
        assert code.__wrapped__() != before, path
