"""Five eigenfunctions: basis points from k-means beside basis points that were learned."""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import EigenGPRegressor, ExactGPRegressor
from eigengp.datasets import make_snelson_like

data = make_snelson_like(200, random_state=1)
grid = np.linspace(-1, 7, 300)[:, None]
exact = ExactGPRegressor(n_restarts=2, max_iter=30, random_state=0).fit(data.X, data.y)
fixed = EigenGPRegressor(
    5,
    kernel=exact.kernel_,
    noise_variance=exact.noise_variance_,
    n_restarts=1,
    max_iter=0,
    guard=False,
    random_state=0,
)
learned = EigenGPRegressor(5, n_restarts=4, max_iter=100, guard=False, random_state=0)

fig, axes = plt.subplots(2, 2, figsize=(8, 4.4), sharex=True, sharey="row")
titles = ("basis points from k-means, kernel of the full GP", "everything learned by the evidence")
for (top, bottom), model, title in zip(axes.T, (fixed, learned), titles, strict=True):
    model.fit(data.X, data.y)
    mean, std = model.predict(grid, return_std=True)
    top.plot(data.X[:, 0], data.y, ".", color="0.75", markersize=3)
    top.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25)
    top.plot(grid[:, 0], exact.predict(grid), color="black", linewidth=0.9, label="full GP")
    top.plot(grid[:, 0], mean, label="EigenGP, ± 2 std")
    points = model.inducing_points_[:, 0]
    top.plot(points, np.full(points.size, -3.3), "k+")
    top.set_title(title, fontsize=9)
    bottom.plot(grid, model.eigenfunctions(grid) * np.sqrt(model.weights_), linewidth=1.2)
    bottom.set_xlabel("x")
axes[0, 0].legend(frameon=False, loc="upper right")
axes[0, 0].set_ylim(-3.6, 2.8)
axes[1, 0].set_ylabel(r"$\sqrt{w_j}\,\phi_j(x)$")
