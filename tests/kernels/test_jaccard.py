"""Overlaps of rows of weights against dicts in plain Python, and one way of finding them against the other."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from support.python_kernels import PythonKernels

from reid_dist.kernels.jaccard import overlap_block, overlap_pairs, row_sums
from reid_dist.kernels.reciprocal import SparseRows

SEEDS = st.integers(0, 2**32 - 1)


def random_rows(seed: int, n_rows: int, n_columns: int, per_row: int, tiny: bool = False) -> SparseRows:
    """Rows of up to `per_row` columns, some of them empty, some equal; the values repeat, and 0 is one of them."""
    rng = np.random.default_rng(seed)
    palette = np.append(rng.random(6) * (1e-320 if tiny else 1.0), 0.0)
    kinds = []
    for _ in range(max(n_rows // 2, 1)):
        size = rng.integers(0, min(per_row, n_columns) + 1)
        kinds.append((np.sort(rng.choice(n_columns, size, replace=False)), rng.choice(palette, size)))
    chosen = [kinds[kind] for kind in rng.integers(0, len(kinds), n_rows)]
    return SparseRows(
        np.cumsum([0, *(len(columns) for columns, _ in chosen)]).astype(np.int64),
        np.concatenate([np.empty(0), *(columns for columns, _ in chosen)]).astype(np.int32),
        np.concatenate([np.empty(0), *(values for _, values in chosen)]),
    )


def as_dicts(rows: SparseRows) -> list[dict[int, float]]:
    result = []
    for begin, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        columns = rows.column[begin:end].tolist()
        assert columns == sorted(set(columns))
        result.append(dict(zip(columns, rows.value[begin:end].tolist(), strict=True)))
    return result


def by_definition(one: dict[int, float], other: dict[int, float]) -> float:
    total = 0.0
    for column in sorted(one.keys() & other.keys()):
        total += min(one[column], other[column])
    return total


def every_pair(n_a: int, n_b: int) -> tuple[np.ndarray, np.ndarray]:
    return np.divmod(np.arange(n_a * n_b), n_b) if n_b else (np.empty(0, np.int64), np.empty(0, np.int64))


def check_overlaps(a: SparseRows, b: SparseRows, n_columns: int) -> None:
    dicts, others = as_dicts(a), as_dicts(b)
    owner, place = every_pair(len(dicts), len(others))
    pairs = overlap_pairs(a, b, owner, place, False)
    assert pairs.tolist() == [by_definition(one, other) for one in dicts for other in others]
    block = overlap_block(a, b, n_columns, False)
    assert (block.indptr.dtype, block.column.dtype, block.value.dtype) == (np.int64, np.int32, np.float64)
    kept = pairs > 0
    assert np.repeat(np.arange(len(dicts)), np.diff(block.indptr)).tolist() == owner[kept].tolist()
    assert block.column.tolist() == place[kept].tolist()
    assert block.value.tobytes() == pairs[kept].tobytes()


@given(
    seed=SEEDS,
    n_a=st.integers(0, 12),
    n_b=st.integers(0, 25),
    n_columns=st.integers(1, 60),
    per_row=st.sampled_from([0, 1, 4, 40]),
    tiny=st.booleans(),
)
@example(seed=0, n_a=1, n_b=1, n_columns=1, per_row=1, tiny=False)
@example(seed=0, n_a=0, n_b=0, n_columns=1, per_row=1, tiny=False)
def test_both_ways_give_the_defined_bits(
    seed: int, n_a: int, n_b: int, n_columns: int, per_row: int, tiny: bool
) -> None:
    a = random_rows(seed, n_a, n_columns, per_row, tiny)
    check_overlaps(a, random_rows(seed + 1, n_b, n_columns, per_row, tiny), n_columns)
    check_overlaps(a, a, n_columns)


def test_results_that_outgrow_the_estimate() -> None:
    full = random_rows(5, 40, 30, 30)
    nothing = SparseRows(np.zeros(31, np.int64), np.empty(0, np.int32), np.empty(0))
    dense_first = SparseRows(np.append(full.indptr, [full.indptr[-1]] * 100), full.column, full.value)
    dense_last = SparseRows(np.append([0] * 100, full.indptr), full.column, full.value)
    for b in (full, dense_first, dense_last, nothing):
        check_overlaps(full, b, 30)
        check_overlaps(b, full, 30)


def test_disjoint_rows_and_zeros_are_left_out() -> None:
    a = SparseRows(np.array([0, 2, 3]), np.array([0, 5, 7], np.int32), np.array([0.5, 0.0, 1.0]))
    b = SparseRows(np.array([0, 1, 2, 4]), np.array([5, 1, 0, 5], np.int32), np.array([1.0, 1.0, 0.25, 1.0]))
    block = overlap_block(a, b, 8, False)
    assert [part.tolist() for part in block] == [[0, 1, 1], [2], [0.25]]


@given(seed=SEEDS, n_rows=st.integers(0, 15))
def test_rows_are_summed_by_ascending_column(seed: int, n_rows: int) -> None:
    rows = random_rows(seed, n_rows, 50, 30)
    wanted = []
    for row in as_dicts(rows):
        total = 0.0
        for value in row.values():
            total += value
        wanted.append(total)
    assert row_sums(rows).tolist() == wanted


def tiny_bits() -> list[list]:
    a, b = random_rows(1, 20, 40, 30), random_rows(2, 30, 40, 30)
    block = overlap_block(a, b, 40, False)
    pairs = overlap_pairs(a, b, *every_pair(20, 30), False)
    values = [*block.value.tolist(), *pairs.tolist(), *row_sums(a).tolist()]
    return [block.indptr.tolist(), block.column.tolist(), [value.hex() for value in values]]


def test_without_a_compiler(python_kernels: PythonKernels) -> None:
    assert python_kernels.call(tiny_bits) == tiny_bits()
