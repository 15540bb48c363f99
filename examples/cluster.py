"""
A table on a Dask cluster
=========================

From a file to a decision: which block groups are valued far below what their neighbours and their
income suggest? Rows enter a model of eigenfunctions only through sums, so they can stay on the
workers that hold them. This program starts a cluster of two workers on this machine; for another
cluster, only the address in ``Client`` changes.
"""

import dask.dataframe as dd
import matplotlib.pyplot as plt
from distributed import Client, LocalCluster

from eigengp import LBFGS, EigenGPRegressor
from eigengp.metrics import nmse


def main():
    """Fit on the workers, and predict there."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        # Each part of the file is read on a worker, and stays there.
        houses = dd.read_csv("houses.csv", blocksize=20_000).persist()
        train, new = houses.partitions[:-1], houses.partitions[-1]
        print(f"{train.npartitions} parts to learn from, one to predict")

        # The target is a column, by name. Few iterations are enough to show how it works.
        model = EigenGPRegressor(
            60, residual=None, optimizer=LBFGS(n_restarts=1, max_iter=20), random_state=0
        )
        model.fit(train, "value")

        # Predictions are lazy, like all Dask collections.
        mean, std = model.predict(new.drop(columns="value"), return_std=True)
        table = new.compute().reset_index(drop=True)
        table["predicted"], table["std"] = mean.compute(), std.compute()
        print(f"NMSE {nmse(table['value'], table['predicted']):.2f}")

    # The decision: the rows furthest below their predictions deserve a look.
    table["score"] = (table["value"] - table["predicted"]) / table["std"]
    lowest = table.nsmallest(5, "score")
    columns = ["latitude", "longitude", "income", "value", "predicted", "score"]
    print(lowest[columns].round(2).to_string(index=False))

    _, ax = plt.subplots(figsize=(4.4, 3.6), layout="constrained")
    ax.plot(table["predicted"] / 1000, table["value"] / 1000, ".", color="0.6", markersize=4)
    ax.plot(lowest["predicted"] / 1000, lowest["value"] / 1000, "o", color="C3", markersize=5)
    ax.set(xlabel="predicted, thousand dollars", ylabel="value, thousand dollars")


# %%
# Worker processes import this file, so the main guard is needed.

if __name__ == "__main__":
    main()
