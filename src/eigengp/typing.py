"""The array types that every room shares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""A float64 array; its shape is stated where it is used."""
