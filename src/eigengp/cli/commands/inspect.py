"""`eigengp inspect`: what a model has learned."""

from __future__ import annotations

from typing import Any

from eigengp.cli.commands import options
from eigengp.cli.commands.session import number, session

_BAR = 20
_SHOWN = 6
_CATEGORIES = 4


def inspect(
    model: options.Model,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show what a model has learned: which inputs matter, how smooth it is, how noisy the data.

    The effect of an input is the share of the predictions' variance that goes with it; shares of
    inputs that act together overlap. Its relevance is the same for the prior that was learned: 0
    for an input along which the function is flat or straight, towards 1 where it bends quickly.
    """
    with session(as_json, quiet, debug) as out:
        from eigengp.cli.commands.facts import facts_of
        from eigengp.cli.commands.models import Fitted

        facts = facts_of(Fitted.opened(model))
        shares = facts["eigenfunctions"]
        out.show(_overview(facts), _inputs(facts["inputs"]))
        if shares:
            out.show(_eigenfunctions(shares))
        out.result(facts)


def _overview(facts: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in (*_origin(facts), *_learned(facts)):
        table.add_row(name, text)
    return table


def _origin(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines that say where a model comes from."""
    data, fit = facts["data"], facts["fit"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    lines = [
        ("Model", facts["class"] + (f", by --method {fit['method']}" if fit else "")),
        ("Versions", versions),
    ]
    if data:
        apart = f", and {data['held_out']:,} held out" if data["held_out"] else ""
        lines += [
            ("Learned from", f"{data['rows']:,} rows of {data['file']}{apart}"),
            ("Target", f"{data['target']['name']}, {_range(data['target'])}"),
        ]
    return lines


def _learned(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines that say what was learned."""
    share, per_row = facts["noise_share"], facts["log_evidence_per_row"]
    known = "" if share is None else f" ({share:.1%} of the target's variance)"
    each = "" if per_row is None else f" ({number(per_row)} per row)"
    basis = ", ".join(f"{count} {name}" for name, count in facts["basis"].items())
    shares, kernel, fit = facts["eigenfunctions"], facts["kernel"], facts["fit"]
    kept = f", {len(shares)} eigenfunctions kept" if shares else ""
    deviation = kernel["signal_std"]
    signal = "" if deviation is None else f", signal ± {number(deviation)}"
    time = f" in {fit['seconds']:.1f} s" if fit else ""
    return [
        ("Noise", f"± {number(facts['noise_std'])}{known}"),
        ("Kernel", kernel["name"] + signal),
        ("Made of", (basis or "all rows") + kept),
        ("Log evidence", f"{number(facts['log_evidence'])}{each}"),
        ("Intervals", _width(facts)),
        ("Learning", f"{facts['iterations']} iterations{time}"),
    ]


def _width(facts: dict[str, Any]) -> str:
    """Say where the width of intervals comes from."""
    if facts["calibrated"]:
        return "calibrated on the rows held out"
    return (
        "as wide as rows left out call for" if facts["judged_by_rows_left_out"] else "the model's"
    )


def _inputs(inputs: list[dict[str, Any]]) -> Any:
    """Return the table of the inputs; a model from Python has no effects, only relevance."""
    from rich import box
    from rich.table import Table

    leading = "relevance" if any(each["effect"] is None for each in inputs) else "effect"
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("input", overflow="fold")
    table.add_column(leading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    if leading == "effect":
        table.add_column("relevance", justify="right", no_wrap=True)
    table.add_column("in the data", style="dim", overflow="fold")
    for each in inputs:
        shown = [f"{each[leading]:.1%}", bar(each[leading])]
        further = [f"{each['relevance']:.1%}"] if leading == "effect" else []
        table.add_row(each["name"], *shown, *further, _seen(each["data"]))
    return table


def _eigenfunctions(shares: list[float]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("eigenfunction", justify="right")
    table.add_column("of the prior variance", justify="right")
    table.add_column("", no_wrap=True)
    for at, share in enumerate(shares[:_SHOWN], start=1):
        table.add_row(str(at), f"{share:.1%}", bar(share / shares[0]))
    rest = shares[_SHOWN:]
    if rest:
        table.add_row(f"{len(rest)} more", f"{sum(rest):.1%}", "")
    return table


def bar(share: float) -> str:
    """Return a bar of a length between 0 and 1.

    Examples
    --------
    >>> bar(0.5), bar(0.03)
    ('██████████', '▌')
    """
    halves = round(2 * _BAR * min(1.0, max(0.0, share)))
    return "█" * (halves // 2) + "▌" * (halves % 2)


def _seen(data: dict[str, Any] | None) -> str:
    """Return what the training rows held of an input."""
    if data is None:
        return ""
    lacking = f"; {data['missing']} missing" if data["missing"] else ""
    if data["kind"] == "flag":
        return f"true in {data['mean']:.0%}{lacking}"
    if data["kind"] == "number":
        return _range(data) + lacking
    counts = list(data["counts"].items())
    shown = ", ".join(f"{name} ({count})" for name, count in counts[:_CATEGORIES])
    return shown + (", …" if len(counts) > _CATEGORIES else "") + lacking


def _range(values: dict[str, Any]) -> str:
    low, high, mean = (number(values[name]) for name in ("min", "max", "mean"))
    return f"{low} to {high}, mean {mean}"
