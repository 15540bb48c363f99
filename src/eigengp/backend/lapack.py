"""Cholesky factorisations in place that release the interpreter's lock.

SciPy's functions hold it, so that threads which factorise many matrices wait for one another.
Matrices are in the order of Fortran, and the half on and below the diagonal is read and written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from scipy.linalg import cython_lapack

from eigengp._typing import Array


@cache
def _load(name: str) -> Callable[..., None]:
    """Return a function of the LAPACK that SciPy uses; all arguments are pointers."""
    api, capsule = ctypes.pythonapi, cython_lapack.__pyx_capi__[name]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *5 * [ctypes.c_void_p])(address)


def _call(name: str, matrix: Array) -> bool:
    """Call `name` for the lower half of a matrix, and return whether it succeeded."""
    n, info = ctypes.c_int(matrix.shape[0]), ctypes.c_int()
    half, size = ctypes.c_char(b"L"), ctypes.byref(n)
    own: Any = (ctypes.byref(half), size, matrix.ctypes.data, size, ctypes.byref(info))
    _load(name)(*own)
    return info.value == 0


def factorize_in_place(C: Array) -> bool:
    """Replace the lower half of `C` by that of `L`, `C = L Lᵀ`; return whether there is one."""
    return _call("dpotrf", C)


def invert_in_place(L: Array) -> bool:
    """Replace the lower half of `L` by that of `(L Lᵀ)⁻¹`; return whether there is one."""
    return _call("dpotri", L)
