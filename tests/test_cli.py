"""The command line: what it understands, what it refuses, and how it says so."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eigengp.cli.app import Part, app
from eigengp.reproduce.availability import DataError
from eigengp.reproduce.experiments import EXPERIMENTS
from eigengp.reproduce.scale import FULL, QUICK
from eigengp.reproduce.workers import WorkerDiedError

COMMAND = "eigengp.reproduce.command.reproduce"


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1"})


class Stand:
    """Stands for the command, and writes down how it is called."""

    def __init__(self, answer: bool | BaseException = True) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> bool:
        self.calls.append(given)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def test_help_names_the_command() -> None:
    result = call("--help")
    assert result.exit_code == 0
    assert "adaptive eigenfunctions" in result.output
    assert "reproduce" in result.output


def test_help_of_reproduce_names_every_part_and_option() -> None:
    result = call("reproduce", "--help")
    assert result.exit_code == 0
    for word in ("--quick", "--out", "--jobs", *EXPERIMENTS):
        assert word in result.output
    assert "goes on where it was" in result.output


def test_every_experiment_can_be_named() -> None:
    assert {part.value for part in Part} == {"all", *EXPERIMENTS}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ((), (list(EXPERIMENTS), FULL, Path("results"), 2)),
        (("all", "figure1"), (list(EXPERIMENTS), FULL, Path("results"), 2)),
        (("--quick",), (list(EXPERIMENTS), QUICK, Path("results"), 2)),
        (
            ("rvm", "figure1", "rvm", "--jobs", "5", "--out", "some/where"),
            (["figure1", "rvm"], FULL, Path("some/where"), 5),
        ),
    ],
)
def test_parts_are_run_in_the_order_of_the_page(
    arguments: tuple[str, ...], given: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand()
    monkeypatch.setattr(COMMAND, stand)
    assert call("reproduce", *arguments).exit_code == 0
    assert stand.calls == [given]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["figure7"], "figure7"), (["--jobs", "0"], "--jobs"), (["--jobs", "two"], "--jobs")],
)
def test_what_is_not_understood_is_refused(
    arguments: list[str], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand()
    monkeypatch.setattr(COMMAND, stand)
    result = call("reproduce", *arguments)
    assert result.exit_code == 2
    assert word in result.stderr
    assert "Invalid value" in result.stderr
    assert not stand.calls


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (True, 0, ""),
        (False, 1, ""),
        (WorkerDiedError(), 1, "most likely for want of memory"),
        (DataError("that is odd"), 1, "eigengp: that is odd\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "Permission denied: '/x'"),
        (KeyboardInterrupt(), 130, "What had ended is stored; the same command goes on."),
    ],
)
def test_the_exit_code_says_how_it_went(
    answer: bool | BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(COMMAND, Stand(answer))
    result = call("reproduce")
    assert result.exit_code == code
    assert said in result.stderr
    assert bool(said) == bool(result.stderr)
    assert "Traceback" not in result.output


def test_a_fault_of_the_program_is_not_passed_off_as_one_of_the_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(COMMAND, Stand(ValueError("that is a fault")))
    result = call("reproduce")
    assert result.exit_code == 1
    assert isinstance(result.exception, ValueError)


def test_a_folder_that_cannot_be_made_is_named_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "results"
    result = call("reproduce", "figure3", "--quick", "--out", str(out))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("eigengp: ")
    assert str(out) in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("missing", "importers"), [("jinja2", ["command", "page"]), ("matplotlib", [])]
)
def test_what_the_page_needs_is_missed_before_all_runs(
    missing: str, importers: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for name in importers:
        monkeypatch.delitem(sys.modules, f"eigengp.reproduce.{name}", raising=False)
    result = call("reproduce", "figure3", "--quick", "--out", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert 'pip install "eigengp[reproduce]"' in result.stderr
    assert missing in result.stderr
    assert not (tmp_path / "out").exists()


def test_without_typer_the_command_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "eigengp.cli.app")
    with pytest.raises(SystemExit, match=r'pip install "eigengp\[reproduce\]"'):
        import_module("eigengp.cli.app")
