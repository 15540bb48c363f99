"""How much each column of a table matters to what a model predicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.gp.sensitivity import total_indices

_ROWS = 1_000


def effects(model: Any, X: Array, groups: Mapping[str, list[int]], seed: int) -> dict[str, float]:
    """Return how much of the predictions' variance goes with each column.

    The total Sobol index of the predictive mean over the rows, by columns of the table, which may
    have become several inputs; `GPRegressor.input_effects` is the same for single inputs and
    without rows. Shares of columns that act together overlap.

    Parameters
    ----------
    model : GPRegressor
        A fitted model.
    X : array of shape (n, D)
        Rows; at most a thousand are used.
    groups : mapping of str to list of int
        The inputs of each column.
    seed : int
        Draws the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from eigengp import ExactGPRegressor
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = ExactGPRegressor(n_restarts=1, random_state=0).fit(X, 3.0 * X[:, 0])
    >>> effects(model, X, {"a": [0], "b": [1]}, seed=0)["b"] < 0.01
    True
    """
    rng = np.random.RandomState(seed)
    rows = X[rng.permutation(len(X))[:_ROWS]]
    shares = total_indices(model.predict, rows, groups.values())
    return dict(zip(groups, shares.tolist(), strict=True))
