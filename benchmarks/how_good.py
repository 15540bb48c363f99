"""The page "How good is it?", written from stored runs of `quality`."""

from __future__ import annotations

from pathlib import Path

from curve import DATA, MODELS, mean_of
from drawing import title
from peers.asking import OURS
from quality import (
    DEFAULT,
    EVERY,
    EXACT,
    OBJECTIVES,
    PLAIN,
    VARIANTS,
    by_method,
    format_seconds,
    means,
)
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

The first two rows of each table were timed on an otherwise idle machine, which is slower than that
of the other fits: `max_time=5` reaches less on it. Other fits shared theirs with other work, which
can double their time; a dash is shown where it was too busy.

The other libraries get standardised inputs, and settings that their documentation advises:

{peers}

## Where others are ahead

- *Time.* On an idle machine, boosted trees need about a tenth of the time of the default: LightGBM
  with its default rate took 0.4 to 2.9 s on these data sets.
- *Many rows, categories.* On 2.9 million flights (airline2001), LightGBM reached an NMSE of 0.65
  with 1,500 trees, 0.56 with 5,000, and the default 0.71 (MNLP 1.16, 1.10 and 1.04).
- *Tables of mixed columns* ([Tables](howto/categorical.md#compared-with-gradient-boosting), root
  mean squared errors). {tables}
- *Classification.* On two of six data sets, another library has the lowest log loss
  ([Classification](howto/classification.md#compared-with-other-classifiers)).
- *Small models.* GPflow's 200 inducing points predict faster than neighbours; `residual=None` is
  the comparable setting.

{ahead}
"""
_PEERS = {
    "gpboost": """GPBoost: Vecchia approximation, Matérn kernel with one range per input, 30
  neighbours. The smoothness (1/2, 3/2 or 5/2) is that of the largest likelihood of 2,000 training
  rows. VIF is its approximation with inducing points and neighbours, with its default numbers. They
  have one split each; for lack of CPU time, VIF was run on california alone (530 s of CPU time) and
  pole not at all (Vecchia: 220 s on california, 230 s on kin40k, 290 s on protein). Rows with
  Matérn 3/2 and 20 neighbours have all splits.""",
    "lightgbm": """LightGBM, XGBoost, CatBoost: default settings with a learning rate of 0.05, early
  stopping on a tenth of the training rows, one standard deviation for all predictions. CatBoost's
  loss RMSEWithUncertainty learns a variance for each row.""",
    "gpflow": """GPflow: sparse variational regression, 200 inducing points from k-means, 100
  iterations of L-BFGS.""",
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
core for each fit). The default is the exact GP with priors up to 1,000 rows, and uses neighbours
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
## How the constants were chosen

[How the default constants were chosen](constants.md) says which of them were settled on training
rows, and which after test scores of these data sets had been seen.
"""
_AHEAD = (("nmse", "error"), ("mnlp", "density"))


def text(results: Results, curves: Results, tables: str) -> str:
    """Return the page; `tables` names the libraries that are ahead on tables of mixed columns."""
    last = results.runs[max(record["run"] for record in results.of(library=OURS))]
    seen = {record["library"] for record in results.records}
    peers = "\n".join(f"- {said}" for library, said in _PEERS.items() if library in seen)
    ahead = _compare(results)
    ahead_on_tables = (
        f"Smaller than those of the default: {tables}."
        if tables
        else "None is smaller than that of the default."
    )
    parts = [
        _HEAD.format(
            cores=last["threads"], cpu=last["cpu"], peers=peers, ahead=ahead, tables=ahead_on_tables
        )
    ]
    for name in SETS:
        parts += _section(f"## {name}", results, name, [DEFAULT, "max_time=5", EXACT], others=True)
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


def _compare(results: Results) -> str:
    """Return a sentence that names every peer with a better score than the default."""
    found = []
    for name in SETS:
        methods = by_method(results, name)
        own = methods[OURS, DEFAULT]
        for key, records in methods.items():
            seeds = {each["seed"] for each in records}
            ours = means([each for each in own if each["seed"] in seeds])
            theirs = means(records)
            found += [
                f"{title(*key)} on {name} ({what} {theirs[score]:.4g}, ours {ours[score]:.4g})"
                for score, what in _AHEAD
                if (key[0] != OURS or key[1] == EXACT) and theirs[score] < ours[score]
            ]
    if not found:
        return "On the four data sets below, no other method has a better score on the same splits."
    return (
        f"On the data sets below, these have better scores on the same splits: {'; '.join(found)}."
    )


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
    return [f"\n{heading}\n\n{about}{_table(results, chosen)}"] if chosen else []


def _table(results: Results, methods: dict[tuple[str, str], list[Record]]) -> str:
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
        lines.append(f"| {shown} | {scores} | {format_seconds(results, own)} | {seeds} |")
    return "\n".join(lines) + "\n"
