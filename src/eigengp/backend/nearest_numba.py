"""The search for the nearest points, compiled; `loops_numpy` says what it does."""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from eigengp.backend.loops import compile_for
from eigengp.backend.pieces_numba import INDEX_1, READ_2, add_squares

_SCANNED, _GROUPS = 8_192, 512
"""The number of points whose distances are measured at once, and of groups of them. The nearest of
each group tell which groups are searched."""


@numba.njit
def _replace(heap, at, size, distance, number):
    # Put an entry in the place of the top; of equal distances the later number is farther.
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            heap[other] > heap[child] or (heap[other] == heap[child] and at[other] > at[child])
        ):
            child = other
        if heap[child] < distance or (heap[child] == distance and at[child] < number):
            break
        heap[place], at[place] = heap[child], at[child]
        place = child
    heap[place], at[place] = distance, number


@numba.njit(inline="always")
def _fill_minima(t, minima):
    # Set the least of t[b], t[b + w], t[b + 2w], … for w groups.
    width = minima.size
    for b in range(width):
        minima[b] = t[b]
    for start in range(width, t.size, width):
        row = t[start : start + width]
        for b in range(row.size):
            minima[b] = min(minima[b], row[b])


@numba.njit(inline="always")
def _bound_nearest(minima, k):
    # A distance that at least k groups, and so k points, do not exceed, and not many more.
    if minima.size < k:
        return np.inf
    low, high = 0.0, 0.0
    for b in range(minima.size):
        high = max(high, minima[b])
    for _ in range(8):
        middle, count = 0.5 * (low + high), 0
        for b in range(minima.size):
            count += 1 if minima[b] <= middle else 0
        if count >= k:
            high = middle
        else:
            low = middle
    return high


@compile_for(types.void(READ_2, READ_2, INDEX_1, types.Array(types.intp, 2, "C")))
def find_nearest(X, points, limit, found):
    n, k = found.shape
    t, least_of_groups = np.empty(_SCANNED), np.empty(_GROUPS)
    least = np.full((n, k), np.inf)  # Of each row a heap, the farthest on top.
    found[:] = -1
    last = 0
    for i in range(n):
        last = max(last, limit[i])
    for first in range(0, last, _SCANNED):
        for i in range(n):
            count = min(_SCANNED, limit[i] - first)
            if count <= 0:
                continue
            own, heap, at = t[:count], least[i], found[i]
            own[:] = 0.0
            add_squares(X[i], points, first, own)
            minima = least_of_groups[: min(_GROUPS, count)]
            _fill_minima(own, minima)
            bound = heap[0] if at[0] >= 0 else _bound_nearest(minima, k)
            for b in range(minima.size):
                if not minima[b] <= bound:
                    continue
                for j in range(b, count, minima.size):
                    if own[j] > bound or own[j] > heap[0]:
                        continue
                    if own[j] < heap[0] or first + j < at[0]:
                        _replace(heap, at, k, own[j], first + j)
    for i in range(n):
        heap, at = least[i], found[i]
        for size in range(k - 1, 0, -1):  # The farthest goes to the end.
            distance, number = heap[size], at[size]
            heap[size], at[size] = heap[0], at[0]
            _replace(heap, at, size, distance, number)
