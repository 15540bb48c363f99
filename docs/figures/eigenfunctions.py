"""Five eigenfunctions: inducing points from k-means beside learned inducing points."""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor, ExactGPRegressor, Gaussian
from eigengp.datasets import make_snelson_like

data = make_snelson_like(200, random_state=1)
grid = np.linspace(-1, 7, 300)[:, None]
exact = ExactGPRegressor(optimizer=LBFGS(n_restarts=2, max_iter=30), random_state=0)
exact.fit(data.X, data.y)
fixed = EigenGPRegressor(
    5,
    kernel=exact.kernel_,
    likelihood=Gaussian(variance=exact.noise_variance_),
    optimizer=LBFGS(n_restarts=1, max_iter=0),
    guard=False,
    random_state=0,
)
optimizer = LBFGS(n_restarts=4, max_iter=100)
learned = EigenGPRegressor(5, optimizer=optimizer, guard=False, random_state=0)

fig, axes = plt.subplots(2, 2, figsize=(8, 4.4), sharex=True, sharey="row")
titles = ("inducing points from k-means, kernel of the exact GP", "everything learned")
for (top, bottom), model, title in zip(axes.T, (fixed, learned), titles, strict=True):
    model.fit(data.X, data.y)
    mean, std = model.predict(grid, return_std=True)
    top.plot(data.X[:, 0], data.y, ".", color="0.75", markersize=3)
    top.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25)
    top.plot(grid[:, 0], exact.predict(grid), color="black", linewidth=0.9, label="exact GP")
    top.plot(grid[:, 0], mean, label="EigenGP, ± 2 std")
    points = model.inducing_points_[:, 0]
    top.plot(points, np.full(points.size, -3.3), "k+")
    top.set_title(title, fontsize=9)
    bottom.plot(grid, model.eigenfunctions(grid) * np.sqrt(model.weights_), linewidth=1.2)
    bottom.set_xlabel("x")
axes[0, 0].legend(frameon=False, loc="upper right")
axes[0, 0].set_ylim(-3.6, 2.8)
axes[1, 0].set_ylabel(r"$\sqrt{w_j}\,\phi_j(x)$")
