"""
A stream of measurements, and when to raise an alarm
====================================================

From a file to a decision: temperatures arrive month by month, and an unusual day should be reported
when it happens. ``partial_fit`` learns from one batch at a time. The first batch is an ordinary fit
with eigenfunctions alone. After it the eigenfunctions are fixed, and the posterior of their weights
is updated exactly, in constant memory.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from eigengp import EigenGPRegressor

# %%
# Daily weather in Seattle, 2012 to 2015. The model predicts the highest temperature of a day from
# the day before and from the season.

weather = pd.read_csv("weather.csv", parse_dates=["date"])
day = 2 * np.pi * weather["date"].dt.day_of_year / 365.25
rows = weather[["high", "low", "wind"]].shift(1)
rows = rows.assign(season_sin=np.sin(day), season_cos=np.cos(day)).iloc[1:]
target, dates = weather["high"].iloc[1:], weather["date"].iloc[1:]

# %%
# The first year is the first batch; the later months arrive one by one. Each is predicted before
# the model learns from it. With ``forgetting`` below 1 the weight of earlier batches falls, so that
# the model follows changes.

first = dates < "2013-01-01"
forgettings = (1.0, 0.9)
models = {
    each: EigenGPRegressor(30, random_state=0).partial_fit(rows[first], target[first])
    for each in forgettings
}
found = []
for _, batch in rows[~first].groupby(dates[~first].dt.to_period("M")):
    y = target[batch.index]
    for forgetting, model in models.items():
        mean, std = model.predict(batch, return_std=True)
        found.append(pd.DataFrame({"forgetting": forgetting, "y": y, "mean": mean, "std": std}))
        model.partial_fit(batch, y, forgetting=forgetting)
found = pd.concat(found)
found["score"] = (found["y"] - found["mean"]) / found["std"]

yesterday = rows["high"][~first]
print(f"as yesterday: RMSE {np.sqrt(np.mean((target[~first] - yesterday) ** 2)):.2f} degrees")
for forgetting, own in found.groupby("forgetting"):
    error = np.sqrt(np.mean((own["y"] - own["mean"]) ** 2))
    inside = np.mean(np.abs(own["score"]) < 1.64)
    print(f"forgetting={forgetting}: RMSE {error:.2f} degrees, {inside:.0%} inside 90 % intervals")

# %%
# The climate hardly drifts in three years, so nothing is gained by forgetting. The decision: report
# days more than three standard deviations from the prediction.

own = found[found["forgetting"] == 1.0]
alarm = own["score"].abs() > 3
found = own[["y", "mean", "std", "score"]][alarm].round(1)
print(found.set_index(dates[own.index[alarm]]).to_string())

fig, ax = plt.subplots(figsize=(10, 3), layout="constrained")
when = dates[own.index]
ax.fill_between(when, own["mean"] - 3 * own["std"], own["mean"] + 3 * own["std"], alpha=0.2)
ax.plot(when, own["y"], ".", color="0.5", markersize=3, label="highest temperature")
ax.plot(when[alarm], own["y"][alarm], "o", color="C3", markersize=5, label="reported")
ax.set(ylabel="degrees Celsius")
ax.legend(frameon=False, loc="upper left")
