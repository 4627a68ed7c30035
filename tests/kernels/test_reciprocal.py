"""Reciprocal sets and rows of weights against sets and dicts in plain Python."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.python_kernels import PythonKernels

from reid_dist.kernels.exponential import exponentials
from reid_dist.kernels.reciprocal import SparseRows, binary_rows, gaussian_rows, mean_rows, reciprocal_sets

SEEDS = st.integers(0, 2**32 - 1)


def neighbour_table(seed: int, n_items: int, k: int, holes: bool = False) -> np.ndarray:
    """Neighbours on a line of few places, so that many are at one distance; -1 where there are none."""
    rng = np.random.default_rng(seed)
    at = rng.integers(0, max(n_items // 2, 1), n_items)
    table = np.full((n_items, k), -1, np.int32)
    for i in range(n_items):
        order = sorted(range(n_items), key=lambda j: (j != i, abs(at[i] - at[j]), j))[:k]
        table[i, : len(order)] = order
    if holes:
        table[rng.random(table.shape) < 0.2] = -1
    return table


def grown_sets(index: np.ndarray, near: int, half: int, inclusive: bool) -> list[set[int]]:
    """``R*`` of every item by its definition."""

    def reciprocal(length: int) -> list[set[int]]:
        lists = [{int(j) for j in row[:length]} - {-1} for row in index]
        return [{j for j in lists[i] if i in lists[j]} for i in range(len(lists))]

    wide, narrow = reciprocal(near), reciprocal(half)
    grown = []
    for own in wide:
        result = set(own)
        for c in own:
            excess = 3 * len(narrow[c] & own) - 2 * len(narrow[c])
            if excess > 0 or (inclusive and excess == 0):
                result |= narrow[c]
        grown.append(result)
    return grown


def split(indptr: np.ndarray, values: np.ndarray) -> list[list]:
    return [values[a:b].tolist() for a, b in pairwise(indptr.tolist())]


def sparse_rows(rows: list[dict[int, float]]) -> SparseRows:
    ordered = [sorted(row.items()) for row in rows]
    return SparseRows(
        np.cumsum([0, *map(len, ordered)]).astype(np.int64),
        np.array([column for row in ordered for column, _ in row], np.int32),
        np.array([value for row in ordered for _, value in row], np.float64),
    )


def as_dicts(rows: SparseRows) -> list[dict[int, float]]:
    columns, values = split(rows.indptr, rows.column), split(rows.indptr, rows.value)
    assert all(row == sorted(set(row)) for row in columns)
    return [dict(zip(*pair, strict=True)) for pair in zip(columns, values, strict=True)]


def random_rows(seed: int, n_rows: int, n_columns: int, density: float) -> SparseRows:
    rng = np.random.default_rng(seed)
    # Equal values and zeros among them.
    palette = np.append(rng.random(5), [0.0, 0.1, 1e-300])
    return sparse_rows(
        [{c: float(rng.choice(palette)) for c in range(n_columns) if rng.random() < density} for _ in range(n_rows)]
    )


# ---- sets ------------------------------------------------------------------------------------------------------------


@given(
    seed=SEEDS,
    n_items=st.integers(1, 40),
    k=st.integers(1, 14),
    near=st.integers(0, 16),
    half=st.integers(0, 16),
    inclusive=st.booleans(),
    holes=st.booleans(),
)
@example(seed=0, n_items=1, k=1, near=1, half=1, inclusive=False, holes=False)
@example(seed=0, n_items=3, k=14, near=16, half=16, inclusive=True, holes=False)
def test_sets_are_the_defined_ones(
    seed: int, n_items: int, k: int, near: int, half: int, inclusive: bool, holes: bool
) -> None:
    table = neighbour_table(seed, n_items, k, holes)
    wanted = grown_sets(table, near, half, inclusive)
    start = seed % n_items
    for first, last in ((0, n_items), (start, n_items), (start, start)):
        indptr, member = reciprocal_sets(table, first, last, near, half, inclusive)
        assert (indptr.dtype, member.dtype) == (np.int64, np.int32)
        assert split(indptr, member) == [sorted(row) for row in wanted[first:last]]


def test_two_thirds_are_enough_only_when_inclusive() -> None:
    # Item 1 has {0, 1, 4} in its half list, of which item 0 shares {0, 1}.
    table = np.array([[0, 1, 2], [1, 0, 4], [2, 0, 3], [3, 2, -1], [4, 1, -1]], np.int32)
    assert grown_sets(table, 3, 3, False)[0] == {0, 1, 2}
    assert grown_sets(table, 3, 3, True)[0] == {0, 1, 2, 3, 4}
    for inclusive in (False, True):
        indptr, member = reciprocal_sets(table, 0, 5, 3, 3, inclusive)
        assert [set(row) for row in split(indptr, member)] == grown_sets(table, 3, 3, inclusive)


def test_an_added_item_does_not_help_others_in() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        table = np.array([[i, *rng.permutation(np.delete(np.arange(12), i))[:7]] for i in range(12)], np.int32)
        indptr, member = reciprocal_sets(table, 0, 12, 8, 5, True)
        assert split(indptr, member) == [sorted(row) for row in grown_sets(table, 8, 5, True)]


def test_sets_that_outgrow_the_estimate() -> None:
    # On a ring the half lists of the neighbours of an item reach beyond its own list, on both sides.
    ring = (np.arange(90)[:, None] + [0, *(sign * step for step in range(1, 9) for sign in (1, -1))]) % 90
    ring = ring.astype(np.int32)
    indptr, member = reciprocal_sets(ring, 0, 90, 17, 11, False)
    assert np.diff(indptr).tolist() == [23] * 90
    assert split(indptr, member) == [sorted(row) for row in grown_sets(ring, 17, 11, False)]


# ---- weights ---------------------------------------------------------------------------------------------------------


@given(seed=SEEDS, sizes=st.lists(st.integers(0, 9), max_size=12), reach=st.sampled_from([1.0, 4.0, 2000.0]))
def test_weights_are_exponentials_that_sum_to_one(seed: int, sizes: list[int], reach: float) -> None:
    rng = np.random.default_rng(seed)
    indptr = np.cumsum([0, *sizes]).astype(np.int64)
    member = np.arange(indptr[-1]).astype(np.int32)
    scaled = rng.random(len(member)) * reach
    raw = gaussian_rows(indptr, member, scaled, False)
    normalised = gaussian_rows(indptr, member, scaled, True)
    assert raw.value.tobytes() == exponentials(-scaled).tobytes()
    for before, after in zip(split(indptr, raw.value), split(indptr, normalised.value), strict=True):
        total = 0.0
        for value in before:
            total += value
        assert after == [value / total if total else 0.0 for value in before]
    ones = binary_rows(indptr, member)
    assert ones.value.tolist() == [1.0] * len(member)
    for rows in (raw, normalised, ones):
        assert rows.indptr.tolist() == indptr.tolist()
        assert rows.column.tolist() == member.tolist()


# ---- means -----------------------------------------------------------------------------------------------------------


def means(rows: np.ndarray, source: SparseRows) -> list[dict[int, float]]:
    row_of = as_dicts(source)
    result = []
    for items in rows.tolist():
        items = [item for item in items if item != -1]
        total: dict[int, float] = {}
        for item in items:
            for column, value in row_of[item].items():
                total[column] = total.get(column, 0.0) + value
        result.append({column: value / len(items) for column, value in total.items()})
    return result


@given(
    seed=SEEDS,
    n=st.integers(0, 12),
    k2=st.integers(1, 7),
    n_source=st.integers(1, 20),
    n_columns=st.integers(1, 90),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
def test_means_are_sums_in_list_order(
    seed: int, n: int, k2: int, n_source: int, n_columns: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    source = random_rows(seed, n_source, n_columns, density)
    # Some rows twice.
    rows = rng.integers(-1, n_source, (n, k2))
    found = mean_rows(rows, source)
    assert (found.indptr.dtype, found.column.dtype, found.value.dtype) == (np.int64, np.int32, np.float64)
    assert as_dicts(found) == means(rows, source)


def test_the_mean_of_one_row_is_that_row() -> None:
    source = random_rows(3, 9, 30, 0.4)
    found = mean_rows(np.arange(9)[:, None], source)
    assert [part.tobytes() for part in found] == [part.tobytes() for part in source]


def test_means_that_outgrow_the_estimate() -> None:
    source = random_rows(7, 6, 300, 0.7)
    first = np.array([[0, 1, 2], [3, 3, -1], [5, 4, 3], [1, 5, 0]])
    found = mean_rows(first, source)
    assert len(found.value) > 4 * 200
    assert as_dicts(found) == means(first, source)


def test_nothing_to_average_is_an_empty_row() -> None:
    source = SparseRows(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))
    assert as_dicts(mean_rows(np.full((2, 3), -1), source)) == [{}, {}]


# ---- all of it -------------------------------------------------------------------------------------------------------


def pipeline_bits() -> list[list]:
    table = neighbour_table(8, 60, 9)
    indptr, member = reciprocal_sets(table, 0, 60, 9, 5, False)
    scaled = np.random.default_rng(2).random(len(member))
    rows = gaussian_rows(indptr, member, scaled, True)
    mean = mean_rows(table[:, :4].astype(np.int64), rows)
    assert all(math.isclose(sum(row.values()), 1.0) for row in as_dicts(mean))
    return [mean.indptr.tolist(), mean.column.tolist(), [value.hex() for value in mean.value.tolist()]]


@pytest.mark.slow
def test_without_a_compiler(python_kernels: PythonKernels) -> None:
    assert python_kernels.call(pipeline_bits) == pipeline_bits()
