"""GPBoost: a Vecchia approximation, Matérn 3/2 with a range for each input, 20 neighbours."""

from __future__ import annotations

from collections.abc import Iterator

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

PREDICTED_ROWS = 20_000


def vecchia(X: Array, likelihood: str = "gaussian") -> gpboost.GPModel:
    return gpboost.GPModel(
        gp_coords=X,
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="vecchia",
        num_neighbors=20,
        likelihood=likelihood,
        seed=0,
    )


def fit(request: Request) -> Iterator[Record]:
    X, y = request.rows
    trace = Trace(request, "")
    model = vecchia(X)
    model.fit(y=y)

    def predict(X_new: Array) -> Prediction:
        found = model.predict(gp_coords_pred=X_new, predict_var=True, predict_response=True)
        return found["mu"], found["var"]

    yield from trace.end(None, predict)


def classify(request: Request) -> Iterator[Record]:
    """Fit two classes by the Laplace approximation, with its defaults."""
    X, y = request.rows
    if y.max() > 1:
        raise ValueError("GPBoost classifies two classes")
    trace = ClassTrace(request)
    model = vecchia(X, "bernoulli_logit")
    model.fit(y=y)

    def probabilities(X_new: Array) -> Array:
        found = model.predict(gp_coords_pred=X_new, predict_response=True)["mu"]
        return np.column_stack([1.0 - found, found])

    yield trace.note(probabilities, None)


def predict(request: Request) -> Iterator[Record]:
    X, y = request.rows
    model = vecchia(X)
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
