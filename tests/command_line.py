"""The command line called from a test, and a table of houses for it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from typer.testing import CliRunner

from eigengp.cli.app import app


def call(*arguments: object) -> Any:
    return CliRunner().invoke(
        app, [str(each) for each in arguments], env={"COLUMNS": "120", "NO_COLOR": "1"}
    )


def answer(*arguments: object) -> dict[str, Any]:
    """Return the JSON object of a command, which must be all that it writes."""
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    values: dict[str, Any] = json.loads(result.stdout)
    return values


def houses(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    area, town = rng.uniform(30, 200, n), rng.choice(["Hull", "Leeds", "York"], n)
    garden = rng.random(n) < 0.5
    price = 2.0 * area + 60.0 * (town == "York") + 20.0 * garden + rng.normal(0, 8, n)
    return {"area": area, "town": town, "garden": garden, "price": price}
