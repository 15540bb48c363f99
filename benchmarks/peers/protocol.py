"""What a peer's process does: read a request, carry it out, answer with lines of JSON.

It runs in the peer's environment. A module `with_<library>` says how the library does each task;
the loops, clocks and scores around that are here, the same for all.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from scipy.optimize import minimize as scipy_minimize
from sklearn.cluster import KMeans
from timing import Array, Stopwatch, Work, best_of, peak_memory, product_floor, squared_exponential

Record = dict[str, Any]
Prediction = tuple[Array, Array]
Predictor = Callable[[Array], object]

LENGTHSCALE = 2.0
NOISE_VARIANCE = 0.05
PREDICTION_BLOCKS = (8_192, 1 << 62)
NORMAL_90 = 1.6448536269514722
"""Within so many standard deviations lie 90 % of a normal distribution."""


@dataclass(frozen=True)
class Request:
    """What to do: arrays by name, and options."""

    arrays: dict[str, Array]
    options: Record

    @property
    def rows(self) -> tuple[Array, Array]:
        """Training inputs and targets."""
        return self.arrays["X"], self.arrays["y"]


Task = Callable[[Request], Iterator[Record]]


def serve(packages: Sequence[str], **tasks: Task) -> None:
    """Carry out the request that the command line holds.

    Standard output belongs to the answers; whatever the libraries print goes to standard error.
    The option `cpu_limit` ends the process after so many seconds of CPU time.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    order = json.loads(sys.argv[1])
    limit = order["options"].get("cpu_limit")
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))
    with np.load(order["arrays"]) as stored:
        arrays = {name: np.ascontiguousarray(stored[name]) for name in stored.files}
    versions = {name: version(name) for name in [*packages, "numpy"]}
    versions["python"] = ".".join(map(str, sys.version_info[:3]))
    print(json.dumps({"versions": versions}), file=answers)
    for record in tasks[order["task"]](Request(arrays, order["options"])):
        print(json.dumps(record), file=answers)


def evaluation_costs(
    request: Request, evaluations: Callable[[Array, Array, int], dict[str, Callable[[], float]]]
) -> Iterator[Record]:
    """Time value and gradient beside the products that cannot be avoided, for several sizes.

    `evaluations(X, y, size)` returns functions by variant; each evaluates the model with its basis
    points at the first rows, and returns the value. The first two calls, which may compile, are not
    timed.
    """
    X, y = request.rows
    for size in request.options["sizes"]:
        works = evaluations(X, y, size)
        floor = product_floor(squared_exponential(X, X[:size], LENGTHSCALE))
        values = {variant: [work() for _ in range(2)][-1] for variant, work in works.items()}
        floor()
        least, *seconds = best_of(request.options["turns"], floor, *works.values())
        for variant, own in zip(works, seconds, strict=True):
            yield {
                "variant": variant,
                "size": size,
                "seconds": own,
                "floor_seconds": least,
                "ratio": own / least,
                "value": values[variant],
            }


def prediction_speeds(
    request: Request,
    predictors: dict[tuple[str, str], Predictor],
    blocks: Sequence[int] = PREDICTION_BLOCKS,
    rows: int | None = None,
    beside: dict[tuple[str, str], Work] | None = None,
) -> Iterator[Record]:
    """Time predictions of many rows, by blocks of several sizes, of which the best counts.

    Parameters
    ----------
    request : Request
        With the inputs `X_new`.
    predictors : dict
        Functions of inputs, by variant and by what they predict.
    blocks : sequence of int
        How many rows a function gets at once.
    rows : int or None
        Predict fewer rows: for slow predictors.
    beside : dict or None
        Other work on the same rows, by variant and kind, that takes turns with the predictions.
    """
    X = request.arrays["X_new"][:rows]
    works: dict[tuple[str, str, int], Work] = {
        (*key, X.shape[0]): work for key, work in (beside or {}).items()
    }
    for key, predict in predictors.items():
        for block in sorted({min(block, X.shape[0]) for block in blocks}):
            works[(*key, block)] = _by_blocks(predict, X, block)
    for work in works.values():
        work()
    least = dict(zip(works, best_of(request.options["turns"], *works.values()), strict=True))
    for variant, what in dict.fromkeys(key[:2] for key in works):
        seconds, block = min((least[key], key[2]) for key in works if key[:2] == (variant, what))
        yield {
            "variant": variant,
            "what": what,
            "rows": X.shape[0],
            "seconds": seconds,
            "rows_per_second": X.shape[0] / seconds,
            "block_rows": block,
        }


def _by_blocks(predict: Predictor, X: Array, block: int) -> Work:
    starts = range(0, X.shape[0], block)
    return lambda: [predict(X[start : start + block]) for start in starts]


class Trace:
    """Test errors along a fit, whose clock stands still while they are computed."""

    def __init__(self, request: Request, variant: str) -> None:
        self.points: list[Record] = []
        self._request, self._variant = request, variant
        self._watch = Stopwatch()

    def note(
        self, iteration: int | None, predict: Callable[[Array], Prediction], **more: Any
    ) -> None:
        """Keep the errors of `predict`, which returns mean and variance of new observations."""
        seconds = self._watch.seconds
        with self._watch.paused():
            errors = self._scores(*predict(self._request.arrays["X_test"]))
        point = {"variant": self._variant, "iteration": iteration, "seconds": seconds}
        self.points.append(point | errors | more)

    def wants(self, iteration: int) -> bool:
        """Whether the errors after this iteration are asked for."""
        return iteration in self._request.options["marks"]

    def end(
        self, iteration: int | None, predict: Callable[[Array], Prediction], **more: Any
    ) -> Iterator[Record]:
        """Keep the errors of the finished model, and return all points."""
        self.points = [point for point in self.points if point["iteration"] != iteration]
        self.note(iteration, predict, final=True, **more)
        return iter(self.points)

    def _scores(self, mean: Array, variance: Array) -> Record:
        """Return NMSE, MNLP and the coverage of 90 % intervals, as `eigengp.metrics` has them."""
        y, train_mean = self._request.arrays["y_test"], self._request.arrays["y"].mean()
        squares = (y - np.ravel(mean)) ** 2
        variance = np.ravel(variance)
        density = 0.5 * np.mean(squares / variance + np.log(2.0 * np.pi * variance))
        covered = float(np.mean(squares <= NORMAL_90**2 * variance))
        error = squares.sum() / ((y - train_mean) ** 2).sum()
        return {"nmse": error, "mnlp": density, "coverage": covered}


class ClassTrace:
    """Test scores of class probabilities, by a clock that stands still while they are computed."""

    def __init__(self, request: Request) -> None:
        self._request, self._watch = request, Stopwatch()
        self._spent = -time.process_time()

    def note(self, predict: Callable[[Array], Array], iteration: int | None) -> Record:
        """Return the scores of `predict`, which returns the probabilities of all classes."""
        seconds, before = self._watch.seconds, time.process_time()
        with self._watch.paused():
            p = predict(self._request.arrays["X_test"])
            scores = score_classes(p, self._request.arrays["y_test"].astype(int))
        times = {"seconds": seconds, "cpu_seconds": before + self._spent}
        self._spent -= time.process_time() - before
        return {"iteration": iteration, **times} | scores


def score_classes(p: Array, y: Array, bins: int = 15) -> Record:
    """Return error, log loss, and the calibration error of the most probable class."""
    chosen = np.clip(p[np.arange(y.size), y], 1e-15, 1.0)
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    own = np.minimum((bins * sure).astype(int), bins - 1)
    gaps = [abs(float(np.sum(sure[own == b] - right[own == b]))) for b in range(bins)]
    return {
        "error": float(np.mean(~right)),
        "log_loss": float(-np.mean(np.log(chosen))),
        "calibration": sum(gaps) / y.size,
    }


def kmeans(X: Array, size: int, rows: int = 10_000) -> Array:
    """Return `size` centres of at most `rows` rows."""
    chosen = np.random.default_rng(0).permutation(X.shape[0])[:rows]
    return KMeans(size, n_init=1, random_state=0).fit(X[chosen]).cluster_centers_


def start_lengthscale(X: Array) -> float:
    """Return where learning begins for standardised inputs: the typical distance, `√D`."""
    return float(np.sqrt(X.shape[1]))


def minimize(
    value_and_gradient: Callable[[Array], tuple[float, Array]],
    start: Array,
    iterations: int,
    after: Callable[[int, Array], None],
) -> tuple[Array, int]:
    """Minimise by SciPy's L-BFGS; `after(iteration, x)` is called along the way."""
    count = 0

    def callback(x: Array) -> None:
        nonlocal count
        count += 1
        after(count, x)

    options = {"maxiter": iterations}
    found = scipy_minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", callback=callback, options=options
    )
    return found.x, count


def cost_and_memory(evaluate: Callable[[], Record], turns: int, times: int = 1) -> Record:
    """Return seconds, peak MB beyond what was there before, and what the evaluation found.

    Seconds are the mean of so many evaluations in a row, in the best of the turns.
    """
    found: Record = {}
    megabytes = peak_memory(lambda: found.update(evaluate()))
    (seconds,) = best_of(turns, lambda: [evaluate() for _ in range(times)])
    return found | {"seconds": seconds / times, "megabytes": megabytes}
