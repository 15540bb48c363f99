"""GPBoost: Vecchia and VIF approximations, Matérn kernel with a range for each input.

The smoothness of the kernel, 1/2, 3/2 or 5/2, is that of the largest likelihood of 2,000 training
rows. VIF adds inducing points to the neighbours; numbers of both are GPBoost's defaults for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gpboost
import numpy as np
from timing import Array

from peers.protocol import (
    LENGTHSCALE,
    NOISE_VARIANCE,
    ClassTrace,
    Prediction,
    Record,
    Request,
    Trace,
    prediction_speeds,
    serve,
)

PREDICTED_ROWS, ITERATIVE_ROWS = 20_000, 5_000
SMOOTHNESSES, SAMPLED = (0.5, 1.5, 2.5), 2_000
APPROXIMATIONS = {"": "vecchia", "Vecchia": "vecchia", "VIF": "full_scale_vecchia"}


def make_model(
    X: Array,
    smoothness: float,
    approximation: str = "vecchia",
    likelihood: str = "gaussian",
    **options: Any,
) -> gpboost.GPModel:
    return gpboost.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=smoothness,
        gp_approx=approximation,
        num_neighbors=30,
        likelihood=likelihood,
        seed=0,
        **options,
    )


def choose_smoothness(X: Array, y: Array) -> float:
    """Return the smoothness with the largest likelihood of a sample of the rows."""
    rows = np.random.default_rng(0).permutation(y.size)[:SAMPLED]

    def loss(smoothness: float) -> float:
        model = make_model(X[rows], smoothness)
        model.fit(y=y[rows])
        return float(model.get_current_neg_log_likelihood())

    return min(SMOOTHNESSES, key=loss)


def fit(request: Request) -> Iterator[Record]:
    X, y = request.rows
    for variant in request.options.get("variants", [""]):
        trace = Trace(request, variant)
        smoothness = choose_smoothness(X, y)
        model = make_model(X, smoothness, APPROXIMATIONS[variant])
        model.fit(y=y)

        def predict(X_new: Array, model: gpboost.GPModel = model) -> Prediction:
            found = model.predict(gp_coords_pred=X_new, predict_var=True, predict_response=True)
            return found["mu"], found["var"]

        yield from trace.end(None, predict, smoothness=smoothness)


def classify(request: Request) -> Iterator[Record]:
    """Fit two classes by the Laplace approximation; many rows by iterative methods.

    GPBoost recommends these for Vecchia approximations of many rows that are not Gaussian.
    """
    X, y = request.rows
    if y.max() > 1:
        raise ValueError("GPBoost classifies two classes")
    trace = ClassTrace(request)
    method = "iterative" if y.size >= ITERATIVE_ROWS else "cholesky"
    options = {"likelihood": "bernoulli_logit", "matrix_inversion_method": method}
    model = make_model(X, 1.5, **options)
    model.fit(y=y)

    def probabilities(X_new: Array) -> Array:
        found = model.predict(gp_coords_pred=X_new, predict_response=True)["mu"]
        return np.column_stack([1.0 - found, found])

    yield trace.note(probabilities, None)


def predict(request: Request) -> Iterator[Record]:
    X, y = request.rows
    model = make_model(X, 1.5)
    parameters = np.array([NOISE_VARIANCE, 1.0] + [LENGTHSCALE] * X.shape[1])

    def observe(X_new: Array, with_variance: bool) -> object:
        return model.predict(
            y=y,
            gp_coords_pred=X_new,
            cov_pars=parameters,
            predict_var=with_variance,
            predict_response=True,
        )

    predictors = {
        ("", "mean"): lambda X_new: observe(X_new, False),
        ("", "mean and std"): lambda X_new: observe(X_new, True),
    }
    yield from prediction_speeds(request, predictors, blocks=[1 << 62], rows=PREDICTED_ROWS)


if __name__ == "__main__":
    serve(["gpboost"], fit=fit, predict=predict, classify=classify)
