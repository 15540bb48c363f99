"""
Trend and season: extrapolating monthly CO₂
===========================================

Ten years of monthly values rise slowly, repeat themselves every year, and scatter a little, like
the CO₂ concentration of the air. A kernel for each of these, added up, tells them apart; what was
learned of trend and season then carries beyond the data.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, ExactGPRegressor, Periodic, RationalQuadratic, SquaredExponential

# %%
# The data are made here: a trend that bends upwards, a season with a steep fall in summer, and
# noise. Ten years are for learning and two more for the test.

NOISE = 0.4
rng = np.random.default_rng(0)
years = np.arange(12 * 12) / 12.0
season = 2.8 * np.sin(2 * np.pi * years) + 0.8 * np.cos(4 * np.pi * years)
truth = 338.0 + 1.5 * years + 0.02 * years**2 + season
X, y = 1980.0 + years[:, None], truth + NOISE * rng.normal(size=years.size)
past, future = years < 10.0, years >= 10.0

# %%
# The kernel is a sum, in the units of the data: a smooth trend over decades, a season of one
# year whose shape may change over decades too, and irregularities of some months. Only their
# starting values are given; all parameters are learned.

trend = SquaredExponential(lengthscale=30.0, variance=1000.0)
yearly = Periodic(lengthscale=1.5, period=1.0, variance=10.0) * SquaredExponential(50.0)
irregular = RationalQuadratic(lengthscale=0.5, variance=0.1)
kernel = trend + yearly + irregular
model = ExactGPRegressor(kernel, optimizer=LBFGS(n_restarts=2), random_state=0)
model.fit(X[past], y[past])
print(model.kernel_)

# %%
# Two years ahead the errors are about as large as the noise, which nothing can predict.

mean, std = model.predict(X, return_std=True)
error = np.sqrt(np.mean((y[future] - mean[future]) ** 2))
print(f"RMSE {error:.2f} for a noise of {NOISE}")

fig, ax = plt.subplots(figsize=(9, 3.2), layout="constrained")
ax.plot(X[past, 0], y[past], ".", color="0.6", label="ten years to learn from")
ax.plot(X[future, 0], y[future], ".", color="C1", label="two years to predict")
ax.fill_between(X[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25)
ax.plot(X[:, 0], mean, linewidth=1, label="mean, ± 2 std")
ax.set(xlabel="year", ylabel="CO₂ in ppm", title=f"RMSE {error:.2f}, noise {NOISE}")
ax.legend(loc="upper left", frameon=False)
