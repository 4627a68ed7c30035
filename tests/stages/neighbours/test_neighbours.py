"""Neighbours of a set among itself, each pair of blocks once: those of plain sorting, and exact row maxima."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reference import DISTANCES, canonical_distances, order_is_unambiguous, reference_topk
from support.reranking_runs import bare, resources
from support.row_blocks import block_of, canonical_matrix
from support.sampling import examples
from support.strategies import DIMS, KINDS, crowded_sets, features, scattered_sets

from reid_dist import nearest
from reid_dist.core.model import RowRange
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.reductions.surroundings import Surroundings, merge_surroundings
from reid_dist.engine.tile_loop import run_symmetric_tiles
from reid_dist.errors import InputError
from reid_dist.stages.items import Items
from reid_dist.stages.neighbour_search import find_neighbours, find_query_neighbours, find_top_lists


def plain_surroundings(matrix, numbers, k, own=False):
    """By sorting; the item itself is none of its surroundings."""
    n = len(matrix)
    index, near = np.full((n, k), -1, np.int64), np.full((n, k), np.inf)
    farthest = np.zeros(n)
    for i, row in enumerate(matrix):
        others = [j for j in range(len(row)) if not (own and i == j)]
        order = sorted(others, key=lambda j, row=row: (row[j], j))[:k]
        index[i, : len(order)], near[i, : len(order)] = numbers[order], row[order]
        farthest[i] = max([row[j] for j in others] + [0.0])
    return Surroundings(index, near, farthest)


def assert_same(found, expected, within=None):
    """Bit for bit; entries beyond `within` may be missing on either side."""
    if within is None:
        np.testing.assert_array_equal(found.index, expected.index)
        np.testing.assert_array_equal(found.distance, expected.distance)
    else:
        for row, reach in enumerate(within):
            wanted = [(d, j) for d, j in zip(expected.distance[row], expected.index[row], strict=True) if d <= reach]
            given_ = list(zip(found.distance[row], found.index[row], strict=True))
            assert given_[: len(wanted)] == wanted, row
    np.testing.assert_array_equal(found.farthest, expected.farthest)


@st.composite
def two_blocks(draw):
    """Rows of two blocks, of a kind in which ties are the rule."""
    n, m = draw(st.integers(1, 24)), draw(st.integers(1, 24))
    rows = draw(features(n + m, draw(st.sampled_from(DIMS)), draw(st.sampled_from(KINDS))))
    return rows[:n], rows[n:]


# ---------------------------------------------------------------------------------------------- the sweep itself


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(40))
@given(rows=two_blocks(), k=st.integers(1, 30), tile=st.sampled_from([1, 2, 5, 7, 64]))
def test_sweep_without_seeds(name, rows, k, tile):
    distance = REGISTERED.get(name)
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    matrix = canonical_matrix(near, far, distance)
    np.testing.assert_array_equal(matrix.T, canonical_matrix(far, near, distance))
    found = run_symmetric_tiles(near, far, distance, tile, k)
    assert_same(found[0], plain_surroundings(matrix, far.numbers, k))
    assert_same(found[1], plain_surroundings(matrix.T, near.numbers, k))
    (alone,) = run_symmetric_tiles(near, None, distance, tile, k)
    own = plain_surroundings(canonical_matrix(near, near, distance), near.numbers, k, own=True)
    assert_same(alone, own)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=14), st.integers(1, 9))
def test_merging_lists(entries, k):
    """The k first of both by (distance, item)."""
    pairs = [sorted((float(d), j) for j, (d, side) in enumerate(entries) if side == which) for which in (0, 1)]

    def as_surroundings(listed, farthest):
        index, near = np.full((1, k), -1, np.int64), np.full((1, k), np.inf)
        for place, (d, j) in enumerate(listed[:k]):
            index[0, place], near[0, place] = j, d
        return Surroundings(index, near, np.array([farthest]))

    merged = merge_surroundings([as_surroundings(pairs[0], 3.0), as_surroundings(pairs[1], 5.0)])
    wanted = sorted(pairs[0] + pairs[1])[:k]
    filled = wanted + [(np.inf, -1)] * (k - len(wanted))
    assert list(zip(merged.distance[0].tolist(), merged.index[0].tolist(), strict=True)) == filled
    assert merged.farthest.tolist() == [5.0]


# ---------------------------------------------------------------------------------------------------- whole sets


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(25))
@given(rows=two_blocks(), k=st.integers(1, 60), chunk=st.sampled_from([None, 1, 4, 9]))
def test_nearest_of_a_set_among_itself(name, rows, k, chunk):
    """Every item is first in its own list; k may be larger than the set."""
    together = np.concatenate(rows)
    items = bare(together)
    found = nearest(items, items, k=k, distance=name, chunk_rows=chunk)
    block = block_of(together)
    matrix = canonical_matrix(block, block, REGISTERED.get(name))
    for i, row in enumerate(matrix):
        order = sorted(range(len(row)), key=lambda j, i=i, row=row: (j != i, row[j], j))[:k]
        assert found.index[i].tolist() == order + [-1] * (k - len(order))
        assert found.distance[i].tolist() == row[order].tolist() + [np.inf] * (k - len(order))
    if order_is_unambiguous(together, together, name):
        index, _ = reference_topk(together, together, k, name, range(len(together)))
        np.testing.assert_array_equal(found.index, index)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
def test_crowded_and_spread_sets(name):
    """Dozens of exact duplicates, more than any list holds."""
    for items in (crowded_sets(1, 250, 13, seed=5, n_distinct=6)[1], scattered_sets(1, 250, 33, seed=6)[1]):
        rows = bare(items.features)
        assert order_is_unambiguous(items.features, items.features, name)
        index, near = reference_topk(items.features, items.features, 25, name, range(250))
        for chunk in (None, 30):
            found = nearest(rows, rows, k=25, distance=name, chunk_rows=chunk)
            np.testing.assert_array_equal(found.index, index)
            np.testing.assert_allclose(found.distance, near, rtol=1e-12, atol=1e-12)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", ["cosine", "sqeuclidean"])
@pytest.mark.parametrize("chunk", [1, 7, 33, 500])
def test_row_maxima_are_canonical(name, chunk, tmp_path):
    """The same bits in every cut, and those of the matrix."""
    query, gallery = crowded_sets(20, 90, 17, seed=11, n_distinct=30)
    items = Items((bare(query.features), bare(gallery.features)))
    lists = find_neighbours(items, REGISTERED.get(name), 6, resources(tmp_path, chunk))
    block = block_of(np.concatenate([query.features, gallery.features]))
    matrix = canonical_matrix(block, block, REGISTERED.get(name))
    everything = RowRange(0, 110)
    np.testing.assert_array_equal(lists.farthest(everything), matrix.max(axis=1))
    close = canonical_distances(block.features, block.features, name)
    np.testing.assert_allclose(matrix, close, rtol=1e-12, atol=1e-12)
    for rows in (RowRange(0, 1), RowRange(5, 6), RowRange(30, 110), RowRange(109, 110)):
        np.testing.assert_array_equal(lists.farthest(rows), matrix.max(axis=1)[rows.start : rows.stop])
        np.testing.assert_array_equal(lists.index(rows)[:, 0], np.arange(rows.start, rows.stop))


def test_lists_with_largest_distances_serve_those_without(tmp_path):
    """Lists that lack them are found again where they are needed."""
    query, gallery = crowded_sets(20, 90, 17, seed=11, n_distinct=30)
    items, everything = Items((bare(query.features), bare(gallery.features))), RowRange(0, 110)
    where = resources(tmp_path / "one", 33)
    alone = find_neighbours(items, REGISTERED.get("cosine"), 6, where, farthest=False)
    with pytest.raises(AssertionError, match="not searched for"):
        alone.farthest(everything)
    lists = find_neighbours(items, REGISTERED.get("cosine"), 5, where)
    assert lists.farthest(everything).min() > 0.0
    np.testing.assert_array_equal(lists.index(everything), alone.index(everything)[:, :5])
    np.testing.assert_array_equal(lists.distances(everything), alone.distances(everything)[:, :5])
    where = resources(tmp_path / "other", 33)
    lists = find_neighbours(items, REGISTERED.get("cosine"), 6, where)
    again = find_neighbours(items, REGISTERED.get("cosine"), 6, where, farthest=False)
    assert again.parts.stage.path == lists.parts.stage.path


def counted(where) -> int:
    """Pairs that stages have read from products."""
    assert {key.partition(", ")[2] for key in where.screened} <= {"int8", "float32", "float64"}
    return sum(where.screened.values())


@pytest.mark.parametrize("on_workers", [False, True])
def test_pairs_that_are_read_are_counted(on_workers, two_workers, tmp_path):
    """Each pair of different items once, and some tiles twice, of items that are compared among themselves."""
    n, tile = 300, 20
    query, gallery = (bare(each.features) for each in crowded_sets(60, 240, 9, seed=3, n_distinct=200))
    items, distance = Items((query, gallery)), REGISTERED.get("sqeuclidean")

    def fresh():
        client = two_workers if on_workers else None
        return replace(resources(tmp_path, tile, client), n_threads=4)

    where = fresh()
    lists = find_neighbours(items, distance, 5, where)
    assert len(lists.parts.blocks) > 2
    assert n * (n - 1) // 2 <= counted(where) <= n * (n - 1) // 2 + n * tile
    again = fresh()
    find_neighbours(items, distance, 5, again)
    assert counted(again) == 0
    find_query_neighbours(query, gallery, distance, 5, again)
    assert counted(again) == 60 * 240
    find_top_lists(query, gallery, 5, again)
    assert counted(again) == 2 * 60 * 240


def test_long_rows_are_refused_by_name():
    items = bare(np.full((5, 4), 1e30, np.float32) * np.arange(1, 6, dtype=np.float32)[:, None])
    with pytest.raises(InputError, match="would overflow"):
        nearest(items, items, k=2, distance="sqeuclidean")
