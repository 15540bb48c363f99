"""The methods of the comparison: estimator, settings, and how each is drawn everywhere.

`build` is the only place where the experiments construct an estimator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import eigengp


@dataclass(frozen=True)
class Method:
    """One row of the tables, one colour of the figures.

    Parameters
    ----------
    name : str
        What it is called in tables and figures.
    estimator : str
        The class in `eigengp`.
    settings : mapping
        What its constructor is given beyond the size.
    color, marker : str
        How Matplotlib draws it. The colours are Okabe and Ito's, which colour-blind readers can
        tell apart; methods that share one differ in their marker.
    sized : bool
        Whether it has a number of basis functions to choose.
    """

    name: str
    estimator: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    color: str = "#000000"
    marker: str = "o"
    sized: bool = True


_PLAIN = {"residual": None}
_PAPER = {"guard": False, **_PLAIN}
_JOINT = {"strategy": "joint"}
_OPTIMIZER = ("strategy", "n_restarts", "max_iter", "tol")
"""Settings of the optimizer, for all methods but the RVM, which has its own."""

METHODS = {
    method.name: method
    for method in (
        Method("Nyström", "NystromRegressor", {}, "#CC79A7", "v"),
        Method("Nyström*", "NystromRegressor", {"strategy": "auto"}, "#CC79A7", "^"),
        Method("FITC", "FITCRegressor", {}, "#009E73", "s"),
        Method("SSGP", "SSGPRegressor", {}, "#E69F00", "D"),
        Method("RVM", "RVMRegressor", {"n_jobs": 1}, "#666666", "*", sized=False),
        Method("EigenGP", "EigenGPRegressor", _PAPER, "#0072B2", "o"),
        Method("EigenGP*", "EigenGPRegressor", _PAPER | _JOINT, "#D55E00", "P"),
        Method("EigenGP+", "EigenGPRegressor", _PAPER | {"residual": "diagonal"}, "#56B4E9", "X"),
        Method("VFE", "VFERegressor", {}, "#B3A600", "<"),
        Method("power EP", "PowerEPRegressor", {"alpha": 0.5}, "#8C564B", ">"),
        Method("EigenGP, guarded", "EigenGPRegressor", _PLAIN, "#0072B2", "h"),
        Method("EigenGP*, guarded", "EigenGPRegressor", _PLAIN | _JOINT, "#D55E00", "h"),
        Method("exact GP", "ExactGPRegressor", {}, "#000000", ".", sized=False),
    )
}
"""The paper's methods come first. EigenGP is the evidence alone there; the guarded rows have
the library's guard, VFE and power EP are later methods of the same family."""


def build(
    name: str,
    size: int | None = None,
    *,
    seed: int,
    standardize: bool,
    options: Mapping[str, Any] | None = None,
    start: Mapping[str, Any] | None = None,
) -> Any:
    """Return the estimator of a method, not fitted yet.

    Parameters
    ----------
    name : str
        A key of `METHODS`.
    size : int or None
        The number of basis functions, for methods that have one.
    seed : int
        Its random state.
    standardize : bool
        Whether it standardises inputs and targets.
    options : mapping, optional
        Settings beyond those of the method.
    start : mapping, optional
        The lengthscale, variance and noise variance that learning begins from.
    """
    method = METHODS[name]
    settings = {**method.settings, **(options or {})}
    if method.sized and size is not None:
        settings["n_components"] = size
    if start is not None:
        lengthscale = np.array(start["lengthscale"])
        settings["kernel"] = eigengp.SquaredExponential(lengthscale, start["variance"])
        settings["likelihood"] = eigengp.Gaussian(start["noise_variance"])
    if method.estimator != "RVMRegressor":
        settings["mean"] = "constant" if standardize else "zero"
        own = {each: settings.pop(each) for each in _OPTIMIZER if each in settings}
        if own:
            settings["optimizer"] = eigengp.LBFGS(**own)
    estimator = getattr(eigengp, method.estimator)
    return estimator(random_state=seed, standardize=standardize, **settings)
