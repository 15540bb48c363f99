"""The full GP beside scikit-learn's: one value and gradient of the evidence.

Each side runs in a process of its own, so that its peak memory is its own.
The first evaluation gives the memory, the second the time; the two sides take
turns, and the best of the turns counts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from common import NOISE, synthetic
from drawing import console, new_table, title
from peers.asking import OURS, ask

SIDES = (OURS, "sklearn")
MEASURED = ("seconds", "megabytes")


def run(rows: int, inputs: int, turns: int) -> None:
    """Measure both sides and print the table."""
    X, y = synthetic(rows, inputs)
    order = {"noise_variance": NOISE**2}
    answers: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(turns):
        for side in SIDES:
            answer = ask(Path(sys.executable), side, "exact", {"X": X, "y": y}, order)
            answers[side] += answer.records
    if not all(answers.values()):
        raise ValueError("one side gave no answer; there is nothing to compare.")
    show(answers, f"N = {rows:,}, D = {inputs}: value and gradient, best of {turns}")


def show(answers: dict[str, list[dict[str, Any]]], heading: str) -> None:
    best = {
        side: [min(each[name] for each in found) for name in MEASURED]
        for side, found in answers.items()
    }
    table = new_table(heading, "", "seconds", "MB beyond the data")
    for side, (seconds, megabytes) in best.items():
        table.add_row(title(side), f"{seconds:.3f}", f"{megabytes:.1f}")
    ratios = [theirs / own for own, theirs in zip(*(best[side] for side in SIDES), strict=True)]
    table.add_row("ratio", *(f"{ratio:.1f}" for ratio in ratios))
    console.print(table)
    own, other = (answers[side][0] for side in SIDES)
    gap = np.abs(np.subtract(own["gradient"], other["gradient"])).max()
    scale = np.abs(other["gradient"]).max()
    console.print(
        f"evidence differs by {abs(own['value'] / other['value'] - 1):.1e}, "
        f"gradient by {gap / scale:.1e}, relative"
    )
