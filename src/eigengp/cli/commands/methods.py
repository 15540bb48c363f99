"""The methods that `fit` and `compare` can be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import typer


class Name(StrEnum):
    """What a method is called on the command line."""

    AUTO = "auto"
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
        """Return the estimator; what it has no parameter for is left out."""
        import eigengp

        kind = getattr(eigengp, self.estimator)
        asked = {"n_components": components, "random_state": seed, "verbose": verbose}
        own = {name: asked[name] for name in kind._get_param_names() if name in asked}
        return kind(**self.settings, **own)


METHODS = {
    Name.AUTO: Method(
        "EigenGPRegressor", "the next or local, whichever suits the rows, with all else chosen too"
    ),
    Name.EIGENGP: Method(
        "EigenGPRegressor", "a few learned eigenfunctions; fast", {"residual": None}
    ),
    Name.JOINT: Method(
        "EigenGPRegressor",
        "the same with everything learned together in the end; slower",
        {"residual": None, "optimization": "joint"},
    ),
    Name.PLUS: Method(
        "EigenGPRegressor",
        "the same with error bars that grow far from the data",
        {"residual": "diagonal"},
    ),
    Name.LOCAL: Method(
        "EigenGPRegressor",
        "the same, and each prediction looks at the nearest rows too; best on large data, slower",
        {"residual": "local"},
    ),
    Name.EXACT: Method(
        "ExactGPRegressor", "the full Gaussian process, for up to a few thousand rows", sized=False
    ),
    Name.FITC: Method("FITCRegressor", "basis points, and noise that varies between them"),
    Name.VFE: Method("VFERegressor", "basis points, learned by a variational bound"),
    Name.POWER_EP: Method("PowerEPRegressor", "basis points, between fitc and vfe"),
    Name.SSGP: Method("SSGPRegressor", "learned waves instead of basis points"),
    Name.NYSTROM: Method("NystromRegressor", "a kernel matrix of low rank, for comparison"),
    Name.RVM: Method("RVMRegressor", "a few kernels at rows, chosen one by one", sized=False),
}


def check_components(name: Name, components: int | None) -> None:
    """Refuse components for a method that has none."""
    if components is not None and not METHODS[name].sized:
        raise typer.BadParameter(f"{name} has no components.", param_hint="'--components'")


def described() -> str:
    """Return all methods, a line for each, as Markdown for the help."""
    return "Methods:\n\n" + "\n".join(
        f"- **{name}**: {method.says}" for name, method in METHODS.items()
    )
