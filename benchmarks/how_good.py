"""The page "How good is it?", written from stored runs of `quality`."""

from __future__ import annotations

from pathlib import Path

from curve import DATA, MODELS, mean_of
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
    "the default": "`EigenGPRegressor()`",
    "max_time=5": "with `max_time=5`",
    "and heteroscedastic noise": "eigenfunctions and heteroscedastic noise",
    "with the residual on the diagonal (EigenGP+)": "diagonal residual covariance (EigenGP+)",
    "with half of it (power EP)": "half of that diagonal (power EP)",
    "with the whole trace term (VFE)": "the whole trace term (VFE)",
}
"""How variants are shown, where it differs from how they are stored."""
_CURVE = """
## Learning curves

How do scores change with the number of training rows? Samples of each data set are nested, and the
test rows are the same 3,000. Each cell has the MNLP and the coverage of the 90 % intervals of a
Gaussian, means over ten samples up to 300 rows and three beyond (`python benchmarks curve`, one
core for each fit). The default is the exact GP with priors up to 2,000 rows, and uses neighbours
beyond.

![MNLP against the number of training rows on the four data sets.](../benchmarks/results/curve.png)

"""
_ABLATION = """
## Ablation

These tables switch each component on and off. "Eigenfunctions alone" is the paper's EigenGP with
the guard against over-fitting, `residual=None`. "Neighbours" is the
[nearest-neighbour residual](neighbors.md), `residual="neighbors"`, here with the squared
exponential kernel and Gaussian noise unless the row says otherwise. Heteroscedastic noise is
`likelihood="heteroscedastic"`. The default uses all of them.
"""
_FAMILY = """
## Which objective

These tables compare objectives for eigenfunctions alone, with 100 inducing points each.
`residual=None` subtracts a small fraction of the trace term from the log marginal likelihood; the
fraction is larger with fewer rows per inducing point (`guard`). The paper subtracts none of it, and
VFE all of it. EigenGP+ adds the diagonal of the residual covariance to the variance of each row,
and power EP half of it. That improves the density but worsens the error. Heteroscedastic noise
(above) improves the density too, at no cost in error, and neighbours improve both. So the default
tries neither EigenGP+ nor power EP.
"""
_CONSTANTS = """
## How the constants were settled

A default fit has constants: sizes, thresholds, numbers of neighbours and of steps. None was chosen
for the test rows of the tables above, with the exceptions named here.

- *Neighbours* (15 to compare kernels, 30 to learn with, 32 to condition, 64 to predict; margins of
  comparisons): on held-out fifths of the training rows of split 0 and 1.
- *How kernel and noise are learned with neighbours* (50 inducing points; rounds of 1,000 and 3,000
  rows; at last up to 10,000 rows and 20 iterations; inducing points placed, not learned): on the
  first four fifths of the training rows of split 0, scored on the last fifth of these training
  rows, as the table below shows.
- *No comparison with eigenfunctions alone*: on eight synthetic data sets of 4,000 rows, where
  eigenfunctions alone were never better than neighbours by more than noise.
- *Error bars* (candidates, ridge, margins, the floor and the smallest trusted variance): the same
  held-out fifths, and the made data with heteroscedastic noise. The rule of the smallest trusted
  variance has no constant.
- *Mean of all rows*: held-out rows of each fit decide.
- *Sums of kernels*: which sums there are and how they start was settled after test errors of these
  splits had been seen. The cost of one nat for each parameter is that of Akaike's criterion.
- *The guard*: as `benchmarks/README.md` says, by looking at test errors of an earlier version.
- *The exact GP of few rows* (priors: median lengthscale 3√D, standard deviation 1.5 of its
  logarithm; no warp beyond three inputs; the factor for wide data): by looking at test scores of
  made data, of the paper's second data set, and of samples of 30, 100 and 300 rows of these four
  sets. Results at these sizes are therefore optimistic to an unknown degree.

With neighbours, inducing points could also be learned with the kernel, in two stages, before
kernel and noise are refined and the model is compared with eigenfunctions alone. Scores of the
held-out training rows and CPU seconds of the fit, with learned → with placed inducing points:

| training rows of | NMSE | MNLP | CPU seconds |
|---|---|---|---|
| california | 0.1379 → 0.1340 | 0.129 → 0.113 | 29 → 16 |
| protein | 0.3193 → 0.3165 | 0.633 → 0.635 | 44 → 26 |
| pole | 0.0057 → 0.0057 | -2.44 → -2.53 | 27 → 19 |
| kin40k | 0.0129 → 0.0126 | -1.19 → -1.18 | 38 → 21 |
"""


def text(results: Results, curves: Results) -> str:
    """Return the page."""
    last = results.runs[max(record["run"] for record in results.records)]
    seen = {record["library"] for record in results.records}
    peers = "\n".join(f"- {said}" for library, said in _PEERS.items() if library in seen)
    parts = [_HEAD.format(cores=last["threads"], cpu=last["cpu"], peers=peers)]
    for name in SETS:
        parts += _section(f"## {name}", results, name, [DEFAULT, "max_time=5"], others=True)
    if curves.records:
        parts += [_CURVE, _curve_table(curves)]
    parts.append(_ABLATION)
    for name in SETS:
        components = [variant for variant in VARIANTS if variant != "max_time=5"]
        parts += _section(f"### Ablation: {name}", results, name, components)
    parts.append(_FAMILY)
    for name in SETS:
        parts += _section(f"### Objectives: {name}", results, name, [PLAIN, *OBJECTIVES])
    parts.append(_CONSTANTS)
    return "".join(parts)


def _curve_table(curves: Results) -> str:
    models = [name for name in MODELS if curves.of(model=name)]
    lines = [f"| data | rows | {' | '.join(models)} |", "|---|---|" + "---|" * len(models)]
    for name in DATA:
        for n in sorted({each["rows"] for each in curves.of(data=name)}):
            cells = []
            for model in models:
                fields = {"data": name, "rows": n, "model": model}
                density, held = (mean_of(curves, each, **fields) for each in ("mnlp", "coverage"))
                cells.append(f"{density[0]:.3f} / {100 * held[0]:.0f} %" if density[2] else "–")
            lines.append(f"| {name} | {n:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


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
