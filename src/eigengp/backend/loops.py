"""Compiled loops over rows: which functions there are for an array, and how Numba compiles them.

Loops over many small sets of rows are compiled by Numba if it is available. The same functions in
NumPy also take arrays of PyTorch, on any device; `loops_numpy` documents them. Every loop releases
the interpreter's lock, or spends its time in functions of NumPy that do, and treats each set by
itself, so that results do not depend on the number of threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from eigengp.backend import loops_numpy
from eigengp.backend.namespace import AnyArray, is_numpy

logger = logging.getLogger(__name__)

# Sums may be taken in any order, which is the same in every run of the same machine code.
_FAST = {"reassoc", "contract", "nsz"}


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


def find_loops(x: AnyArray) -> ModuleType:
    """Return the functions for arrays of the library of `x`."""
    return load_loops() if is_numpy(x) else loops_numpy


def compile_for(*signatures: Any) -> Callable[[Any], Any]:
    """Compile a function for these signatures when it is first called, or read the cache.

    The second signature, if any, is for calls with an array in float32. Compiling takes a second,
    and most programs need few of the functions.
    """
    import numba

    options: dict[str, Any] = {"nogil": True, "cache": True, "fastmath": _FAST}
    options["error_model"], lock = "numpy", Lock()

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @cache
        def compiled(number: int) -> Any:
            try:
                return numba.njit(signatures[number], **options)(function)
            except RuntimeError:  # There is no place for the cache.
                options["cache"] = False
                return numba.njit(signatures[number], **options)(function)

        @wraps(function)
        def call(*given: Any) -> Any:
            single = len(signatures) > 1 and any(
                getattr(each, "dtype", None) == np.float32 for each in given
            )
            with lock:  # Threads would compile it once each.
                own = compiled(int(single))
            return own(*given)

        return call

    return decorate
