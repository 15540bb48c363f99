"""Fit the mean function while data are opened: by least squares, or a cross-fitted regressor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.utils.validation import has_fit_parameter

from eigengp.backend.namespace import is_numpy
from eigengp.data.array_source import ArraySource
from eigengp.data.standardize import Scaling, StandardizedSource, Summary
from eigengp.gp.blocks import RowSource
from eigengp.gp.mean import MEANS, RegressorMean

# A mean that leaves less, relative to the spread of the targets, explains them exactly.
_EXACT = 1e-10
_FOLDS = 5  # The number of folds in which a regressor for the mean is cross-fitted.


def fit_mean(name: str, rows: RowSource, scaling: Scaling) -> Scaling:
    """Fit a mean function, and scale targets by the spread of its residuals."""
    mean = MEANS[name].fit(rows, scaling.input_centre, scaling.input_scale)
    residual = StandardizedSource(rows, replace(scaling, mean=mean)).total(Summary.of)
    spread = float(np.sqrt(residual.squares[-1] / residual.weight))
    factor = 1.0 if spread < _EXACT else spread  # Else only rounding errors are left.
    return replace(scaling, mean=mean, target_scale=scaling.target_scale * factor)


def cross_fit(regressor: Any, rows: RowSource) -> tuple[ArraySource, RegressorMean]:
    """Replace targets by the out-of-fold residuals of a regressor.

    Predictions use the regressor fitted to all rows.
    """
    if not (isinstance(rows, ArraySource) and is_numpy(rows.X)):
        raise ValueError(
            f"mean={type(regressor).__name__}() needs all rows in NumPy arrays; use "
            "mean='linear' or mean='constant' for files, Dask collections and GPUs."
        )
    distinct, inputs = np.unique(rows.X, axis=0, return_inverse=True)
    n_inputs = distinct.shape[0]
    if n_inputs < _FOLDS:
        raise ValueError(
            f"mean={type(regressor).__name__}() is cross-fitted in {_FOLDS} folds and needs at "
            f"least as many different inputs, got {n_inputs}."
        )
    X, y, weight = np.asarray(rows.X, np.float64), rows.y, rows.sample_weight
    weighs = weight is not None and has_fit_parameter(regressor, "sample_weight")
    if weight is not None and not weighs and np.any(weight != np.round(weight)):
        raise ValueError(
            f"mean={type(regressor).__name__}() takes no sample_weight in its fit, so it cannot "
            "use weights that are not whole numbers; choose another regressor for the mean."
        )
    index, params = np.arange(y.size), {}
    if weighs:
        params = {"sample_weight": weight}
    elif weight is not None:  # Rows that stand several times were merged.
        index = np.repeat(index, weight.astype(int))
    folds = np.random.RandomState(0).permutation(n_inputs)[inputs.ravel()] % _FOLDS
    X, targets, folds = X[index], y[index], folds[index]
    cv = PredefinedSplit(folds)  # Rows with equal inputs are in one fold.
    residual = np.empty_like(y)
    residual[index] = targets - cross_val_predict(regressor, X, targets, cv=cv, params=params)
    return replace(rows, y=residual), RegressorMean(clone(regressor).fit(X, targets, **params))
