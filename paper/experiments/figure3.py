"""Figure 3: x·sin(x³), a nonstationary function, and the kernel widths that are learned on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from eigengp._typing import Array
from paper import drawing, published
from paper.experiments.experiment import (
    Experiment,
    repeated,
    rms_gap,
    within,
)
from paper.methods import METHODS
from paper.problems import SECOND, problem
from paper.runs import Run
from paper.scale import Scale
from paper.section import (
    Cell,
    Claim,
    Picture,
    Results,
    Sample,
    Section,
    Table,
    spoken,
    verdict,
)

SHOWN = ("SSGP", "FITC", "EigenGP")
_LEFT, _RIGHT = (0.0, 1.0), (2.0, 3.0)
_LIMITS = (-5.6, 4.6)
_GOOD = 0.25
"""An error that counts as a good prediction, as a share of the true amplitude."""


def _repeated(scale: Scale, method: str) -> list[Run]:
    return repeated(scale, SECOND, method, published.SIZES[2])


def _runs(scale: Scale) -> list[Run]:
    return [run for method in SHOWN for run in _repeated(scale, method)]


def _section(results: Results) -> Section:
    return Section(
        lead=(
            "Data set 2: 200 noisy rows of x·sin(x³), whose frequency and amplitude grow with x, "
            "and M = 14 basis functions. The figure shows one run; the table and the "
            f"claims use {results.scale.n_runs} runs."
        ),
        pictures=[_picture(results)],
        tables=[_widths(results)],
        claims=[
            _waves(results),
            _smaller(results),
            _amplitude(results),
            _width_claim(results),
            _points(results),
        ],
    )


def _picture(results: Results) -> Picture:
    return Picture(
        name="figure3",
        alt=(
            "Predictions of SSGP, FITC and EigenGP on data from x sin(x cubed), each with error "
            "band, true curve and inducing points."
        ),
        caption=(
            "Mean and two standard deviations, the true function (dashed), and inducing points "
            "(crosses; a number at the edge counts those outside the panel). SSGP has none."
        ),
        columns=3,
        draw=lambda columns: _draw(results, columns),
    )


def _draw(results: Results, columns: int) -> Figure:
    task = problem(SECOND, 0)
    figure, axes = drawing.new_figure(len(SHOWN) // columns, columns, height=2.8, sharey=True)
    for panel, method in zip(axes, SHOWN, strict=True):
        record = results[_repeated(results.scale, method)[0]]
        drawing.draw_panel(panel, task, record, "true function", _LIMITS)
        panel.set_xlabel("x")
        panel.set_title(
            f"{method}, NMSE {spoken(record['nmse'])}", color=METHODS[method].color, weight="bold"
        )
    for panel in axes[::columns]:
        panel.set_ylabel("y")
    drawing.prediction_legend(figure, axes[-1], 5 if columns > 1 else 3)
    return figure


def _lengthscales(results: Results, method: str) -> Sample:
    records = [results[run] for run in _repeated(results.scale, method)]
    return Sample.of(record["hyperparameters"]["lengthscale"][0] for record in records)


def _widths(results: Results) -> Table:
    rows = []
    for method in SHOWN:
        lengths = _lengthscales(results, method)
        eta = Sample.of(0.5 / lengths.values**2)
        rows.append(
            (method, [Cell(str(lengths)), Cell(str(eta)), Cell(published.WIDTHS.get(method, ""))])
        )
    return Table(
        "Learned kernel widths,",
        "mean ± standard error. The kernel is exp(−η d²), so the "
        "lengthscale is ℓ = 1/√(2η), and a large η is a narrow kernel. The paper calls its η a "
        "width and a large one wide, so its unit is uncertain: the 0.07 of EigenGP would be "
        "plausible as a lengthscale.",
        ["method", "lengthscale ℓ", "η", "the paper's η"],
        rows,
    )


@dataclass(frozen=True)
class _Shape:
    """The shape of a curve on a part of the range."""

    amplitude: float
    """Its standard deviation."""
    turns: int
    """How often it crosses its own mean."""

    @classmethod
    def of(cls, values: Array) -> _Shape:
        signs = np.sign(values - values.mean())
        return cls(float(values.std()), int(np.count_nonzero(np.diff(signs))))


def _shapes(results: Results, method: str, part: tuple[float, float]) -> list[_Shape]:
    """Return the shape of the mean of each run."""
    found = []
    for run in _repeated(results.scale, method):
        inside = within(problem(run.data, run.seed), part)
        found.append(_Shape.of(np.array(results[run]["curves"]["mean"])[inside]))
    return found


def _truth(results: Results, part: tuple[float, float]) -> _Shape:
    task = problem(SECOND, 0)
    return _Shape.of(task.y_test[within(task, part)])


def _gaps(results: Results, method: str, part: tuple[float, float]) -> Sample:
    runs = _repeated(results.scale, method)
    return Sample.of(rms_gap(results[run], problem(run.data, run.seed), part) for run in runs)


def _waves(results: Results) -> Claim:
    turns = {
        method: float(np.mean([shape.turns for shape in _shapes(results, method, _LEFT)]))
        for method in ("SSGP", "EigenGP")
    }
    right = _shapes(results, "SSGP", _RIGHT)
    truth = _truth(results, _RIGHT)
    followed = sum(abs(shape.turns - truth.turns) <= 1 for shape in right)
    wavy = turns["SSGP"] > _truth(results, _LEFT).turns + 1
    most = followed > len(right) / 2
    return Claim(
        "SSGP has reasonable high-frequency components on the right, but as a stationary model "
        "they give extra wavy patterns on the left.",
        verdict(wavy and most, wavy),
        "On (0, 1), where the function crosses its own average once, SSGP's mean does so "
        f"{turns['SSGP']:.1f} times on average, EigenGP's {turns['EigenGP']:.1f} times. On (2, 3) "
        f"SSGP follows the turns of the function in {followed} of {len(right)} runs.",
    )


def _smaller(results: Results) -> Claim:
    truth = _truth(results, _RIGHT).amplitude
    shares = Sample.of(each.amplitude / truth for each in _shapes(results, "SSGP", _RIGHT))
    return Claim(
        "The predictive mean of SSGP on the right is smaller than the true one.",
        verdict(shares.mean < 0.95, shares.mean < 1.0),
        f"Its amplitude on (2, 3) is {shares} of the true one.",
    )


def _amplitude(results: Results) -> Claim:
    truth, shapes = _truth(results, _RIGHT), _shapes(results, "FITC", _RIGHT)
    lower = [each.amplitude < 0.9 * truth.amplitude and each.turns < truth.turns for each in shapes]
    gaps = {method: _gaps(results, method, _RIGHT) for method in ("FITC", "EigenGP")}
    good = gaps["EigenGP"].mean < _GOOD * truth.amplitude
    return Claim(
        "The mean of FITC on x in (2, 3) has lower frequency and smaller amplitude than the true "
        "function; EigenGP predicts well.",
        verdict(sum(lower) > len(lower) / 2 and good, any(lower)),
        f"Both hold in {sum(lower)} of {len(lower)} runs. Root mean square error on (2, 3): FITC "
        f"{gaps['FITC']}, EigenGP {gaps['EigenGP']}.",
    )


def _width_claim(results: Results) -> Claim:
    fitc, ours = (_lengthscales(results, method).values for method in ("FITC", "EigenGP"))
    larger = fitc > 1.5 * ours
    share = np.mean(larger)
    return Claim(
        "FITC learns a large kernel width, influenced by the low-frequency part; EigenGP learns a "
        "suitable one.",
        verdict(bool(share > 0.5), bool(share > 0)),
        f"FITC's lengthscale is more than 1.5 times EigenGP's in {larger.sum()} of "
        f"{larger.size} runs; on average it is {spoken(fitc.mean())} against "
        f"{spoken(ours.mean())}.",
    )


def _points(results: Results) -> Claim:
    counts = {}
    for method in ("FITC", "EigenGP"):
        runs = _repeated(results.scale, method)
        points = [np.ravel(results[run]["hyperparameters"]["inducing_points"]) for run in runs]
        counts[method] = float(np.mean([(each > _RIGHT[0]).sum() for each in points]))
    return Claim(
        "FITC lacks basis points in the high-frequency region on the right.",
        verdict(counts["FITC"] < counts["EigenGP"] - 1, counts["FITC"] < counts["EigenGP"]),
        f"Inducing points beyond x = 2, on average: FITC {counts['FITC']:.1f}, EigenGP "
        f"{counts['EigenGP']:.1f} of {published.SIZES[2]}.",
    )


FIGURE_3 = Experiment("figure3", "Figure 3 · Nonstationary data", _runs, _section)
