"""
A table of mixed columns, compared with gradient boosting
=========================================================

From a file to a decision: penguins were caught, measured and weighed. Which records look wrong and
should be checked? The table has numbers, text and missing values.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_predict

from eigengp import EigenGPRegressor
from eigengp.plot import PredictionDisplay

# %%
# Species, island and sex are text; the sex of some birds is not known. The regressor takes the
# frame as it is: it encodes text, and marks what is missing.

penguins = pd.read_csv("penguins.csv").dropna(subset="body_mass_g")
X, y = penguins.drop(columns="body_mass_g"), penguins["body_mass_g"]
print(X.sample(4, random_state=1).to_string(index=False))
model = EigenGPRegressor(random_state=0)

# %%
# Every bird is predicted by a model that was fitted to four fifths of the other birds.

folds = KFold(5, shuffle=True, random_state=0)
mean, std = np.empty(len(y)), np.empty(len(y))
for train, test in folds.split(X):
    model.fit(X.iloc[train], y.iloc[train])
    mean[test], std[test] = model.predict(X.iloc[test], return_std=True)
print(f"EigenGPRegressor: RMSE {np.sqrt(np.mean((y - mean) ** 2)):.0f} g")

# %%
# Gradient boosting takes the same table, with its own treatment of categories and gaps: once with
# default settings, and once with a smaller rate and early stopping.

categories = X.astype(dict.fromkeys(["species", "island", "sex"], "category"))
slow = {"learning_rate": 0.05, "max_iter": 1_000, "early_stopping": True}
for name, settings in (("gradient boosting", {}), ("with early stopping", slow)):
    boosting = HistGradientBoostingRegressor(random_state=0, **settings)
    guess = cross_val_predict(boosting, categories, y, cv=folds)
    print(f"{name}: RMSE {np.sqrt(np.mean((y - guess) ** 2)):.0f} g")

# %%
# The decision needs error bars, which boosting does not have: check the records that are more than
# 2.6 standard deviations from their predictions, of which one in a hundred is expected by chance.

scores = (y - mean) / std
found = penguins.assign(predicted=mean.round(), score=scores.round(1))[scores.abs() > 2.6]
print(f"{len(found)} records to check, {0.01 * len(y):.0f} expected by chance")
print(found[["species", "sex", "body_mass_g", "predicted", "score"]].to_string())

PredictionDisplay.from_predictions(y, mean, std, coverage=0.99)

# %%
# Which columns matter for the model? Shares of the variance of its predictions; columns that carry
# the same information, such as species and flipper length, share their effect.

effects = pd.Series(model.input_effects(), X.columns)
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
effects.sort_values().tail(8).plot.barh(ax=ax, xlabel="share of the variance")
