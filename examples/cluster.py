"""
Fit on a Dask cluster
=====================

Rows enter a model of eigenfunctions only through sums, so they can stay on the workers that hold
them. This program starts a cluster of two workers on this machine; for another cluster, only the
address in ``Client`` changes.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from eigengp import LBFGS, EigenGPRegressor


def main():
    """Fit on the workers, and predict there."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        # Each chunk of rows is generated on the worker that uses it.
        rng = da.random.default_rng(0)
        X = rng.normal(size=(12_000, 3), chunks=(4_000, 3))
        y = da.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=12_000, chunks=4_000)

        optimizer = LBFGS(n_restarts=1, max_iter=5)
        model = EigenGPRegressor(40, optimizer=optimizer, random_state=0).fit(X, y)
        mean = model.predict(X)  # lazy, like all Dask collections
        error = float(((mean - y) ** 2).mean().compute())
        print(f"mean squared error {error:.3f}, of which noise 0.010")
        print(f"kernel {model.kernel_}")

        _, ax = plt.subplots(figsize=(4, 3.4), layout="constrained")
        ax.plot(mean[:1000].compute(), y[:1000].compute(), ".", markersize=3)
        ax.set(xlabel="predicted", ylabel="target")


# %%
# Worker processes import this file, so the main guard is needed.

if __name__ == "__main__":
    np.set_printoptions(precision=2)
    main()
