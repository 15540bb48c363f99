"""
A nonstationary function
========================

``x sin(x³)`` is flat on the left and oscillates faster and faster to the right. One lengthscale
cannot describe both sides. EigenGP places its inducing points where the function varies most, so
that its eigenfunctions vary slowly on the left and quickly on the right.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor, FITCRegressor
from eigengp.datasets import make_nonstationary, nonstationary_function
from eigengp.metrics import nmse

data = make_nonstationary(200, random_state=2)
grid = np.linspace(0, 3, 400)[:, None]
truth = nonstationary_function(grid[:, 0])

# %%
# Both methods have 14 inducing points and learn them, the kernel and the noise by maximising the
# log marginal likelihood of their model.

optimizer = LBFGS(n_restarts=2, max_iter=100)
models = {
    "FITC": FITCRegressor(14, optimizer=optimizer, random_state=0),
    "EigenGP": EigenGPRegressor(14, optimizer=optimizer, random_state=0),
}
for model in models.values():
    model.fit(data.X, data.y)

# %%
# The crosses below the curves are the learned inducing points.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    mean, std = model.predict(grid, return_std=True)
    ax.plot(data.X[:, 0], data.y, ".", color="0.7", markersize=3)
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25)
    ax.plot(grid[:, 0], truth, color="black", linewidth=0.8, label="truth")
    ax.plot(grid[:, 0], mean, label="mean, ± 2 std")
    ax.plot(model.inducing_points_[:, 0], np.full(len(model.inducing_points_), -5.2), "k+")
    ax.set(title=f"{name}: NMSE {nmse(truth, mean):.3f}", xlabel="x", ylim=(-5.6, 5))
axes[0].legend(loc="upper left", frameon=False)

# %%
# The eigenfunctions, each scaled by the prior standard deviation of its weight.

fig, ax = plt.subplots(figsize=(9, 2.6), layout="constrained")
eigengp = models["EigenGP"]
ax.plot(grid, eigengp.eigenfunctions(grid) * np.sqrt(eigengp.weights_), linewidth=1)
ax.set(xlabel="x", title="The eigenfunctions")
