"""Table 1: NMSE and MNLP of every method on the two synthetic data sets, beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eigengp.reproduce import paper
from eigengp.reproduce.experiments.experiment import Experiment, repeated, searched
from eigengp.reproduce.methods import METHODS
from eigengp.reproduce.paper import Reported
from eigengp.reproduce.runs import Run
from eigengp.reproduce.scale import FULL, Scale
from eigengp.reproduce.section import Cell, Claim, Results, Sample, Section, Table, spoken, verdict

_METRICS = ("nmse", "mnlp")
_SKEWED = 0.2
"""Between mean and median of an MNLP, in nats: what is worth a note."""
_RIVALS = ("Nyström", "Nyström*", "FITC", "SSGP")


def _data(scale: Scale) -> dict[int, str]:
    return {1: scale.first, 2: scale.second}


def _repeated(scale: Scale, method: str, number: int) -> list[Run]:
    return repeated(scale, _data(scale)[number], method, paper.SIZES[number])


def _runs(scale: Scale) -> list[Run]:
    return [run for number in (1, 2) for name in METHODS for run in _repeated(scale, name, number)]


def sample(results: Results, method: str, number: int, metric: str) -> Sample:
    """Return a metric of all runs of a method on data set 1 or 2."""
    return results.values(_repeated(results.scale, method, number), metric)


def _section(results: Results) -> Section:
    runs = results.scale.n_runs
    return Section(
        lead=(
            f"{runs} runs each, mean ± standard error, lower is better. Data set 1 (M = 7) is "
            "compared with the mean of the exact GP, which is therefore without error there; data "
            "set 2 (M = 14) with the true function x·sin(x³). EigenGP, EigenGP* and EigenGP+ "
            "follow the paper: the evidence alone decides. The guarded rows are what the library "
            "does by default; they, VFE and power EP (α = 0.5) are not in the paper."
        ),
        tables=[_table(results, metric) for metric in _METRICS],
        claims=[
            _at_least_the_paper(results),
            _closest(results),
            _fold(results),
            _nystrom_star(results),
            _residual(results),
        ],
        notes=_causes(results),
    )


def _table(results: Results, metric: str) -> Table:
    rows = []
    for method in METHODS:
        reported = paper.TABLE_1.get(method, {})
        cells = []
        for number in (1, 2):
            if method == "exact GP" and (number, metric) == (1, "nmse"):
                cells.append(Cell("0 by definition"))
                continue
            cell = sample(results, method, number, metric).against(reported.get((number, metric)))
            cells.append(cell if number in results.scale.comparable else cell.unjudged)
        rows.append((method, cells))
    name = metric.upper()
    return Table(name, [name, "data set 1", "data set 2"], rows)


def _judged(results: Results, method: str) -> Iterator[tuple[str, Sample, Reported]]:
    """Yield each number of a method that the paper's can be expected of: name, ours, theirs."""
    for (number, metric), reported in paper.TABLE_1[method].items():
        if number in results.scale.comparable:
            name = f"data set {number}, {metric.upper()}"
            yield name, sample(results, method, number, metric), reported


def _at_least_the_paper(results: Results) -> Claim:
    cells = [
        (f"{method}, {name}", ours, reported)
        for method in ("EigenGP", "EigenGP*")
        for name, ours, reported in _judged(results, method)
    ]
    short = [
        f"{name}: {ours} against {reported.text}"
        for name, ours, reported in cells
        if ours.mean > reported.mean
    ]
    return Claim(
        "The numbers of EigenGP and EigenGP* in Table 1 can be reached.",
        "partly" if short else "holds",
        "; ".join(short) + "." if short else f"All {len(cells)} are at least as good here.",
    )


def _closest(results: Results) -> Claim:
    nmse = {
        name: sample(results, name, 1, "nmse").mean for name in ("EigenGP", "EigenGP*", *_RIVALS)
    }
    best = min(nmse[name] for name in _RIVALS)
    ours = max(nmse["EigenGP"], nmse["EigenGP*"])
    return Claim(
        "EigenGP and EigenGP* approximate the mean of the full GP more accurately than the other "
        "sparse methods, and several orders of magnitude better than the Nyström method.",
        verdict(ours < best and nmse["Nyström"] > 100 * ours, ours < nmse["Nyström"]),
        "NMSE on data set 1: " + ", ".join(f"{name} {spoken(nmse[name])}" for name in nmse) + ".",
    )


def _fold(results: Results) -> Claim:
    nmse = {name: sample(results, name, 2, "nmse").mean for name in ("EigenGP", *_RIVALS)}
    second = min(_RIVALS, key=lambda name: nmse[name])
    ours = nmse["EigenGP"]
    folds = {name: nmse[name] / ours for name in ("Nyström*", second)}
    holds = folds["Nyström*"] > 1e4 and folds[second] > 5
    return Claim(
        "On data set 2 EigenGP and EigenGP* reduce the error about 25,000-fold compared with "
        "Nyström*, and about 10-fold compared with the second best method, SSGP.",
        verdict(holds, min(folds.values()) > 1),
        f"{folds['Nyström*']:,.0f}-fold compared with Nyström*, {folds[second]:.1f}-fold compared "
        f"with the second best, {second}. The paper's own numbers give 3.7-fold for SSGP (0.22 and "
        "0.06). All rivals here have many starts, which brings their errors down.",
    )


def _nystrom_star(results: Results) -> Claim:
    plain, star = (sample(results, name, 2, "nmse") for name in ("Nyström", "Nyström*"))
    return Claim(
        "For the Nyström method on data set 2, maximising the marginal likelihood leads to much "
        "smaller error than k-means; both fare poorly.",
        verdict(2 * star.mean < plain.mean and star.mean > 1, star.mean < plain.mean),
        f"NMSE {star} against {plain}. (The paper's table says the opposite of its text: 2721 "
        "against 1526.)",
    )


def _residual(results: Results) -> Claim:
    pairs = [
        [sample(results, name, number, "nmse") for name in ("EigenGP", "EigenGP+")]
        for number in (1, 2)
    ]
    worse = [plus.mean >= plain.mean for plain, plus in pairs]
    told = [
        f"data set {number}: {plus} with the residual, {plain} without"
        for number, (plain, plus) in enumerate(pairs, start=1)
    ]
    return Claim(
        "The residual term of EigenGP+ does not improve the accuracy of the mean, and even reduces "
        "it sometimes.",
        verdict(all(worse), any(worse)),
        "NMSE on " + "; on ".join(told) + ".",
    )


def _causes(results: Results) -> list[str]:
    """Return why, for every number that is worse than the paper's."""
    causes = []
    for method in paper.TABLE_1:
        judged = _judged(results, method)
        worse = [name for name, ours, reported in judged if ours.compared(reported) == "worse"]
        if worse:
            why = _CAUSES.get(method, _unknown_cause)(results)
            causes.append(f"{method} is worse than in the paper ({'; '.join(worse)}). {why}")
    return causes + _outliers(results)


def _unknown_cause(results: Results) -> str:
    if results.scale.n_runs < FULL.n_runs:
        return "There are few starts and few runs here; the full command has more of both."
    return "The cause is not known."


def _nystrom_cause(results: Results) -> str:
    larger = results.store.find(searched(results.scale, results.scale.first, "Nyström", 10))
    seen = (
        ""
        if larger is None
        else f" With M = 10 its NMSE on data set 1 is {spoken(larger['nmse'])} in the first run."
    )
    return (
        "The method trains with a low-rank covariance and predicts with the exact kernel, so what "
        "the basis leaves out is divided by the noise: while M is too small for the kernel, the "
        "error explodes and depends on every detail, such as the noise variance and where k-means "
        "stops." + seen
    )


def _rvm_cause(results: Results) -> str:
    return (
        "On data set 2 no width reaches the paper's 0.011; the part on the RVM below shows it. "
        "EigenGP* has the same 0.011 in the paper, so the data of that sentence probably had more "
        "rows or less noise."
    )


def _fitc_cause(results: Results) -> str:
    return (
        "What few basis points leave out is variance that FITC adds to each row; in some runs it "
        "takes the place of the noise, whose own variance is then lost. The evidence prefers this."
    )


_CAUSES: dict[str, Callable[[Results], str]] = {
    "Nyström": _nystrom_cause,
    "Nyström*": _nystrom_cause,
    "RVM": _rvm_cause,
    "FITC": _fitc_cause,
    "EigenGP+": _fitc_cause,
}


def _outliers(results: Results) -> list[str]:
    """Return a note on every mean that a few runs dominate."""
    notes = []
    for method in ("FITC", "EigenGP+"):
        density = sample(results, method, 2, "mnlp")
        if density.mean > density.median + _SKEWED:
            notes.append(
                f"{method} on data set 2 has a mean MNLP of {density}, but a median of "
                f"{spoken(density.median)}: a few runs, in which the residual takes the "
                "place of the noise, make up most of the mean."
            )
    return notes


TABLE_1 = Experiment("table1", "Table 1 · Errors on the synthetic data sets", _runs, _section)
