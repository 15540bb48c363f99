"""LAPACK without the interpreter's lock, which SciPy's own functions hold while they work.

Threads that call SciPy factorise one matrix after another; with these functions, side by side.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from scipy.linalg import cython_lapack

from eigengp._typing import Array


@cache
def find_address(name: str) -> int:
    """Return the address of a function of the LAPACK that SciPy uses."""
    api, capsule = ctypes.pythonapi, cython_lapack.__pyx_capi__[name]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


def invert_triangle(L: Array) -> Array:
    """Return `L⁻¹` for a lower triangular matrix, zero above the diagonal."""
    inverse, n = np.array(L, dtype=np.float64, order="F"), ctypes.c_int(L.shape[0])
    info, size = ctypes.c_int(), ctypes.byref(n)
    kind: list[Any] = [ctypes.c_char_p(each) for each in (b"L", b"N")]
    call = ctypes.CFUNCTYPE(None, *6 * [ctypes.c_void_p])(find_address("dtrtri"))
    call(*kind, size, inverse.ctypes.data, size, ctypes.byref(info))
    return np.tril(inverse)
