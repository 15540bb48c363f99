"""
Bayesian optimization with few experiments
==========================================

Bayesian optimization needs a model with error bars and a rule that chooses the next experiment.
Expected improvement uses the predictive mean and standard deviation; Thompson sampling takes the
minimum of one function sampled from the posterior.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from eigengp import LBFGS, ExactGPRegressor, Gaussian, Matern52

CANDIDATES = np.linspace(0, 10, 400)[:, None]
NOISE = 0.05


def experiment(x, rng):
    """The expensive function: two minima, the second one deeper."""
    valleys = np.sin(1.3 * x) - 0.08 * x
    return valleys + NOISE * rng.normal(size=np.shape(x))


# %%
# A dozen rows need no approximation, so the model is the exact GP. Every regressor of the library
# has the same methods.


def fit_model(X, y):
    """Fit a GP that starts from a kernel with a plausible lengthscale."""
    kernel = Matern52(lengthscale=1.0, variance=np.var(y))
    optimizer = LBFGS(n_restarts=1, max_iter=20)
    model = ExactGPRegressor(kernel, likelihood=Gaussian(NOISE**2), optimizer=optimizer)
    return model.fit(X, y)


def expected_improvement(model, X, y, rng):
    """Return the candidate with the largest expected improvement over the best value."""
    mean, std = model.predict(CANDIDATES, return_std=True)
    gain = y.min() - mean
    z = gain / std
    return np.argmax(gain * stats.norm.cdf(z) + std * stats.norm.pdf(z))


def thompson_sampling(model, X, y, rng):
    """Return the candidate that minimises one function sampled from the posterior."""
    return np.argmin(model.sample_y(CANDIDATES, random_state=rng.integers(2**31)))


# %%
# Both rules start with the same five experiments and choose twelve more.

runs = {}
for rule in (expected_improvement, thompson_sampling):
    rng = np.random.default_rng(1)
    X = np.linspace(0.5, 9.5, 5)[:, None]
    y = experiment(X[:, 0], rng)
    for _ in range(12):
        chosen = CANDIDATES[rule(fit_model(X, y), X, y, rng)]
        X = np.vstack([X, chosen])
        y = np.append(y, experiment(chosen, rng))
    runs[rule.__name__.replace("_", " ")] = X, y
    print(f"{rule.__name__}: best {y.min():.2f} at x = {X[y.argmin(), 0]:.2f}")

# %%
# Dots are the experiments; darker dots were chosen later.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, (name, (X, y)) in zip(axes, runs.items(), strict=True):
    mean, std = fit_model(X, y).predict(CANDIDATES, return_std=True)
    ax.fill_between(CANDIDATES[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.2)
    ax.plot(CANDIDATES[:, 0], mean)
    ax.scatter(X[:, 0], y, c=np.arange(len(y)), cmap="Greys", edgecolor="black", zorder=3)
    ax.set(title=name, xlabel="x")
axes[0].set_ylabel("cost")
