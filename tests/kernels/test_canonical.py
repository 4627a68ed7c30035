"""Canonical distances: accurate, definite, exactly zero for equal rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples

from reid_dist.kernels.canonical import (
    COSINE,
    EUCLIDEAN,
    SQEUCLIDEAN,
    PairRows,
    pair_distances,
    plain_distance,
    read_only,
    squared_norms,
)
from reid_dist.kernels.vectors import LANES
from tests.support.compiled import from_python

plain_distance = from_python(plain_distance)

ALL = (COSINE, SQEUCLIDEAN, EUCLIDEAN)


def pairwise(kind: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = read_only(x), read_only(y)
    rows = PairRows(kind, x, y, squared_norms(x), squared_norms(y))
    i, j = np.divmod(np.arange(len(x) * len(y)), len(y))
    return pair_distances(rows, i, j).reshape(len(x), len(y))


def exact(kind: int, x: np.ndarray, y: np.ndarray) -> float:
    """The distance from exact rational sums, rounded at the end."""
    a, b = [Fraction(float(v)) for v in x], [Fraction(float(v)) for v in y]
    if kind == COSINE:
        xy, xx, yy = (sum(p * q for p, q in zip(u, v, strict=True)) for u, v in ((a, b), (a, a), (b, b)))
        return 1.0 - float(xy) / float(np.sqrt(float(xx)) * np.sqrt(float(yy)))
    total = float(sum((p - q) ** 2 for p, q in zip(a, b, strict=True)))
    return float(np.sqrt(total)) if kind == EUCLIDEAN else total


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("dim", [1, 2, 31, 32, 33, 64, 100, 517])
def test_agrees_with_rational_arithmetic(kind: int, dim: int) -> None:
    rng = np.random.default_rng(dim)
    x, y = (rng.standard_normal((4, dim)).astype(np.float32) for _ in range(2))
    found = pairwise(kind, x, y)
    for i in range(4):
        for j in range(4):
            assert found[i, j] == pytest.approx(exact(kind, x[i], y[j]), rel=1e-13, abs=1e-14)


def test_order_of_summation_is_the_documented_one() -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(75).astype(np.float32) for _ in range(2))
    lanes = [0.0] * LANES
    for i, (p, q) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        lanes[i % LANES] += (p - q) * (p - q)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[k] + lanes[k + half] for k in range(half)]
    found = plain_distance(SQEUCLIDEAN, x, y, 0.0, 0.0)
    assert found == lanes[0]


@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 70), scale=st.sampled_from([1e-30, 1.0, 1e15]))
@settings(max_examples=examples(60), deadline=None)
def test_equal_rows_are_at_distance_exactly_zero(seed: int, dim: int, scale: float) -> None:
    row = (np.random.default_rng(seed).standard_normal((1, dim)) * scale).astype(np.float32)
    row[0, 0] += np.float32(scale)
    if not row.any():
        row[0, 0] = 1.0
    for kind in ALL:
        assert pairwise(kind, row, row.copy())[0, 0] == 0.0


@pytest.mark.parametrize("kind", ALL)
def test_a_pair_has_one_distance_in_any_company(kind: int) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((20, 130)).astype(np.float32), rng.standard_normal((50, 130)).astype(np.float32)
    whole = pairwise(kind, x, y)
    for i, j in ((0, 0), (7, 31), (19, 49)):
        alone = pairwise(kind, x[i : i + 1].copy(), y[j : j + 1].copy())
        assert alone[0, 0].tobytes() == whole[i, j].tobytes()
    assert pairwise(kind, y, x).T.tobytes() == whole.tobytes()


def test_zero_rows_are_at_cosine_distance_one_from_everything() -> None:
    rows = np.array([[0, 0, 0], [1, 2, 3]], np.float32)
    assert pairwise(COSINE, rows, rows).tolist() == [[1.0, 1.0], [1.0, 0.0]]


def test_norms_are_not_finite_exactly_where_a_row_is_not() -> None:
    rows = np.full((4, 40), 3e38, np.float32)
    rows[1, 39] = np.nan
    rows[3, 0] = -np.inf
    assert np.isfinite(squared_norms(rows)).tolist() == [True, False, True, False]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("dim", [1, 31, 33, 128, 160, 517])
@pytest.mark.parametrize("n", [0, 1, 2, 40])
def test_distances_of_listed_pairs_are_those_of_each_alone(kind: int, dim: int, n: int) -> None:
    """Several consecutive pairs of a query, of a gallery row, and of neither."""
    rng = np.random.default_rng(dim)
    x, y = (rng.standard_normal((rows, dim)).astype(np.float32) for rows in (3, 9))
    y[3] = 0.0
    y[4] = x[1]
    x, y = read_only(x), read_only(y)
    runs = np.repeat([[0, 0], [1, 0], [0, 1]], n, axis=0)[rng.permutation(3 * n)]
    i, j = (np.cumsum(runs, axis=0) // 3 % [3, 9]).T.copy()
    rows = PairRows(kind, x, y, squared_norms(x), squared_norms(y))
    alone = [
        plain_distance(kind, x[q], y[g], rows.query_norm[q], rows.gallery_norm[g]) for q, g in zip(i, j, strict=True)
    ]
    assert pair_distances(rows, i, j).tolist() == alone
