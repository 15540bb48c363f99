"""What `python paper` understands, what it refuses, and how it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eigengp
import paper
from paper import cli
from paper.cli import main
from paper.experiments import EXPERIMENTS
from paper.problems import DataError
from paper.scale import FULL, QUICK
from paper.workers import WorkerDiedError

ALL = list(EXPERIMENTS)


class Stand:
    """Stands for the program, and writes down how it is called."""

    def __init__(self, answer: bool | BaseException = True) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> bool:
        self.calls.append(given)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def test_help_names_every_part_and_option_from_any_folder(tmp_path: Path) -> None:
    folder = Path(paper.__file__).parent
    done = subprocess.run(
        [sys.executable, folder, "--help"],
        env={"PYTHONPATH": str(Path(eigengp.__file__).parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    for word in ("--quick", "--out", "--jobs", *EXPERIMENTS):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], (ALL, FULL, Path("results"), 2)),
        (["--quick"], (ALL, QUICK, Path("results"), 2)),
        (
            ["rvm", "figure1", "rvm", "--jobs", "5", "--out", "some/where"],
            (["figure1", "rvm"], FULL, Path("some/where"), 5),
        ),
    ],
)
def test_parts_are_run_in_the_order_of_the_page(
    arguments: list[str], given: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = Stand()
    monkeypatch.setattr(cli, "reproduce", stand)
    assert main(arguments) == 0
    assert stand.calls == [given]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["figure7"], "figure7"), (["--jobs", "0"], "--jobs"), (["--jobs", "two"], "--jobs")],
)
def test_what_is_not_understood_is_refused(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert word in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (True, 0, ""),
        (False, 1, ""),
        (WorkerDiedError(), 1, "run the same command again"),
        (DataError("that is odd"), 1, "paper: that is odd\n"),
        (PermissionError(13, "Permission denied", "/x"), 1, "Permission denied: '/x'"),
        (KeyboardInterrupt(), 130, "the same command continues."),
    ],
)
def test_the_exit_code_says_how_it_went(
    answer: bool | BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli, "reproduce", Stand(answer))
    assert main([]) == code
    told = capsys.readouterr().err
    assert said in told
    assert bool(said) == bool(told)


def test_a_fault_of_the_program_is_not_passed_off_as_one_of_the_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "reproduce", Stand(ValueError("that is a fault")))
    with pytest.raises(ValueError, match="that is a fault"):
        main([])


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "results"
    assert main(["figure3", "--quick", "--out", str(out)]) == 1
    assert str(out) in capsys.readouterr().err
