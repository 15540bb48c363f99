"""The page: one HTML file that holds its figures, made from what is stored."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure

from eigengp._atomic import write_atomically
from paper import drawing
from paper.experiments import EXPERIMENTS, Experiment
from paper.runs import Record, with_starts
from paper.section import Claim, Mark, Picture, Results, Section

PAGE = "index.html"
FIGURES = "figures"
_DPI = 160
_WORDS = {
    "better": "better",
    "same": "same",
    "worse": "worse",
    "holds": "holds",
    "partly": "holds in part",
    "fails": "does not hold",
}


@dataclass(frozen=True)
class Part:
    """An experiment on the page: its section, or how many of its runs are missing."""

    experiment: Experiment
    section: Section | None
    n_stored: int
    n_runs: int
    seconds: float


@dataclass(frozen=True)
class Drawn:
    """A picture as it stands on wide and on narrow pages, as data addresses."""

    wide: str
    narrow: str


def write_page(results: Results, out: Path, remarks: Sequence[str] = ()) -> Path:
    """Draw all figures and write the page.

    Parameters
    ----------
    results : Results
        What is stored.
    out : Path
        The folder for `index.html` and `figures/`.
    remarks : sequence of str
        What the reader should know before all else.

    Returns
    -------
    path : Path
        The page.
    """
    parts = [_part(results, experiment) for experiment in EXPERIMENTS.values()]
    sections = [part.section for part in parts if part.section is not None]
    pictures = [picture for section in sections for picture in section.pictures]
    drawn = {picture.name: _drawn(picture, out / FIGURES) for picture in pictures}
    claims = [claim for section in sections for claim in section.claims]
    template = _environment().get_template("page.html")
    html = template.render(
        scale=results.scale,
        remarks=remarks,
        parts=parts,
        drawn=drawn,
        verdicts=_counted(claims) if claims else [],
        setting=_settings(results, parts),
        words=_WORDS,
    )
    path = out / PAGE
    write_atomically(path, html.encode())
    return path


def _part(results: Results, experiment: Experiment) -> Part:
    runs = with_starts(experiment.runs(results.scale))
    records = [record for run in runs if (record := results.store.find(run)) is not None]
    complete = bool(runs) and len(records) == len(runs)
    section = experiment.section(results) if complete else None
    seconds = sum(record["seconds"] + record["prediction_seconds"] for record in records)
    return Part(experiment, section, len(records), len(runs), seconds)


def _counted(claims: Sequence[Claim]) -> list[tuple[str, str, int]]:
    """Return mark, words and number of the claims that hold, hold in part, and do not."""
    counts = Counter(claim.mark for claim in claims)
    words: dict[Mark, str] = {"holds": "hold", "partly": "hold in part", "fails": "do not hold"}
    return [(mark, text, counts[mark]) for mark, text in words.items()]


def _settings(results: Results, parts: Sequence[Part]) -> list[Record]:
    """Return the different settings under which the shown runs were made."""
    shown = [run for part in parts for run in part.experiment.runs(results.scale)]
    found = [record["setting"] for run in shown if (record := results.store.find(run))]
    return [dict(items) for items in dict.fromkeys(tuple(each.items()) for each in found)]


def _drawn(picture: Picture, folder: Path) -> Drawn:
    """Draw a picture for wide and narrow pages, and keep the wide one as files."""
    with drawing.style():
        wide, narrow = picture.draw(picture.columns), picture.draw(1)
        svg = _image(wide, "svg")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{picture.name}.svg", svg)
        write_atomically(folder / f"{picture.name}.png", _image(wide, "png"))
        return Drawn(_inline(svg), _inline(_image(narrow, "svg")))


def _image(figure: Figure, kind: str) -> bytes:
    file = BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
    figure.savefig(file, format=kind, dpi=_DPI, metadata=metadata)
    return file.getvalue()


def _inline(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent / "templates"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
