"""GPJax: the collapsed variational Gaussian, compiled by XLA, in float64."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import gpjax as gpx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from timing import Array

from peers.protocol import (
    LENGTHSCALE,
    NOISE_VARIANCE,
    Prediction,
    Record,
    Request,
    Trace,
    evaluation_costs,
    kmeans,
    minimize,
    prediction_speeds,
    serve,
    start_lengthscale,
)


def collapsed(points: Array, lengthscale: float, noise: float) -> Any:
    n_inputs = points.shape[1]
    kernel = gpx.kernels.RBF(n_dims=n_inputs, lengthscale=jnp.full(n_inputs, lengthscale))
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=kernel)
    model = prior * gpx.likelihoods.Gaussian(obs_stddev=float(np.sqrt(noise)))
    return gpx.variational_families.CollapsedVariationalGaussian(
        model=model, inducing_points=jnp.asarray(points)
    )


def objective(family: Any, data: gpx.Dataset) -> tuple[Callable, Array, Callable]:
    """Return value and gradient as a compiled function of a vector, the start, and the way back."""
    parameters, static = eqx.partition(family, eqx.is_array)
    start, unravel = ravel_pytree(parameters)

    def rebuild(x: jax.Array) -> Any:
        return eqx.combine(unravel(x), static)

    def loss(x: jax.Array) -> jax.Array:
        return -gpx.objectives.collapsed_elbo(rebuild(x), data)

    return jax.jit(jax.value_and_grad(loss)), np.array(start), rebuild


def dataset(X: Array, y: Array) -> gpx.Dataset:
    return gpx.Dataset(X=jnp.asarray(X), y=jnp.asarray(y)[:, None])


def evaluations(X: Array, y: Array, size: int) -> dict[str, Callable[[], float]]:
    family = collapsed(X[:size], LENGTHSCALE, NOISE_VARIANCE)
    function, start, _ = objective(family, dataset(X, y))
    return {"": lambda: float(jax.block_until_ready(function(start))[0])}


@eqx.filter_jit
def observe(posterior: Any, X: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance of observations."""
    predictive = posterior(X, covariance="diagonal")
    return predictive.mean, predictive.variance + posterior.observation_variance


@eqx.filter_jit
def mean_only(posterior: Any, X: jax.Array) -> jax.Array:
    """Return the mean; XLA leaves the variance out."""
    return posterior(X, covariance="diagonal").mean


def fit(request: Request) -> Iterator[Record]:
    X, y = request.rows
    trace = Trace(request, "")
    family = collapsed(kmeans(X, request.options["size"]), start_lengthscale(X), 0.1)
    data = dataset(X, y)
    function, start, rebuild = objective(family, data)
    seconds: list[float] = []

    def value_and_gradient(x: Array) -> tuple[float, Array]:
        begin = time.perf_counter()
        value, gradient = function(x)
        found = float(value), np.asarray(gradient)
        seconds.append(time.perf_counter() - begin)
        return found

    def predictor(x: Array) -> Callable[[Array], Prediction]:
        posterior = rebuild(jnp.asarray(x)).condition(data)
        return lambda X_new: tuple(map(np.asarray, observe(posterior, jnp.asarray(X_new))))

    def after(iteration: int, x: Array) -> None:
        if trace.wants(iteration):
            trace.note(iteration, lambda X_new: predictor(x)(X_new))

    found, count = minimize(value_and_gradient, start, request.options["iterations"], after)
    compiling = seconds[0] - float(np.median(seconds))
    final = predictor(found)
    yield from trace.end(count, final, compile_seconds=compiling, evaluations=len(seconds))


def predict(request: Request) -> Iterator[Record]:
    X, y = request.rows
    family = collapsed(X[: request.options["size"]], LENGTHSCALE, NOISE_VARIANCE)
    posterior = family.condition(dataset(X, y))

    def mean(X_new: Array) -> Array:
        return np.asarray(mean_only(posterior, jnp.asarray(X_new)))

    def both(X_new: Array) -> Prediction:
        mean, variance = observe(posterior, jnp.asarray(X_new))
        return np.asarray(mean), np.sqrt(np.asarray(variance))

    yield from prediction_speeds(request, {("", "mean"): mean, ("", "mean and std"): both})


if __name__ == "__main__":
    serve(
        ["gpjax", "jax", "jaxlib", "scipy"],
        evalcost=lambda request: evaluation_costs(request, evaluations),
        fit=fit,
        predict=predict,
    )
