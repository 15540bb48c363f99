"""The page holds all that the runs have left, in one file, and is there whole or not at all."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

from eigengp._atomic import write_atomically
from paper import published, workers
from paper.command import RUNS, reproduce
from paper.experiments import EXPERIMENTS
from paper.methods import METHODS
from paper.page import FIGURES, PAGE, write_page
from paper.runs import with_starts
from paper.scale import FULL
from paper.section import Results, Section, spoken
from paper.store import Store
from tiny_reproduction import TINY


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


PICTURES = ["figure1", "figure2", "figure3", "figure4"]


class Reader(HTMLParser):
    """Collects addresses, images, and the titles and cells of tables."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.images: list[tuple[str, str, str]] = []
        self.tables: list[list[list[str]]] = []
        self.titles: list[str] = []
        self._source = ""
        self._cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.addresses += [
            given[name] for name in ("src", "href", "srcset", "action") if name in given
        ]
        if tag == "source":
            self._source = given["srcset"]
        elif tag == "img":
            self.images.append((given["src"], self._source, given["alt"]))
        elif given.get("role") == "group":
            self.titles.append(given["aria-label"])
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.tables[-1][-1][-1] = f"{self.tables[-1][-1][-1]} {data}".strip()


def words(text: str) -> str:
    """Return the text without tags, and with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


@pytest.fixture(scope="module")
def html(tiny_run: Path) -> str:
    return (tiny_run / PAGE).read_text()


@pytest.fixture(scope="module")
def page(html: str) -> Reader:
    return Reader(html)


@pytest.fixture(scope="module")
def results(tiny_run: Path) -> Results:
    return Results(Store(tiny_run / RUNS), TINY)


@pytest.fixture(scope="module")
def sections(results: Results) -> list[Section]:
    return [experiment.section(results) for experiment in EXPERIMENTS.values()]


def test_every_table_is_there_with_all_its_cells(page: Reader, sections: list[Section]) -> None:
    tables = [table for section in sections for table in section.tables]
    assert len(page.tables) == len(tables) >= len(EXPERIMENTS) - 1
    assert page.titles == [table.title for table in tables]
    for shown, table in zip(page.tables, tables, strict=True):
        assert shown[0] == list(table.head)
        for cells, (name, expected) in zip(shown[1:], table.rows, strict=True):
            assert cells[0] == name
            for text, cell in zip(cells[1:], expected, strict=True):
                theirs = f"paper: {cell.paper}" if cell.paper else ""
                mark = "" if cell.mark == "none" else cell.mark
                assert text.split() == f"{cell.ours} {theirs} {mark}".split()


def test_table_1_has_the_stored_numbers_beside_the_papers(page: Reader, results: Results) -> None:
    table = page.tables[page.titles.index("NMSE")]
    rows = {cells[0]: cells[1:] for cells in table[1:]}
    assert list(rows) == list(METHODS)
    for method, cells in published.TABLE_1.items():
        for number, data, size in ((1, "snelson", 7), (2, "nonstationary", 14)):
            runs = [
                run
                for run in EXPERIMENTS["table1"].runs(TINY)
                if (run.data, run.method) == (data, method) and run.size in (size, None)
            ]
            first, second = (results[run]["nmse"] for run in runs)
            ours = spoken((first + second) / 2, abs(first - second) / 2)
            assert rows[method][number - 1].startswith(ours)
            reported = cells.get((number, "nmse"))
            assert reported is None or f"paper: {reported.text}" in rows[method][number - 1]


def test_every_figure_is_there_twice(page: Reader, tiny_run: Path) -> None:
    assert len(page.images) == len(PICTURES)
    for name, (wide, narrow, alt) in zip(PICTURES, page.images, strict=True):
        assert len(alt) > 40
        drawn = []
        for address in (wide, narrow):
            kind, _, content = address.partition(",")
            assert kind == "data:image/svg+xml;base64"
            drawn.append(base64.b64decode(content))
        assert drawn[0] == (tiny_run / FIGURES / f"{name}.svg").read_bytes()
        widths = [float(ElementTree.fromstring(svg).attrib["width"][:-2]) for svg in drawn]
        assert widths[0] > 1.5 * widths[1]
        png = (tiny_run / FIGURES / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG\r\n")
    assert files(tiny_run) == sorted(
        [
            PAGE,
            RUNS,
            FIGURES,
            *(f"{FIGURES}/{name}.{kind}" for name in PICTURES for kind in ("png", "svg")),
        ]
    )


def test_every_claim_has_its_verdict_and_evidence(html: str, sections: list[Section]) -> None:
    claims = [claim for section in sections for claim in section.claims]
    shown = [words(part) for part in html.split('<li class="claim">')[1:]]
    spelled = {"holds": "holds", "partly": "holds in part", "fails": "does not hold"}
    assert len(shown) == len(claims) > 10
    for text, claim in zip(shown, claims, strict=True):
        told = f"{spelled[claim.mark]} {claim.text} {claim.evidence}"
        assert text.startswith(" ".join(told.split()))
    for mark in spelled:
        count = sum(claim.mark == mark for claim in claims)
        assert re.search(rf'<li class="{mark}"><b>{count}</b>', html)


def test_every_table_has_its_title_and_caption(html: str, sections: list[Section]) -> None:
    shown = [words(part.split("</figcaption>")[0]) for part in html.split("<figcaption>")[1:]]
    for section in sections:
        for table in section.tables:
            assert len(table.title) >= 4
            assert " ".join(f"{table.title} {table.caption}".split()) in shown


def test_notes_and_the_setting_of_the_runs_are_there(
    html: str, sections: list[Section], results: Results
) -> None:
    text = words(html)
    for section in sections:
        for told in (section.lead, *section.differences, *section.remarks):
            assert " ".join(told.split()) in text
    differing = sum(bool(section.differences) for section in sections)
    assert 0 < differing < len(sections)
    assert text.count("Where and why it differs from the paper") == differing
    record = results[EXPERIMENTS["figure3"].runs(TINY)[0]]
    assert f"numpy {np.__version__}, " in text
    assert text.count(f"python {record['setting']['python']}") == 1
    assert "A quick look." in text


def test_the_page_needs_no_other_file(page: Reader, html: str) -> None:
    assert len(page.addresses) > 2 * len(PICTURES)
    assert {
        address for address in page.addresses if not address.startswith(("data:", "#"))
    } == set()
    assert "<script" not in html
    assert "@import" not in html
    assert "url(" not in html


def test_every_part_can_be_reached(page: Reader, html: str) -> None:
    anchors = [address[1:] for address in page.addresses if address.startswith("#")]
    assert anchors == [*EXPERIMENTS, "how"]
    assert re.findall(r'<section id="(\w+)"', html) == anchors


@dataclass(frozen=True)
class Again:
    """What the command has left and said when it was called on a part of the tiny run."""

    out: Path
    stored: bytes
    told: str
    complete: bool


@pytest.fixture(scope="module")
def again(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Again:
    """Return what a second call does where Table 1 is stored, with Figure 3 in it, and no more."""
    out = tmp_path_factory.mktemp("again") / "a [/b] folder"
    out.mkdir(parents=True)
    own = {run.key for run in EXPERIMENTS["table1"].runs(TINY)}
    lines = (tiny_run / RUNS).read_bytes().splitlines(keepends=True)
    kept = b"".join(line for line in lines if any(f'"{key}"'.encode() in line for key in own))
    stored = kept + b'{"key": "cut o'
    (out / RUNS).write_bytes(stored)
    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "_pool", lambda jobs: pytest.fail("a worker was asked for"))
        complete = reproduce(["table1", "figure3"], TINY, out, 2, Console(file=told, width=40))
    return Again(out, stored, told.getvalue(), complete)


def test_a_second_call_runs_nothing_again(again: Again) -> None:
    n_runs = len(EXPERIMENTS["table1"].runs(TINY))
    assert again.complete
    assert (again.out / RUNS).read_bytes() == again.stored
    assert again.told.splitlines()[:-1] == [
        f"Passed over in {again.out / RUNS}: 1 cut off.",
        f"{n_runs} of {n_runs} runs are stored already in {again.out / RUNS}.",
    ]
    assert again.told.endswith(f" s. Open {again.out / PAGE}\n")


def test_a_second_call_draws_the_same_again(again: Again, tiny_run: Path) -> None:
    assert files(again.out / FIGURES) == ["figure3.png", "figure3.svg"]
    name = f"{FIGURES}/figure3.svg"
    assert (again.out / name).read_bytes() == (tiny_run / name).read_bytes()


def test_parts_without_all_their_runs_say_how_many_there_are(again: Again) -> None:
    html = (again.out / PAGE).read_text()
    store = Store(again.out / RUNS)
    for name, experiment in EXPERIMENTS.items():
        runs = with_starts(experiment.runs(TINY))
        found = sum(store.find(run) is not None for run in runs)
        text = words(html.split(f'<section id="{name}"')[1].split("</section>")[0])
        unfinished = f"{found} of {len(runs)} runs are stored. python paper {name} completes"
        assert (unfinished in text) == (name not in ("table1", "figure3"))
    assert len(Reader(html).images) == 1
    assert files(again.out) == [
        FIGURES,
        f"{FIGURES}/figure3.png",
        f"{FIGURES}/figure3.svg",
        PAGE,
        RUNS,
    ]


def nothing(folder: Path) -> Results:
    return Results(Store(folder / "none.jsonl"), replace(TINY, large=()))


def test_a_part_without_data_says_so(tmp_path: Path) -> None:
    text = words(write_page(nothing(tmp_path), tmp_path).read_text())
    assert "Its data are missing. python paper figure4 completes this part." in text
    assert "0 of 6 runs are stored. python paper figure3 completes this part." in text


def test_the_full_page_is_not_called_a_quick_look(tmp_path: Path) -> None:
    html = write_page(Results(Store(tmp_path / RUNS), FULL), tmp_path).read_text()
    assert "A quick look." not in html
    assert f"0 of {20 * len(METHODS)} runs are stored." in words(html)


def test_remarks_are_text_and_not_markup(tmp_path: Path) -> None:
    remark = "<script>alert('&')</script> put \"pole.parquet\" there"
    html = write_page(nothing(tmp_path), tmp_path, [remark]).read_text()
    assert "<script" not in html
    assert remark in unescape(html)


def fail(*_: object) -> None:
    raise OSError("no space left on device")


def test_a_page_that_cannot_be_put_in_place_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / PAGE).write_text("earlier")
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_page(nothing(tmp_path), tmp_path)
    assert (tmp_path / PAGE).read_text() == "earlier"
    assert files(tmp_path) == [PAGE]


def test_a_file_that_cannot_be_written_to_its_end_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figure.svg"
    write_atomically(path, b"earlier")
    whole = Path.write_bytes

    def half(path: Path, content: bytes) -> int:
        whole(path, content[: len(content) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"later and longer")
    monkeypatch.undo()
    assert path.read_bytes() == b"earlier"
    assert files(tmp_path) == ["figure.svg"]
    write_atomically(path, b"later")
    assert path.read_bytes() == b"later"
