"""Stripes of blocks in threads, and the memory that threads share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from threading import Barrier, current_thread

import numpy as np
import pytest

from eigengp.buffers import buffer, recycle, reused_buffers
from eigengp.sources.threads import available_threads, in_threads

_BLOCKS = tuple(slice(start, start + 1) for start in range(6))


def _starts(part: Sequence[slice]) -> list[int]:
    return [each.start for each in part]


@pytest.mark.parametrize("n_threads", [1, 2, 3, 4, 9])
def test_stripes_are_contiguous_and_in_order(n_threads: int) -> None:
    parts = in_threads(_starts, _BLOCKS, n_threads)
    assert len(parts) == min(n_threads, len(_BLOCKS))
    assert list(chain(*parts)) == list(range(6))


def test_each_stripe_has_a_thread_of_its_own() -> None:
    together = Barrier(3, timeout=30)

    def work(part: Sequence[slice]) -> str:
        together.wait()  # Nobody passes before all three are here.
        return current_thread().name

    assert len(set(in_threads(work, _BLOCKS, 3))) == 3


def test_blas_has_one_thread_meanwhile() -> None:
    before = available_threads()
    counts = in_threads(lambda part: available_threads(), _BLOCKS, 2)
    assert counts == [1, 1]
    assert available_threads() == before


@pytest.mark.parametrize("failing", [0, 3])
def test_errors_of_any_stripe_reach_the_caller(failing: int) -> None:
    done = []

    def work(part: Sequence[slice]) -> None:
        if failing in _starts(part):
            raise ArithmeticError(f"block {failing}")
        done.append(part)

    with pytest.raises(ArithmeticError, match=f"block {failing}"):
        in_threads(work, _BLOCKS, 2)
    assert len(done) == 1  # The other stripe was waited for.
    assert in_threads(_starts, _BLOCKS, 2) == [[0, 1, 2], [3, 4, 5]]


def test_a_stripe_may_have_stripes_of_its_own() -> None:
    def work(part: Sequence[slice]) -> list[int]:
        return list(chain(*in_threads(_starts, part, 2)))

    assert in_threads(work, _BLOCKS, 2) == [[0, 1, 2], [3, 4, 5]]


def test_threads_never_share_memory() -> None:
    def work(part: Sequence[slice]) -> bool:
        whole = True
        for each in part:
            own = buffer((100, 100))
            own[...] = each.start
            whole = whole and bool(np.all(np.exp(0.0 * own) * own == each.start))
            recycle(own)
        return whole

    blocks = tuple(slice(start, start + 1) for start in range(400))
    with reused_buffers():
        assert in_threads(work, blocks, 4) == [True] * 4


_IN_WORKERS = """
from joblib import Parallel, cpu_count, delayed
from threadpoolctl import threadpool_limits
from eigengp.sources.threads import available_threads

print(cpu_count(), *Parallel(n_jobs=2)(delayed(available_threads)() for _ in range(2)))
with threadpool_limits(1):
    print(available_threads())
"""


def test_workers_of_a_search_and_limits_of_the_user_leave_no_more_threads_than_cores() -> None:
    free = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    command = [sys.executable, "-c", _IN_WORKERS]
    found = subprocess.run(command, env=free, capture_output=True, text=True, check=True)
    (cores, *workers), (limited,) = (
        [int(each) for each in line.split()] for line in found.stdout.splitlines()
    )
    assert sum(workers) <= max(cores, 2)
    assert limited == 1
