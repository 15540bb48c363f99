"""
A map from scattered measurements
=================================

A GP turns scattered measurements into a map, with a second map of its standard deviation. With
``residual="neighbors"``, every prediction also uses the nearest measurements: it is accurate where
there are some, and its standard deviation grows where there are none.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor

# %%
# There are no stations in the north-east.

rng = np.random.default_rng(0)
places = rng.uniform(0, 10, (700, 2))
places = places[(places[:, 0] < 6.0) | (places[:, 1] < 5.5)]


def height(x):
    """Hills that become steeper to the south."""
    return np.sin(x[:, 0]) + np.cos(x[:, 1] ** 2 / 12) * (1.5 - 0.1 * x[:, 1])


measured = height(places) + 0.15 * rng.normal(size=len(places))

# %%
# Few rows and few iterations are enough for a small map.

optimizer = LBFGS(n_restarts=2, max_iter=10)
model = EigenGPRegressor(
    40, residual="neighbors", n_neighbors=12, optimizer=optimizer, random_state=0
)
model.fit(places, measured)
print(model.kernel_)
print(f"noise: {np.sqrt(model.noise_variance_):.3f} (true: 0.15)")

# %%
# Predict on a grid, and plot the mean and the standard deviation.

side = np.linspace(0, 10, 60)
east, north = np.meshgrid(side, side)
grid = np.column_stack([east.ravel(), north.ravel()])
mean, std = model.predict(grid, return_std=True)

fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
panels = {"truth": height(grid), "mean": mean, "standard deviation": std}
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    colours = "viridis" if title != "standard deviation" else "magma"
    image = ax.pcolormesh(side, side, values.reshape(60, 60), cmap=colours, shading="gouraud")
    fig.colorbar(image, ax=ax)
    ax.set(title=title, xlabel="east", aspect="equal")
axes[0].set_ylabel("north")
axes[2].plot(*places.T, ".", color="white", markersize=1.5, alpha=0.6)
