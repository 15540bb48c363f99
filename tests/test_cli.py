"""The entry point of the command line."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest


def test_without_typer_the_command_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "eigengp.cli.app", raising=False)
    with pytest.raises(SystemExit, match=r'pip install "eigengp\[cli\]"'):
        import_module("eigengp.cli.app")
