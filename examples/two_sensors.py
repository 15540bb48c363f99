"""
Two sensors with gaps
=====================

Two sensors measure related quantities. The second was off for most of the time. Fitted together,
their learned covariance fills the gap of the second from the first.
"""

import matplotlib.pyplot as plt
import numpy as np

from eigengp import EigenGPRegressor

rng = np.random.default_rng(1)
time = np.linspace(0, 20, 300)
signal = np.sin(time) + 0.5 * np.sin(2.3 * time)
first = signal + 0.1 * rng.normal(size=300)
second = 20 - 3 * signal + 0.3 * rng.normal(size=300)
second[(time > 4) & (time < 14)] = np.nan
second[rng.uniform(size=300) < 0.5] = np.nan
X, Y = time[:, None], np.column_stack([first, second])

both = EigenGPRegressor(random_state=0).fit(X, Y)
known = np.isfinite(second)
alone = EigenGPRegressor(random_state=0).fit(X[known], second[known])
print("covariance of the outputs:\n", both.output_covariance_.round(2))

# %%
# The error of the second sensor in the gap, together and alone.

gap, truth = (time > 4) & (time < 14), 20 - 3 * signal
predicted = {"both sensors": both.predict(X)[:, 1], "second alone": alone.predict(X)}
for name, values in predicted.items():
    print(f"{name}: error in the gap {np.sqrt(np.mean((values[gap] - truth[gap]) ** 2)):.2f}")

fig, axes = plt.subplots(2, 1, figsize=(8, 4.6), layout="constrained", sharex=True)
axes[0].plot(time, first, ".", color="0.6", markersize=3)
axes[0].plot(time, both.predict(X)[:, 0], color="tab:blue")
axes[0].set_ylabel("first sensor")
axes[1].plot(time, second, ".", color="0.6", markersize=3)
lower, upper = both.predict_interval(X, coverage=0.9)
axes[1].fill_between(time, lower[:, 1], upper[:, 1], color="tab:blue", alpha=0.2, linewidth=0)
axes[1].plot(time, predicted["both sensors"], color="tab:blue", label="both sensors")
axes[1].plot(time, predicted["second alone"], color="tab:orange", linestyle="--", label="alone")
axes[1].plot(time, truth, "k:", linewidth=1, label="truth")
axes[1].set(xlabel="time", ylabel="second sensor")
axes[1].legend(loc="upper right", ncols=3)
