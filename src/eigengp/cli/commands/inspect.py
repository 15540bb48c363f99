"""`eigengp inspect`: show what a model has learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eigengp._format import format_number
from eigengp.cli.commands import options
from eigengp.cli.commands.session import open_session

if TYPE_CHECKING:
    from eigengp.cli.commands.models import SavedModel

_BAR_WIDTH = 20
_MAX_EIGENFUNCTIONS = 6


def inspect(
    model: options.Model,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show what a model has learned: which inputs matter, how smooth it is, how noisy the data.

    The effect of an input is its share of the variance of the predictions (total Sobol index);
    shares of inputs that interact overlap. Its relevance is the same for the learned prior: 0 for
    an input along which the function is flat or straight, towards 1 where it bends quickly.
    """
    with open_session(as_json, quiet, debug) as out:
        from eigengp.cli.commands.models import SavedModel

        facts = collect_facts(SavedModel.read(model))
        out.show(_make_overview(facts), _make_input_table(facts["inputs"]))
        if facts["eigenfunctions"]:
            out.show(_make_eigenfunction_table(facts["eigenfunctions"]))
        out.write_result(facts)


def collect_facts(saved: SavedModel) -> dict[str, Any]:
    """Return what a model has learned, as plain values; None for what the file does not know."""
    from eigengp._html import count_parts

    model, kernel = saved.model, saved.model.kernel_
    data, fit = saved.about.get("data"), saved.about.get("fit")
    evidence, labels = float(model.log_marginal_likelihood_), getattr(model, "classes_", None)
    likelihood = getattr(model, "likelihood_", None)
    noise = None if likelihood is not None else float(model.noise_variance_)
    weights = sorted((float(each) for each in getattr(model, "weights_", ())), reverse=True)
    variance = kernel.constant_diagonal
    return {
        "class": saved.header["class"],
        "versions": saved.header["versions"],
        "kernel": {
            "name": type(kernel).__name__,
            "text": repr(kernel),
            "signal_std": None if variance is None else variance**0.5,
        },
        "classes": None if labels is None else labels.tolist(),
        "likelihood": None if likelihood is None else repr(likelihood),
        "noise_std": None if noise is None else noise**0.5,
        "noise_share": noise / data["target"]["std"] ** 2 if data and noise is not None else None,
        "log_marginal_likelihood": evidence,
        "log_marginal_likelihood_per_row": evidence / data["rows"] if data else None,
        "calibrated": hasattr(model, "conformity_"),
        "leave_one_out": hasattr(model, "leave_one_out_errors_"),
        "iterations": int(model.n_iter_),
        "sizes": count_parts(model),
        "eigenfunctions": [weight / sum(weights) for weight in weights],
        "inputs": _collect_inputs(saved),
        "data": data,
        "fit": fit,
    }


def _collect_inputs(saved: SavedModel) -> list[dict[str, Any]]:
    """Return what is known of each column of the table, the largest effect first."""
    encoder, relevance = saved.schema.encoder, saved.model.input_relevance()
    effects = (saved.about.get("fit") or {}).get("effects", {})
    data = (saved.about.get("data") or {}).get("inputs", {})
    inputs = [
        {
            "name": name,
            "effect": effects.get(name),
            "relevance": float(relevance[number]),
            "data": data.get(name),
        }
        for number, name in enumerate(map(str, encoder.feature_names_in_))
        if name not in encoder.ignored_
    ]
    return sorted(inputs, key=lambda each: (-(each["effect"] or 0.0), -each["relevance"]))


def _make_overview(facts: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in (*_describe_origin(facts), *_describe_model(facts)):
        table.add_row(name, text)
    return table


def _describe_origin(facts: dict[str, Any]) -> list[tuple[str, str]]:
    from eigengp.cli.tables import describe_column

    data, fit = facts["data"], facts["fit"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    named = fit and not facts["classes"]
    method = f", by --method {fit['method']}" if named else ""
    lines = [
        ("Model", facts["class"] + method),
        ("Versions", versions),
    ]
    if data:
        held = f", {data['held_out']:,} more held out" if data["held_out"] else ""
        lines += [
            ("Learned from", f"{data['rows']:,} rows of {data['file']}{held}"),
            ("Target", f"{data['target']['name']}, {describe_column(data['target'])}"),
        ]
    return lines


def _describe_model(facts: dict[str, Any]) -> list[tuple[str, str]]:
    share, per_row = facts["noise_share"], facts["log_marginal_likelihood_per_row"]
    of_variance = "" if share is None else f" ({share:.1%} of the target's variance)"
    each = "" if per_row is None else f" ({format_number(per_row)} per row)"
    sizes = ", ".join(f"{count} {name}" for name, count in facts["sizes"].items()) or "all rows"
    kernel, fit = facts["kernel"], facts["fit"]
    std = kernel["signal_std"]
    signal = "" if std is None else f", signal ± {format_number(std)}"
    intervals = "calibrated by leave-one-out" if facts["leave_one_out"] else "of the model"
    if facts["classes"] is not None:
        first = ("Classes", ", ".join(map(str, facts["classes"])))
        intervals = "probabilities, calibrated by leave-one-out"
    elif facts["likelihood"] is not None:
        first = ("Likelihood", facts["likelihood"])
    else:
        first = ("Noise", f"± {format_number(facts['noise_std'])}{of_variance}")
    return [
        first,
        ("Kernel", kernel["name"] + signal),
        ("Size", sizes),
        ("Log marginal likelihood", f"{format_number(facts['log_marginal_likelihood'])}{each}"),
        ("Intervals", "calibrated on held-out rows" if facts["calibrated"] else intervals),
        (
            "Learning",
            f"{facts['iterations']} iterations" + (f" in {fit['seconds']:.1f} s" if fit else ""),
        ),
    ]


def _make_input_table(inputs: list[dict[str, Any]]) -> Any:
    """Return the table of the inputs; models saved from Python have relevance but no effects."""
    from rich import box
    from rich.table import Table

    from eigengp.cli.tables import describe_column

    leading = "relevance" if any(each["effect"] is None for each in inputs) else "effect"
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("input", overflow="fold")
    table.add_column(leading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    if leading == "effect":
        table.add_column("relevance", justify="right", no_wrap=True)
    table.add_column("in the data", style="dim", overflow="fold")
    for each in inputs:
        shown = [f"{each[leading]:.1%}", draw_bar(each[leading])]
        more = [f"{each['relevance']:.1%}"] if leading == "effect" else []
        table.add_row(each["name"], *shown, *more, describe_column(each["data"]))
    return table


def _make_eigenfunction_table(shares: list[float]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("eigenfunction", justify="right")
    table.add_column("of the prior variance", justify="right")
    table.add_column("", no_wrap=True)
    for rank, share in enumerate(shares[:_MAX_EIGENFUNCTIONS], start=1):
        table.add_row(str(rank), f"{share:.1%}", draw_bar(share / shares[0]))
    rest = shares[_MAX_EIGENFUNCTIONS:]
    if rest:
        table.add_row(f"{len(rest)} more", f"{sum(rest):.1%}", "")
    return table


def draw_bar(share: float) -> str:
    """Return a bar of a length between 0 and 1.

    Examples
    --------
    >>> draw_bar(0.5), draw_bar(0.03)
    ('██████████', '▌')
    """
    halves = round(2 * _BAR_WIDTH * min(1.0, max(0.0, share)))
    return "█" * (halves // 2) + "▌" * (halves % 2)
