"""
Two banana-shaped classes
=========================

Two classes lie along two interleaved arcs. The classifier learns a curved boundary, and is unsure
where the classes overlap and where there are no rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from eigengp import EigenGPClassifier

X, y = make_moons(300, noise=0.25, random_state=0)
model = EigenGPClassifier(30, random_state=0).fit(X, y)
print(model.selection_)

# %%
# The shade is the probability of the second class; lines are at 0.1, 0.5 and 0.9.

left, right = np.meshgrid(np.linspace(-2.5, 3.5, 120), np.linspace(-2.0, 2.5, 90))
grid = np.column_stack([left.ravel(), right.ravel()])
probability = model.predict_proba(grid)[:, 1].reshape(left.shape)

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
shade = ax.pcolormesh(left, right, probability, cmap="RdBu_r", vmin=0, vmax=1, alpha=0.6)
ax.contour(left, right, probability, [0.1, 0.5, 0.9], colors="0.3", linewidths=0.8)
for label, colour in enumerate(("tab:blue", "tab:red")):
    ax.plot(*X[y == label].T, ".", color=colour, markersize=4)
fig.colorbar(shade, label="probability of class 1")

# %%
# Calibration on new rows: among rows with a probability near p, a share of p is of class 1.

X_test, y_test = make_moons(4_000, noise=0.25, random_state=1)
p = model.predict_proba(X_test)[:, 1]
for tenth in range(10):
    rows = np.floor(10 * p).clip(0, 9) == tenth
    print(f"{p[rows].mean():.2f} predicted, {y_test[rows].mean():.2f} observed, {rows.sum()} rows")
