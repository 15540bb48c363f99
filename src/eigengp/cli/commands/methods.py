"""The methods of `fit` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import typer

NON_GAUSSIAN = ("student_t", "poisson", "negative_binomial", "quantile")
_LIKELIHOODS = ("auto", "gaussian", "heteroscedastic", *NON_GAUSSIAN)


class Name(StrEnum):
    """The name of a method on the command line."""

    AUTO = "auto"
    EIGENGP = "eigengp"
    JOINT = "eigengp-joint"
    PLUS = "eigengp-plus"
    NEIGHBORS = "neighbors"
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
    description : str
        What it is good for, in a few words.
    settings : mapping
        Parameters of its constructor.
    sized : bool
        Whether it has a number of components.
    strategy : str or None
        The strategy of its optimizer, where it is not the default.
    """

    estimator: str
    description: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    sized: bool = True
    strategy: Any = None

    def build(self, given: Mapping[str, Any], seed: int, verbose: int = False) -> Any:
        """Build the estimator with the settings that are not None; it must have them."""
        import eigengp

        kind, settings = getattr(eigengp, self.estimator), dict(self.settings)
        if self.strategy is not None:
            settings["optimizer"] = eigengp.LBFGS(self.strategy)
        chosen = {name: value for name, value in given.items() if value is not None}
        absent = [name for name in chosen if name not in kind._get_param_names()]
        if absent:
            raise ValueError(f"{self.estimator} has no parameter {absent[0]}; use --method auto.")
        model = kind(**settings, **chosen, random_state=seed, verbose=verbose)
        model._validate_params()
        return model


METHODS = {
    Name.AUTO: Method(
        "EigenGPRegressor", "the exact GP, neighbors or eigengp, chosen to suit the data"
    ),
    Name.EIGENGP: Method(
        "EigenGPRegressor", "a few learned eigenfunctions; fast", {"residual": None}
    ),
    Name.JOINT: Method(
        "EigenGPRegressor",
        "eigengp, with a final joint optimisation; slower",
        {"residual": None},
        strategy="joint",
    ),
    Name.PLUS: Method(
        "EigenGPRegressor",
        "eigengp, with error bars that grow far from the data",
        {"residual": "diagonal"},
    ),
    Name.NEIGHBORS: Method(
        "EigenGPRegressor",
        "eigengp, with a nearest-neighbour residual; best on large data, slower",
        {"residual": "neighbors"},
    ),
    Name.EXACT: Method(
        "ExactGPRegressor", "the exact Gaussian process, for up to a few thousand rows", sized=False
    ),
    Name.FITC: Method("FITCRegressor", "inducing points, with a diagonal residual (FITC)"),
    Name.VFE: Method("VFERegressor", "inducing points, learned by a variational bound"),
    Name.POWER_EP: Method("PowerEPRegressor", "inducing points, between fitc and vfe"),
    Name.SSGP: Method("SSGPRegressor", "learned frequencies instead of inducing points"),
    Name.NYSTROM: Method("NystromRegressor", "a low-rank kernel matrix, for comparison"),
    Name.RVM: Method(
        "RVMRegressor", "a few kernels centred on rows, selected one by one", sized=False
    ),
}


CLASSIFIER = Method("EigenGPClassifier", "probabilities of classes")


def check_settings(name: Name, settings: Mapping[str, Any]) -> None:
    """Raise if components are given for a method that has none, or a setting is not known."""
    if settings["n_components"] is not None and not METHODS[name].sized:
        raise typer.BadParameter(f"{name} has no components.", param_hint="'--components'")
    likelihood = settings["likelihood"]
    if likelihood not in (None, *_LIKELIHOODS):
        raise typer.BadParameter(
            f"{likelihood!r} is not one of {', '.join(_LIKELIHOODS)}.", param_hint="'--likelihood'"
        )
    if (settings["max_time"] or 1.0) <= 0.0:
        raise typer.BadParameter("must be positive.", param_hint="'--max-time'")


def describe_methods() -> str:
    """Describe all methods, one line each, as Markdown for the help."""
    return "Methods:\n\n" + "\n".join(
        f"- **{name}**: {method.description}" for name, method in METHODS.items()
    )
