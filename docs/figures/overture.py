"""A function that is flat on the left and oscillates on the right."""

import matplotlib.pyplot as plt

from eigengp import LBFGS, EigenGPRegressor, plot
from eigengp.datasets import make_nonstationary

data = make_nonstationary(200, random_state=2)
optimizer = LBFGS(n_restarts=2, max_iter=100)
model = EigenGPRegressor(14, optimizer=optimizer, random_state=0).fit(data.X, data.y)
fig, ax = plt.subplots(figsize=(8, 3))
plot.prediction(model, data.X, data.y, ax=ax)
ax.set_title("x sin(x³) from 200 noisy rows, with 14 inducing points", fontsize=9)
