"""Made-up records of runs, for verdicts that the numbers alone decide."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from paper.experiments import EXPERIMENTS
from paper.problems import problem
from paper.runs import Record, Run, with_starts
from paper.scale import Scale
from paper.section import Claim, Results, Section, Table
from paper.store import Store

Numbers = Callable[[Run], dict[str, Any]]


def fake_record(run: Run, **numbers: Any) -> Record:
    """Return a record such as a run leaves, with these numbers in it."""
    record = {
        "key": run.key,
        "data": run.data,
        "method": run.method,
        "size": run.size,
        "seed": run.seed,
        "options": dict(run.options),
        "nmse": 0.1,
        "mnlp": 0.2,
        "seconds": 1.0,
        "prediction_seconds": 0.0,
        "hyperparameters": {"lengthscale": [1.0], "variance": 1.0, "noise_variance": 0.1},
        "warnings": [],
        "setting": {"python": "3", "cores": 2},
    }
    if run.method == "RVM":
        record["hyperparameters"]["relevance_vectors"] = [[0.0]] * 3
    return record | numbers


def fake_curve(run: Run, gap: Any = 0.01, std: float = 1.0, **more: Any) -> dict[str, Any]:
    """Return curves whose mean is off by `gap`, a number or a function of x."""
    task = problem(run.data, run.seed)
    x = task.X_test[:, 0]
    mean = task.y_test + (gap(x) if callable(gap) else gap)
    return {"curves": {"mean": mean.tolist(), "std": np.full(x.size, std).tolist(), **more}}


def stored(path: Path, records: Iterable[Record]) -> Store:
    """Return a store that holds the records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return Store(path)


def fake_results(folder: Path, scale: Scale, numbers: Numbers, *names: str) -> Results:
    """Return results in which all runs of some experiments have these numbers."""
    runs = with_starts(run for name in names for run in EXPERIMENTS[name].runs(scale))
    records = [fake_record(run, **numbers(run)) for run in runs]
    return Results(stored(folder / "runs.jsonl", records), scale)


def fake_section(folder: Path, scale: Scale, numbers: Numbers, name: str) -> Section:
    """Return what an experiment shows when its runs have these numbers."""
    return EXPERIMENTS[name].section(fake_results(folder, scale, numbers, name))


def claim(section: Section, part: str) -> Claim:
    """Return the one claim that has this in its text."""
    (found,) = (each for each in section.claims if part in each.text)
    return found


def row(table: Table, name: str) -> list[Any]:
    """Return the cells of the row of this name."""
    (found,) = (list(cells) for each, cells in table.rows if each == name)
    return found
