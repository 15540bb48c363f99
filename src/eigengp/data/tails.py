"""A map that leaves the middle of a column as it is and compresses its tails.

With `z` in deviations from the centre, a knee `c`, and the excess `e = z − min(max(z, −c), c)`,
which is zero in the middle:

    g(z)  = z − e + sign(e) ln(1 + |e|)
    g′(z) = 1/(1 + |e|)
    g⁻¹(u) = u − e + sign(e) (exp|e| − 1), where e is that of u

It increases strictly, has a continuous derivative, is the identity to the last bit for `|z| ≤ c`,
and brings an outlier at a million deviations to about 17. It is for arrays of any library, traced
and differentiable ones too.
"""

from __future__ import annotations

import numpy as np

from eigengp._typing import Array
from eigengp.backend.namespace import AnyArray, namespace, positive

KNEE = 3.0
"""Where tails begin, in robust deviations: normal columns have 0.3% of their values beyond."""


def compressed(z: AnyArray, knee: float) -> AnyArray:
    """Return `g(z)`, entry by entry."""
    xp = namespace(z)
    middle = xp.clip(z, -knee, knee)
    excess = z - middle
    return middle + xp.log1p(positive(excess)) - xp.log1p(positive(-excess))


def slope(z: AnyArray, knee: float) -> AnyArray:
    """Return `g′(z)`, entry by entry."""
    xp = namespace(z)
    return 1.0 / (1.0 + xp.abs(z - xp.clip(z, -knee, knee)))


def stretched(u: Array, knee: float) -> Array:
    """Return `g⁻¹(u)`, entry by entry."""
    middle = np.clip(u, -knee, knee)
    excess = u - middle
    values: Array = middle + np.sign(excess) * np.expm1(np.abs(excess))
    return values
