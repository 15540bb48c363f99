"""One function as a sum: eigenfunctions, what they leave out, and noise."""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import Matern32

rng = np.random.default_rng(4)
grid = np.linspace(0, 10, 400)[:, None]
x = np.sort(rng.uniform(0, 10, 120))[:, None]
kernel, noise = Matern32(lengthscale=1.2), 0.25
points = np.linspace(0.8, 9.2, 6)[:, None]

# One draw from the prior at grid and rows, split into the part in the span of the eigenfunctions
# (its projection on the inducing points) and the rest.
both = np.concatenate([grid, x, points])
root = np.linalg.cholesky(kernel(both) + 1e-9 * np.eye(len(both)))
drawn = root @ rng.normal(size=len(both))
f, f_rows, u = np.split(drawn, [400, 520])
smooth = kernel(grid, points) @ np.linalg.solve(kernel(points), u)
smooth_rows = kernel(x, points) @ np.linalg.solve(kernel(points), u)
y = f_rows + noise * rng.normal(size=120)

# The span itself: eigenfunctions at the grid, each scaled by its prior standard deviation.
values, vectors = np.linalg.eigh(kernel(points))
phi = kernel(grid, points) @ vectors[:, ::-1] / np.sqrt(values[::-1])

fig, axes = plt.subplots(2, 2, figsize=(8.4, 4.6), sharex=True)
(basis, combined), (residual, whole) = axes
basis.plot(grid, phi, linewidth=1.2)
basis.plot(points[:, 0], np.full(6, -1.35), "k+")
basis.set(title="1. eigenfunctions, from inducing points (+)", ylim=(-1.5, 1.5))
combined.plot(grid, smooth, color="C0", label="sum of eigenfunctions")
combined.plot(grid, f, color="0.7", linewidth=0.9, label="the function")
combined.set_title("2. their weighted sum: the broad shape")
residual.plot(grid, f - smooth, color="C1")
residual.plot(x[:, 0], y - smooth_rows, ".", color="0.6", markersize=3)
near = np.argsort(np.abs(x[:, 0] - 5.6))[:12]
residual.plot(x[near, 0], (y - smooth_rows)[near], ".", color="black", markersize=5)
residual.axvline(5.6, color="black", linewidth=0.8, linestyle=":")
residual.set_title("3. residual: predicted from near rows (black)")
whole.plot(x[:, 0], y, ".", color="0.6", markersize=3, label="rows")
whole.fill_between(grid[:, 0], f - 2 * noise, f + 2 * noise, color="C2", alpha=0.25)
whole.plot(grid, f, color="C2", label="function ± 2 std of the noise")
whole.set_title("4. noise on top")
for ax in axes[1]:
    ax.set_xlabel("x")
for ax in (combined, whole):
    ax.legend(frameon=False, fontsize=8)
