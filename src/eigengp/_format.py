"""Format numbers and names for people."""

from __future__ import annotations

import json
import math

_LONG = 60


def shorten(name: object) -> str:
    """Return a name, without its middle if it is long.

    Examples
    --------
    >>> shorten("town"), len(shorten("a" * 10_000))
    ('town', 60)
    """
    text = str(name)
    return text if len(text) <= _LONG else f"{text[:40]}…{text[-19:]}"


def quoted(name: object) -> str:
    """Return the `repr` of a name or value, shortened."""
    return shorten(repr(name))


def make_printable(text: str) -> str:
    r"""Return text with its control characters, except for line ends, written as in JSON.

    Names from files can then not command the terminal that shows them.

    Examples
    --------
    >>> print(make_printable("a\x1b[2Jb"))
    a\u001b[2Jb
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def format_count(number: int, noun: str) -> str:
    """Return a number of things.

    Examples
    --------
    >>> format_count(1, "row"), format_count(1_600, "row")
    ('1 row', '1,600 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_value(value: float) -> str:
    """Format a value of a column; without a comma up to four digits, because it may be a year.

    Examples
    --------
    >>> [format_value(value) for value in (2009, 12_345, 0.25)]
    ['2009', '12,345', '0.25']
    """
    text = format_number(value)
    return text.replace(",", "") if abs(value) < 10_000.0 else text


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
