"""
Bayesian optimisation with default settings
===========================================

From a file to a decision: which hyperparameters should a support vector machine have? Each
experiment is a cross-validation on a table of houses. Expected improvement chooses the next one
from the predictive mean and standard deviation of ``EigenGPRegressor()``; no setting of the model
is needed.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import norm, qmc
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from eigengp import EigenGPRegressor

# %%
# Three hyperparameters, on logarithmic scales. One experiment takes a fraction of a second here;
# where it takes hours, the time of choosing it does not matter.

houses = pd.read_csv("houses.csv").iloc[:400]
X_houses, y_houses = houses.drop(columns="value"), np.log(houses["value"])
LOW, HIGH = np.array([-1.0, -4.0, -3.0]), np.array([3.0, 1.0, 0.0])  # powers of ten


def experiment(point):
    """Return the cross-validated error for the powers of ten of C, gamma and epsilon."""
    C, gamma, epsilon = 10.0**point
    machine = make_pipeline(StandardScaler(), SVR(C=C, gamma=gamma, epsilon=epsilon))
    score = cross_val_score(
        machine, X_houses, y_houses, cv=3, scoring="neg_root_mean_squared_error"
    )
    return -score.mean()


def propose(points, errors, rng):
    """Return the candidate with the largest expected improvement over the best error."""
    model = EigenGPRegressor(random_state=0).fit(points, errors)
    spread = qmc.scale(qmc.Sobol(3, rng=rng).random(1024), LOW, HIGH)
    near = points[errors.argmin()] + 0.05 * (HIGH - LOW) * rng.normal(size=(512, 3))
    candidates = np.vstack([spread, np.clip(near, LOW, HIGH)])
    mean, std = model.predict(candidates, return_std=True)
    gain = errors.min() - mean
    improvement = gain * norm.cdf(gain / std) + std * norm.pdf(gain / std)
    return candidates[np.argmax(improvement)]


# %%
# Eight evenly spread experiments, then 12 chosen ones; for comparison, 20 at random. Several seeds,
# since one run says little.

FIRST, ALL = 8, 20
chosen, random = [], []
for seed in range(3):
    rng = np.random.default_rng(seed)
    points = qmc.scale(qmc.Sobol(3, rng=rng).random(FIRST), LOW, HIGH)
    errors = np.array([experiment(point) for point in points])
    while len(errors) < ALL:
        new = propose(points, errors, rng)
        points, errors = np.vstack([points, new]), np.append(errors, experiment(new))
    chosen.append(np.minimum.accumulate(errors))
    others = [experiment(point) for point in rng.uniform(LOW, HIGH, size=(ALL, 3))]
    random.append(np.minimum.accumulate(others))
    best = 10.0 ** points[errors.argmin()]
    print(f"seed {seed}: error {errors.min():.4f}, random {random[-1][-1]:.4f}")
    print("    C {:.3g}, gamma {:.3g}, epsilon {:.3g}".format(*best))

# %%
# The decision is the best point of these; the curves show when it could have been made.

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
kinds = (random, "0.6", "at random"), (chosen, "C0", "expected improvement")
for runs, color, label in kinds:
    for number, run in enumerate(runs):
        ax.plot(range(1, ALL + 1), run, color=color, label=label if number == 0 else None)
ax.axvline(FIRST, color="0.8", linewidth=0.8)
ax.set(xlabel="experiments", ylabel="best error so far", yscale="log", xticks=range(0, ALL + 1, 5))
ax.legend(frameon=False)
