"""GPyTorch: `InducingPointKernel` and the exact marginal likelihood (SGPR), in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gpytorch
import numpy as np
import torch
from timing import Array
from torch.nn.utils import parameters_to_vector, vector_to_parameters

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

# Every M × M matrix is factorised by Cholesky: nothing is iterated or drawn at random.
gpytorch.settings.max_cholesky_size._set_value(1 << 20)


class SGPR(gpytorch.models.ExactGP):
    """The usual sparse model of GPyTorch's tutorials, with a zero mean for centred targets."""

    def __init__(self, X: Array, y: Array, points: Array, lengthscale: float, noise: float) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        inputs, targets = torch.from_numpy(X), torch.from_numpy(y)
        super().__init__(inputs, targets, likelihood)
        base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.InducingPointKernel(
            base, torch.from_numpy(points.copy()), likelihood
        )
        self.double()
        base.base_kernel.lengthscale, base.outputscale = lengthscale, 1.0
        likelihood.noise = noise

    def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Return the prior at the inputs."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))

    def loss(self) -> torch.Tensor:
        """Compute the negative bound, for all rows, and its gradient."""
        self.train()
        self.zero_grad()
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self)
        inputs = self.train_inputs[0]
        value = -bound(self(inputs), self.train_targets) * inputs.shape[0]
        value.backward()
        return value.detach()

    @torch.no_grad()
    def mean(self, X: Array) -> Array:
        """Predict the mean alone."""
        self.eval()
        with gpytorch.settings.skip_posterior_variances():
            return self(torch.from_numpy(X)).mean.numpy()

    @torch.no_grad()
    def observe(self, X: Array) -> Prediction:
        """Predict mean and variance of observations."""
        self.eval()
        predictive = self(torch.from_numpy(X))
        return predictive.mean.numpy(), (predictive.variance + self.likelihood.noise).numpy()


def evaluations(X: Array, y: Array, size: int) -> dict[str, Callable[[], float]]:
    model = SGPR(X, y, X[:size], LENGTHSCALE, NOISE_VARIANCE)
    return {"": lambda: float(model.loss())}


def fit(request: Request) -> Iterator[Record]:
    """Fit with the optimiser that the request names."""
    return {"Adam": with_adam, "L-BFGS": with_lbfgs}[request.options["optimizer"]](request)


def start(request: Request) -> SGPR:
    X, y = request.rows
    return SGPR(X, y, kmeans(X, request.options["size"]), start_lengthscale(X), 0.1)


def with_adam(request: Request) -> Iterator[Record]:
    trace = Trace(request, "Adam")
    model = start(request)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    n_rows, iterations = request.rows[0].shape[0], request.options["iterations"]
    for iteration in range(1, iterations + 1):
        model.loss()
        for parameter in model.parameters():
            parameter.grad /= n_rows  # As the tutorials have it: the mean over rows.
        optimizer.step()
        if trace.wants(iteration):
            trace.note(iteration, model.observe)
    yield from trace.end(iterations, model.observe)


def with_lbfgs(request: Request) -> Iterator[Record]:
    trace = Trace(request, "L-BFGS")
    model = start(request)
    parameters = list(model.parameters())

    def assign(x: Array) -> None:
        with torch.no_grad():
            vector_to_parameters(torch.from_numpy(x.copy()), parameters)

    def value_and_gradient(x: Array) -> tuple[float, Array]:
        assign(x)
        value = float(model.loss())
        return value, parameters_to_vector([each.grad for each in parameters]).numpy()

    def after(iteration: int, x: Array) -> None:
        if trace.wants(iteration):
            assign(x)
            trace.note(iteration, model.observe)

    origin = parameters_to_vector(parameters).detach().numpy()
    found, iterations = minimize(value_and_gradient, origin, request.options["iterations"], after)
    assign(found)
    yield from trace.end(iterations, model.observe)


def predict(request: Request) -> Iterator[Record]:
    X, y = request.rows
    model = SGPR(X, y, X[: request.options["size"]], LENGTHSCALE, NOISE_VARIANCE)

    def both(X_new: Array) -> Prediction:
        mean, variance = model.observe(X_new)
        return mean, np.sqrt(variance)

    predictors = {("", "mean"): model.mean, ("", "mean and std"): both}
    yield from prediction_speeds(request, predictors)


if __name__ == "__main__":
    serve(
        ["gpytorch", "linear-operator", "torch", "scipy"],
        evalcost=lambda request: evaluation_costs(request, evaluations),
        fit=fit,
        predict=predict,
    )
