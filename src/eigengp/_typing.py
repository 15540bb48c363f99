"""The array types that every room shares."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

# A float64 array of NumPy; its shape is stated where it is used. Rows, and what is as long as they
# are, may also lie in another library's arrays, and in float32 (see `backend.namespace`).
Array = NDArray[np.float64]

# How columns are brought to order one: each by itself, with a common scale, or robustly.
Standardize: TypeAlias = bool | Literal["robust"]
