"""What the model of "Getting started" predicts, and how far to trust it."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from eigengp import EigenGPRegressor, plot

folder = next(each for each in Path.cwd().parents if (each / "examples" / "houses.csv").exists())
houses = pd.read_csv(folder / "examples" / "houses.csv")
X, y = houses.drop(columns="value"), np.log(houses["value"])
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
model = EigenGPRegressor(max_time=10, random_state=0).fit(X_train, y_train)

fig, axes = plt.subplots(1, 3, figsize=(10, 3.2))
display = plot.PredictionDisplay.from_estimator(model, X_test, y_test, ax=axes[0])
display.plot(kind="calibration", ax=axes[1:])
