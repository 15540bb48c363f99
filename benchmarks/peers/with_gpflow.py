"""GPflow: `SGPR` with trainable inducing points and a lengthscale for each input, compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.optimizers import Scipy
from timing import Array

from peers.protocol import (
    LENGTHSCALE,
    NOISE_VARIANCE,
    ClassTrace,
    Prediction,
    Record,
    Request,
    Trace,
    evaluation_costs,
    kmeans,
    prediction_speeds,
    serve,
    start_lengthscale,
)


def sgpr(X: Array, y: Array, points: Array, lengthscale: float, noise: float) -> gpflow.models.SGPR:
    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], lengthscale))
    return gpflow.models.SGPR((X, y[:, None]), kernel, points.copy(), noise_variance=noise)


def evaluations(X: Array, y: Array, size: int) -> dict[str, Callable[[], float]]:
    """Return value and gradient, compiled by TensorFlow as usual and by XLA."""
    model = sgpr(X, y, X[:size], LENGTHSCALE, NOISE_VARIANCE)

    def value_and_gradient() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, model.trainable_variables)

    usual, xla = tf.function(value_and_gradient), tf.function(value_and_gradient, jit_compile=True)
    return {"": lambda: float(usual()[0]), "XLA": lambda: float(xla()[0])}


class TimedScipy(Scipy):
    """GPflow's own wrapper of SciPy's L-BFGS, with the seconds of each evaluation kept."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def eval_func(self, *args: Any, **kwargs: Any) -> Callable[[Array], tuple[Array, Array]]:
        """Return GPflow's function, timed."""
        evaluate = super().eval_func(*args, **kwargs)

        def timed(x: Array) -> tuple[Array, Array]:
            start = time.perf_counter()
            found = evaluate(x)
            self.seconds.append(time.perf_counter() - start)
            return found

        return timed


def fit(request: Request) -> Iterator[Record]:
    X, y = request.rows
    trace = Trace(request, "")
    points = kmeans(X, request.options["size"])
    model = sgpr(X, y, points, start_lengthscale(X), 0.1)
    optimizer, iterations = TimedScipy(), 0

    def predict(X_new: Array) -> Prediction:
        mean, variance = model.predict_y(X_new)
        return mean.numpy(), variance.numpy()

    def after(step: int, variables: tuple[tf.Variable, ...], values: list[tf.Tensor]) -> None:
        nonlocal iterations
        iterations = step + 1
        if trace.wants(iterations):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
            trace.note(iterations, predict)

    optimizer.minimize(
        model.training_loss,
        model.trainable_variables,
        step_callback=after,
        options={"maxiter": request.options["iterations"]},
    )
    usual = float(np.median(optimizer.seconds))
    compiling = optimizer.seconds[0] - usual
    yield from trace.end(
        iterations, predict, compile_seconds=compiling, evaluations=len(optimizer.seconds)
    )


def classify(request: Request) -> Iterator[Record]:
    """Fit `SVGP` by Adam on batches of at most 1,000 rows, until nine tenths of `cpu_limit`."""
    X, y = request.rows
    C, n = int(y.max()) + 1, X.shape[0]
    labels = y if C == 2 else y.astype(int)
    trace = ClassTrace(request)
    model = gpflow.models.SVGP(
        gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], start_lengthscale(X))),
        gpflow.likelihoods.Bernoulli() if C == 2 else gpflow.likelihoods.Softmax(C),
        kmeans(X, min(request.options["size"], n)),
        num_latent_gps=1 if C == 2 else C,
        num_data=n,
    )
    rows = tf.data.Dataset.from_tensor_slices((X, labels[:, None])).repeat().shuffle(n, seed=0)
    batches = iter(rows.batch(min(n, 1_000)))
    loss = model.training_loss_closure(batches, compile=True)
    adam = tf.keras.optimizers.Adam(0.01)

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss()
        own = model.trainable_variables
        adam.apply_gradients(zip(tape.gradient(value, own), own, strict=True))

    def probabilities(X_new: Array) -> Array:
        parts = [model.predict_y(X_new[i : i + 2_000])[0] for i in range(0, len(X_new), 2_000)]
        found = np.concatenate(parts)
        return np.column_stack([1.0 - found, found]) if C == 2 else found

    marks, limit = request.options["marks"], 0.9 * request.options["cpu_limit"]
    for iteration in range(1, max(marks) + 1):
        step()
        is_over = time.process_time() > limit
        if iteration in marks or is_over:
            yield trace.note(probabilities, iteration)
        if is_over:
            return


def predict(request: Request) -> Iterator[Record]:
    X, y = request.rows
    model = sgpr(X, y, X[: request.options["size"]], LENGTHSCALE, NOISE_VARIANCE)
    posterior = model.posterior()

    # TensorFlow leaves out of a compiled function what its result does not need: the variance here.
    @tf.function(reduce_retracing=True)
    def mean(X_new: tf.Tensor) -> tf.Tensor:
        return posterior.predict_f(X_new)[0]

    @tf.function(reduce_retracing=True)
    def both(X_new: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = posterior.predict_f(X_new)
        return mean, tf.sqrt(variance + model.likelihood.variance)

    predictors = {("", "mean"): mean, ("", "mean and std"): both}
    yield from prediction_speeds(request, predictors)


if __name__ == "__main__":
    serve(
        ["gpflow", "tensorflow", "scipy"],
        evalcost=lambda request: evaluation_costs(request, evaluations),
        fit=fit,
        predict=predict,
        classify=classify,
    )
