"""
A stream that drifts
====================

``partial_fit`` takes batches as they come. The first is a fit; after it the eigenfunctions stay,
and the posterior of their weights is updated exactly, in memory that does not grow. ``forgetting``
below 1 lets earlier batches fade, so that the model follows a function that changes.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor, SquaredExponential

rng = np.random.default_rng(0)
N_BATCHES, SIZE = 30, 150


def batch(number):
    """Rows of one moment: the wave moves to the left, and halfway it grows."""
    x = rng.uniform(-3, 3, (SIZE, 1))
    height = 1.0 if number < N_BATCHES // 2 else 2.0
    f = height * np.sin(2 * x[:, 0] + 0.08 * number)
    return x, f + 0.2 * rng.normal(size=SIZE)


# %%
# Each batch is predicted before it is learned from, which is the honest error of a stream.

settings = {
    "kernel": SquaredExponential(lengthscale=1.0),  # where learning begins, so that
    "optimizer": LBFGS(n_restarts=1),  # there is nothing to search for
    "random_state": 0,
}
models = {forgetting: EigenGPRegressor(12, **settings) for forgetting in (1.0, 0.6)}
errors = {forgetting: [] for forgetting in models}
for number in range(N_BATCHES):
    x, y = batch(number)
    for forgetting, model in models.items():
        if number:
            errors[forgetting].append(np.mean((y - model.predict(x)) ** 2))
        model.partial_fit(x, y, forgetting=forgetting)

# %%
# The model that remembers everything averages over a past that is gone.

fig, ax = plt.subplots(figsize=(8, 3), layout="constrained")
for forgetting, values in errors.items():
    ax.plot(range(1, N_BATCHES), values, ".-", label=f"forgetting={forgetting:g}")
ax.axhline(0.04, color="0.5", linewidth=0.8, label="the noise alone")
ax.axvline(N_BATCHES // 2, color="0.8", linewidth=0.8)
ax.set(xlabel="batch", ylabel="mean squared error\nbefore learning from it", yscale="log")
ax.legend(frameon=False)
