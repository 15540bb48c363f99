"""Up to 10⁹ rows on a GPU, beside the same evidence in plain PyTorch (float32 with TF32).

Rows are made on the device. Every time is that of finished work: the device is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from common import NOISE, Array, check_known
from drawing import console, legend_above, line, new_figure, new_table, save, title
from matplotlib.ticker import LogLocator, NullFormatter
from peers.asking import OURS
from peers.protocol import LENGTHSCALE, NOISE_VARIANCE
from peers.with_eigengp import JITTER, evaluation
from record import Record, Results
from timing import best_of

from eigengp import EigenGPRegressor
from eigengp.backend.threads import reuse_buffers
from eigengp.gp.precision import PRECISIONS
from eigengp.metrics import nmse

INPUTS = 8
CASES = ((10**8, 128), (10**8, 512), (10**9, 128))
AGREEMENT_ROWS, SMALL_ROWS = 10**6, 10**4
WHOLE_FITS = ((10**6, 100), (10**7, 200), (10**8, 200), (10**9, 128))
WHOLE_SEEDS, FEW_ROWS, WHOLE_NOISE, WIDTH = 3, 10**7, 0.5, 3.0
BLOCKS = (1 << 20, 1 << 17)
ON_DEVICE = ("single", "mixed")
RIVAL = "torch"
_CHUNK = 1 << 22


class Bench:
    """The device, its rows, and where records go.

    Parameters
    ----------
    device : str
        Where PyTorch works.
    share : float
        The share of the rows that is used.
    turns : int
        The best of so many turns counts.
    """

    def __init__(self, device: str, share: float, turns: int) -> None:
        import torch

        self.torch, self.device, self.share, self.turns = torch, device, share, turns

    def scaled(self, rows: int) -> int:
        """Return how many rows are used in the place of so many."""
        return max(1_000, round(rows * self.share))

    def rows(self, count: int, seed: int = 0) -> tuple[Any, Any]:
        """Make normal inputs and `sin(x₁) + x₂x₃ + noise` on the device, in float32."""
        torch = self.torch
        random = torch.Generator(self.device).manual_seed(seed)
        X = torch.empty((count, INPUTS), dtype=torch.float32, device=self.device)
        y = torch.empty(count, dtype=torch.float32, device=self.device)
        for start in range(0, count, _CHUNK):
            x = X[start : start + _CHUNK].normal_(generator=random)
            t = y[start : start + _CHUNK].normal_(generator=random)
            t.mul_(NOISE).add_(torch.sin(x[:, 0])).addcmul_(x[:, 1], x[:, 2])
        return X, y

    def waves(self, count: int, seed: int) -> tuple[Any, Any, Any]:
        """Make inputs on [0, 3]⁴, targets and `f = x₁ sin x₁³ + x₃ sin 3x₂` on the device."""
        torch = self.torch
        random = torch.Generator(self.device).manual_seed(seed)
        X = torch.empty((count, 4), dtype=torch.float32, device=self.device)
        f = torch.empty(count, dtype=torch.float32, device=self.device)
        y = torch.empty_like(f)
        for start in range(0, count, _CHUNK):
            own = slice(start, start + _CHUNK)
            x = X[own].uniform_(0.0, WIDTH, generator=random).double()
            f[own] = x[:, 0] * torch.sin(x[:, 0] ** 3) + x[:, 2] * torch.sin(3.0 * x[:, 1])
            y[own].normal_(generator=random).mul_(WHOLE_NOISE).add_(f[own])
        return X, y, f

    def finished(self, work: Callable[[], object]) -> Callable[[], None]:
        """Return the work, with a wait for the device at its end."""

        def run() -> None:
            work()
            if self.device != "cpu":
                self.torch.cuda.synchronize()

        return run

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the best time of a few turns; one before them, which may compile, is not timed."""
        run = self.finished(work)
        run()
        return best_of(self.turns, run)[0]

    def gigabytes(self, work: Callable[[], object]) -> float | None:
        """Return the peak of the device's memory while working, the data included."""
        if self.device == "cpu":
            return None
        self.torch.cuda.reset_peak_memory_stats()
        self.finished(work)()
        return self.torch.cuda.max_memory_allocated() / 2**30


def our_evaluation(X: Any, y: Any, size: int, precision: str) -> Callable[[], tuple[Any, Any]]:
    """Return one value and gradient of ours; rows on a device stay there."""
    return evaluation(X, y, numbers(X[:size]).astype(np.float64), precision)


def our_prediction(model: Any, X: Any) -> Array:
    """Predict rows on a device."""
    with sklearn.config_context(array_api_dispatch=True):
        return numbers(model.predict(X)).astype(np.float64)


def rival(X: Any, size: int, block_rows: int) -> Any:
    """Return the same model in plain PyTorch, for rows of the type and on the device of `X`."""
    from plain_torch import PlainTorch

    return PlainTorch(X[:size].double(), LENGTHSCALE, NOISE_VARIANCE, JITTER, block_rows)


def numbers(values: Any) -> Array:
    """Return an array of any kind as NumPy's."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)


def evaluate(bench: Bench) -> list[Record]:
    """Time one value and gradient of many rows."""
    records = []
    for count in dict.fromkeys(rows for rows, _ in CASES):
        X, y = bench.rows(bench.scaled(count))
        for size in (size for rows, size in CASES if rows == count):
            records += evaluate_case(bench, X, y, size)
        del X, y  # They must be gone before the next ones are made.
    return records


def evaluate_case(bench: Bench, X: Any, y: Any, size: int) -> list[Record]:
    """Time ours and the rival on the same rows."""
    works: dict[tuple[str, str], Callable[[], object]] = {
        (OURS, each): our_evaluation(X, y, size, each) for each in ON_DEVICE
    }
    for block in BLOCKS:
        evaluation = rival(X, size, block).value_and_gradient
        works[RIVAL, f"blocks of {block:,}"] = partial(evaluation, X, y)
    about = {"part": "evaluate", "rows": int(X.shape[0]), "size": size}
    return [
        {"library": library, "variant": variant, **about}
        | {"seconds": bench.seconds(work), "gigabytes": bench.gigabytes(work)}
        for (library, variant), work in works.items()
    ]


def agreement(bench: Bench) -> list[Record]:
    """Compare gradients with those in float64 on the same rows."""
    size = CASES[0][1]
    count = bench.scaled(AGREEMENT_ROWS)
    X, y = bench.rows(count)
    _, truth = rival(X.double(), size, BLOCKS[0]).value_and_gradient(X.double(), y.double())
    found = {(RIVAL, "TF32"): rival(X, size, BLOCKS[0]).value_and_gradient(X, y)[1]}
    host = numbers(X).astype(np.float64), numbers(y).astype(np.float64)
    found[OURS, "double, on the CPU"] = our_evaluation(*host, size, "double")()[1]
    for precision in ON_DEVICE:
        found[OURS, precision] = our_evaluation(X, y, size, precision)()[1]
    return [
        {"part": "agreement", "library": library, "variant": variant, "rows": count, "size": size}
        | {"errors": errors(gradient, truth)}
        for (library, variant), gradient in found.items()
    ]


def errors(gradient: Any, truth: Any) -> dict[str, float]:
    """Return the largest error of each group of derivatives, relative to the group's largest."""
    result = {}
    for group in ("theta", "inducing_points", "log_noise_variance"):
        own, true = (numbers(getattr(each, group)).astype(np.float64) for each in (gradient, truth))
        result[group] = float(np.abs(own - true).max() / np.abs(true).max())
    return result


def whole(bench: Bench) -> list[Record]:
    """Fit by default settings but for the residual; errors are those of the function."""
    records = []
    whole_fit(bench, CASES[0][1], *bench.waves(bench.scaled(10**5), 0), "auto")  # Libraries start.
    for count, size in WHOLE_FITS:
        few = count <= FEW_ROWS
        for seed in range(WHOLE_SEEDS if few else 1):
            rows = bench.waves(bench.scaled(count), seed)
            for precision in PRECISIONS if few else PRECISIONS[:1]:
                about = {"part": "whole", "library": OURS, "variant": f"{precision}, seed {seed}"}
                found = whole_fit(bench, size, *rows, precision)
                records.append(about | {"rows": int(rows[0].shape[0]), "size": size} | found)
            del rows
    return records


def whole_fit(bench: Bench, size: int, X: Any, y: Any, _: Any, precision: str) -> Record:
    """Return seconds and error of one fit."""
    X_new, _, f_new = bench.waves(10**5, WHOLE_SEEDS)
    start = time.perf_counter()
    with sklearn.config_context(array_api_dispatch=True):
        model = EigenGPRegressor(size, residual=None, precision=precision, random_state=0)
        model.fit(X, y)
    bench.finished(lambda: None)()
    seconds = time.perf_counter() - start
    error = nmse(numbers(f_new).astype(np.float64), our_prediction(model, X_new))
    return {"seconds": seconds, "nmse": error, "iterations": int(model.n_iter_)}


def small(bench: Bench) -> list[Record]:
    """Time few rows on the device and on the CPU."""
    size = CASES[0][1]
    X, y = bench.rows(SMALL_ROWS)
    host = numbers(X).astype(np.float64), numbers(y).astype(np.float64)
    works = {f"{each}, GPU": our_evaluation(X, y, size, each) for each in ON_DEVICE}
    works |= {f"{each}, CPU": our_evaluation(*host, size, each) for each in PRECISIONS}
    return [
        {"part": "small", "library": OURS, "variant": variant, "rows": SMALL_ROWS, "size": size}
        | {"seconds": bench.seconds(work)}
        for variant, work in works.items()
    ]


PARTS = {"evaluate": evaluate, "agreement": agreement, "small": small, "whole": whole}


def require_cuda() -> str:
    """Return the device, or say what is missing."""
    try:
        import torch
    except ImportError as error:
        raise ValueError("gpu needs PyTorch with CUDA: pip install torch.") from error
    if not torch.cuda.is_available():
        raise ValueError(
            f"gpu needs a CUDA device, and PyTorch {torch.__version__} sees none on this machine."
        )
    return "cuda"


def run(out: Path, *, parts: Sequence[str], share: float, turns: int) -> None:
    """Measure, print the tables and draw the picture."""
    check_known(parts, PARTS)
    bench = Bench(require_cuda(), share, turns)
    settings, keys = {"inputs": INPUTS, "share": share}, ["part", "variant", "rows", "size"]
    results = Results(out, "gpu", settings, keys)
    results.add_versions(RIVAL, torch=bench.torch.__version__, cuda=bench.torch.version.cuda)
    for part in parts:
        console.print(f"{part} …")
        with reuse_buffers():
            results.extend(PARTS[part](bench))
    show(results)
    draw(results)


def show(results: Results) -> None:
    heading = f"GPU, D = {results.settings['inputs']}"
    columns = ("part", "method", "N", "M", "seconds", "GiB", "test NMSE", "gradient error")
    table = new_table(heading, *columns, words=2)
    for part in PARTS:
        for each in results.of(part=part):
            error = max(each["errors"].values()) if "errors" in each else None
            table.add_row(
                part,
                name_of(each),
                f"{each['rows']:,}",
                str(each["size"]),
                _number(each.get("seconds"), ".4g"),
                _number(each.get("gigabytes"), ".1f"),
                _number(each.get("nmse"), ".4f"),
                _number(error, ".1e"),
            )
        table.add_section()
    console.print(table)


def name_of(record: Record) -> str:
    """Return what a record is called."""
    rival = record["library"] == RIVAL
    return title("plain PyTorch" if rival else record["library"], record["variant"])


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def draw(results: Results) -> None:
    records = results.of(part="evaluate")
    if not records:
        return
    cases = list(dict.fromkeys((each["rows"], each["size"]) for each in records))
    figure, panels = new_figure(1, 1, 6.4, 3.8)
    axes = panels[0, 0]
    order: dict[str, list[str]] = {}
    for library, variant in dict.fromkeys((each["library"], each["variant"]) for each in records):
        order.setdefault(library, []).append(variant)
        own = [each for each in records if (each["library"], each["variant"]) == (library, variant)]
        x = [cases.index((each["rows"], each["size"])) for each in own]
        style = line(library, len(order[library]) - 1) | {"linestyle": "none", "markersize": 8}
        axes.plot(x, [each["seconds"] for each in own], label=name_of(own[0]), **style)
    labels = [f"N = {rows:.0e}\nM = {size}".replace("e+0", "e") for rows, size in cases]
    axes.set_xticks(range(len(cases)), labels)
    axes.set(yscale="log", ylabel="seconds of one value and gradient")
    axes.margins(x=0.3)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    legend_above(figure, [axes], 2)
    save(figure, results.picture)
