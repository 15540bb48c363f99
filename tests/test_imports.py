"""What is imported when: the package begins at once, and extras only when they are used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eigengp

SOURCE = Path(eigengp.__file__).parents[1]
EXTRAS = (
    *("pandas", "pyarrow", "dask", "distributed", "torch", "triton", "array_api_compat"),
    *("matplotlib", "jinja2"),
)

# Refuses the extras as if they were not installed, and notes which file asked for each.
_WATCH = """
import json, sys

class Watch:
    asked = {}

    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in EXTRAS:
            return None
        frame = sys._getframe(1)
        while "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        self.asked.setdefault(root, []).append(frame.f_code.co_filename)
        raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Watch())
"""


def _fresh(code: str) -> Any:
    """Run code in a new process and return what it prints, which is JSON."""
    lines = (f"import sys; sys.path.insert(0, {str(SOURCE)!r}); EXTRAS = {EXTRAS!r}", code)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_the_package_itself_imports_no_other() -> None:
    code = "import json, eigengp; print(json.dumps(sorted(sys.modules)))"
    assert {"numpy", "scipy", "sklearn", "typer", "rich", "safetensors", *EXTRAS}.isdisjoint(
        _fresh(code)
    )


def test_all_names_can_be_used_without_any_extra_and_none_is_asked_for() -> None:
    code = f"""{_WATCH}
import eigengp
found = [getattr(eigengp, name).__name__.rpartition(".")[2] for name in eigengp.__all__]
print(json.dumps([found, Watch.asked]))
"""
    found, asked = _fresh(code)
    assert found == eigengp.__all__
    own = [file for files in asked.values() for file in files if file.startswith(str(SOURCE))]
    assert own == []


def test_help_of_the_command_line_needs_no_array_library() -> None:
    code = """
import contextlib, io, json
from eigengp.cli.app import main
sys.argv, text = ["eigengp", "--help"], io.StringIO()
with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
    main()
heavy = {"numpy", "scipy", "sklearn", *EXTRAS} - {"typer", "rich"}
print(json.dumps(["inspect" in text.getvalue(), sorted(heavy & set(sys.modules))]))
"""
    pytest.importorskip("typer")
    assert _fresh(code) == [True, []]


def test_names_that_are_not_there_are_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = eigengp.nonsense  # type: ignore[attr-defined]
    assert set(eigengp.__all__) <= set(dir(eigengp))
