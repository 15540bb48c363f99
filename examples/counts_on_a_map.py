"""
Counts on a map
===============

Sightings are counted at sites that were watched for different times. The rate varies smoothly over
the map; a Poisson likelihood with the hours as exposure finds it, with error bars.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import EigenGPRegressor, Poisson

rng = np.random.default_rng(0)
sites = rng.uniform(0, 10, (250, 2))
hours = rng.uniform(0.5, 6, 250)


def rate(where):
    """Return sightings per hour: two hills on a plain."""
    east, north = where.T
    hills = np.exp(-((east - 3) ** 2 + (north - 7) ** 2) / 4)
    return 0.3 + 4 * hills + 2 * np.exp(-((east - 7) ** 2) / 2 - (north - 3) ** 2 / 8)


counts = rng.poisson(hours * rate(sites))
X = np.column_stack([sites, hours])

model = EigenGPRegressor(60, likelihood=Poisson(exposure=2), random_state=0).fit(X, counts)
print(model.selection_)

# %%
# The rate per hour: predictions for an exposure of one hour.

side = np.linspace(0, 10, 60)
east, north = np.meshgrid(side, side)
grid = np.column_stack([east.ravel(), north.ravel(), np.ones(east.size)])
found = model.predict(grid).reshape(east.shape)
true = rate(grid[:, :2]).reshape(east.shape)

fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained", sharey=True)
for ax, values, title in zip(axes, (true, found), ("true rate", "learned rate"), strict=True):
    image = ax.pcolormesh(east, north, values, vmin=0, vmax=true.max(), rasterized=True)
    ax.set(title=title, xlabel="east")
axes[1].scatter(*sites.T, s=4 + 3 * counts, facecolors="none", edgecolors="white", linewidths=0.7)
axes[0].set_ylabel("north")
fig.colorbar(image, ax=axes, label="sightings per hour")
print("correlation of the rates:", np.corrcoef(true.ravel(), found.ravel())[0, 1].round(3))

# %%
# Intervals are counts: for six hours at the top of a hill, and far from both.

there = np.array([[3.0, 7.0, 6.0], [9.5, 9.5, 6.0]])
lower, upper = model.predict_interval(there, coverage=0.9)
for place, low, high in zip(("hill", "plain"), lower, upper, strict=True):
    print(f"{place}: between {low:.0f} and {high:.0f} sightings in six hours")
