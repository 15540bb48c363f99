"""The methods of `fit` and `compare`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

_Own = Literal["auto", "eigengp", "eigengp-plus", "neighbors"]
_Other = Literal["exact", "fitc", "vfe", "power-ep", "ssgp", "nystrom", "rvm"]
Name = Literal[_Own, _Other]


class Method(NamedTuple):
    """A class of eigengp, what it is good for, and parameters of its constructor."""

    estimator: str
    description: str
    settings: Mapping[str, Any] = MappingProxyType({})


METHODS: dict[str, Method] = {
    "auto": Method(
        "EigenGPRegressor", "the exact GP, neighbors or eigengp, chosen to suit the data"
    ),
    "eigengp": Method("EigenGPRegressor", "a few learned eigenfunctions; fast", {"residual": None}),
    "eigengp-plus": Method(
        "EigenGPRegressor",
        "eigengp, with error bars that grow far from the data",
        {"residual": "diagonal"},
    ),
    "neighbors": Method(
        "EigenGPRegressor",
        "eigengp, with a nearest-neighbour residual; best on large data, slower",
        {"residual": "neighbors"},
    ),
    "exact": Method(
        "ExactGPRegressor", "the exact Gaussian process, for up to a few thousand rows"
    ),
    "fitc": Method("FITCRegressor", "inducing points, with a diagonal residual (FITC)"),
    "vfe": Method("VFERegressor", "inducing points, learned by a variational bound"),
    "power-ep": Method("PowerEPRegressor", "inducing points, between fitc and vfe"),
    "ssgp": Method("SSGPRegressor", "learned frequencies instead of inducing points"),
    "nystrom": Method("NystromRegressor", "a low-rank kernel matrix, for comparison"),
    "rvm": Method("RVMRegressor", "a few kernels centred on rows, selected one by one"),
}
CLASSIFIER = Method("EigenGPClassifier", "probabilities of classes")


def build_model(method: Method, seed: int, verbose: int = 0, **given: Any) -> Any:
    """Build the estimator of a method, with these settings, which it must have."""
    import eigengp

    kind = getattr(eigengp, method.estimator)
    return kind(**method.settings, random_state=seed, verbose=verbose).set_params(**given)


def describe_methods() -> str:
    """Describe all methods, one line each, as Markdown for the help."""
    return "Methods:\n\n" + "\n".join(
        f"- **{name}**: {method.description}" for name, method in METHODS.items()
    )
