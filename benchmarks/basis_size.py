"""More basis functions never hurt: test error of the default call as M grows."""

from __future__ import annotations

import argparse
import time

from common import SETS, split

from eigengp import EigenGPRegressor
from eigengp.estimators import eigengp as regressor
from eigengp.metrics import mnlp, nmse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["california", "protein"], choices=SETS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 400, 1000])
    parser.add_argument("--max-iter", type=int, default=None)
    parser.add_argument("--strength", type=float, default=None, help="of the guard; 0 is none")
    args = parser.parse_args()
    settings = {"guard": args.strength != 0}
    if args.strength:
        regressor.GUARD_STRENGTH = args.strength
    if args.max_iter:
        settings["max_iter"] = args.max_iter
    print("data            M     NMSE    MNLP   seconds  iterations  noise variance")
    for name in args.data:
        X, y, X_test, y_test = split(name)
        for size in args.sizes:
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


if __name__ == "__main__":
    main()
