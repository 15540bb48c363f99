"""
A map with gaps, and how far to trust it
========================================

From a file to a decision: where in California can a house be valued from its location alone, and
where are there too few sales nearby?
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from eigengp import EigenGPRegressor
from eigengp.metrics import coverage, nmse

# %%
# Each row of the file is a block group of the 1990 census. The values span a factor of thirty, so
# the model is of their logarithm; errors are then relative. To see how the model behaves where
# there are no data, a strip of land north of San Francisco is held out, and a fifth of the others.

houses = pd.read_csv("houses.csv")
places, value = houses[["longitude", "latitude"]], np.log(houses["value"])
gap = (houses["latitude"] > 38.2) & (houses["latitude"] < 39.2)
held = ~gap & (np.random.default_rng(0).uniform(size=len(houses)) < 0.2)
train = ~gap & ~held

model = EigenGPRegressor(max_time=8, random_state=0).fit(places[train], value[train])
print(model.selection_)

# %%
# Near the training rows, predictions are good; in the gap they are hardly better than the mean of
# all rows. The intervals are wider there, as they should be.

for name, rows in {"near training rows": held, "in the gap": gap}.items():
    mean, std = model.predict(places[rows], return_std=True)
    share = coverage(value[rows], mean, std, level=0.9)
    print(
        f"{name}: {rows.sum()} rows, NMSE {nmse(value[rows], mean):.2f}, "
        f"typical std {np.median(std):.2f}, {share:.0%} inside 90 % intervals"
    )

# %%
# The decision: value a house by the map if the 90 % interval is within a factor of two of the
# prediction, and send an appraiser otherwise.

lower, upper = model.predict_interval(places[held | gap], coverage=0.9)
enough = (upper - lower) / 2 < np.log(2)
off = np.abs(value[held | gap] - model.predict(places[held | gap])) > np.log(2)
print(f"valued by the map: {enough.mean():.0%}")
print(f"off by more than a factor of two: {off[enough].mean():.0%} of these")
print(f"and {off[~enough].mean():.0%} of the others")

# %%
# The maps show the gap in the north, the mountains and the desert: few people live there, and the
# standard deviation is large.

east, north = np.meshgrid(np.linspace(-124.5, -114, 90), np.linspace(32.3, 42.2, 100))
grid = pd.DataFrame({"longitude": east.ravel(), "latitude": north.ravel()})
mean, std = (each.reshape(east.shape) for each in model.predict(grid, return_std=True))
lower, upper = model.predict_interval(grid, coverage=0.9)
trusted = ((upper - lower) / 2 < np.log(2)).reshape(east.shape)

fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True, layout="constrained")
price = axes[0].pcolormesh(east, north, np.exp(mean) / 1000)
fig.colorbar(price, ax=axes[0], label="value, thousand dollars")
spread = axes[1].pcolormesh(east, north, std, cmap="magma")
fig.colorbar(spread, ax=axes[1], label="std of the logarithm")
axes[2].pcolormesh(east, north, trusted, cmap="Blues", vmax=2)
axes[2].plot(*places[train].to_numpy().T, ".", color="0.3", markersize=1)
titles = ("predicted value", "uncertainty", "where the map suffices")
for ax, title in zip(axes, titles, strict=True):
    ax.set(title=title, xlabel="longitude", xticks=[-124, -120, -116])
axes[0].set_ylabel("latitude")
