"""How good predictions and error bars are: ours, with each ingredient on and off, and the peers'.

Test errors over several splits of four data sets. Peers have the settings of `fit`, and inputs that
are standardised; ours get them as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import check_known
from drawing import console, new_table, title
from fit import MARKS, standardized
from peers.asking import OURS, Panel
from record import Record, Results

from realdata import SETS, split

LIBRARIES = (OURS, "gpboost", "lightgbm", "xgboost", "catboost", "gpflow")
PEERS = {"gpboost": ("Vecchia", "VIF"), "catboost": ("", "RMSEWithUncertainty")}
EARLIER = {"gpboost": ("Matérn 3/2, 20 neighbours",)}
"""The variants of other libraries that have several; those stored earlier are still shown."""
DEFAULT, PLAIN = "the default", "eigenfunctions alone"
_PLAIN: dict[str, Any] = {"residual": None}
_NEIGHBORS: dict[str, Any] = {
    "residual": "neighbors",
    "likelihood": "gaussian",
    "kernel": "squared_exponential",
}
VARIANTS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "max_time=5": {"max_time": 5.0},
    PLAIN: _PLAIN,
    "and heteroscedastic noise": _PLAIN | {"likelihood": "heteroscedastic"},
    "neighbours": _NEIGHBORS,
    "neighbours and a selected kernel": _NEIGHBORS | {"kernel": "auto"},
    "neighbours and heteroscedastic noise": _NEIGHBORS | {"likelihood": "heteroscedastic"},
}
"""Ours; those after the second are the ablation."""
OBJECTIVES: dict[str, dict[str, Any]] = {
    "the log marginal likelihood alone": _PLAIN | {"guard": False},
    "with the residual on the diagonal (EigenGP+)": {"residual": "diagonal"},
    "with half of it (power EP)": {"method": "PowerEPRegressor"},
    "with the whole trace term (VFE)": {"method": "VFERegressor"},
}
"""Other objectives for eigenfunctions alone, with as many inducing points."""
EXACT = "exact GP"
ON_A_GPU: dict[str, dict[str, Any]] = {
    EXACT: {"method": "ExactGPRegressor", "kernels": ["matern12", "matern32"], "device": "auto"}
}
"""All rows, no approximation; run only where it is named. The larger likelihood decides."""
EVERY = VARIANTS | OBJECTIVES | ON_A_GPU
SCORES = ("nmse", "mnlp", "coverage", "seconds")
SIZE, ITERATIONS = 200, 100
_BUSY = 1.8
"""The load for each core from which fits are not timed."""


def run(
    panel: Panel,
    out: Path,
    *,
    data: Sequence[str],
    seeds: Sequence[int],
    variants: Sequence[str] | None = None,
    cpu_limit: int | None = None,
) -> None:
    """Measure, and print the table; each fit has a process of its own."""
    check_known(variants or (), [*EVERY, *itertools.chain(*PEERS.values())])
    results = opened(out)
    for name in data:
        for seed in seeds:
            arrays = dict(zip(("X", "y", "X_test", "y_test"), split(name, seed), strict=True))
            common = {"data": name, "seed": seed}
            for library in panel:
                for variant in variants_of(library, variants):
                    if library == OURS:
                        options = {"variant": variant, "settings": EVERY[variant], "marks": ()}
                        answer = panel.ask(OURS, "quality", arrays, **options)
                    else:
                        options = {"size": SIZE, "iterations": ITERATIONS, "marks": MARKS[:0]}
                        options |= {"variants": [variant], "cpu_limit": cpu_limit}
                        answer = panel.ask(library, "fit", standardized(arrays), **options)
                    results.add(answer, **common)
    show(results)


def variants_of(library: str, wanted: Sequence[str] | None) -> list[str]:
    """Return the variants of a library, those wanted if any are named."""
    own = [*VARIANTS, *OBJECTIVES] if library == OURS else PEERS.get(library, ("",))
    if wanted is None:
        return list(own)
    return [each for each in (EVERY if library == OURS else own) if each in wanted]


def opened(out: Path) -> Results:
    """Return what is stored."""
    settings = {"size": SIZE, "iterations": ITERATIONS}
    return Results(out, "quality", settings, ["data", "library", "variant", "seed"])


def show(results: Results) -> None:
    columns = ("data", "method", "NMSE", "MNLP", "90 % intervals hold", "fit, s", "splits")
    table = new_table("Means over the splits", *columns, words=2)
    for name in SETS:
        for (library, variant), own in by_method(results, name).items():
            mean = means(own)
            table.add_row(
                name,
                title(library, variant),
                f"{mean['nmse']:.4f}",
                f"{mean['mnlp']:.3f}",
                f"{100 * mean['coverage']:.1f} %",
                f"{mean['seconds']:.1f}",
                str(len(own)),
            )
        table.add_section()
    console.print(table)


def by_method(results: Results, name: str) -> dict[tuple[str, str], list[Record]]:
    """Return the records of a data set by library and variant, ours first."""
    known = results.of(data=name, final=True)
    ours = [(OURS, variant) for variant in EVERY]
    others = [
        (library, variant)
        for library in LIBRARIES[1:]
        for variant in (*PEERS.get(library, ("",)), *EARLIER.get(library, ()))
    ]
    found = {
        key: [r for r in known if (r["library"], r["variant"]) == key] for key in ours + others
    }
    return {key: own for key, own in found.items() if own}


def format_seconds(results: Results, records: Sequence[Record]) -> str:
    """Return the mean seconds of fits, or a dash if the machine was too busy to time them."""
    runs = [results.runs[each["run"]] for each in records]
    if any(run["load_average"] > _BUSY * run["threads"] for run in runs):
        return "–"
    seconds = means(records)["seconds"]
    return f"{seconds:.{0 if seconds >= 10.0 else 1}f}"


def means(records: Sequence[Record]) -> dict[str, float]:
    """Return the mean of each score over the splits."""
    return {score: float(np.mean([each[score] for each in records])) for score in SCORES}


ALL = tuple(SETS)
