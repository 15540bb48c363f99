"""Test error of eigenfunctions alone as the number of inducing points M grows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from common import check_known

from eigengp import LBFGS, EigenGPRegressor
from eigengp.fitting import settings as fit_settings
from eigengp.metrics import mnlp, nmse
from realdata import SETS, split


def run(
    data: Sequence[str], sizes: Sequence[int], max_iter: int | None, strength: float | None
) -> None:
    """Fit every size on every set, and print a line for each."""
    check_known(data, SETS)
    optimizer = "auto" if max_iter is None else LBFGS(max_iter=max_iter)
    settings: dict[str, Any] = {"residual": None, "guard": strength != 0, "optimizer": optimizer}
    if strength:
        fit_settings._GUARD_STRENGTH = strength
    print("data            M     NMSE    MNLP   seconds  iterations  noise variance")
    for name in data:
        X, y, X_test, y_test = split(name)
        for size in sizes:
            start = time.perf_counter()
            model = EigenGPRegressor(size, random_state=0, **settings).fit(X, y)
            seconds = time.perf_counter() - start
            mean, std = model.predict(X_test, return_std=True)
            error = nmse(y_test, mean, train_mean=float(y.mean()))
            density = mnlp(y_test, mean, std)
            print(
                f"{name:12s} {size:5d}  {error:.4f}  {density:6.3f}  {seconds:7.1f}  "
                f"{model.n_iter_:6d}      {model.noise_variance_:.4f}",
                flush=True,
            )
