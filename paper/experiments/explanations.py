"""What could explain the errors that the paper prints for the RVM and EigenGP* on data set 2.

Two explanations are run beside the ten draws: data with 300 rows, and one fixed draw with another
seed of the method in each run. A standard error tells them apart as well as a mean does.
"""

from __future__ import annotations

from collections.abc import Sequence

from paper import published
from paper.experiments.experiment import repeated
from paper.problems import MORE_ROWS, SECOND, fixed_draw
from paper.published import Reported
from paper.runs import Run
from paper.scale import FULL, Scale
from paper.section import Cell, Results, Sample, Table, spoken

METHODS = ("RVM", "EigenGP*")
FIXED_DRAWS = (1, 2, 3)
"""The draws of data set 2 that are held fixed."""
_FIXED = tuple(fixed_draw(number) for number in FIXED_DRAWS)
_EXPLANATIONS = {
    SECOND: "a new draw of 200 rows in each run",
    MORE_ROWS: "a new draw of 300 rows in each run",
    **{
        name: f"draw {number} in every run, a new seed"
        for name, number in zip(_FIXED, FIXED_DRAWS, strict=True)
    },
}
_WIDTHS = (0.08, 0.10, 0.12, 0.14, 0.16, 0.18, 0.20, 0.22)
"""In standard deviations of the inputs; together they hold the best width for data set 2."""


def explanation_runs(scale: Scale) -> list[Run]:
    """Return the runs of all explanations, those on the ten draws included."""
    found = []
    for data in _EXPLANATIONS:
        found += [run for method in METHODS for run in _repeated(scale, method, data)]
        found += [run for own in _width_runs(scale, data) for run in own]
    return found


def explanation_table(results: Results) -> Table:
    """Return what each explanation gives, with standard errors as percentages of the mean too."""
    rows = []
    for data, text in _EXPLANATIONS.items():
        rvm, star = (_sample(results, name, data) for name in METHODS)
        rows.append((text, [_cell(rvm), _cell(best_width(results, data)), _cell(star)]))
    paper = [
        Cell(f"{each.text} ({each.error / each.mean:.1%})") for each in map(_reported, METHODS)
    ]
    rows.append(("the paper", [paper[0], Cell(""), paper[1]]))
    return Table(
        "What could explain the paper's numbers on data set 2:",
        f"NMSE, mean ± standard error of {results.scale.n_runs} runs (the standard error in "
        "percent of the mean). The best width is chosen for each draw on the test grid itself, so "
        "it bounds what the RVM can reach.",
        ["what differs between runs", "RVM", "RVM, best width", "EigenGP*"],
        rows,
    )


def explain(results: Results) -> str:
    """Say which explanation the standard errors support, and which the means."""
    if results.scale.n_runs < FULL.n_runs:
        return "Too few runs to tell the explanations apart; the full command has more."
    told, fixed = [], []
    for name in METHODS:
        printed = _reported(name).error / _reported(name).mean
        seeds = [_relative_error(results, name, data) for data in _FIXED]
        draws = [_relative_error(results, name, data) for data in (SECOND, MORE_ROWS)]
        fixed.append(min(seeds) <= printed <= max(seeds) and printed < min(draws))
        told.append(
            f"{name} {printed:.1%} in the paper, {_percent(seeds)} with other seeds on a fixed "
            f"draw, {_percent(draws)} with independent draws"
        )
    support = "point to one fixed draw" if all(fixed) else "do not decide between the two"
    return (
        f"Standard errors in percent of the mean: {'; '.join(told)}. They {support}. "
        + _explain_means(results)
    )


def _explain_means(results: Results) -> str:
    star, rvm = (_sample(results, name, MORE_ROWS) for name in ("EigenGP*", "RVM"))
    least = [min(_sample(results, name, data).mean for data in _FIXED) for name in METHODS]
    bound = min(best_width(results, data).mean for data in _FIXED)
    printed = [_reported(name).text for name in METHODS]
    judged = [
        _judge_means([rvm, star], "300 rows"),
        _judge_means([Sample.of([value]) for value in least], "a fixed draw among these"),
    ]
    return (
        f"Means: with 300 rows the RVM has {rvm}, or {best_width(results, MORE_ROWS)} with the "
        f"best width, and EigenGP* {star}; the best fixed draw gives {spoken(least[0])}, or "
        f"{spoken(bound)} with the best width, and {spoken(least[1])}. The paper has "
        f"{' and '.join(printed)}, which {' and '.join(judged)}."
    )


def _judge_means(samples: Sequence[Sample], name: str) -> str:
    """Say whether an explanation gives the paper's means, for one method, both or none."""
    reached = [
        method
        for method, sample in zip(METHODS, samples, strict=True)
        if sample.compared(_reported(method)) != "worse"
    ]
    if len(reached) == len(METHODS):
        return f"{name} can explain"
    return f"{name} cannot explain" + (f" except for {reached[0]}" if reached else "")


def best_width(results: Results, data: str = SECOND) -> Sample:
    """Return the least error of the RVM over all widths, for each draw."""
    runs = _width_runs(results.scale, data)
    return Sample.of(results.values(own, "nmse").values.min() for own in runs)


def _reported(method: str) -> Reported:
    return published.RVM_COMPARISON[method][2, "nmse"]


def _sample(results: Results, method: str, data: str) -> Sample:
    return results.values(_repeated(results.scale, method, data), "nmse")


def _relative_error(results: Results, method: str, data: str) -> float:
    sample = _sample(results, method, data)
    return (sample.error or 0.0) / sample.mean


def _repeated(scale: Scale, method: str, data: str) -> list[Run]:
    return repeated(scale, data, method, published.RVM_SIZES[2])


def _width_runs(scale: Scale, data: str) -> list[list[Run]]:
    """Return the RVM with each width on each draw; on a fixed one a seed changes nothing."""
    seeds = range(1 if data in _FIXED else scale.n_runs)
    return [
        [Run(data, "RVM", None, seed, (("lengthscale", width),)) for width in _WIDTHS]
        for seed in seeds
    ]


def _cell(sample: Sample) -> Cell:
    if sample.error is None:
        return Cell(str(sample))
    return Cell(f"{sample} ({sample.error / sample.mean:.1%})")


def _percent(values: Sequence[float]) -> str:
    return f"{min(values):.1%} to {max(values):.1%}"
