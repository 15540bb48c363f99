"""Write `examples/houses.csv`, the table of the first command: `python -m realdata.houses`.

It is a random sample of 2,000 block groups of the California housing data (1990 US census; Pace and
Barry, 1997), in dollars, and rounded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from realdata import load

PATH = Path(__file__).resolve().parents[1] / "examples" / "houses.csv"
N_ROWS = 2_000
COLUMNS = {
    "income": "%.0f",
    "house_age": "%.0f",
    "rooms": "%.2f",
    "bedrooms": "%.2f",
    "population": "%.0f",
    "occupants": "%.2f",
    "latitude": "%.2f",
    "longitude": "%.2f",
    "value": "%.0f",
}
"""Its columns, in the order of the source, and how each is written."""


def text() -> str:
    """Return the table as CSV."""
    X, y = load("california")
    # In the order of the coordinates, so that the sample does not depend on that of the source.
    order = np.lexsort((y, *X.T))
    rows = np.random.default_rng(0).choice(order, N_ROWS, replace=False)
    table = np.column_stack([X[rows], y[rows]])
    table[:, 0] *= 10_000.0
    table[:, -1] *= 100_000.0
    lines = [
        ",".join(form % each for form, each in zip(COLUMNS.values(), row, strict=True))
        for row in table
    ]
    return "\n".join([",".join(COLUMNS), *lines]) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
