"""The measured numbers that README and documentation show, written from stored results.

Each fragment is a small Markdown file in `docs/measured/`, which pages include. README.md holds a
copy of one of them between two comments, because GitHub does not include files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import campaign
import classify
import curve
import how_good
import tables
from peers.asking import LIBRARIES, OURS
from quality import DEFAULT, by_method, format_seconds, means, opened
from record import Record, Results, write_atomically

from realdata import SETS

ROOT = Path(__file__).resolve().parents[1]
FRAGMENTS = ROOT / "docs" / "measured"
README = ROOT / "README.md"
_FIVE = "max_time=5"
_HEADLINE = ("gpboost", "lightgbm", "catboost", "gpflow")
_BETWEEN = re.compile(r"(<!-- measured: headline[^>]*-->\n).*?(<!-- end -->)", re.DOTALL)
_POWERS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def write(out: Path) -> None:
    """Write every page and fragment."""
    for path, text in contents(out).items():
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, text.encode())


def find_outdated(out: Path) -> list[Path]:
    """Return the files whose numbers are not those of the stored results."""
    return [
        path
        for path, text in contents(out).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def contents(out: Path) -> dict[Path, str]:
    """Return the text of each file that shows measured numbers."""
    results = opened(out)
    headline = _headline(results)
    stored = json.loads((out / "gpu.json").read_text())["records"]
    readme, count = _BETWEEN.subn(
        lambda match: f"{match[1]}{headline}{match[2]}", README.read_text(encoding="utf-8")
    )
    if count != 1:
        raise ValueError("README.md needs one block <!-- measured: headline … --> … <!-- end -->.")
    campaign_records = json.loads((out / "campaign.json").read_text())["records"]
    return {
        FRAGMENTS / "campaign.md": campaign.make_text(campaign_records),
        how_good.PAGE: how_good.text(results, curve.opened(out), tables.list_ahead(out)),
        FRAGMENTS / "headline.md": headline,
        FRAGMENTS / "gpu.md": _gpu(stored),
        FRAGMENTS / "classes.md": classify.make_text(out),
        FRAGMENTS / "tables.md": tables.make_text(out),
        README: readme,
    }


def _headline(results: Results) -> str:
    """Return a table with a row for each data set and a column for each library.

    The settings of another library are those with the lowest error on the data set.
    """
    by_set = {name: by_method(results, name) for name in SETS}
    ours = {DEFAULT: "`EigenGPRegressor()`", _FIVE: f"with `{_FIVE}`"}
    peers = [each for each in _HEADLINE if all(_of(each, found) for found in by_set.values())]
    titles = [*ours.values(), *(LIBRARIES[each].title for each in peers)]
    lines = [
        f"| data (training rows × inputs) | {' | '.join(titles)} |",
        "|---" * (len(titles) + 1) + "|",
    ]
    for name, found in by_set.items():
        shown = [found[OURS, variant] for variant in ours]
        shown += [min(_of(each, found), key=_error) for each in peers]
        best = min(shown, key=_error)
        cells = [_cell(means(own), format_seconds(results, own), own is best) for own in shown]
        facts = SETS[name]
        head = f"{name} ({facts.n_train:,} × {facts.n_inputs})"
        lines.append(f"| {head} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _of(library: str, found: dict[tuple[str, str], list[Record]]) -> list[list[Record]]:
    """Return the records of each variant of a library."""
    return [own for key, own in found.items() if key[0] == library]


def _error(records: list[Record]) -> float:
    return means(records)["nmse"]


def _cell(mean: dict[str, float], seconds: str, bold: bool) -> str:
    nmse = f"{mean['nmse']:.4f}"
    shown = f"**{nmse}**" if bold else nmse
    time = f"{seconds} s" if seconds[-1].isdigit() else seconds
    return f"{shown} / {mean['mnlp']:.2f} / {time}".replace("-", "−")


def _gpu(records: list[Record]) -> str:
    """Return the table and the sentences about the GPU."""
    lines = ["| rows | M | `eigengp` | plain PyTorch |", "|---|---|---|---|"]
    timed = [each for each in records if each["part"] == "evaluate"]
    for rows, size in sorted({(each["rows"], each["size"]) for each in timed}):
        own = [each for each in timed if (each["rows"], each["size"]) == (rows, size)]
        ours = min(r["seconds"] for r in own if r["library"] == OURS and r["variant"] == "single")
        torch = min(r["seconds"] for r in own if r["library"] != OURS)
        lines.append(f"| {_power(rows)} | {size} | {ours:.2g} s | {torch:.3g} s |")
    errors = {
        (each["library"], each["variant"]): max(each["errors"].values())
        for each in records
        if each["part"] == "agreement"
    }
    rows = next(each["rows"] for each in records if each["part"] == "agreement")
    return "\n".join(
        [
            *lines,
            "",
            f"On {_power(rows)} rows the gradient has a relative error of "
            f"{_scientific(errors[OURS, 'single'])} against float64. With plain PyTorch it is "
            f"{errors['torch', 'TF32']:.1f}: no digit is correct, because TF32 rounds the numbers "
            "that large posterior coefficients multiply.",
            "",
        ]
    )


def _power(number: int) -> str:
    """Return a power of ten as text."""
    return "10" + str(len(str(number)) - 1).translate(_POWERS)


def _scientific(number: float) -> str:
    digits, exponent = f"{number:.1e}".split("e")
    return f"{digits}·10{str(int(exponent)).translate(_POWERS)}"
