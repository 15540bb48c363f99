"""
Online learning from a drifting stream
======================================

``partial_fit`` learns from one batch at a time. The first batch is an ordinary fit with
eigenfunctions alone. After it the eigenfunctions are fixed, and the posterior of their weights is
updated exactly, in constant memory. A ``forgetting`` factor below 1 reduces the weight of earlier
batches, so that the model follows a function that changes.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor, SquaredExponential

rng = np.random.default_rng(0)
N_BATCHES, SIZE = 30, 150


def batch(number):
    """Return the rows of one batch: the wave moves left, and doubles halfway."""
    x = rng.uniform(-3, 3, (SIZE, 1))
    height = 1.0 if number < N_BATCHES // 2 else 2.0
    f = height * np.sin(2 * x[:, 0] + 0.08 * number)
    return x, f + 0.2 * rng.normal(size=SIZE)


# %%
# Each batch is predicted before the model learns from it, so the errors are out of sample.

settings = {
    "kernel": SquaredExponential(lengthscale=1.0),  # a good starting value, so that
    "optimizer": LBFGS(n_restarts=1),  # one restart is enough
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
# Without forgetting, the model averages over outdated batches.

fig, ax = plt.subplots(figsize=(8, 3), layout="constrained")
for forgetting, values in errors.items():
    ax.plot(range(1, N_BATCHES), values, ".-", label=f"forgetting={forgetting:g}")
ax.axhline(0.04, color="0.5", linewidth=0.8, label="the noise alone")
ax.axvline(N_BATCHES // 2, color="0.8", linewidth=0.8)
ax.set(xlabel="batch", ylabel="mean squared error\nbefore learning from it", yscale="log")
ax.legend(frameon=False)
