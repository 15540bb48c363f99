"""Numbers as a person would write them."""

from __future__ import annotations

import math


def number(value: float | None) -> str:
    """Return a number as a person would write it, with four digits.

    Examples
    --------
    >>> number(0.012345), number(312345.678), number(-2.5), number(1e-7), number(None)
    ('0.01235', '312,346', '-2.5', '1e-07', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    size = abs(value)
    if size != 0.0 and not 1e-4 <= size < 1e9:
        return f"{value:.4g}"
    places = 4 if size == 0.0 else max(0, 3 - math.floor(math.log10(size)))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
