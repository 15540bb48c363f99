"""The page "How good is it?", written from stored runs of `quality`."""

from __future__ import annotations

from pathlib import Path

from drawing import title
from peers.asking import OURS
from quality import DEFAULT, EVERY, OBJECTIVES, PLAIN, VARIANTS, by_method, means, opened
from record import Record, Results, write_atomically

from realdata import SETS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-good-is-it.md"
_ABOUT = {
    "california": "house values, 10,000 rows to learn from, 8 inputs",
    "protein": "protein structures, 20,000 rows, 9 inputs",
    "pole": "telecommunication, 10,000 rows, 26 inputs",
    "kin40k": "a robot arm, 10,000 rows, 8 inputs, nearly without noise",
}
_HEAD = """# How good is it?

`EigenGPRegressor().fit(X, y)` beside others, on {cores} cores of one machine ({cpu}). NMSE is the
squared error, 1 for the mean of the targets; MNLP the mean negative log density, which judges
means and error bars together; lower is better for both, and targets are standardised.
The 90 % intervals should hold 90 % of the test rows. Numbers are means over the splits named.
This page is written by `python benchmarks page` from what `python benchmarks quality` has stored,
with versions and hardware, in `benchmarks/results/quality.json`.

Seconds were taken one fit at a time; those of GPBoost, GPflow and the ingredients with other work
beside them, which takes up to twice as long.

Peers have inputs that are standardised, and their usual best settings: {peers}.
"""
_PEERS = {
    "gpboost": "GPBoost a Vecchia approximation with Matérn 3/2, a range for each input and 20 "
    "neighbours",
    "lightgbm": "LightGBM its defaults, stopped early on a tenth of the rows, with one error bar "
    "for all",
    "gpflow": "GPflow sparse variational regression with 200 inducing points from k-means and 100 "
    "iterations of L-BFGS",
}
_ABLATION = """
## Ablation

Each ingredient on and off. "Eigenfunctions alone" is the paper's EigenGP with the guard against
over-fitting, `residual=None`. Neighbours are the [nearest-neighbour residual](neighbors.md),
`residual="neighbors"`, here with the squared exponential and Gaussian noise unless the row says
otherwise. Heteroscedastic noise is `likelihood="heteroscedastic"`. The default has all of them, or
no neighbours where their leave-one-out loss is worse.
"""
_FAMILY = """
## Which objective

Objectives for eigenfunctions alone, with 100 inducing points for all. `residual=None` adds
a small part of the trace term to the log marginal likelihood, larger with fewer rows for each
inducing point (`guard`); the paper uses none of it, and VFE all of it. In EigenGP+ the residual is
noise of each row, in power EP half of it. The diagonal residual improves the density and worsens
the error; heteroscedastic noise (above) gains much of that density and costs no error, and
neighbours are better in both. So the default tries neither.
"""


def write(out: Path) -> None:
    """Write the page."""
    write_atomically(PAGE, text(opened(out)).encode())


def text(results: Results) -> str:
    """Return the page."""
    last = results.runs[max(record["run"] for record in results.records)]
    seen = {record["library"] for record in results.records}
    peers = "; ".join(said for library, said in _PEERS.items() if library in seen)
    parts = [_HEAD.format(cores=last["threads"], cpu=last["cpu"], peers=peers)]
    for name in SETS:
        parts += _section(f"## {name}", results, name, [DEFAULT, "max_time=5"], others=True)
    parts.append(_ABLATION)
    for name in SETS:
        ingredients = [variant for variant in VARIANTS if variant != "max_time=5"]
        parts += _section(f"### Ingredients: {name}", results, name, ingredients)
    parts.append(_FAMILY)
    for name in SETS:
        parts += _section(f"### Objectives: {name}", results, name, [PLAIN, *OBJECTIVES])
    return "".join(parts)


def _section(
    heading: str, results: Results, name: str, variants: list[str], others: bool = False
) -> list[str]:
    """Return a heading and a table of these of ours, perhaps with the peers; nothing if empty."""
    chosen = {
        key: own
        for key, own in by_method(results, name).items()
        if (key[1] in variants if key[0] == OURS else others)
    }
    about = f"{_ABOUT[name][0].upper()}{_ABOUT[name][1:]}.\n\n" if others else ""
    return [f"\n{heading}\n\n{about}{_table(chosen)}"] if chosen else []


def _table(methods: dict[tuple[str, str], list[Record]]) -> str:
    lines = [
        "| method | NMSE | MNLP | 90 % intervals hold | fit, s | splits |",
        "|---|---|---|---|---|---|",
    ]
    for (library, variant), own in methods.items():
        mean = means(own)
        seeds = ", ".join(str(each["seed"]) for each in sorted(own, key=lambda r: r["seed"]))
        name = variant if library == OURS and variant in EVERY else title(library, variant)
        shown = f"**{name}**" if variant == DEFAULT else name
        scores = f"{mean['nmse']:.4f} | {mean['mnlp']:.3f} | {100 * mean['coverage']:.1f} %"
        lines.append(f"| {shown} | {scores} | {mean['seconds']:.1f} | {seeds} |")
    return "\n".join(lines) + "\n"
