"""
A seasonal series with a trend
==============================

From a file to a decision: when will the CO₂ concentration of the air exceed 375 ppm for the first
time? The series has a trend and a season; a kernel for each lets the model extrapolate.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from eigengp import LBFGS, ExactGPRegressor, Matern12, Matern32, Periodic, SquaredExponential

# %%
# Monthly means of the measurements on Mauna Loa, Hawaii. Some months are missing, which does not
# matter: a row is a month that was measured. Learn from 1970 to 1997, and test on 1998 to 2001.

series = pd.read_csv("co2.csv", parse_dates=["month"])
series = series[series["month"] >= "1970-01-01"]
X = (series["month"].dt.year + (series["month"].dt.month - 0.5) / 12).to_numpy()[:, None]
y = series["co2"].to_numpy()
past = X[:, 0] < 1998

# %%
# The kernel is a sum: a trend over decades, a season that repeats every year and changes its shape
# over decades, and irregularities that last some months. The numbers, in the units of the data, are
# starting values: the fit learns all of them. There are two candidates for the trend: one with a
# squared exponential kernel, which is smooth, and one with a Matérn kernel, whose slope can change.

yearly = Periodic(lengthscale=1.5, period=1.0, variance=10.0) * SquaredExponential(50.0)
irregular = Matern12(lengthscale=1.0, variance=0.3)
trends = {
    "smooth trend": SquaredExponential(lengthscale=50.0, variance=2500.0),
    "trend whose slope changes": Matern32(lengthscale=50.0, variance=2500.0),
}
optimizer = LBFGS(n_restarts=1, max_iter=40)
models = {
    name: ExactGPRegressor(trend + yearly + irregular, optimizer=optimizer, random_state=0)
    for name, trend in trends.items()
}
for name, model in models.items():
    model.fit(X[past], y[past])
    lower, upper = model.predict_interval(X[~past], coverage=0.9)
    inside = np.mean((lower <= y[~past]) & (y[~past] <= upper))
    error = np.sqrt(np.mean((y[~past] - model.predict(X[~past])) ** 2))
    print(f"{name}: log marginal likelihood {model.log_marginal_likelihood_:.1f}")
    print(f"    1998 to 2001: RMSE {error:.2f} ppm, {inside:.0%} inside 90 % intervals")

# %%
# The data up to 1997 do not favour either trend, but the extrapolations differ: beyond the data,
# intervals are only as good as the assumptions. The smooth trend is too sure of its slope. In 1998
# the concentration grew faster than ever before, and even with the other trend fewer than 90 % of
# the test months are inside their intervals.
#
# The decision needs more than a mean: functions sampled from the posterior say how likely it is
# that 375 ppm have been exceeded by each month.

future = np.arange(1998, 2011, 1 / 12)[:, None] + 1 / 24
fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 3.4), layout="constrained", width_ratios=(2, 1)
)
shown = past & (X[:, 0] > 1988)
left.plot(X[shown], y[shown], ".", color="0.6", markersize=3, label="training data")
left.plot(X[~past], y[~past], ".", color="black", markersize=4, label="test data")
for name, model in models.items():
    mean, std = model.predict(future, return_std=True)
    left.fill_between(future[:, 0], mean - 1.64 * std, mean + 1.64 * std, alpha=0.25)
    left.plot(future, mean, linewidth=1, label=f"{name}, 90 %")
    functions = model.sample_y(future, n_samples=500, random_state=0)
    exceeded = np.maximum.accumulate(functions > 375.0, axis=0).mean(axis=1)
    right.plot(future, exceeded, drawstyle="steps-post")
    first = [future[np.argmax(exceeded >= share), 0] for share in (0.1, 0.5, 0.9)]
    print(f"{name}: exceeded with 10 %, 50 %, 90 % by", np.round(first, 1))
left.axhline(375, color="black", linewidth=0.8, linestyle=":")
left.set(xlabel="year", ylabel="CO₂ in ppm")
left.legend(loc="upper left", frameon=False)
right.set(xlabel="year", ylabel="probability", title="375 ppm exceeded by then")
right.set_xticks([2000, 2005, 2010])
