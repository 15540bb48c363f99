"""`eigengp inspect`: show what a model has learned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eigengp.cli.commands import options
from eigengp.cli.commands.session import DIM, RIGHT, Session, command

_BAR_WIDTH = 20


@command
def inspect(out: Session, model: options.Model) -> None:
    """Show what a model has learned: which inputs matter, how smooth it is, how noisy the data.

    The effect of an input is its share of the variance of the predictions (total Sobol index);
    shares of inputs that interact overlap. Its relevance is the same for the learned prior: 0 for
    an input along which the function is flat or straight, towards 1 where it bends quickly.
    """
    from rich.bar import Bar

    from eigengp.cli.tables import describe_column, open_model

    saved, schema = open_model(model)
    facts = collect_facts(saved, schema)
    out.show(
        {"": {"style": "bold"}, " ": {"overflow": "fold"}}, _describe(saved, facts), str(model)
    )
    rows = []
    for each in facts["inputs"]:
        shares = [each["effect"], each["relevance"]]
        bar = Bar(1.0, 0.0, shares[shares[0] is None], width=_BAR_WIDTH)
        texts = ["–" if share is None else f"{share:.1%}" for share in shares]
        rows.append([each["name"], texts[0], bar, texts[1], describe_column(each["data"])])
    name = {"input": {"overflow": "fold"}}
    out.show(name | {"effect": RIGHT, "": {}, "relevance": RIGHT, "in the data": DIM}, rows, "")
    out.write_result(facts)


def collect_facts(saved: Any, schema: Any) -> dict[str, Any]:
    """Return what a model has learned, as plain values; None for what the file does not know."""
    from eigengp._html import count_parts

    model, labels = saved.model, getattr(saved.model, "classes_", None)
    likelihood = getattr(model, "likelihood_", None)
    weights = sorted((float(each) for each in getattr(model, "weights_", ())), reverse=True)
    return {
        "class": saved.header["class"],
        "versions": saved.header["versions"],
        "kernel": repr(model.kernel_),
        "input_map": getattr(model, "input_map_", None),
        "classes": None if labels is None else labels.tolist(),
        "likelihood": None if likelihood is None else repr(likelihood),
        "noise_std": None if likelihood is not None else float(model.noise_variance_) ** 0.5,
        "log_marginal_likelihood": float(model.log_marginal_likelihood_),
        "calibrated": hasattr(model, "conformity_"),
        "leave_one_out": hasattr(model, "leave_one_out_errors_"),
        "iterations": int(model.n_iter_),
        "sizes": count_parts(model),
        "eigenfunctions": [weight / sum(weights) for weight in weights],
        "inputs": _collect_inputs(saved, schema.encoder),
        "data": saved.about.get("data"),
        "fit": saved.about.get("fit"),
    }


def _collect_inputs(saved: Any, encoder: Any) -> list[dict[str, Any]]:
    """Return what is known of each column of the table, the largest effect first."""
    relevance = saved.model.input_relevance()
    effects = (saved.about.get("fit") or {}).get("effects", {})
    data = (saved.about.get("data") or {}).get("inputs", {})
    pairs = zip(map(str, encoder.feature_names_in_), relevance.tolist(), strict=True)
    inputs = [
        {"name": name, "effect": effects.get(name), "relevance": share, "data": data.get(name)}
        for name, share in pairs
        if name not in encoder.ignored_
    ]
    return sorted(inputs, key=lambda each: (-(each["effect"] or 0.0), -each["relevance"]))


def _describe(saved: Any, facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield where a model comes from and what it is, as names and values."""
    from eigengp._html import describe_fit
    from eigengp.cli.tables import describe_column

    data, fit = facts["data"], facts["fit"]
    named = fit and not facts["classes"]
    yield "Model", facts["class"] + (f", by --method {fit['method']}" if named else "")
    yield "Versions", ", ".join(f"{name} {own}" for name, own in facts["versions"].items())
    if data:
        held = f", {data['held_out']:,} more held out" if data["held_out"] else ""
        yield "Learned from", f"{data['rows']:,} rows of {data['file']}{held}"
        yield "Target", f"{data['target']['name']}, {describe_column(data['target'])}"
    if facts["classes"]:
        yield "Classes", ", ".join(map(str, facts["classes"]))
    yield from describe_fit(saved.model)
    if not facts["classes"]:
        loo = "calibrated by leave-one-out" if facts["leave_one_out"] else "of the model"
        yield "Intervals", "calibrated on held-out rows" if facts["calibrated"] else loo
    took = f" in {fit['seconds']:.1f} s" if fit else ""
    yield "Learning", f"{facts['iterations']} iterations{took}"
