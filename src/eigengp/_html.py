"""What a fitted model shows of itself in a notebook, below scikit-learn's diagram."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from eigengp._typing import Array
from eigengp.kernels import Kernel, Product, Stationary, Sum

_SIZES = {
    "weights_": "eigenfunctions",
    "inducing_points_": "inducing points",
    "relevance_vectors_": "relevance vectors",
    "spectral_points_": "spectral points",
}
_MOST_INPUTS, _MOST_EFFECTS = 12, 1_000
_BAR = 80
_COLUMNS = {
    "input": "input",
    "effect": "share of the prediction's variance that goes with the input (input_effects)",
    "relevance": "share of the learned prior's variance that goes with it (input_relevance)",
    "lengthscale": "distance over which the function changes, in the units of the input",
}
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
    facts = _make_table([[escape(name), escape(value)] for name, value in describe_fit(model)])
    look = "margin-top:6px;font-size:13px;line-height:1.5"
    return f'<div class="eigengp-summary" style="{look}">{facts}{_describe_inputs(model)}</div>'


def _make_table(rows: list[list[str]], heads: str = "") -> str:
    """Return a table of cells in HTML, of which the first in a row names it."""
    body = "".join(
        f'<tr><th scope="row" {_CELL}>{first}</th>'
        + "".join(f"<td {_CELL}>{cell}</td>" for cell in cells)
        + "</tr>"
        for first, *cells in rows
    )
    return f'<table style="border-collapse:collapse;margin:0">{heads}<tbody>{body}</tbody></table>'


def kernel_in_words(kernel: Kernel) -> str:
    """Return kind and variance of a kernel, where it has one, and of the parts of a combination.

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
    variance = kernel.constant_diagonal
    name = type(kernel).__name__
    return name if variance is None else f"{name}, variance {variance:.4g}"


def count_parts(model: Any) -> dict[str, int]:
    """Return how many eigenfunctions, inducing points and the like a fitted model has."""
    present = {name: own for own, name in _SIZES.items() if hasattr(model, own)}
    return {name: len(getattr(model, own)) for name, own in present.items()}


def describe_fit(model: Any) -> Iterator[tuple[str, str]]:
    """Yield what a fitted model has learned, as names and values."""
    sizes = [f"{count:,} {name}" for name, count in count_parts(model).items()]
    if sizes:
        yield "Learned", ", ".join(sizes)
    mapped = " of mapped inputs" * hasattr(model, "input_map_")
    yield "Kernel", kernel_in_words(model.kernel_) + mapped
    if hasattr(model, "target_map_"):
        yield (
            "Targets",
            f"transformed, as are kernel and noise: {model.target_map_}",
        )
    if hasattr(model, "likelihood_"):
        yield "Likelihood", repr(model.likelihood_)
    else:
        noises = ", ".join(f"{each:.4g}" for each in np.sqrt(np.atleast_1d(model.noise_variance_)))
        yield "Noise", f"standard deviation {noises}"
    yield "Log marginal likelihood", f"{model.log_marginal_likelihood_:.6g}"


def _describe_inputs(model: Any) -> str:
    """Return a table of the inputs, that of the largest effect first; none if they are many."""
    many = model.n_features_in_ > _MOST_EFFECTS  # Each takes a prediction.
    if many or not hasattr(model, "input_effects"):
        return ""
    effects, relevance = model.input_effects(), model.input_relevance()
    lengths = _lengthscales(model)
    names = getattr(model, "feature_names_in_", [f"x{d}" for d in range(effects.size)])
    rows = []
    for d in np.argsort(-effects, kind="stable")[:_MOST_INPUTS]:
        bar = f'<span style="{_FILL};width:{_BAR * effects[d]:.0f}px"></span>'
        share = f'<span style="white-space:nowrap">{effects[d]:.2f} {bar}</span>'
        own = [escape(str(names[d])), share, f"{relevance[d]:.2f}"]
        rows.append(own if lengths is None else [*own, f"{lengths[d]:.4g}"])
    heads = "".join(
        f'<th scope="col" title="{escape(_COLUMNS[name])}" {_CELL}>{name}</th>'
        for name in list(_COLUMNS)[: 3 if lengths is None else 4]
    )
    rest = effects.size - _MOST_INPUTS
    more = f"<div>… and {rest} inputs of less effect</div>" if rest > 0 else ""
    return _make_table(rows, f"<thead><tr>{heads}</tr></thead>") + more


def _lengthscales(model: Any) -> Array | None:
    """Return one lengthscale for each input, in the units of the data; None if there are others."""
    kernel, scaling = model.kernel_, model._scaling
    plain = isinstance(kernel, Stationary) and kernel.active_dims is None
    if not plain or scaling.input_map is not None:
        return None
    groups = model._input_groups
    own = np.broadcast_to(kernel.lengthscale, (scaling.input_scale.size,))
    return np.array([own[group[0]] if group else np.inf for group in groups])
