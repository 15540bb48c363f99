"""Row blocks from arrays."""

from __future__ import annotations

import os
from threading import current_thread

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from eigengp.backend.threads import count_available_threads, use_one_blas_thread
from eigengp.data.array_source import BLOCK_ROWS, ArraySource, map_blocks
from eigengp.gp.blocks import RowBlock


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_every_row_is_summed_once_in_order(threads: int | None) -> None:
    X = np.arange(50.0).reshape(25, 2)
    source = ArraySource(X, np.arange(25.0), block_rows=4, n_threads=threads)
    assert (source.n_rows, source.n_features) == (25, 2)
    seen = source.total(lambda block: [(block.start, block.y.tolist())])
    assert [start for start, _ in seen] == [rows[0] for _, rows in seen]
    assert [len(rows) for _, rows in seen] == [3, 3, 3, 3, 4, 3, 3, 3]  # For any threads.
    assert [row for _, rows in seen for row in rows] == list(range(25))


def test_threads_stay_from_one_sum_to_the_next() -> None:
    source = ArraySource(np.ones((9, 1)), np.arange(9.0), block_rows=3, n_threads=2)
    names = {name for _ in range(3) for name in source.total(lambda _: [current_thread().name])}
    assert len(names) <= 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    source = ArraySource(np.ones((9, 1)), np.arange(9.0), block_rows=3, n_threads=2)
    source.total(lambda block: float(block.y.sum()))
    child = os.fork() if hasattr(os, "fork") else -1
    if child == 0:
        os._exit(0 if source.total(lambda block: float(block.y.sum())) == 36.0 else 1)
    if child > 0:
        assert os.waitpid(child, 0)[1] == 0


def test_blocks_are_float64_and_keep_their_weights() -> None:
    X = np.ones((5, 1), dtype=np.float32)
    source = ArraySource(X, np.zeros(5, dtype=np.float32), np.arange(5.0), block_rows=2)
    blocks: list[RowBlock] = source.total(lambda block: [block])
    assert all(block.X.dtype == block.y.dtype == np.float64 for block in blocks)
    np.testing.assert_array_equal(np.concatenate([b.sample_weight for b in blocks]), np.arange(5))
    np.testing.assert_array_equal(source.take(np.array([3, 1])).sample_weight, [3.0, 1.0])


def test_functions_of_rows_come_back_in_order() -> None:
    X = np.arange(3.0 * BLOCK_ROWS + 7).reshape(-1, 1)
    np.testing.assert_array_equal(map_blocks(lambda rows: rows[:, 0] + 1, X), X[:, 0] + 1)


def test_threads_follow_the_limit_of_blas_and_give_it_back() -> None:
    before = count_available_threads()
    with use_one_blas_thread():
        assert _count_blas_threads() == 1
        assert count_available_threads() == before  # For the pool.
    assert _count_blas_threads() == before


def _count_blas_threads() -> int:
    return max(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")


def test_rows_with_many_columns_come_in_smaller_blocks() -> None:
    seen: list[int] = []

    def note(rows: np.ndarray) -> np.ndarray:
        seen.append(rows.shape[0])
        return rows[:, 0]

    X = np.arange(300.0)[:, None]
    np.testing.assert_array_equal(map_blocks(note, X, n_columns=1 << 16), X[:, 0])
    assert 32 <= max(seen) <= 64


def test_threads_that_leave_in_any_order_give_blas_its_threads_back() -> None:
    before, first, second = count_available_threads(), use_one_blas_thread(), use_one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert _count_blas_threads() == 1
    second.__exit__(None, None, None)
    assert _count_blas_threads() == before
