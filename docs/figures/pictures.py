"""What displays and functions of `eigengp.plot` draw."""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, EigenGPRegressor, plot

rng = np.random.default_rng(0)
x = rng.uniform(0, 6, (220, 1))
y = np.sin(x[:, 0] ** 1.5) + 0.15 * rng.normal(size=220)
optimizer = LBFGS(n_restarts=1, max_iter=60)
curve = EigenGPRegressor(14, optimizer=optimizer, random_state=0).fit(x[:150], y[:150])

fig, axes = plt.subplots(3, 3, figsize=(10, 8.4))
plot.prediction(curve, x[:150], y[:150], ax=axes[0, 0])
plot.eigenfunctions(curve, x[:150], ax=axes[0, 1])
plot.convergence(curve, ax=axes[0, 2])
display = plot.PredictionDisplay.from_estimator(curve, x[150:], y[150:], ax=axes[1, 0])
display.plot(kind="residual_vs_predicted", ax=axes[1, 1])
display.plot(kind="calibration", ax=axes[2, :2])

X = rng.uniform(-2, 2, (200, 4))
optimizer = LBFGS(n_restarts=1, max_iter=30)
table = EigenGPRegressor(12, optimizer=optimizer, random_state=0)
table.fit(X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=200))
plot.EffectDisplay.from_estimator(table, X, [0], kind="accumulated", ax=axes[1, 2])
plot.relevance(table, ax=axes[2, 2])
titles = ["prediction", "eigenfunctions", "convergence", "PredictionDisplay"]
titles += ["PredictionDisplay: residuals", "EffectDisplay", "PredictionDisplay: calibration"]
titles += ["", "relevance"]
axes[0, 0].set_ylim(top=4.2)  # Room for the legends.
axes[0, 1].set_ylim(top=3.0)
axes[1, 2].set_ylim(top=3.2)
for ax, title in zip(axes.flat, titles, strict=True):
    ax.set_title(title, fontsize=9)
