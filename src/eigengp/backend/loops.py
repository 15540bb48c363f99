"""Loops over many small sets of rows: compiled by Numba where it can be had, else by NumPy.

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


def load_loops() -> ModuleType:
    """Return the compiled functions, or those of NumPy if Numba is missing or switched off.

    `NUMBA_DISABLE_JIT=1` switches it off. The first call imports Numba, which takes a moment, and
    compiles where no earlier process has left its result in Numba's cache.
    """
    return _import_loops()


@cache
def _import_loops() -> ModuleType:
    try:
        return import_module("eigengp.backend.loops_numba")
    except (ImportError, RuntimeError) as error:
        logger.info("Fits with nearest neighbours are slower without compiled loops: %s", error)
        return loops_numpy
