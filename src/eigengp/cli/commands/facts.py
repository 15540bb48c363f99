"""What there is to tell of a fitted model, as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigengp.cli.commands.models import Fitted

_BASES = {
    "basis points": "inducing_points_",
    "frequencies": "frequencies_",
    "relevance vectors": "relevance_vectors_",
}


def facts_of(fitted: Fitted) -> dict[str, Any]:
    """Return what a model has learned, and from what.

    Parameters
    ----------
    fitted : Fitted
        The model; what `fit` did not store of it is None.

    Returns
    -------
    facts : dict
        What JSON can hold.
    """
    model, kernel = fitted.model, fitted.model.kernel_
    variance = kernel.constant_diagonal
    data, fit = fitted.about.get("data"), fitted.about.get("fit")
    evidence, noise = float(model.log_marginal_likelihood_), float(model.noise_variance_)
    return {
        "class": fitted.header["class"],
        "versions": fitted.header["versions"],
        "kernel": {
            "name": type(kernel).__name__,
            "text": repr(kernel),
            "signal_std": None if variance is None else variance**0.5,
        },
        "noise_std": noise**0.5,
        "noise_share": noise / data["target"]["std"] ** 2 if data else None,
        "log_evidence": evidence,
        "log_evidence_per_row": evidence / data["rows"] if data else None,
        "calibrated": hasattr(model, "conformity_"),
        "judged_by_rows_left_out": hasattr(model, "leave_one_out_errors_"),
        "iterations": int(model.n_iter_),
        "basis": {
            name: len(getattr(model, attribute))
            for name, attribute in _BASES.items()
            if hasattr(model, attribute)
        },
        "eigenfunctions": _shares(model),
        "inputs": _inputs(fitted),
        "data": data,
        "fit": fit,
    }


def _shares(model: Any) -> list[float]:
    """Return the share of the prior variance that each eigenfunction has, largest first."""
    if not hasattr(model, "weights_"):
        return []
    weights = np.sort(np.asarray(model.weights_, dtype=np.float64))[::-1]
    return [float(share) for share in weights / weights.sum()]


def _inputs(fitted: Fitted) -> list[dict[str, Any]]:
    """Return what is known of each column of the table, the most important first.

    The relevance of a column is the largest of the inputs that it has become.
    """
    relevance, names = fitted.model.input_relevance(), fitted.encoding.feature_names
    effects = (fitted.about.get("fit") or {}).get("effects", {})
    seen = (fitted.about.get("data") or {}).get("inputs", {})
    found = [
        {
            "name": name,
            "effect": effects.get(name),
            "relevance": float(max(relevance[at] for at in group)),
            "features": {names[at]: float(relevance[at]) for at in group},
            "data": seen.get(name),
        }
        for name, group in fitted.encoding.groups.items()
    ]
    return sorted(found, key=lambda each: (-(each["effect"] or 0.0), -each["relevance"]))
