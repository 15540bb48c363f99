"""Loops over many small sets of rows: compiled by Numba if it is available, else NumPy.

Both modules have the same functions, which `loops_numpy` documents. Every function releases the
interpreter's lock, or spends its time in functions of NumPy that do, and treats each set by itself,
so that results do not depend on the number of threads.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from types import ModuleType

from eigengp.backend import loops_numpy

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
        return loops_numpy
