"""The command line as a whole: what it offers, and how commands fail."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import eigengp
from command_line import call
from eigengp.cli.commands.methods import METHODS, Name, build_model
from eigengp.cli.commands.session import Session


def test_help_imports_nothing_that_computes() -> None:
    code = (
        "import sys, eigengp.cli.app\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'pyarrow', 'pandas', 'matplotlib', 'safetensors'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_names_commands_methods_and_exit_codes() -> None:
    shown = call("--help").stdout
    for word in (
        "fit",
        "predict",
        "evaluate",
        "inspect",
        "compare",
        "report",
        "Exit codes: 0 success",
    ):
        assert word in shown
    methods = call("fit", "--help").stdout
    assert all(f"{name}:" in methods for name in METHODS)


def test_version() -> None:
    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"eigengp {eigengp.__version__}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("eigengp ins", ["inspect"]),
        ("eigengp fit --method eigengp-", ["eigengp-plus"]),
        ("eigengp compare --method li", ["linear"]),
    ],
)
def test_the_shell_completes(words: str, expected: list[str]) -> None:
    environment = {
        **os.environ,
        "_EIGENGP_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = (
        "import sys; sys.argv[0] = 'eigengp'; "
        "from eigengp.cli.app import app; app(prog_name='eigengp')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == expected


def test_every_method_is_there_and_is_what_it_says() -> None:
    assert list(METHODS) == list(get_args(Name))
    for name, method in METHODS.items():
        sized = name not in ("exact", "rvm")
        model = build_model(method, 5, verbose=1, **({"n_components": 7} if sized else {}))
        assert (model.random_state, model.verbose) == (5, 1)
        assert sized == hasattr(model, "n_components")
        assert getattr(model, "n_components", 7) == 7
        assert getattr(model, "residual", 0) == method.settings.get(
            "residual", "auto" if sized and method.estimator == "EigenGPRegressor" else 0
        )


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "d.csv", "--out", "m.eigengp"),
        ("fit", "d.csv", "-t", "y", "-o", "m.eigengp", "--method", "magic"),
        ("fit", "d.csv", "-t", "y", "-o", "m.eigengp", "--components", "0"),
        ("fit", "d.csv", "-t", "y", "-o", "m.eigengp", "--holdout", "1.5"),
        ("predict", "m.eigengp"),
        ("predict", "m.eigengp", "d.csv", "--coverage", "90"),
        ("evaluate", "m.eigengp", "d.csv", "--coverage", "-1"),
        ("compare", "d.csv", "-t", "y", "--method", "magic"),
        ("inspect",),
    ],
)
def test_what_is_not_understood_has_exit_code_2(arguments: tuple[str, ...]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["predict", "evaluate", "inspect"])
def test_what_is_no_model_is_said_in_one_line(command: str, folder: Path, tmp_path: Path) -> None:
    data = () if command == "inspect" else (folder / "test.csv",)
    for path, said in ((folder / "said", "is not a saved model"), (tmp_path / "no", "No such")):
        result = call(command, path, *data)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.startswith("eigengp: ")
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
        machine = call(command, path, *data, "--json")
        assert said in json.loads(machine.stdout)["error"]
        assert machine.exit_code == 1


def test_debug_shows_where_an_error_came_from(folder: Path) -> None:
    result = call("inspect", folder / "said", "--debug")
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("eigengp: ")


def test_a_fault_of_the_program_is_told_from_one_of_the_data(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: Any) -> None:
        raise KeyError("inside")

    monkeypatch.setattr("eigengp.cli.commands.inspect.collect_facts", fault)
    result = call("inspect", folder / "m.eigengp")
    assert result.exit_code == 1
    assert result.stderr == "eigengp: Unexpected KeyError: 'inside' (--debug shows the traceback)\n"


def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Session().verbose == 2
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert Session().verbose == 1
    assert Session(quiet=True).verbose == 0
    assert Session(json=True).verbose == 0


def test_every_name_of_the_package_can_be_imported() -> None:
    stub = Path(eigengp.__file__).with_suffix(".pyi").read_text()
    assert sorted(ast.literal_eval(stub[stub.index("__all__ = ") + 10 :])) == eigengp.__all__
    for name in eigengp.__all__:
        assert getattr(eigengp, name) is not None
    assert set(eigengp.__all__) <= set(dir(eigengp))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        eigengp.nothing  # noqa: B018
