"""scikit-learn: `GaussianProcessRegressor`, on a subset of rows where all would be too many."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, WhiteKernel
from timing import Array

from peers.protocol import (
    LENGTHSCALE,
    NOISE_VARIANCE,
    Prediction,
    Record,
    Request,
    Trace,
    cost_and_memory,
    prediction_speeds,
    serve,
    start_lengthscale,
)

SUBSET, PREDICTED_ROWS, BLOCK = 2_000, 20_000, 4_096


def prior(n_inputs: int, lengthscale: float, variance: float, noise: float) -> Kernel:
    return ConstantKernel(variance) * RBF(np.full(n_inputs, lengthscale)) + WhiteKernel(noise)


def fit(request: Request) -> Iterator[Record]:
    X, y = request.rows
    trace = Trace(request, f"{min(SUBSET, y.size):,} rows")
    kernel = prior(X.shape[1], start_lengthscale(X), 1.0, 0.1)
    model = GaussianProcessRegressor(kernel, alpha=0.0).fit(X[:SUBSET], y[:SUBSET])

    def predict(X_new: Array) -> Prediction:
        blocks = np.array_split(X_new, max(1, X_new.shape[0] // BLOCK))
        found = [model.predict(block, return_std=True) for block in blocks]
        mean, std = (np.concatenate(part) for part in zip(*found, strict=True))
        return mean, std**2

    yield from trace.end(None, predict)


def predict(request: Request) -> Iterator[Record]:
    X, y = request.rows
    kernel = prior(X.shape[1], LENGTHSCALE, 1.0, NOISE_VARIANCE)
    model = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
    model.fit(X[:SUBSET], y[:SUBSET])
    predictors = {
        ("", "mean"): model.predict,
        ("", "mean and std"): lambda X_new: model.predict(X_new, return_std=True),
    }
    yield from prediction_speeds(request, predictors, blocks=[1_024, BLOCK], rows=PREDICTED_ROWS)


def exact(request: Request) -> Iterator[Record]:
    """One value and gradient of the full GP's evidence; the noise variance is an option."""
    X, y = request.rows
    kernel = prior(X.shape[1], 5.0, 2.0, request.options["noise_variance"])
    model = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
    model.X_train_, model.y_train_, model.kernel_ = X, y, kernel

    def evaluate() -> Record:
        value, gradient = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
        ordered = np.concatenate([gradient[1:-1], gradient[:1], gradient[-1:]])
        return {"value": value, "gradient": ordered.tolist()}

    yield cost_and_memory(evaluate, turns=1)


if __name__ == "__main__":
    serve(["scikit-learn", "scipy"], fit=fit, predict=predict, exact=exact)
