"""What the functions of `eigengp.plot` draw."""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor, plot

rng = np.random.default_rng(0)
x = rng.uniform(0, 6, (220, 1))
y = np.sin(x[:, 0] ** 1.5) + 0.15 * rng.normal(size=220)
optimizer = LBFGS(n_restarts=1, max_iter=60)
curve = EigenGPRegressor(14, optimizer=optimizer, random_state=0).fit(x[:150], y[:150])

fig, axes = plt.subplots(2, 3, figsize=(10, 5.6))
plot.prediction(curve, x[:150], y[:150], ax=axes[0, 0])
plot.eigenfunctions(curve, x[:150], ax=axes[0, 1])
plot.convergence(curve, ax=axes[0, 2])
plot.calibration(curve, x[150:], y[150:], ax=axes[1, :2])

X = rng.uniform(-2, 2, (200, 4))
optimizer = LBFGS(n_restarts=1, max_iter=30)
table = EigenGPRegressor(12, optimizer=optimizer, random_state=0)
table.fit(X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=200))
plot.relevance(table, ax=axes[1, 2])
titles = {(0, 0): "prediction", (0, 1): "eigenfunctions", (0, 2): "convergence"}
titles |= {(1, 0): "calibration", (1, 2): "relevance"}
for place, title in titles.items():
    axes[place].set_title(title, fontsize=9)
