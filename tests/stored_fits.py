"""Seeded fits of every kind, and what each gave when it was stored in `tests/data/fits.json`.

`python tests/stored_fits.py` writes the file anew; `python tests/stored_fits.py NAME …` prints how
far the named fits are from it now.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # Read by SciPy when it is first imported.

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info, threadpool_limits

from eigengp import (
    LBFGS,
    EigenFeatures,
    EigenGPRegressor,
    ExactGPRegressor,
    FITCRegressor,
    Gaussian,
    Matern12,
    Matern32,
    NystromRegressor,
    PowerEPRegressor,
    RationalQuadratic,
    RVMRegressor,
    SquaredExponential,
    SSGPRegressor,
    Stochastic,
    VFERegressor,
)

STORED = Path(__file__).parent / "data" / "fits.json"

Rows = tuple[np.ndarray, np.ndarray]


def wave(n: int = 120) -> Rows:
    """Return rows of one input, rough on the right."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 3, (n, 1))
    return X, X[:, 0] * np.sin(X[:, 0] ** 3) + 0.3 * rng.normal(size=n)


def surface(n: int = 400, n_features: int = 3) -> Rows:
    """Return rows of several inputs."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, (n, n_features))
    y = 5 + np.sin(2 * X[:, 0]) + X[:, 1] * X[:, -1] + 0.2 * rng.normal(size=n)
    return X, y


def weights(n: int) -> np.ndarray:
    """Return how often each row counts."""
    return np.random.default_rng(3).integers(1, 4, n).astype(float)


def _weighted(model: Any, rows: Rows) -> Any:
    return model.fit(*rows, sample_weight=weights(len(rows[1])))


def _from_file(model: Any, rows: Rows) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        columns = {f"x{d}": column for d, column in enumerate(rows[0].T)}
        pq.write_table(pa.table({**columns, "y": rows[1]}), path)
        return model.fit(path, "y")


def _from_dask(model: Any, rows: Rows) -> Any:
    import dask.array as da

    return model.fit(*(da.from_array(each, chunks=2500) for each in rows))


def _from_torch(model: Any, rows: Rows) -> Any:
    import torch

    with sklearn.config_context(array_api_dispatch=True):
        return model.fit(*map(torch.asarray, rows))


def _resumed(make: Callable[[Path], Any], rows: Rows) -> Any:
    """Break a fit off after some evaluations, and go on with its checkpoint."""
    from eigengp.fitting.checkpoint import Checkpoint

    with tempfile.TemporaryDirectory() as folder:
        path, add, left = Path(folder) / "fit.checkpoint", Checkpoint.add, [12]

        def interrupted(self: Any, key: bytes, found: Any) -> None:
            add(self, key, found)
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        Checkpoint.add = interrupted  # type: ignore[method-assign]
        try:
            make(path).fit(*rows)
        except KeyboardInterrupt:
            pass
        finally:
            Checkpoint.add = add  # type: ignore[method-assign]
        return make(path).fit(*rows)


def _in_parts(model: Any, rows: Rows, **settings: Any) -> Any:
    for part in np.array_split(np.arange(len(rows[1])), 3):
        model.partial_fit(rows[0][part], rows[1][part], **settings)
    return model


def _eigengp(n: Any = 12, optimizer: Any = None, residual: Any = None, **settings: Any) -> Any:
    optimizer = optimizer or _lbfgs()
    return EigenGPRegressor(n, residual=residual, optimizer=optimizer, random_state=0, **settings)


def _neighbors(n: int, max_iter: int, **settings: Any) -> Any:
    return _eigengp(n, LBFGS(max_iter=max_iter), "neighbors", **settings)


def _lbfgs(strategy: Any = "auto", **settings: Any) -> LBFGS:
    return LBFGS(strategy, **{"n_restarts": 4, "max_iter": 30, **settings})


def _few(make: Any, *arguments: Any, **settings: Any) -> Any:
    return make(*arguments, optimizer=_lbfgs(), random_state=0, **settings)


_TWO = SquaredExponential(2.0) + Matern12(0.5, 0.2)
_PRODUCT = SquaredExponential(2.0) * Matern32(1.5, 0.7)

FITS: dict[str, Callable[[], Any]] = {
    "default, 120 rows": lambda: EigenGPRegressor(random_state=0).fit(*wave()),
    "default, 1300 rows": lambda: EigenGPRegressor(random_state=0).fit(*surface(1300)),
    "default, 1100 rows of a wave": lambda: EigenGPRegressor(random_state=0).fit(*wave(1100)),
    "sequential": lambda: _eigengp().fit(*surface()),
    "joint": lambda: _eigengp(optimizer=_lbfgs("joint")).fit(*surface()),
    "direct": lambda: _eigengp(optimizer=_lbfgs("direct")).fit(*surface()),
    "stochastic": lambda: _eigengp(
        optimizer=Stochastic(max_iter=2, batch_size=100, n_restarts=4)
    ).fit(*surface()),
    "diagonal": lambda: _eigengp(residual="diagonal").fit(*surface()),
    "diagonal, joint": lambda: _eigengp(optimizer=_lbfgs("joint"), residual="diagonal").fit(
        *wave()
    ),
    "fewer eigenfunctions": lambda: _eigengp(6, inducing_points=10).fit(*surface()),
    "no guard": lambda: _eigengp(guard=False).fit(*wave()),
    "growing basis": lambda: _eigengp(40).fit(*wave()),
    "random points": lambda: _eigengp(inducing_points="random").fit(*surface()),
    "greedy points": lambda: _eigengp(inducing_points="greedy").fit(*surface()),
    "given points": lambda: _eigengp("auto", inducing_points=surface(10)[0]).fit(*surface()),
    "nothing learned": lambda: _eigengp(optimizer=_lbfgs(max_iter=0)).fit(*surface()),
    "Matern 3/2": lambda: _eigengp(kernel=Matern32(2.0), optimizer=_lbfgs(n_restarts=1)).fit(
        *surface()
    ),
    "rational quadratic": lambda: _eigengp(kernel=RationalQuadratic()).fit(*wave()),
    "sum of kernels": lambda: _eigengp(kernel=_TWO).fit(*wave()),
    "product of kernels": lambda: _eigengp(kernel=_PRODUCT).fit(*surface()),
    "kernel of an exact GP": lambda: _eigengp(optimizer=_lbfgs(exact_start=True)).fit(*surface()),
    "noise to start from": lambda: _eigengp(likelihood=Gaussian(0.5)).fit(*surface()),
    "heteroscedastic": lambda: _eigengp(likelihood="heteroscedastic").fit(*surface()),
    "neighbours": lambda: _neighbors(30, 5, kernel=Matern32()).fit(*surface(1300)),
    "neighbours, constant noise": lambda: _neighbors(
        20, 3, kernel="squared_exponential", likelihood="gaussian", n_neighbors=20
    ).fit(*surface(300)),
    "neighbours, weights": lambda: _weighted(
        _neighbors(20, 3, kernel="squared_exponential"), surface(300)
    ),
    "held-out rows": lambda: _eigengp(20, optimizer=_lbfgs("joint")).fit(*surface(2600)),
    "growing parts": lambda: _eigengp(20).fit(*surface(8000)),
    "mixed precision": lambda: _eigengp(20, precision="mixed").fit(*surface(6000)),
    "single precision": lambda: _eigengp(20, precision="single").fit(*surface(6000)),
    "files": lambda: _from_file(_eigengp(20), surface(6000)),
    "Dask": lambda: _from_dask(_eigengp(20), surface(6000)),
    "PyTorch": lambda: _from_torch(_eigengp(20), surface(6000)),
    "weights": lambda: _weighted(_eigengp(), surface()),
    "robust scaling": lambda: _eigengp(standardize="robust").fit(*surface()),
    "no scaling": lambda: _eigengp(standardize=False, mean="zero").fit(*surface()),
    "resumed checkpoint": lambda: _resumed(
        lambda path: _eigengp(optimizer=_lbfgs(checkpoint=path)), surface()
    ),
    "partial fits": lambda: _in_parts(_eigengp(), surface(), forgetting=0.9),
    "partial fits, diagonal": lambda: _in_parts(_eigengp(residual="diagonal"), surface()),
    "partial fits, stochastic": lambda: _in_parts(
        _eigengp(optimizer=Stochastic(batch_size=50, max_iter=30, n_restarts=4)), surface()
    ),
    "FITC": lambda: _few(FITCRegressor, 12).fit(*surface()),
    "FITC, weights": lambda: _weighted(_few(FITCRegressor, 12), wave()),
    "VFE": lambda: _few(VFERegressor, 12).fit(*surface()),
    "power EP": lambda: _few(PowerEPRegressor, 12, alpha=0.5).fit(*surface()),
    "SSGP": lambda: _few(SSGPRegressor, 12).fit(*surface()),
    "SSGP, Matern 3/2": lambda: _few(SSGPRegressor, 8, kernel=Matern32()).fit(*wave()),
    "exact": lambda: ExactGPRegressor(random_state=0).fit(*surface(200)),
    "exact, weights": lambda: _weighted(ExactGPRegressor(_TWO, random_state=0), wave()),
    "Nystrom": lambda: NystromRegressor(12, random_state=0).fit(*surface()),
    "Nystrom*": lambda: _few(NystromRegressor, 12).fit(*surface()),
    "RVM, cross-validated": lambda: RVMRegressor(n_folds=3, n_jobs=1, random_state=0).fit(*wave()),
    "RVM": lambda: RVMRegressor(lengthscale=0.6, random_state=0).fit(*surface()),
    "transformed target": lambda: _eigengp(likelihood=Gaussian(transform="log")).fit(*surface()),
    "eigenfunctions as features": lambda: EigenFeatures(_eigengp()).fit(*surface()).estimator_,
}

MEMORY: dict[str, Callable[[], Any]] = {
    "sequential, 60000 rows": lambda: _eigengp(50, optimizer=_lbfgs(max_iter=2)).fit(
        *surface(60_000)
    ),
    "neighbours, 2000 rows": lambda: _neighbors(50, 2, kernel="squared_exponential").fit(
        *surface(2000)
    ),
    "FITC, 20000 rows": lambda: FITCRegressor(
        50,
        optimizer=_lbfgs(n_restarts=1, max_iter=2),
        kernel=SquaredExponential(),
        random_state=0,
    ).fit(*surface(20_000)),
}


def computed(name: str) -> dict[str, Any]:
    """Fit, and return what is compared."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        model = FITS[name]()
        n_features = model.n_features_in_
        X = np.random.default_rng(4).uniform(0.2, 2.2, (12, n_features))
        if name == "PyTorch":
            import torch

            with sklearn.config_context(array_api_dispatch=True):
                mean, std = (each.numpy() for each in model.predict(torch.asarray(X), True))
        else:
            mean, std = model.predict(X, return_std=True)
        inner = getattr(model, "regressor_", model)
        return {
            "mean": np.asarray(mean).tolist(),
            "std": np.asarray(std).tolist(),
            "log_marginal_likelihood": float(inner.log_marginal_likelihood_),
            "kernel": type(inner.kernel_).__name__,
            "n_iter": int(inner.n_iter_),
        }


def distance(found: dict[str, Any], stored: dict[str, Any]) -> float:
    """Return the largest relative difference; infinite where another model was chosen."""
    if found["kernel"] != stored["kernel"] or found["n_iter"] != stored["n_iter"]:
        return float("inf")
    names = ("mean", "std", "log_marginal_likelihood")
    pairs = [(np.asarray(found[name]), np.asarray(stored[name])) for name in names]
    return max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs)


def peak_memory(name: str) -> float:
    """Return the most MiB that a fit takes beyond its rows."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        tracemalloc.start()
        try:
            MEMORY[name]()
            return tracemalloc.get_traced_memory()[1] / 2**20
        finally:
            tracemalloc.stop()


def machine() -> dict[str, str]:
    """Return what the last digits depend on."""
    lines = Path("/proc/cpuinfo")
    text = lines.read_text().splitlines() if lines.exists() else []
    facts = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in text}
    names = ("model name", "cpu family", "model", "stepping")
    blas = {each["architecture"] for each in threadpool_info() if "architecture" in each}
    processor = " ".join([*(facts.get(name, "") for name in names), *sorted(blas)])
    versions = {each.__name__: each.__version__ for each in (np, scipy, sklearn)}
    return {"python": platform.python_version(), "processor": processor, **versions}


def main() -> None:
    """Store all fits, or compare those that are named (`all` for every one)."""
    if len(sys.argv) > 1:
        stored = json.loads(STORED.read_text())
        for name in FITS if sys.argv[1:] == ["all"] else sys.argv[1:]:
            try:
                print(f"{distance(computed(name), stored['fits'][name]):10.2e}  {name}", flush=True)
            except Exception as error:
                print(f"{type(error).__name__}: {error}  {name}", flush=True)
        return
    fits = {}
    for name in FITS:
        fits[name] = computed(name)
        print(name, fits[name]["log_marginal_likelihood"], flush=True)
    memory = {name: round(peak_memory(name), 1) for name in MEMORY}
    content = {"machine": machine(), "fits": fits, "memory": memory}
    STORED.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
