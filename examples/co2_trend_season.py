"""
Trend and season: extrapolating monthly CO₂
===========================================

The CO₂ concentration of the air has a trend, a seasonal cycle and short-term irregularities. The
model has one kernel for each, and their sum extrapolates trend and season beyond the data.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import LBFGS, ExactGPRegressor, Periodic, RationalQuadratic, SquaredExponential

# %%
# The data are simulated: monthly values with a trend that bends upwards, a seasonal cycle, and
# noise. The model learns from ten years and is tested on the next two.

NOISE = 0.4
rng = np.random.default_rng(0)
years = np.arange(12 * 12) / 12.0
season = 2.8 * np.sin(2 * np.pi * years) + 0.8 * np.cos(4 * np.pi * years)
truth = 338.0 + 1.5 * years + 0.02 * years**2 + season
X, y = 1980.0 + years[:, None], truth + NOISE * rng.normal(size=years.size)
past, future = years < 10.0, years >= 10.0

# %%
# The kernel is a sum of three terms: a smooth trend over decades, a season that repeats every year
# and changes its shape over decades, and irregularities that last some months. The numbers, in the
# units of the data, are starting values: the fit learns all of them.

trend = SquaredExponential(lengthscale=30.0, variance=1000.0)
yearly = Periodic(lengthscale=1.5, period=1.0, variance=10.0) * SquaredExponential(50.0)
irregular = RationalQuadratic(lengthscale=0.5, variance=0.1)
optimizer = LBFGS(n_restarts=2)
model = ExactGPRegressor(trend + yearly + irregular, optimizer=optimizer, random_state=0)
model.fit(X[past], y[past])
print(model.kernel_)

# %%
# Over the next two years the errors are about as large as the noise, which no model can predict.

mean, std = model.predict(X, return_std=True)
error = np.sqrt(np.mean((y[future] - mean[future]) ** 2))
print(f"RMSE {error:.2f}, standard deviation of the noise {NOISE}")

fig, ax = plt.subplots(figsize=(9, 3.2), layout="constrained")
ax.plot(X[past, 0], y[past], ".", color="0.6", label="training data")
ax.plot(X[future, 0], y[future], ".", color="C1", label="test data")
ax.fill_between(X[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25)
ax.plot(X[:, 0], mean, linewidth=1, label="mean ± 2 standard deviations")
ax.set(xlabel="year", ylabel="CO₂ in ppm", title=f"RMSE {error:.2f}, noise {NOISE}")
ax.legend(loc="upper left", frameon=False)
