"""The page "How good is it?", written from stored runs of `quality`."""

from __future__ import annotations

from pathlib import Path

from drawing import title
from peers.asking import OURS
from quality import DEFAULT, EVERY, OBJECTIVES, PLAIN, VARIANTS, by_method, means
from record import Record, Results

from realdata import SETS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "how-good-is-it.md"
_ABOUT = {
    "california": "house values, 10,000 training rows, 8 inputs",
    "protein": "protein structures, 20,000 training rows, 9 inputs",
    "pole": "telecommunications, 10,000 training rows, 26 inputs",
    "kin40k": "a simulated robot arm, 10,000 training rows, 8 inputs, almost no noise",
}
_HEAD = """# Benchmarks: how good is it?

This page compares `EigenGPRegressor().fit(X, y)` with other libraries on {cores} cores of one
machine ({cpu}). Targets are standardised, and lower is better for both scores:

- **NMSE**: mean squared error divided by that of predicting the training mean.
- **MNLP**: mean negative log predictive density, which scores means and error bars together.

"Coverage" is the fraction of test targets inside their 90 % prediction intervals; it should be
90 %. Each number is a mean over the splits listed. `python benchmarks page` writes this page from
the stored runs of `python benchmarks quality` (`benchmarks/results/quality.json`, with versions and
hardware).

Fits were timed one at a time, except those of GPBoost, GPflow and the ablation: they shared
the machine with other work, which can double their time.

The other libraries get standardised inputs and their usual best settings:

{peers}
"""
_PEERS = {
    "gpboost": "GPBoost: Vecchia approximation, Matérn 3/2 kernel, one range per input, 20 "
    "neighbours.",
    "lightgbm": "LightGBM: its defaults, early stopping on a tenth of the rows, one standard "
    "deviation for all predictions.",
    "gpflow": "GPflow: sparse variational regression, 200 inducing points from k-means, 100 "
    "iterations of L-BFGS.",
}
_LABELS = {
    "the default": "EigenGP, default",
    "max_time=5": "EigenGP, `max_time=5`",
    "and heteroscedastic noise": "eigenfunctions and heteroscedastic noise",
    "with the residual on the diagonal (EigenGP+)": "residual on the diagonal (EigenGP+)",
    "with half of it (power EP)": "half of the residual on the diagonal (power EP)",
    "with the whole trace term (VFE)": "the whole trace term (VFE)",
}
"""How variants are shown, where it differs from how they are stored."""
_ABLATION = """
## Ablation

These tables switch each component on and off. "Eigenfunctions alone" is the paper's EigenGP with
the guard against over-fitting, `residual=None`. "Neighbours" is the
[nearest-neighbour residual](neighbors.md), `residual="neighbors"`, here with the squared
exponential kernel and Gaussian noise unless the row says otherwise. Heteroscedastic noise is
`likelihood="heteroscedastic"`. The default uses all of them, but drops the neighbours if their
leave-one-out loss is worse.
"""
_FAMILY = """
## Which objective

These tables compare objectives for eigenfunctions alone, with 100 inducing points each.
`residual=None` subtracts a small fraction of the trace term from the log marginal likelihood; the
fraction is larger with fewer rows per inducing point (`guard`). The paper subtracts none of it, and
VFE all of it. EigenGP+ treats the residual as noise of each row, and power EP half of it. The
diagonal residual improves the density but worsens the error. Heteroscedastic noise (above) gains
much of that density at no cost in error, and neighbours improve both. So the default tries neither
EigenGP+ nor power EP.
"""


def text(results: Results) -> str:
    """Return the page."""
    last = results.runs[max(record["run"] for record in results.records)]
    seen = {record["library"] for record in results.records}
    peers = "\n".join(f"- {said}" for library, said in _PEERS.items() if library in seen)
    parts = [_HEAD.format(cores=last["threads"], cpu=last["cpu"], peers=peers)]
    for name in SETS:
        parts += _section(f"## {name}", results, name, [DEFAULT, "max_time=5"], others=True)
    parts.append(_ABLATION)
    for name in SETS:
        components = [variant for variant in VARIANTS if variant != "max_time=5"]
        parts += _section(f"### Ablation: {name}", results, name, components)
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
        "| method | NMSE | MNLP | coverage | fit, s | splits |",
        "|---|---|---|---|---|---|",
    ]
    for (library, variant), own in methods.items():
        mean = means(own)
        seeds = ", ".join(str(each["seed"]) for each in sorted(own, key=lambda r: r["seed"]))
        ours = library == OURS and variant in EVERY
        name = _LABELS.get(variant, variant) if ours else title(library, variant)
        shown = f"**{name}**" if variant == DEFAULT else name
        scores = f"{mean['nmse']:.4f} | {mean['mnlp']:.3f} | {100 * mean['coverage']:.1f} %"
        lines.append(f"| {shown} | {scores} | {mean['seconds']:.1f} | {seeds} |")
    return "\n".join(lines) + "\n"
