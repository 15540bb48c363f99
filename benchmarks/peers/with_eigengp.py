"""EigenGP itself, asked as its peers are. Every call that makes a model of ours is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from common import synthetic
from timing import Array, Work, prediction_floors

import eigengp
from eigengp import (
    LBFGS,
    EigenGPRegressor,
    Matern12,
    RationalQuadratic,
    SquaredExponential,
)
from eigengp.backend.threads import count_available_threads, reuse_buffers, speed_up_passes
from eigengp.data.array_source import ArraySource, choose_block_rows
from eigengp.fitting.run import EXACT_BLOCK_ROWS
from eigengp.gp.exact import ExactGP
from eigengp.gp.model import EigenGP, Jitter
from eigengp.gp.precision import PRECISIONS, Arithmetic
from peers.protocol import (
    LENGTHSCALE,
    NOISE_VARIANCE,
    Prediction,
    Predictor,
    Record,
    Request,
    Trace,
    cost_and_memory,
    evaluation_costs,
    prediction_speeds,
    serve,
)

JITTER = 1e-6


def evaluation(X: Any, y: Any, points: Array, precision: str) -> Callable[[], tuple[Any, Any]]:
    """Return one value and gradient of the model's evidence, done as a fit does it.

    Rows are in NumPy or on a device, inducing points in NumPy. Each call starts from scratch; only
    the rows are kept, laid out as in a fit.
    """
    size, n_inputs = points.shape
    model = EigenGP(
        SquaredExponential(np.full(n_inputs, LENGTHSCALE)),
        points,
        NOISE_VARIANCE,
        size,
        jitter=Jitter(relative=JITTER),
        arithmetic=Arithmetic(precision),
    )
    X = np.asfortranarray(X) if isinstance(X, np.ndarray) else X
    source = ArraySource(X, y, None, choose_block_rows(X, size), count_available_threads())

    def evaluate() -> tuple[Any, Any]:
        with speed_up_passes(size):
            return replace(model).evaluate(source)

    return evaluate


def regressor(size: int, **settings: Any) -> EigenGPRegressor:
    """Return the estimator whose fits and predictions are timed: eigenfunctions alone."""
    return EigenGPRegressor(size, residual=None, random_state=0, **settings)


def evalcost(request: Request) -> Iterator[Record]:
    """Value and gradient in each precision, in memory that is used again, as in a fit."""

    def evaluations(X: Array, y: Array, size: int) -> dict[str, Callable[[], float]]:
        points = X[:size].copy()
        works = {each: evaluation(X, y, points, each) for each in PRECISIONS}
        return {each: lambda work=work: float(work()[0].value) for each, work in works.items()}

    with reuse_buffers():
        yield from evaluation_costs(request, evaluations)


def fit(request: Request) -> Iterator[Record]:
    """Fit once, with at most `max_iter` iterations; None is the default."""
    X, y = request.rows
    max_iter = request.options["max_iter"]
    variant = "default" if max_iter is None else f"max_iter={max_iter}"
    trace = Trace(request, variant)
    optimizer = "auto" if max_iter is None else LBFGS(max_iter=max_iter)
    model = regressor(request.options["size"], optimizer=optimizer).fit(X, y)

    def predict(X_new: Array) -> Prediction:
        mean, std = model.predict(X_new, return_std=True)
        return mean, std**2

    yield from trace.end(int(model.n_iter_), predict)


def quality(request: Request) -> Iterator[Record]:
    """Fit with the settings that are asked for; intervals are those of `predict_interval`."""
    X, y = request.rows
    settings = dict(request.options["settings"])
    method = getattr(eigengp, settings.pop("method", "EigenGPRegressor"))
    trace = Trace(request, request.options["variant"])
    kernels = [{"kernel": each} for each in settings.pop("kernels", ())] or [{}]
    fitted = [method(random_state=0, **settings, **each).fit(X, y) for each in kernels]
    model = max(fitted, key=lambda each: each.log_marginal_likelihood_)

    def predict(X_new: Array) -> Prediction:
        mean, std = model.predict(X_new, return_std=True)
        return mean, std**2

    records = list(trace.end(int(model.n_iter_), predict))
    lower, upper = model.predict_interval(request.arrays["X_test"], 0.9)
    y_test = request.arrays["y_test"]
    covered = float(np.mean((lower <= y_test) & (y_test <= upper)))
    learned = {
        "kernel": type(model.kernel_).__name__,
        "size": len(getattr(model, "inducing_points_", ())),
        "posterior": type(model._posterior).__name__,
    }
    yield from (record | {"coverage": covered} | learned for record in records)


def predict(request: Request) -> Iterator[Record]:
    X, y = request.rows
    size, X_new = request.options["size"], request.arrays["X_new"]
    floors = prediction_floors(X_new, X[:size], count_available_threads())
    beside: dict[tuple[str, str], Work] = {("floor", what): work for what, work in floors.items()}
    predictors: dict[tuple[str, str], Predictor] = {}
    start = {
        "kernel": SquaredExponential(LENGTHSCALE),
        "inducing_points": X[:size].copy(),
        "optimizer": LBFGS(max_iter=0),
    }
    for precision in PRECISIONS:
        model = regressor(size, precision=precision, **start).fit(X, y)
        predictors[precision, "mean"] = model.predict
        predictors[precision, "mean and std"] = lambda X_new, model=model: model.predict(
            X_new, return_std=True
        )
    yield from prediction_speeds(request, predictors, blocks=[1 << 62], beside=beside)
    kernel = RationalQuadratic(LENGTHSCALE) + RationalQuadratic() + Matern12()
    settings = start | {"kernel": kernel, "residual": "neighbors", "random_state": 0}
    near = EigenGPRegressor(size, **settings).fit(X, y)
    slow: dict[tuple[str, str], Predictor] = {
        ("neighbours", "mean"): near.predict,
        ("neighbours", "mean and std"): lambda X_new: near.predict(X_new, return_std=True),
    }
    yield from prediction_speeds(request, slow, blocks=[1 << 62], rows=20_000)


def scale(request: Request) -> Iterator[Record]:
    """One value and gradient on rows that are made here, with the memory that it takes.

    Few rows are gone over as often as makes the same number, so that all take equally long.
    """
    n_rows, size = request.options["rows"], request.options["size"]
    times = max(1, request.options["rows_in_all"] // n_rows)
    X, y = synthetic(n_rows, request.options["inputs"])
    work = evaluation(X, y, X[:size].copy(), "double")
    with reuse_buffers():
        found = cost_and_memory(lambda: {"value": work()[0].value}, request.options["turns"], times)
    yield {"rows": n_rows} | found


def exact(request: Request) -> Iterator[Record]:
    """One value and gradient of the full GP's evidence."""
    X, y = request.rows
    kernel = SquaredExponential(np.full(X.shape[1], 5.0), 2.0)
    model = ExactGP(kernel, request.options["noise_variance"])
    source = ArraySource(X, y, block_rows=EXACT_BLOCK_ROWS)

    def evaluate() -> Record:
        outcome, gradient = model.evaluate(source)
        slopes = -np.append(gradient.theta, gradient.log_noise_variance)
        return {"value": -outcome.value, "gradient": slopes.tolist()}

    yield cost_and_memory(evaluate, turns=1)


if __name__ == "__main__":
    serve(
        ["eigengp", "scipy", "scikit-learn"],
        evalcost=evalcost,
        fit=fit,
        quality=quality,
        predict=predict,
        scale=scale,
        exact=exact,
    )
