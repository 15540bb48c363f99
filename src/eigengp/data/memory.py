"""How much memory a user allows."""

from __future__ import annotations

import re
from typing import Any

from eigengp.gp.precision import KEPT_BYTES

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}I": 1 << 10 * i for i, unit in enumerate("KMGT", start=1)}


def bytes_of(limit: int | str) -> int:
    """Return a number of bytes; text such as "500MB" or "2GiB" is understood."""
    if not isinstance(limit, str):
        return int(limit)
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*((?:[KMGT]I?)?)B?\s*", limit.upper())
    if not found:
        raise ValueError(
            f"memory_limit must be a number of bytes or text such as '500MB' or '2GiB', "
            f"got {limit!r}."
        )
    return int(float(found[1]) * _UNITS[found[2]])


def memory_of(estimator: Any) -> int:
    """Return how many bytes an estimator may use beside what it cannot do without."""
    limit = getattr(estimator, "memory_limit", None)
    return KEPT_BYTES if limit is None else bytes_of(limit)
