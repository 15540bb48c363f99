"""What a fitted model shows of itself in a notebook."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from eigengp import (
    LBFGS,
    EigenGPRegressor,
    ExactGPRegressor,
    Matern32,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
)
from eigengp._html import summary, with_summary

QUICK: dict[str, Any] = {"optimizer": LBFGS(n_restarts=1, max_iter=10), "random_state": 0}
NAMES = ["age", "<script>alert('&')</script>", 'says "hi"']
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(50, 3)), columns=NAMES)
y = np.sin(X["age"].to_numpy()) + 0.1 * rng.normal(size=50)


@pytest.fixture(scope="module")
def model() -> EigenGPRegressor:
    return EigenGPRegressor(6, **QUICK).fit(X, y)


def cells(model: Any, table: int) -> list[list[str]]:
    """Return the texts of a table; what is not well formed does not parse."""
    body = ElementTree.fromstring(summary(model)).findall("table")[table].find("tbody")
    return [["".join(cell.itertext()).strip() for cell in row] for row in body]


def test_the_facts_are_those_of_the_model(model: EigenGPRegressor) -> None:
    facts = dict(cells(model, 0))
    assert facts == {
        "Learned": "6 eigenfunctions, 6 inducing points",
        "Kernel": f"SquaredExponential, variance {model.kernel_.variance:.4g}",
        "Noise": f"standard deviation {np.sqrt(model.noise_variance_):.4g}",
        "Log marginal likelihood": f"{model.log_marginal_likelihood_:.6g}",
    }


def test_inputs_are_sorted_by_effect_and_their_names_escaped(model: EigenGPRegressor) -> None:
    effects, relevance = model.input_effects(), model.input_relevance()
    lengths = model.kernel_.lengthscale
    assert cells(model, 1) == [
        [NAMES[d], f"{effects[d]:.2f}", f"{relevance[d]:.2f}", f"{lengths[d]:.4g}"]
        for d in np.argsort(-effects, kind="stable")
    ]
    assert "<script>alert" not in summary(model)


def test_it_stands_in_the_diagram_of_a_fitted_model_alone(model: EigenGPRegressor) -> None:
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert html.count(summary(model)) == 1
        assert html.index("eigengp-summary") < html.rindex("</body>")
    assert "eigengp-summary" not in EigenGPRegressor()._repr_html_()
    assert "eigengp-summary" not in EigenGPRegressor()._repr_mimebundle_()["text/html"]
    assert with_summary("<p>plain</p>", model) == "<p>plain</p>" + summary(model)
    with config_context(display="text"):
        assert list(model._repr_mimebundle_()) == ["text/plain"]


def test_sums_of_kernels_and_other_methods_are_told(model: EigenGPRegressor) -> None:
    both = ExactGPRegressor(
        SquaredExponential() + Matern32() * Matern32(), optimizer=LBFGS(max_iter=0)
    ).fit(X, y)
    words = dict(cells(both, 0))["Kernel"]
    assert words.startswith("SquaredExponential, variance 1 + (Matern32, variance 1) × (")
    assert [len(row) for row in cells(both, 1)] == [3, 3, 3]
    waves = SSGPRegressor(4, **QUICK).fit(X, y)
    assert dict(cells(waves, 0))["Learned"] == "2 spectral points"
    machine = RVMRegressor(lengthscale=1.0).fit(X, y)
    count = machine.relevance_vectors_.shape[0]
    assert dict(cells(machine, 0))["Learned"] == f"{count} relevance vectors"


def test_many_inputs_are_cut() -> None:
    wide = rng.normal(size=(30, 15))
    lengths = np.arange(1.0, 16.0)
    many = ExactGPRegressor(SquaredExponential(lengths), optimizer=LBFGS(max_iter=0)).fit(
        wide, wide[:, 0]
    )
    assert len(cells(many, 1)) == 12
    assert "and 3 inputs of less effect" in summary(many)
