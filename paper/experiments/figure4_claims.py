"""The paper's claims about the large data sets, and the rules that decide whether they hold."""

from __future__ import annotations

from paper.experiments.large import CURVES, NYSTROM, curve, rvm_run, seconds
from paper.problems import SOURCES
from paper.runs import Record
from paper.section import Claim, Results, spoken, verdict

_RIVALS = ("FITC", "SSGP", "RVM")


def claims(results: Results) -> list[Claim]:
    """Return the claims of the part on real data."""
    return [_lowest(results), _star(results), _nystrom(results), _nystrom_star(results)]


def _best(results: Results, data: str, method: str) -> Record:
    """Return the run of a method with the lowest error."""
    if method == "RVM":
        return results[rvm_run(results.scale, data)]
    return min(curve(results, data, method), key=lambda record: float(record["nmse"]))


def _lowest(results: Results) -> Claim:
    told, holds = [], []
    for data in results.scale.large:
        ours = _best(results, data, "EigenGP")
        rivals = {name: _best(results, data, name) for name in _RIVALS}
        name, rival = min(rivals.items(), key=lambda item: float(item[1]["nmse"]))
        passed = [each for each in curve(results, data, "EigenGP") if each["nmse"] <= rival["nmse"]]
        holds.append(bool(passed) and passed[0]["seconds"] < rival["seconds"])
        text = (
            f"{SOURCES[data].title}: EigenGP {spoken(ours['nmse'])}, the best other method "
            f"({name}) {spoken(rival['nmse'])} in {seconds(rival)}"
        )
        if passed:
            text += f", which EigenGP reaches in {seconds(passed[0])}"
        told.append(text)
    return Claim(
        "EigenGP achieves the lowest prediction error using shorter time.",
        verdict(all(holds), any(holds)),
        "NMSE, one split. " + ". ".join(told) + ". " + _densities(results),
    )


def _densities(results: Results) -> str:
    """Say which method has the lowest MNLP on each data set."""
    told = []
    for data in results.scale.large:
        least = {
            name: min(record["mnlp"] for record in curve(results, data, name))
            for name in ("EigenGP", "EigenGP*", "FITC", "SSGP")
        }
        name = min(least, key=lambda key: least[key])
        told.append(f"{name} on {SOURCES[data].title} ({spoken(least[name])})")
    return f"Lowest MNLP: {', '.join(told)}."


def _star(results: Results) -> Claim:
    told, similar, longer = [], [], []
    for data in results.scale.large:
        plain, star = (curve(results, data, name)[-1] for name in ("EigenGP", "EigenGP*"))
        similar.append(abs(star["nmse"] / plain["nmse"] - 1) < 0.1)
        longer.append(star["seconds"] > plain["seconds"])
        told.append(
            f"{SOURCES[data].title}: {spoken(star['nmse'])} in {seconds(star)} against "
            f"{spoken(plain['nmse'])} in {seconds(plain)}"
        )
    return Claim(
        "EigenGP* achieves similar errors to EigenGP, but takes longer.",
        verdict(all(similar) and all(longer), all(similar) or all(longer)),
        f"NMSE at M = {results.scale.sizes[-1]}. " + ". ".join(told) + ".",
    )


def _nystrom(results: Results) -> Claim:
    ratios = []
    for data in results.scale.large:
        sparse = [curve(results, data, name) for name in CURVES]
        for star, *others in zip(curve(results, data, "Nyström*"), *sparse, strict=True):
            ratios.append(star["nmse"] / max(record["nmse"] for record in others))
    return Claim(
        "The Nyström method with its evidence maximised performs orders of magnitude worse than "
        "the other methods.",
        verdict(min(ratios) > 100, min(ratios) > 10),
        f"Its NMSE is {spoken(min(ratios))} to {spoken(max(ratios))} times that of the worst of "
        "the other sparse methods with as many basis functions.",
    )


def _nystrom_star(results: Results) -> Claim:
    better = [
        star["nmse"] < plain["nmse"]
        for data in results.scale.large
        for plain, star in zip(*(curve(results, data, name) for name in NYSTROM), strict=True)
    ]
    return Claim(
        "For the Nyström method, maximising the marginal likelihood is better than basis points "
        "by k-means.",
        verdict(all(better), sum(better) > len(better) / 2),
        f"It has the lower NMSE in {sum(better)} of {len(better)} cases.",
    )
