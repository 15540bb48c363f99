"""Products in tiles are the products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eigengp.backend.threads
from eigengp.backend.threads import contraction, product

_ORDERS = ("C", "F")


def _matrix(rng: np.random.Generator, n: int, m: int, order: Any) -> Any:
    return np.asarray(rng.normal(size=(n, m)), order=order)


@given(
    n=st.integers(0, 40),
    width=st.integers(1, 5),
    columns=st.integers(1, 5),
    small=st.integers(1, 60),
    order=st.sampled_from(_ORDERS),
    seed=st.integers(0, 100),
)
def test_tiles_of_any_length_give_the_product(
    n: int, width: int, columns: int, small: int, order: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, z = _matrix(rng, n, width, order), rng.normal(size=(width, columns))
    other = _matrix(rng, n, columns, order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eigengp.backend.threads, "_SMALL_PRODUCT", small)
        patch.setattr(eigengp.backend.threads, "_SHORTEST_TILE", 1)
        tiled, contracted = product(x, z), contraction(x, other)
    np.testing.assert_allclose(tiled, x @ z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(contracted, x.T @ other, rtol=1e-12, atol=1e-12)


def test_long_and_thin_factors_are_cut_into_tiles() -> None:
    rng = np.random.default_rng(0)
    x, z = _matrix(rng, 10_007, 51, "F"), rng.normal(size=(51, 51))
    assert eigengp.backend.threads._count_tiles(10_007, 51 * 51) == (27, 370)
    assert eigengp.backend.threads._count_tiles(10_000, 51 * 51) == (40, 250)
    assert eigengp.backend.threads._count_tiles(285, 60 * 60) == (2, 142)
    assert eigengp.backend.threads._count_tiles(10_007, 201 * 201) == (1, 10_007)
    assert product(x, z).flags.f_contiguous
    np.testing.assert_allclose(product(x, z), x @ z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(contraction(x, x), x.T @ x, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_data_type_stays(dtype: Any) -> None:
    x = np.ones((5, 2), dtype)
    assert product(x, x.T).dtype == dtype
    assert contraction(x, x).dtype == dtype


def test_factors_of_two_data_types_meet_in_the_wider() -> None:
    x = np.ones((5, 2), np.float32)
    assert product(x, np.ones((2, 3))).dtype == np.float64
    assert contraction(x, np.ones((5, 3))).dtype == np.float64
