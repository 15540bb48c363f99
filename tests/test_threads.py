"""Stripes of blocks in threads, and the memory that threads share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from threading import Barrier, Event, Thread, current_thread
from time import sleep

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from eigengp.backend.threads import (
    make_buffer,
    map_in_threads,
    recycle,
    reuse_buffers,
    sum_in_threads,
)

_BLOCKS, _MANY_BLOCKS = (
    tuple(slice(start, start + 1) for start in range(count)) for count in (6, 400)
)


def _start(block: slice) -> int:
    return int(block.start)


def _starts(part: Sequence[slice]) -> list[int]:
    return [each.start for each in part]


@pytest.mark.parametrize("n_threads", [1, 2, 3, 4, 9])
def test_stripes_are_contiguous_in_order_and_the_same_for_any_threads(n_threads: int) -> None:
    assert map_in_threads(_start, _BLOCKS, n_threads) == list(range(6))
    parts = sum_in_threads(lambda part: [_starts(part)], _MANY_BLOCKS, n_threads)
    assert len(parts) == 16
    assert list(chain(*parts)) == list(range(400))


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_sums_are_added_in_order_whenever_threads_finish(n_threads: int) -> None:
    def work(part: Sequence[slice]) -> list[int]:
        sleep(0.01 * (part[0].start % 3 == 0))
        return _starts(part)

    assert sum_in_threads(work, _BLOCKS, n_threads) == list(range(6))


def test_each_thread_takes_a_stripe() -> None:
    together = Barrier(3, timeout=30)

    def work(block: slice) -> str:
        together.wait()  # Nobody passes before all three are here.
        return current_thread().name

    assert len(set(map_in_threads(work, _BLOCKS, 3))) == 3


def test_a_pool_that_is_busy_delays_nobody() -> None:
    free, started = Event(), Event()

    def block(_: slice) -> None:
        if current_thread().name.startswith("eigengp"):
            started.set()
            free.wait(30)

    other = Thread(target=map_in_threads, args=(block, _BLOCKS, 2))
    other.start()
    started.wait(1)
    assert map_in_threads(_start, _BLOCKS, 2) == list(range(6))
    free.set()
    other.join(30)


def test_blas_has_one_thread_meanwhile() -> None:
    def count(_: slice) -> int:
        return max(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")

    before = count(_BLOCKS[0])
    assert map_in_threads(count, _BLOCKS, 2) == 6 * [1]
    assert count(_BLOCKS[0]) == before


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("failing", [0, 3])
def test_errors_of_any_stripe_reach_the_caller(failing: int, n_threads: int) -> None:
    def work(block: slice) -> None:
        if block.start >= failing:
            raise ArithmeticError(f"block {block.start}")

    with pytest.raises(ArithmeticError, match=f"block {failing}"):
        map_in_threads(work, _BLOCKS, n_threads)
    assert map_in_threads(_start, _BLOCKS, n_threads) == list(range(6))


def test_a_stripe_may_have_stripes_of_its_own() -> None:
    def work(block: slice) -> list[int]:
        return map_in_threads(_start, [block, block], 2)

    assert map_in_threads(work, _BLOCKS, 2) == [[each, each] for each in range(6)]


def test_threads_never_share_memory() -> None:
    def work(block: slice) -> bool:
        own = make_buffer((100, 100))
        own[...] = block.start
        whole = bool(np.all(np.exp(0.0 * own) * own == block.start))
        recycle(own)
        return whole

    with reuse_buffers():
        assert all(map_in_threads(work, _MANY_BLOCKS, 4))


_IN_WORKERS = """
from joblib import Parallel, cpu_count, delayed
from threadpoolctl import threadpool_limits
from eigengp.backend.threads import count_available_threads

print(cpu_count(), *Parallel(n_jobs=2)(delayed(count_available_threads)() for _ in range(2)))
with threadpool_limits(1):
    print(count_available_threads())
"""


def test_workers_of_a_search_and_limits_of_the_user_leave_no_more_threads_than_cores() -> None:
    (cores, *workers), (limited,) = (
        [int(each) for each in line.split()] for line in _run(_IN_WORKERS)
    )
    assert sum(workers) <= max(cores, 2)
    assert limited == 1


_EQUAL_SEEDS = """
import numpy as np
from eigengp import LBFGS, EigenGPRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (1500, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=1500)
for residual in (None, "neighbors"):
    settings = {"kernel": "squared_exponential", "optimizer": LBFGS(max_iter=2), "random_state": 0}
    model = EigenGPRegressor(40, residual=residual, **settings)
    print(*{model.fit(X, y).predict(X).tobytes().hex() for _ in range(3)})
"""


def test_equal_seeds_give_equal_results_with_four_openmp_threads() -> None:
    lines = _run(_EQUAL_SEEDS, OMP_NUM_THREADS="4", OPENBLAS_NUM_THREADS="2")
    assert [len(line.split()) for line in lines] == [1, 1]


_FORKED = """
import multiprocessing
import numpy as np
from eigengp import LBFGS, EigenGPRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (1500, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=1500)
settings = {"kernel": "squared_exponential", "optimizer": LBFGS(max_iter=1), "random_state": 0}
model = EigenGPRegressor(20, residual="neighbors", **settings).fit(X, y)
for work, rows in ((model.predict, (X,)), (model.fit, (X, y))):
    child = multiprocessing.get_context("fork").Process(target=work, args=rows)
    child.start()
    child.join(60)
    print(child.exitcode)
    child.kill()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
def test_a_forked_child_fits_and_predicts() -> None:
    assert _run(_FORKED, OMP_NUM_THREADS="4") == ["0", "0"]


def _run(program: str, **threads: str) -> list[str]:
    """Return what a program prints in a process with so many threads."""
    free = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    command = [sys.executable, "-c", program]
    env = {**free, **threads}
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return found.stdout.splitlines()
