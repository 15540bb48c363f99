"""The kernel, its reconstruction from eigenfunctions, and what is left, as pictures."""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import SquaredExponential

kernel = SquaredExponential(lengthscale=0.6)
grid = np.linspace(0, 6, 160)[:, None]
basis = np.array([0.5, 1.3, 2.1, 3.0, 4.4])[:, None]

cross = kernel(grid, basis)
reconstructed = cross @ np.linalg.solve(kernel(basis), cross.T)
panels = {
    "$k(x, x')$: the same everywhere": kernel(grid),
    r"$\tilde k(x, x')$: from 5 inducing points": reconstructed,
    r"$k - \tilde k$: what they leave out": kernel(grid) - reconstructed,
}
fig, axes = plt.subplots(1, 3, figsize=(8.4, 2.9), sharey=True)
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    ax.imshow(values, extent=(0, 6, 6, 0), vmin=0, vmax=1, cmap="Blues")
    ax.plot(basis[:, 0], basis[:, 0], "k+")
    ax.set_title(title, fontsize=9)
    ax.set_xlabel("x")
axes[0].set_ylabel("x'")
