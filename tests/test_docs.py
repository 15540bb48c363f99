"""The code on the pages of the documentation runs, and messages they quote are the library's."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import joblib
import matplotlib
import pytest
from typer.testing import CliRunner

from eigengp.cli.app import app
from eigengp.fitting.settings import Plan

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MADE_BY_THE_BUILD = {"gallery", "generated", "_build"}


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page that are marked with one of these languages."""
    fence = rf"^```({'|'.join(languages)})\n(.*?)^```"
    return re.findall(fence, page.read_text(), flags=re.DOTALL | re.MULTILINE)


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(
        page
        for page in sorted(DOCS.rglob("*.md"))
        if not MADE_BY_THE_BUILD.intersection(page.relative_to(DOCS).parts)
    ),
]
NEEDED = {"export": ("botorch", "onnxruntime"), "gpu": ("torch",)}
"""What the code of a page imports beyond what the tests always have."""
WITH_CODE = [page for page in PAGES if blocks(page, "python")]


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of sparse methods begin at one start, and end after a few iterations."""
    usual = Plan.of

    def hasty(*args: Any, **kwargs: Any) -> Plan:
        plan = usual(*args, **kwargs)
        return replace(plan, n_restarts=1, max_iter=min(plan.max_iter, 10), settled=True)

    monkeypatch.setattr(Plan, "of", hasty)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("in_a_hurry")
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_every_block_of_code_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in NEEDED.get(page.stem, ()):
        pytest.importorskip(package)
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    copy_table(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    # Threads, for other processes would not know that there is a hurry.
    with joblib.parallel_config(backend="threading"):
        for number, (language, block) in enumerate(blocks(page, "python", "console"), start=1):
            if language == "console":
                run_commands(block)
                continue
            code = compile(block, f"{page.name}, block {number}", "exec", dont_inherit=True)
            exec(code, names)


def copy_table(folder: Path) -> None:
    """Copy the first rows of the example table, as `examples/houses.csv`."""
    (folder / "examples").mkdir()
    table = (ROOT / "examples" / "houses.csv").read_text().splitlines(keepends=True)
    (folder / "examples" / "houses.csv").write_text("".join(table[:301]))


def run_commands(block: str) -> None:
    """Run the lines that follow a prompt; the others show what was said."""
    commands = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    assert commands
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "eigengp"
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"{command}\n{result.output}"


@pytest.mark.filterwarnings("ignore")
def test_the_example_that_the_site_only_shows_runs() -> None:
    pytest.importorskip("botorch")
    matplotlib.use("agg")
    example = runpy.run_path(str(ROOT / "examples" / "botorch_branin.py"))
    best = example["best"]
    assert best[-1] < 0.1 * best[example["FIRST"] - 1]
    matplotlib.pyplot.close("all")


def flattened(node: ast.AST) -> str:
    """Return the text of a string in the source, with … where a value is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(flattened, node.values))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "…"


def test_quoted_messages_are_those_of_the_library() -> None:
    said = [
        flattened(node)
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr | ast.Constant)
    ]
    quoted = blocks(DOCS / "troubleshooting.md", "text")
    assert len(quoted) > 20
    unknown = [
        message
        for message in (" ".join(each.split()) for _, each in quoted)
        if not any(message in text for text in said)
    ]
    assert not unknown


def public_names() -> list[str]:
    """Return what modules say they have, with the module in front."""
    rooms = "cli.report conformal datasets export inspection io kernels metrics plot"
    modules = [
        import_module("eigengp"),
        *(import_module(f"eigengp.{room}") for room in rooms.split()),
    ]
    return [
        f"{module.__name__}.{name}"
        for module in modules
        for name in getattr(module, "__all__", ())
        if not isinstance(getattr(module, name), ModuleType)
    ]


def names_in_the_reference() -> set[str]:
    """Return what the pages of the reference list, with the module in front."""
    listed = set()
    for page in (DOCS / "reference").glob("*.md"):
        module = ""
        for line in page.read_text().splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found[1]
            elif found := re.match(r"(?:   |\.\. py:\w+:: )([\w.]+)", line):
                listed.add(f"{module}.{found[1]}")
    return listed


def test_the_reference_has_every_public_name() -> None:
    listed = names_in_the_reference()
    missing = [
        name
        for name in public_names()
        if not listed & {name, name.replace("eigengp.kernels.", "eigengp.")}
    ]
    assert not missing


README = ROOT / "README.md"


def test_no_figure_hides_a_package() -> None:
    # Its folder is on the path while a figure is drawn: Numba would import a coverage.py there.
    names = [path.stem for path in (DOCS / "figures").glob("*.py")]
    assert names
    assert not [name for name in names if importlib.util.find_spec(name)]


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 120


def test_links_of_the_readme_lead_to_files() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text())
    assert len(links) > 15
    assert not [link for link in links if not (ROOT / link).exists()]


def readme_commands() -> list[list[str]]:
    """Return the calls of `eigengp` in the first command of the README."""
    _, first = blocks(README, "bash")[0]
    parts = " ".join(first.split()).split(" && ")
    assert parts[0] == "python3 -m venv .venv"
    assert any(part.startswith("pip install") for part in parts)
    return [shlex.split(part)[1:] for part in parts if part.startswith("eigengp ")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("in_a_hurry")
def test_the_first_command_of_the_readme_fits_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    copy_table(tmp_path)
    (fit,) = readme_commands()
    result = CliRunner().invoke(app, fit)
    assert result.exit_code == 0, result.output
    assert "On 60 held-out rows:" in result.output
    page = (tmp_path / fit[fit.index("--report") + 1]).read_text()
    assert "How well is value predicted?" in page
    assert "These are training rows" not in page
    assert "60 held-out rows" in page


def test_the_example_table_is_made_by_its_script() -> None:
    houses = import_module("realdata.houses")
    stored = houses.PATH.read_text()
    assert stored.count("\n") == houses.N_ROWS + 1
    assert stored.startswith(",".join(houses.COLUMNS))
    folder = import_module("realdata").data_folder()
    if folder is None or not (folder / "california.parquet").exists():
        pytest.skip("EIGENGP_DATA does not name a folder with california.parquet")
    assert houses.text() == stored


def test_measured_numbers_are_those_of_the_stored_results() -> None:
    command = [sys.executable, str(ROOT / "benchmarks"), "page", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_constants_on_their_page_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", (DOCS / "constants.md").read_text(), re.MULTILINE)
    assert len(rows) > 20
    known: dict[str, set[str]] = {}
    for room in ("data", "fitting", "gp"):
        for path in (ROOT / "src" / "eigengp" / room).glob("*.py"):
            module = vars(import_module(f"eigengp.{room}.{path.stem}"))
            for name in module.keys() & {name for name, _ in rows}:
                known.setdefault(name, set()).add(str(module[name]))
    assert not [(name, value) for name, value in rows if value not in known.get(name, ())]


SEARCHES = {
    "inducing points": "howto/choosing-m",
    "heteroscedastic": "howto/heteroscedastic",
    "leave-one-out": "howto/model-selection",
    "Vecchia": "neighbors",
    "prediction interval": "howto/calibration",
    "classification": "howto/classification",
    "multi-output": "howto/multi-output",
    "categorical": "howto/categorical",
    "custom kernel": "extend/add-a-kernel",
    "priors": "limitations",
    "GPU": "howto/gpu",
    "save model": "howto/saving",
}


@pytest.mark.parametrize(("query", "page"), SEARCHES.items())
def test_the_search_of_the_site_finds_the_page(query: str, page: str) -> None:
    """Main index entries rank first in Sphinx's search: 100 × length of query / length of entry."""
    index = ROOT / "build" / "docs" / "searchindex.js"
    if not index.exists():
        pytest.skip("the site is not built")
    content = index.read_text()
    found = json.loads(content[content.index("(") + 1 : content.rindex(")")])
    wanted = query.lower()
    entries = {
        entry: {found["docnames"][place[0]] for place in places if place[2]}
        for entry, places in found["indexentries"].items()
        if wanted in entry and len(wanted) >= len(entry) / 2
    }
    best = min((entry for entry, pages in entries.items() if pages), key=len)
    assert entries[best] == {page}
