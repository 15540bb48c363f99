"""Format numbers for people."""

from __future__ import annotations

import math


def format_number(value: float | None) -> str:
    """Format a number with four significant digits; "–" for None and NaN.

    Examples
    --------
    >>> [format_number(value) for value in (0.012345, 312345.678, -2.5, 1e-7, None)]
    ['0.01235', '312,346', '-2.5', '1e-07', '–']
    """
    if value is None or math.isnan(value):
        return "–"
    size = abs(value)
    if size != 0.0 and not 1e-4 <= size < 1e9:
        return f"{value:.4g}"
    places = 4 if size == 0.0 else max(0, 3 - math.floor(math.log10(size)))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
