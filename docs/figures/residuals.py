"""What becomes of the part of the prior that the eigenfunctions leave out."""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, Gaussian

rng = np.random.default_rng(3)
x = np.sort(np.concatenate([rng.uniform(0, 4.2, 60), rng.uniform(6.2, 9, 40)]))
y = np.sin(2 * x) + 0.3 * np.sin(7 * x) + 0.1 * rng.normal(size=x.size)
X, grid = x[:, None], np.linspace(-1, 11, 400)[:, None]

exact = ExactGPRegressor(optimizer=LBFGS(n_restarts=4, max_iter=40), random_state=0).fit(X, y)
same = {
    "kernel": exact.kernel_,
    "likelihood": Gaussian(variance=exact.noise_variance_),
    "optimizer": LBFGS(n_restarts=1, max_iter=0),
    "guard": False,
    "random_state": 0,
}
models = {
    "EigenGP\nresidual=None": EigenGPRegressor(12, residual=None, **same),
    'EigenGP+\nresidual="diagonal"': EigenGPRegressor(12, residual="diagonal", **same),
    'nearest neighbours\nresidual="neighbors"': EigenGPRegressor(
        12, residual="neighbors", n_neighbors=10, **same
    ),
}

fig, axes = plt.subplots(1, 3, figsize=(8.4, 2.8), sharey=True)
truth, truth_std = exact.predict(grid, return_std=True)
for ax, (title, model) in zip(axes, models.items(), strict=True):
    model.fit(X, y)
    mean, std = model.predict(grid, return_std=True)
    ax.plot(x, y, ".", color="0.6", markersize=3)
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3)
    ax.plot(grid[:, 0], mean)
    for side in (-2, 2):
        ax.plot(grid[:, 0], truth + side * truth_std, color="black", linewidth=0.7, linestyle=":")
    ax.plot(model.inducing_points_[:, 0], np.full(12, -3.0), "k+")
    ax.set_title(title, fontsize=9)
    ax.set_xlabel("x")
axes[0].set_ylim(-3.3, 3.3)
