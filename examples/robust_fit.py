"""
A robust fit with 10 % outliers
===============================

One row in ten is off by twenty times the noise. Gaussian noise follows the outliers; a Student-t
likelihood gives them little weight.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import EigenGPRegressor

rng = np.random.default_rng(0)
x = np.linspace(0, 3, 200)
truth = x * np.sin(x**3)
y = truth + 0.5 * rng.normal(size=200)
hit = rng.choice(200, 20, replace=False)
y[hit] += 10 * rng.choice([-1, 1], size=20)
X = x[:, None]

models = {
    "gaussian": EigenGPRegressor(likelihood="gaussian", random_state=0).fit(X, y),
    "student_t": EigenGPRegressor(likelihood="student_t", random_state=0).fit(X, y),
}
for name, model in models.items():
    error = np.mean((model.predict(X) - truth) ** 2) / np.var(truth)
    print(f"{name}: normalised mean squared error {error:.3f}")
print(models["student_t"].likelihood_)

# %%
# The band is the central half of the predictions.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    lower, upper = model.predict_interval(X, coverage=0.5)
    ax.fill_between(x, lower, upper, color="tab:blue", alpha=0.25, linewidth=0)
    ax.plot(x, model.predict(X), color="tab:blue", label="prediction")
    ax.plot(x, truth, "k--", linewidth=1, label="truth")
    ax.plot(x, y, ".", color="0.6", markersize=3)
    ax.plot(x[hit], y[hit], "x", color="tab:red", markersize=5, label="outliers")
    ax.set(title=name, xlabel="x", ylim=(-14, 14))
axes[0].set_ylabel("y")
axes[0].legend(loc="upper left")
