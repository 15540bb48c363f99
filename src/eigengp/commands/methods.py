"""The methods that `fit` and `compare` can be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import typer


class Name(StrEnum):
    """What a method is called on the command line."""

    EIGENGP = "eigengp"
    JOINT = "eigengp-joint"
    PLUS = "eigengp-plus"
    LOCAL = "local"
    EXACT = "exact"
    FITC = "fitc"
    VFE = "vfe"
    POWER_EP = "power-ep"
    SSGP = "ssgp"
    NYSTROM = "nystrom"
    RVM = "rvm"


@dataclass(frozen=True)
class Method:
    """An estimator of eigengp and its settings.

    Parameters
    ----------
    estimator : str
        The class in `eigengp`.
    says : str
        What it is good for, in a few words.
    settings : mapping
        What its constructor is given.
    sized : bool
        Whether it has a number of components to choose.
    """

    estimator: str
    says: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    sized: bool = True

    def made(self, components: int | None, seed: int, verbose: bool = False) -> Any:
        """Return the estimator; `components` are left out where it has none."""
        import eigengp

        own = {"n_components": components} if self.sized else {}
        kind = getattr(eigengp, self.estimator)
        return kind(**self.settings, **own, random_state=seed, verbose=verbose)


_LOCAL = {"residual": "local", "kernel": "auto", "noise": "varying"}

METHODS = {
    Name.EIGENGP: Method("EigenGPRegressor", "a few learned eigenfunctions: fast, a good default"),
    Name.JOINT: Method(
        "EigenGPRegressor", "the same, all learned together: slower", {"optimization": "joint"}
    ),
    Name.PLUS: Method(
        "EigenGPRegressor", "the same, error bars wide far from data", {"residual": "diagonal"}
    ),
    Name.LOCAL: Method(
        "EigenGPRegressor", "and near rows count too: best on large data, slower", _LOCAL
    ),
    Name.EXACT: Method(
        "ExactGPRegressor", "the full Gaussian process: up to a few thousand rows", sized=False
    ),
    Name.FITC: Method("FITCRegressor", "basis points, noise that varies with them"),
    Name.VFE: Method("VFERegressor", "basis points, variational: never over-fits them"),
    Name.POWER_EP: Method("PowerEPRegressor", "basis points, between FITC and VFE"),
    Name.SSGP: Method("SSGPRegressor", "learned waves instead of basis points"),
    Name.NYSTROM: Method("NystromRegressor", "the kernel matrix in few columns; for comparison"),
    Name.RVM: Method("RVMRegressor", "few kernels at rows, chosen one by one", sized=False),
}


def check_components(name: Name, components: int | None) -> None:
    """Refuse components for a method that has none."""
    if components is not None and not METHODS[name].sized:
        raise typer.BadParameter(f"{name} has no components.", param_hint="'--components'")


def described() -> str:
    """Return all methods, a line for each, as the help shows them."""
    width = max(map(len, Name)) + 2
    lines = (f"{name:<{width}}{method.says}" for name, method in METHODS.items())
    return "\n".join(["Methods:", *lines])
