"""What a fitted model shows of itself in a notebook, below scikit-learn's diagram."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from eigengp.kernels import Kernel, Product, Stationary, Sum
from eigengp.typing import Array

_SIZES = {
    "weights_": "eigenfunctions",
    "inducing_inputs_": "basis points",
    "relevance_vectors_": "relevance vectors",
    "spectral_points_": "spectral points",
}
_MOST_INPUTS = 12
_BAR = 120
_EXPLAINED = "share of the prediction's variance that goes with the input: see input_relevance"
_CELL = (
    'style="text-align:left;padding:1px 12px 1px 0;border:none;background:none;'
    'overflow-wrap:anywhere"'
)
_FILL = "display:inline-block;height:9px;background:#0072B2;vertical-align:middle"


def with_summary(diagram: str, model: Any) -> str:
    """Return scikit-learn's HTML with what a fitted model has learned at its end."""
    head, end, tail = diagram.rpartition("</body>")
    return f"{head}{summary(model)}{end}{tail}" if end else diagram + summary(model)


def summary(model: Any) -> str:
    """Return what was learned as HTML that needs nothing else, names escaped."""
    facts = "".join(
        f'<tr><th scope="row" {_CELL}>{escape(name)}</th><td {_CELL}>{escape(value)}</td></tr>'
        for name, value in _facts(model)
    )
    return (
        '<div class="eigengp-summary" style="margin-top:6px;font-size:13px;line-height:1.5">'
        f'<table style="border-collapse:collapse;margin:0"><tbody>{facts}</tbody></table>'
        f"{_inputs(model)}</div>"
    )


def kernel_in_words(kernel: Kernel) -> str:
    """Return kind and variance of a kernel, and of the parts of a sum or product.

    Examples
    --------
    >>> from eigengp.kernels import Matern32, SquaredExponential
    >>> kernel_in_words(SquaredExponential(variance=2.0) + Matern32(0.1))
    'SquaredExponential, variance 2 + Matern32, variance 1'
    """
    if isinstance(kernel, Sum):
        return f"{kernel_in_words(kernel.left)} + {kernel_in_words(kernel.right)}"
    if isinstance(kernel, Product):
        return f"({kernel_in_words(kernel.left)}) × ({kernel_in_words(kernel.right)})"
    return f"{type(kernel).__name__}, variance {kernel.total_variance:.4g}"


def _facts(model: Any) -> Iterator[tuple[str, str]]:
    sizes = [
        f"{getattr(model, attribute).shape[0]} {name}"
        for attribute, name in _SIZES.items()
        if hasattr(model, attribute)
    ]
    if sizes:
        yield "Learned", ", ".join(sizes)
    yield "Kernel", kernel_in_words(model.kernel_)
    yield "Noise", f"standard deviation {np.sqrt(model.noise_variance_):.4g}"
    yield "Log evidence", f"{model.log_marginal_likelihood_:.6g}"


def _inputs(model: Any) -> str:
    """Return a table of the inputs, the most relevant first."""
    relevance = model.input_relevance()
    names = getattr(model, "feature_names_in_", [f"x{d}" for d in range(relevance.size)])
    order = np.argsort(-relevance, kind="stable")
    lengths = _lengthscales(model.kernel_, relevance.size)
    rows = "".join(_row(str(names[d]), relevance[d], lengths, d) for d in order[:_MOST_INPUTS])
    rest = relevance.size - _MOST_INPUTS
    more = f"<div>… and {rest} less relevant inputs</div>" if rest > 0 else ""
    head = ["input", "relevance", *([] if lengths is None else ["lengthscale"])]
    cells = "".join(f'<th scope="col" {_CELL}>{each}</th>' for each in head)
    return (
        f'<table style="border-collapse:collapse;margin:4px 0 0 0" title="{escape(_EXPLAINED)}">'
        f"<thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>{more}"
    )


def _row(name: str, relevance: float, lengths: Array | None, d: int) -> str:
    bar = f'<span style="{_FILL};width:{_BAR * relevance:.0f}px"></span>'
    shown = "" if lengths is None else f"<td {_CELL}>{lengths[d]:.4g}</td>"
    value = f'<span style="white-space:nowrap">{relevance:.2f} {bar}</span>'
    return f"<tr><td {_CELL}>{escape(name)}</td><td {_CELL}>{value}</td>{shown}</tr>"


def _lengthscales(kernel: Kernel, n_features: int) -> Array | None:
    """Return one lengthscale for each input, in the units of the data; None for a combination."""
    if not isinstance(kernel, Stationary):
        return None
    return np.broadcast_to(kernel.lengthscale, (n_features,))
