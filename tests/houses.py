"""A small table of mixed columns with names that would break a careless page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from eigengp import LBFGS, EigenGPRegressor
from eigengp.cli.report import Rows
from eigengp.cli.tables import TableSchema
from eigengp.data.frames import encoded_inputs

EVIL = "</script><script>window.broken = 1</script>"
TOWNS = ("<b>Ulm</b>", "Hull & Sons", "York")


def table(n: int = 150, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    area, rooms = rng.gamma(6.0, 15.0, n), rng.integers(1, 6, n)
    town, garden = rng.choice(TOWNS, n), rng.random(n) < 0.5
    price = 3.0 * area + 30.0 * (town == TOWNS[2]) + 10.0 * rooms + rng.normal(0.0, 5.0, n)
    columns = {
        EVIL: pa.array(np.where(rng.random(n) < 0.1, None, area)),
        "rooms": pa.array(rooms),
        "town": pa.array(town),
        "garden": pa.array(garden),
        "$price$ <i>net</i>": pa.array(price),
    }
    return pa.table(columns)


def fitted(houses: Any) -> tuple[Any, TableSchema, Rows]:
    schema = TableSchema.learn(houses, houses.column_names[-1])
    rows = Rows.from_table(houses, schema)
    optimizer = LBFGS(n_restarts=1, max_iter=15)
    model = EigenGPRegressor(12, optimizer=optimizer, random_state=0)
    with encoded_inputs(schema.encoder):
        return model.fit(rows.X, rows.y), schema, rows
