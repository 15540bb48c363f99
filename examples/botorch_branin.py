"""
BoTorch acquisition functions
=============================

BoTorch provides acquisition functions and maximises them; ``BoTorchModel`` applies them to a fitted
regressor. This example minimises the Branin function, which has three minima of 0.398, with 25
evaluations (``pip install "eigengp[botorch]"``).
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.optim import optimize_acqf
from scipy.stats import qmc

from eigengp import EigenGPRegressor
from eigengp.export.botorch import BoTorchModel

BOUNDS = np.array([[-5.0, 0.0], [10.0, 15.0]])
MINIMA = np.array([[-np.pi, 12.275], [np.pi, 2.275], [9.42478, 2.475]])
FIRST, ALL = 8, 25


def branin(X):
    """The function that is expensive to evaluate."""
    x, z = X[..., 0], X[..., 1]
    bend = z - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return bend**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


# %%
# The regressor is fitted again in each round. The function spans three orders of magnitude, so the
# model is of its logarithm. With so few rows the default is the exact GP, averaged over its
# hyperparameters, which keeps error bars wide where nothing has been evaluated.


def fit_model(X, y):
    """Fit the model to all evaluations so far."""
    return EigenGPRegressor(random_state=0).fit(X, y)


def propose(model, y):
    """Return the point with the largest expected improvement over the best value."""
    gain = LogExpectedImprovement(BoTorchModel(model), best_f=y.min(), maximize=False)
    point, _ = optimize_acqf(gain, torch.from_numpy(BOUNDS), q=1, num_restarts=4, raw_samples=128)
    return point.numpy()


# %%
# The first eight points are evenly spread; the model chooses the other 17.

torch.manual_seed(0)
X = qmc.scale(qmc.Sobol(2, rng=0).random(FIRST), *BOUNDS)
y = np.log(branin(X))
while len(y) < ALL:
    new = propose(fit_model(X, y), y)
    X, y = np.vstack([X, new]), np.append(y, np.log(branin(new)))

best = np.exp(np.minimum.accumulate(y))
print(f"best of the first {FIRST}: {best[FIRST - 1]:.3f}; best of all {ALL}: {best[-1]:.3f}")

# %%
# Left, the final model: dots are evaluations (darker ones were chosen later), and crosses are the
# true minima. Right, the best value so far.

grid = np.stack(np.meshgrid(*(np.linspace(*side, 80) for side in BOUNDS.T)), axis=-1)
mean = fit_model(X, y).predict(grid.reshape(-1, 2)).reshape(grid.shape[:2])
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
picture = left.contourf(grid[..., 0], grid[..., 1], mean, 20)
left.scatter(*X.T, c=np.arange(ALL), cmap="Greys", edgecolor="white")
left.plot(*MINIMA.T, "rx")
left.set(xlabel="$x_1$", ylabel="$x_2$")
fig.colorbar(picture, ax=left, label="predicted logarithm")
right.semilogy(np.arange(1, ALL + 1), best, drawstyle="steps-post")
right.axhline(branin(MINIMA).min(), color="black", linewidth=0.8, linestyle=":")
right.axvline(FIRST, color="0.7", linewidth=0.8)
right.set(xlabel="evaluations", ylabel="best value")
plt.show()
# sphinx_gallery_thumbnail_path = "_static/botorch_branin.png"

# %%
# .. image:: /_static/botorch_branin.png
#    :alt: The contours of the predicted logarithm with 25 dots, and the best value falling.
