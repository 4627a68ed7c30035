"""Neighbours by products of eight-bit integers and of float32: bounds that hold, and the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact_products import use_integers
from support.reference import DISTANCES
from support.reranking_runs import bare
from support.row_blocks import DIMS, block_of, canonical_matrix, halve_bounds, hard_blocks, hard_rows, rows_at_the_edge
from support.sampling import examples
from test_neighbours import assert_same, plain_surroundings

from reid_dist import nearest
from reid_dist.core.environment import SCREEN_VARIABLE
from reid_dist.core.model import RowRange
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions import costs
from reid_dist.engine.reductions.backends import Pairs
from reid_dist.engine.reductions.costs import Precision
from reid_dist.engine.reductions.surroundings import KeepNearest, Seed, Surroundings
from reid_dist.engine.reductions.tile_products import BlockPair
from reid_dist.engine.screened_pairs import count_screened
from reid_dist.engine.tile_loop import run_symmetric_tiles, run_tiles
from reid_dist.kernels.compiled import kernel
from reid_dist.kernels.quantising import quantise_rows
from reid_dist.kernels.tiles import refined

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def forced(monkeypatch):
    """Integers for all blocks, however small."""
    use_integers(monkeypatch)


# ------------------------------------------------------------------------------------------------- bounds of values


@kernel
def refined_values(tile):
    """Values of all pairs, computed one by one."""
    found = np.empty(tile.products.shape, np.float32)
    for i in range(found.shape[0]):
        for c in range(found.shape[1]):
            product, scale = tile.products[i, c] - tile.shift[c], tile.scale[c] * tile.factor[i]
            found[i, c] = refined(product, tile.near, tile.query[i], tile.far, c, scale)
    return found


def values_of(near, far, name, queries, columns, refines=False):
    """Screening values of a tile of integers, what they are off by, in extended precision, and the bounds on that.

    They may be refined, all of them.
    """
    pair = BlockPair(near, far, REGISTERED.get(name), TileShape(len(near), len(far)), policy=Policy.in_force())
    tile, screen = pair.backend(Precision.INTEGERS).tile(Pairs(queries, columns)), pair.screen()
    rows, bias = screen.gallery_tile(
        slice(columns.start, columns.stop), np.empty((len(columns), pair.screen().shape[2]), np.float32)
    )
    exact = screen.query_rows(queries).astype(np.longdouble) @ rows.astype(np.longdouble).T - bias
    if refines:
        value = refined_values(tile) - tile.bias[0]
        return value, value - exact, tile.fine[:, None]
    # As kernels compute them.
    value = (tile.products - tile.shift).astype(np.float32) * (tile.scale * tile.factor[:, None]) - tile.bias[0]
    return value, value - exact, tile.extra[:, None] - tile.spared


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("refines", [False, True])
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_products_lie_within_their_bounds(name, refines, data):
    """Values by integers against products in extended precision; of all rows, and of some."""
    near, far = map(block_of, data.draw(hard_blocks(name)))
    columns = RowRange(*sorted(data.draw(st.sampled_from([(0, len(far)), (len(far) // 2, len(far)), (0, 1)]))))
    queries = np.arange(len(near))[:: data.draw(st.sampled_from([1, 2]))]
    value, off, bound = values_of(near, far, name, queries, columns, refines)
    assert np.isfinite(value).all()
    assert (np.abs(off) <= bound).all()


@pytest.mark.parametrize("name", DISTANCES)
def test_bounds_are_those_of_each_column(name):
    """Of no column are they smaller than without the others; and hardly larger where rows have one length."""
    rng = np.random.default_rng(5)
    near, far = (block_of(rng.normal(size=(n, 64)) * rng.uniform(0.2, 5, size=(n, 1))) for n in (7, 40))
    queries = np.arange(7)
    _, _, together = values_of(near, far, name, queries, RowRange(0, 40))
    alone = [values_of(near, far, name, queries, RowRange(c, c + 1))[2] for c in range(40)]
    ratio = together / np.concatenate(alone, axis=1)
    assert ratio.min() > 1 - 1e-6
    assert name != "cosine" or ratio.max() < 1.05


@pytest.mark.parametrize(("refines", "most"), [(False, 0.03), (True, 0.0003)])
@pytest.mark.parametrize("name", DISTANCES)
def test_bounds_are_narrow_where_they_can_be(name, refines, most):
    rng = np.random.default_rng(0)
    near, far = block_of(rng.normal(size=(9, 512))), block_of(rng.normal(size=(300, 512)))
    _, _, bound = values_of(near, far, name, np.arange(9), RowRange(0, 300), refines)
    assert np.median(bound) < (most if name == "cosine" else most * 512)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_lengths_of_residuals_are_not_too_small(data):
    rows = np.ascontiguousarray(data.draw(hard_rows(12, data.draw(st.sampled_from(DIMS)), "cosine")))
    n, dim = rows.shape
    integers, total = np.empty((n, 2 * dim), np.int8), np.empty(n, np.int32)
    scale, bounds = np.empty(n, np.float32), np.empty((n, 3))
    quantise_rows(rows, integers, scale, bounds, total)
    whole, fine = integers[:, :dim], integers[:, dim:]
    assert np.array_equal(total, whole.sum(axis=1, dtype=np.int64))
    assert np.abs(integers.astype(np.int64)).max() <= 127
    exact, step = rows.astype(np.longdouble), scale[:, None].astype(np.longdouble)
    for part, bound in zip((0.0, step * whole, step / 254 * fine), bounds.T, strict=True):
        exact = exact - part
        length = np.sqrt((exact * exact).sum(axis=1))
        assert (bound >= length).all()
        # Nor too large, where squares are in the range of float32.
        usual = np.abs(rows).max(axis=1) > 1e-11
        assert (bound[usual] <= 1.01 * length[usual] + 1e-6 * bounds[usual, 0]).all()


# ------------------------------------------------------------------------------------------------------ the sweep


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("screen", ["int8", "float32"])
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(k=st.integers(1, 12), tile=st.sampled_from([3, 17, 64]), data=st.data())
def test_sweep_with_seeds(name, screen, k, tile, data):
    """Any reach that is a distance there is, or between two; any farthest that something is at."""
    distance = REGISTERED.get(name)
    rows = data.draw(hard_blocks(name))
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    matrix = canonical_matrix(near, far, distance)
    values = [*np.unique(matrix).tolist()[:200], np.inf, float(matrix.mean())]
    bounds = [*np.unique(matrix).tolist()[:200], -np.inf, 0.0]

    def seed(n):
        reach = data.draw(st.lists(st.sampled_from(values), min_size=n, max_size=n))
        farthest = data.draw(st.lists(st.sampled_from(bounds), min_size=n, max_size=n))
        return Seed(np.array(reach), np.array(farthest))

    known = seed(len(near)), seed(len(far))
    found = run_symmetric_tiles(near, far, distance, tile, k, known, policy=Policy(screen))
    for side, each, table, numbers in zip(found, known, (matrix, matrix.T), (far.numbers, near.numbers), strict=True):
        expected = plain_surroundings(table, numbers, k)
        farthest = np.maximum(expected.farthest, each.farthest)
        assert_same(side, Surroundings(expected.index, expected.distance, farthest), within=each.reach)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(k=st.integers(1, 12), tile=st.sampled_from([1, 3, 17, 64]), data=st.data())
def test_block_among_itself(name, k, tile, data):
    """All tiles of one triangle, those on the diagonal first; also with labels of items, and without farthest ones."""
    distance = REGISTERED.get(name)
    rows = data.draw(hard_blocks(name))[0]
    block = block_of(rows, 100)
    matrix = canonical_matrix(block, block, distance)
    (found,) = run_symmetric_tiles(block, None, distance, tile, k, policy=Policy.in_force())
    expected = plain_surroundings(matrix, block.numbers, k, own=True)
    assert_same(found, expected)
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(block), max_size=len(block))))
    labelled, found = replace(block, label=labels), []
    for screen in ("int8", "float32"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SCREEN_VARIABLE, screen)
            (lists,) = run_symmetric_tiles(block, None, distance, tile, k, farthest=False, policy=Policy.in_force())
            found += run_symmetric_tiles(labelled, None, distance, tile, k, policy=Policy.in_force())
        assert_same(replace(lists, farthest=expected.farthest), expected)
        assert np.isnan(lists.farthest).all()
    assert_same(*found)


@pytest.mark.slow
def test_lists_that_overflow():
    """Hundreds of equal rows, nearer and farther ones after them: bounds cannot decide, and distances do."""
    rng = np.random.default_rng(3)
    distance = REGISTERED.get("cosine")
    near = block_of(rng.normal(size=(5, 64)))
    equal = np.repeat(rng.normal(size=(3, 64)), 200, axis=0)
    far = block_of(np.concatenate([equal, rng.normal(size=(200, 64)), near.features, equal]), 10)
    matrix = canonical_matrix(near, far, distance)
    found = run_symmetric_tiles(near, far, distance, 256, 4, policy=Policy.in_force())
    assert_same(found[0], plain_surroundings(matrix, far.numbers, 4))
    assert_same(found[1], plain_surroundings(matrix.T, near.numbers, 4))
    (alone,) = run_symmetric_tiles(far, None, distance, 96, 4, policy=Policy.in_force())
    assert_same(alone, plain_surroundings(canonical_matrix(far, far, distance), far.numbers, 4, own=True))


def nearest_at_the_edge(dim, *, of_columns=False):
    """List of the query among rows, with a level exactly at the canonical distance of the one at the edge.

    Its list as that of a gallery row among queries, where wanted.
    """
    distance = REGISTERED.get("cosine")
    query, row = rows_at_the_edge(dim, 1.0)
    near, far = block_of(query), block_of(np.concatenate([row, -np.ones((3, dim))]), 10)
    matrix = canonical_matrix(near, far, distance)
    # No rows want the query: a pair that passes for one of both is compared again for the other.
    known = [Seed(matrix[:, 0].copy(), np.full(1, 2.0)), Seed(np.zeros(4), np.full(4, 2.0))]
    sides = [near, far]
    if of_columns:
        sides.reverse()
        known.reverse()
    found = run_symmetric_tiles(*sides, distance, 8, 1, tuple(known), policy=Policy.in_force())[int(of_columns)]
    return found.index.tolist(), found.distance.tolist(), matrix[:, :1].tolist()


@pytest.mark.parametrize("dim", [64, 512, 2048])
def test_level_at_the_edge_of_a_bound(dim):
    """The errors of these values reach 98% of their bounds."""
    near, far = (block_of(rows) for rows in rows_at_the_edge(dim, 1.0))
    _, off, bound = values_of(near, far, "cosine", np.arange(1), RowRange(0, 1))
    assert 0.98 * bound[0, 0] < -off[0, 0] <= bound[0, 0]
    for of_columns in (False, True):
        index, found, expected = nearest_at_the_edge(dim, of_columns=of_columns)
        assert index == [[10]]
        assert found == expected


@pytest.mark.parametrize("of_columns", [False, True])
def test_smaller_bounds_are_noticed(of_columns, monkeypatch):
    """With half the bound, the nearest row of the same set is missed."""
    halve_bounds(monkeypatch)
    assert nearest_at_the_edge(512, of_columns=of_columns)[0] == [[-1]]


def test_smaller_bounds_of_lists_of_queries_are_noticed(monkeypatch):
    """A reach at the distance of the nearest row."""
    distance = REGISTERED.get("cosine")
    query, row = rows_at_the_edge(512, 1.0)
    near, far = block_of(query), block_of(np.concatenate([row, -np.ones((3, 512))]), 10)
    wanted = KeepNearest(1, reach=canonical_matrix(near, far, distance)[:, 0])
    assert run_tiles(near, far, distance, TileShape(8, 8), [wanted], policy=Policy.in_force())[0].index.tolist() == [
        [10]
    ]
    halve_bounds(monkeypatch)
    assert run_tiles(near, far, distance, TileShape(8, 8), [wanted], policy=Policy.in_force())[0].index.tolist() == [
        [-1]
    ]


def farthest_at_the_edge(of_columns):
    """Largest distance of an item, that of the row at the edge, and one that is known already and hardly smaller."""
    distance = REGISTERED.get("cosine")
    near, far = (block_of(rows) for rows in rows_at_the_edge(512, -1.0))
    exact = canonical_matrix(near, far, distance)[0]
    known, nothing = Seed(np.zeros(1), exact - 1e-12), Seed(np.zeros(1), np.full(1, 2.0))
    sides, seeds = ([far, near], (nothing, known)) if of_columns else ([near, far], (known, nothing))
    found = run_symmetric_tiles(*sides, distance, 8, 1, seeds, policy=Policy.in_force())[int(of_columns)]
    return found.farthest, exact, known.farthest


@pytest.mark.parametrize("of_columns", [False, True])
def test_farthest_row_at_the_edge_of_a_bound(of_columns, monkeypatch):
    """It passes for nearer than what is known; with half the bound it is missed."""
    found, exact, _ = farthest_at_the_edge(of_columns)
    assert found == exact
    halve_bounds(monkeypatch)
    found, _, known = farthest_at_the_edge(of_columns)
    assert found == known


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("screen", ["int8", "float32"])
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(k=st.integers(1, 12), shape=st.sampled_from([(3, 5), (64, 17), (64, 64)]), data=st.data())
def test_lists_of_queries(name, screen, k, shape, data):
    """Nearest and farthest gallery rows, bounded by those of the first tile."""
    distance, tile = REGISTERED.get(name), TileShape(*shape)
    rows = data.draw(hard_blocks(name))
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    expected = plain_surroundings(canonical_matrix(near, far, distance), far.numbers, k)
    for farthest in (True, False):
        wanted = KeepNearest(k, farthest=farthest)
        (found,) = run_tiles(near, far, distance, tile, [wanted], policy=Policy(screen))
        assert_same(found, expected if farthest else replace(expected, farthest=np.full(len(near), np.nan)))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("screen", ["int8", "float32"])
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(k=st.integers(1, 12), data=st.data())
def test_lists_within_a_known_reach(name, screen, k, data):
    """Any reach that is a distance there is, above or below that of the k-th row; rows beyond may be missing."""
    distance = REGISTERED.get(name)
    rows = data.draw(hard_blocks(name))
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    matrix = canonical_matrix(near, far, distance)
    values = [*np.unique(matrix).tolist()[:200], np.inf, float(matrix.mean())]
    reach = np.array(data.draw(st.lists(st.sampled_from(values), min_size=len(near), max_size=len(near))))
    (found,) = run_tiles(near, far, distance, TileShape(17, 17), [KeepNearest(k, reach=reach)], policy=Policy(screen))
    expected = plain_surroundings(matrix, far.numbers, k)
    assert found.index.shape == found.distance.shape == (len(near), k)
    assert_same(Surroundings(found.index, found.distance, expected.farthest), expected, within=reach)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_first_rows_nearer_than_all_others(k):
    """The nearest row and the farthest one are among the first, and so are k - 1 others, or only some of these."""
    rng = np.random.default_rng(4)
    distance, rows = REGISTERED.get("euclidean"), rng.normal(size=(200, 64))
    for n_near in (k - 1, k, k + 1, 3 * k):
        first = np.concatenate([rows[:1] + 0.01 * rows[1 : 1 + n_near], -rows[:1] - 0.01 * rows[1:2]])
        near, far = block_of(rows[:1]), block_of(np.concatenate([first, rows[n_near + 1 :]]), 100)
        expected = plain_surroundings(canonical_matrix(near, far, distance), far.numbers, k)
        for farthest in (True, False):
            wanted = KeepNearest(k, farthest=farthest)
            (found,) = run_tiles(near, far, distance, TileShape(64, 150), [wanted], policy=Policy.in_force())
            assert_same(found, expected if farthest else replace(expected, farthest=np.full(1, np.nan)))


@pytest.mark.parametrize("name", DISTANCES)
def test_rows_that_may_be_the_nearest_and_the_farthest_are_listed_once(name):
    """All distances lie within the errors of their values."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=64) + 0.1 * rng.normal(size=(60, 64))
    distance, near, far = REGISTERED.get(name), block_of(rows[:4]), block_of(rows[4:], 100)
    expected = plain_surroundings(canonical_matrix(near, far, distance), far.numbers, 3)
    reduction = KeepNearest(3, farthest=True)
    (found,) = run_tiles(near, far, distance, TileShape(64, 64), [reduction], policy=Policy.in_force())
    assert_same(found, expected)


# -------------------------------------------------------------------------------------------------- whole searches


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(15), deadline=None)
@given(k=st.integers(2, 40), data=st.data())
def test_same_bits_as_in_float32(name, k, data):
    n = data.draw(st.integers(80, 300))
    rows = data.draw(hard_rows(n, data.draw(st.sampled_from((1, 7, 64, 512))), name))
    if data.draw(st.booleans()):
        rows = np.clip(rows, -6e4, 6e4).astype(np.float16)
    items = bare(rows)
    found = {}
    for screen in ("int8", "float32"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SCREEN_VARIABLE, screen)
            found[screen] = nearest(items, items, k=k, distance=name, chunk_rows=32)
    assert found["int8"].index.tobytes() == found["float32"].index.tobytes()
    assert found["int8"].distance.tobytes() == found["float32"].distance.tobytes()


def test_crowded_blocks_are_computed_in_float32(monkeypatch):
    """The result is the same, wherever integers are given up; those that are forced are not."""
    rng = np.random.default_rng(8)
    distance = REGISTERED.get("cosine")
    near, far = block_of(rng.normal(size=(90, 12))), block_of(rng.normal(size=(70, 12)), 100)
    seeds = tuple(Seed(np.full(len(each), np.inf), np.full(len(each), -np.inf)) for each in (near, far))
    of_queries = KeepNearest(3, farthest=True, need=costs.Need.NEIGHBOURS)

    def found():
        with count_screened() as screened:
            lists = [
                *run_symmetric_tiles(near, far, distance, 32, 3, seeds, policy=Policy.in_force()),
                *run_symmetric_tiles(near, None, distance, 32, 3, policy=Policy.in_force()),
                *run_tiles(near, far, distance, TileShape(32, 32), [of_queries], policy=Policy.in_force()),
            ]
        return lists, dict(screened)

    expected, screened = found()
    assert set(screened) == {"neighbours, int8"}
    for cost in (1e9, 8.0, 0.0):
        monkeypatch.setattr(costs.ListWork, "exceeds", _exceeds(cost))
        lists, screened = found()
        for one, two in zip(lists, expected, strict=True):
            assert_same(one, two)
        assert set(screened) == {"neighbours, int8"} | (set() if cost == 0.0 else {"neighbours, float32"})


def _exceeds(cost):
    """Give up after so many refined values, by their cost."""
    refined = []

    def exceeds(self, precision, n_refined, n_pairs):
        refined.append(cost * n_refined)
        return precision < Precision.PLAIN and sum(refined) > 1e4

    return exceeds
