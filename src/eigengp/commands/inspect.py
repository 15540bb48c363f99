"""`eigengp inspect`: what a model has learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eigengp.commands import options
from eigengp.commands.session import number, session

if TYPE_CHECKING:
    from eigengp.commands.models import Fitted

_BAR = 20
_SHOWN = 6
_MOST = 0.9


def inspect(
    model: options.Model,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show what a model has learned: which inputs matter, how smooth it is, how noisy the data."""
    with session(as_json, quiet, debug) as out:
        from eigengp.commands.models import Fitted

        fitted = Fitted.opened(model)
        facts = described(fitted)
        out.show(_overview(facts), _inputs_table(facts))
        if facts["eigenfunctions"]:
            out.show(_eigenfunctions_table(facts["eigenfunctions"]))
        out.result(facts)


def described(fitted: Fitted) -> dict[str, Any]:
    """Return what is to be told of a model, as plain values."""
    model, kernel = fitted.model, fitted.model.kernel_
    rows = fitted.about.get("data", {}).get("rows")
    evidence = float(model.log_marginal_likelihood_)
    return {
        "class": fitted.header["class"],
        "versions": fitted.header["versions"],
        "kernel": {
            "name": type(kernel).__name__,
            "text": repr(kernel),
            "variance": float(kernel.total_variance),
        },
        "noise_std": float(model.noise_variance_) ** 0.5,
        "log_evidence": evidence,
        "log_evidence_per_row": evidence / rows if rows else None,
        "calibrated": hasattr(model, "conformity_"),
        "iterations": int(model.n_iter_),
        "basis": _basis(model),
        "eigenfunctions": _eigenfunctions(model),
        "inputs": _inputs(fitted),
        "data": fitted.about.get("data"),
        "fit": fitted.about.get("fit"),
    }


def _basis(model: Any) -> dict[str, int]:
    """Return what the function is made of, and how many of them there are."""
    kinds = {
        "basis points": "inducing_inputs_",
        "frequencies": "frequencies_",
        "relevance vectors": "relevance_vectors_",
    }
    return {
        name: len(getattr(model, attribute))
        for name, attribute in kinds.items()
        if hasattr(model, attribute)
    }


def _eigenfunctions(model: Any) -> list[float]:
    """Return the share of the prior variance that each eigenfunction has, largest first."""
    import numpy as np

    if not hasattr(model, "weights_"):
        return []
    weights = np.sort(np.asarray(model.weights_, dtype=np.float64))[::-1]
    return [float(share) for share in weights / weights.sum()]


def _inputs(fitted: Fitted) -> list[dict[str, Any]]:
    """Return what is known of each column, the most relevant first."""
    relevance = fitted.model.input_relevance()
    names = fitted.encoding.feature_names
    data = (fitted.about.get("data") or {}).get("inputs", {})
    found = [
        {
            "name": name,
            "relevance": float(max(relevance[at] for at in group)),
            "features": {names[at]: float(relevance[at]) for at in group},
            "data": data.get(name),
        }
        for name, group in fitted.encoding.groups.items()
    ]
    return sorted(found, key=lambda each: -each["relevance"])


def _overview(facts: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _facts(facts):
        table.add_row(name, text)
    return table


def _facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of the overview."""
    data, fit = facts["data"], facts["fit"]
    lines = [("Model", facts["class"] + (f", by --method {fit['method']}" if fit else ""))]
    if data:
        target, held = data["target"], data["held_out"]
        apart = f", and {held:,} held out" if held else ""
        lines += [
            ("Learned from", f"{data['rows']:,} rows of {data['file']}{apart}"),
            ("Target", f"{target['name']}: {_range(target)}"),
        ]
    share = facts["noise_std"] ** 2 / data["target"]["std"] ** 2 if data else None
    known = "" if share is None else f" ({share:.1%} of the target's variance)"
    per_row = facts["log_evidence_per_row"]
    kernel = facts["kernel"]
    basis = ", ".join(f"{count} {name}" for name, count in facts["basis"].items())
    time = f" in {fit['seconds']:.1f} s" if fit else ""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return [
        *lines,
        ("Noise", f"± {number(facts['noise_std'])}{known}"),
        ("Kernel", f"{kernel['name']}, signal ± {number(kernel['variance'] ** 0.5)}"),
        ("Made of", basis or "all rows"),
        (
            "Log evidence",
            number(facts["log_evidence"])
            + ("" if per_row is None else f" ({number(per_row)} per row)"),
        ),
        ("Intervals", "calibrated on rows held out" if facts["calibrated"] else "of the model"),
        ("Learning", f"{facts['iterations']} iterations{time}"),
        ("Versions", versions),
    ]


def _inputs_table(facts: dict[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(
        title="Inputs: how much the function may vary along each",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("input", overflow="fold")
    table.add_column("relevance", justify="right")
    table.add_column("", no_wrap=True)
    table.add_column("in the data", style="dim", overflow="fold")
    for each in facts["inputs"]:
        value = each["relevance"]
        table.add_row(each["name"], f"{value:.3f}", bar(value), _seen(each["data"]))
    return table


def _eigenfunctions_table(shares: list[float]) -> Any:
    import numpy as np
    from rich import box
    from rich.table import Table

    needed = int(np.searchsorted(np.cumsum(shares), _MOST)) + 1
    table = Table(
        title=f"Eigenfunctions: {len(shares)} kept, of which {needed} "
        f"hold {_MOST:.0%} of the prior variance",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("", justify="right")
    table.add_column("share", justify="right")
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
    shown = ", ".join(f"{name} ({count})" for name, count in list(data["counts"].items())[:4])
    return shown + (", …" if len(data["counts"]) > 4 else "") + lacking


def _range(values: dict[str, Any]) -> str:
    low, high, mean = (number(values[name]) for name in ("min", "max", "mean"))
    return f"{low} to {high}, mean {mean}"
