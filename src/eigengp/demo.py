"""A demonstration: one fit on built-in data, its numbers, and a picture.

Run it with `python -m eigengp.demo`. The function `x·sin(x³)` is calm on the
left and wild on the right, so basis points have to go where they are needed.
The picture needs matplotlib, which comes with `pip install "eigengp[plot]"`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eigengp import EigenGPRegressor, metrics
from eigengp.datasets import nonstationary_function
from eigengp.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED = 0
N_ROWS = 200
N_FRESH = 5_000
N_COMPONENTS = 14
NOISE = 0.5
COVERAGE = 0.9
RANGE = (0.0, 3.0)
PICTURE = "eigengp_demo.png"

# Okabe and Ito's palette, which colour-blind readers can tell apart.
_BLUE, _ORANGE, _GREEN, _PINK, _RED = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"
_LINES = ((_BLUE, "-"), (_ORANGE, "--"), (_GREEN, "-."), (_PINK, ":"))


def make_rows(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw inputs, shape (count, 1), and noisy targets, shape (count,)."""
    x = rng.uniform(*RANGE, count)
    return x[:, None], nonstationary_function(x) + NOISE * rng.normal(size=count)


@dataclass(frozen=True)
class Report:
    """The numbers of one fit."""

    log_evidence: float
    """Log marginal likelihood of the training rows."""
    noise: float
    """Learned standard deviation of the noise."""
    nmse: float
    """Squared error of the mean against the true function, over that of a constant."""
    mnlp: float
    """Mean negative log probability density of fresh noisy rows."""
    coverage: float
    """Share of fresh noisy rows inside the predicted interval."""
    seconds: float
    """How long the fit took."""

    @classmethod
    def of(
        cls, model: EigenGPRegressor, rows: tuple[Array, Array], y_mean: float, seconds: float
    ) -> Report:
        """Measure a fitted model on fresh rows; `y_mean` is the mean of the training targets."""
        X, y = rows
        truth = nonstationary_function(X[:, 0])
        mean, std = model.predict(X, return_std=True)
        return cls(
            log_evidence=model.log_marginal_likelihood(),
            noise=float(np.sqrt(model.noise_variance_)),
            nmse=metrics.nmse(truth, mean, train_mean=y_mean),
            mnlp=metrics.mnlp(y, mean, std),
            coverage=metrics.coverage(y, mean, std, level=COVERAGE),
            seconds=seconds,
        )

    def table(self) -> str:
        """Return the numbers, one to a line."""
        rows = (
            ("log evidence", f"{self.log_evidence:.2f}", ""),
            ("noise s.d.", f"{self.noise:.3f}", f"true: {NOISE}"),
            ("NMSE", f"{self.nmse:.4f}", "mean against the true function; 0 is perfect"),
            ("MNLP", f"{self.mnlp:.3f}", f"{N_FRESH} fresh noisy rows; lower is better"),
            (f"{COVERAGE:.0%} interval", f"{self.coverage:.1%}", "of the fresh rows lie inside"),
            ("time to fit", f"{self.seconds:.1f} s", ""),
        )
        return "\n".join(f"  {name:<14}{value:>9}   {note}".rstrip() for name, value, note in rows)


def draw(model: EigenGPRegressor, X: Array, y: Array) -> Figure:
    """Draw the fit above and the leading eigenfunctions below.

    Parameters
    ----------
    model : EigenGPRegressor
        The fitted model.
    X : array of shape (N, 1)
        Training inputs.
    y : array of shape (N,)
        Training targets.

    Returns
    -------
    figure : matplotlib.figure.Figure
        The picture, tied to no screen.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 6.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 3))
    grid = np.linspace(*RANGE, 1201)
    above.scatter(X[:, 0], y, s=12, color="0.45", linewidths=0, label="data", zorder=2)
    _draw_fit(above, model, grid)
    above.legend(loc="upper left", ncols=3, frameon=False)
    _draw_eigenfunctions(below, model, grid)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _draw_fit(axes: Axes, model: EigenGPRegressor, grid: Array) -> None:
    mean, std = model.predict(grid[:, None], return_std=True)
    axes.fill_between(
        grid, mean - 2 * std, mean + 2 * std, color=_BLUE, alpha=0.18, linewidth=0, label="± 2 s.d."
    )
    axes.plot(
        grid,
        nonstationary_function(grid),
        color="black",
        linestyle="--",
        lw=1.2,
        label="true curve",
    )
    axes.plot(grid, mean, color=_BLUE, lw=2.0, label="EigenGP mean")
    points = model.inducing_inputs_[:, 0]
    axes.plot(
        points,
        np.full(points.size, 0.035),
        linestyle="none",
        marker="|",
        markersize=13,
        markeredgewidth=2.0,
        color=_RED,
        transform=axes.get_xaxis_transform(),
        label="basis points",
    )
    axes.set(xlim=RANGE, ylim=(-5.4, 5.8), ylabel="y")
    axes.set_title(f"What EigenGP learned of y = x sin(x³) from {N_ROWS} noisy rows", loc="left")


def _draw_eigenfunctions(axes: Axes, model: EigenGPRegressor, grid: Array) -> None:
    """Draw the leading ones; their signs are arbitrary, so each is shown with its peak upwards."""
    values = model.eigenfunctions(grid[:, None]).T
    for j, (phi, (color, style)) in enumerate(zip(values, _LINES, strict=False), start=1):
        peak = phi[np.argmax(np.abs(phi))]
        label = rf"$\varphi_{j}$"
        axes.plot(grid, np.sign(peak) * phi, color=color, linestyle=style, lw=1.8, label=label)
    axes.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    axes.legend(loc="upper left", ncols=2, frameon=False)
    axes.set(xlabel="x", ylabel="eigenfunction")
    axes.set_title(f"The first {len(_LINES)} eigenfunctions, largest eigenvalue first", loc="left")


def _fit(X: Array, y: Array) -> tuple[EigenGPRegressor, float]:
    """Return the fitted model and the seconds it took."""
    started = time.perf_counter()
    model = EigenGPRegressor(n_components=N_COMPONENTS, random_state=0, verbose=True).fit(X, y)
    return model, time.perf_counter() - started


def _parse(argv: Sequence[str] | None) -> Path:
    parser = argparse.ArgumentParser(
        prog="eigengp-demo", description="Fit EigenGP to built-in data, print numbers, draw them."
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)"
    )
    out: Path = parser.parse_args(argv).out
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration.

    Parameters
    ----------
    argv : sequence of str or None
        Command-line arguments; None takes those of the process.

    Returns
    -------
    status : int
        0, or 1 if the picture could not be written.
    """
    out = _parse(argv)
    drawing = importlib.util.find_spec("matplotlib") is not None
    try:
        if drawing:
            out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _complain(out, error)

    title = f"EigenGP on y = x sin(x^3) + noise: {N_ROWS} rows, {N_COMPONENTS} eigenfunctions"
    print(title + "\n", flush=True)
    rng = np.random.default_rng(SEED)
    X, y = make_rows(N_ROWS, rng)
    model, seconds = _fit(X, y)
    print("\n" + Report.of(model, make_rows(N_FRESH, rng), float(y.mean()), seconds).table() + "\n")
    if not drawing:
        print('For the picture: pip install "eigengp[plot]"')
        return 0
    try:
        draw(model, X, y).savefig(out / PICTURE, dpi=130)
    except OSError as error:
        return _complain(out, error)
    print(f"Picture: {out / PICTURE}")
    return 0


def _complain(out: Path, error: OSError) -> int:
    print(f"eigengp-demo: cannot write to {out}: {error.strerror or error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
