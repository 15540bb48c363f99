"""Loops over many small sets of rows: compiled by Numba if it is available, else NumPy.

Both modules have the same functions, which `loops_numpy` documents; those of NumPy also take arrays
of PyTorch, on any device. Every function releases the
interpreter's lock, or spends its time in functions of NumPy that do, and treats each set by itself,
so that results do not depend on the number of threads.
"""

from __future__ import annotations

import logging
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from eigengp.backend.namespace import AnyArray, is_numpy

logger = logging.getLogger(__name__)


@cache
def load_loops() -> ModuleType:
    """Return the compiled functions, or those of NumPy if Numba cannot compile or store them.

    It is not installed, `NUMBA_DISABLE_JIT=1` switches it off, or its cache cannot be written.
    The first call imports Numba, which takes a moment, and compiles where no earlier process has
    left its result in the cache.
    """
    try:
        return import_module("eigengp.backend.loops_numba")
    except Exception as error:  # Whatever a damaged cache or a full disk raises.
        logger.warning("Fits with nearest neighbours are slower without compiled loops: %r", error)
        from eigengp.backend import loops_numpy

        return loops_numpy


def find_loops(x: AnyArray) -> ModuleType:
    """Return the functions for arrays of the library of `x`."""
    if is_numpy(x):
        return load_loops()
    from eigengp.backend import loops_numpy

    return loops_numpy


@lru_cache(maxsize=8)
def list_pairs(s: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first and the second member of each packed pair of `s` rows, shape (P,)."""
    first, second = np.triu_indices(s)
    return first, second
