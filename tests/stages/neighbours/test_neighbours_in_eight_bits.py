"""Neighbours by products of eight-bit integers: bounds that hold, and the bits of products in float32."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact_products import use_products_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import DISTANCES
from reranking_runs import bare
from row_blocks import DIMS, block_of, canonical_matrix, halve_bounds, hard_blocks, hard_rows, rows_at_the_edge
from sampling import examples
from test_neighbours import assert_same, plain_surroundings

from reid_dist import nearest
from reid_dist.core.model import RowRange
from reid_dist.engine import coarse_tiles, crowded_lists
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.distances import integers
from reid_dist.engine.distances.quantised import Quantised, quantise
from reid_dist.engine.plain_tiles import run_plain_tiles
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import (
    KeepNearest,
    Seed,
    SurroundBoth,
    Surroundings,
    SurroundQueries,
    coarse,
    pair_rows,
    screen_pairs,
)
from reid_dist.engine.tile_loop import run_symmetric_tiles, run_tiles
from reid_dist.kernels.coarse import (
    FINE_SCALE,
    LENGTH,
    OMITTED,
    RESIDUAL,
    SCALE,
    SPAN,
    SPREAD,
    fine_error,
    largest_factors,
)

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True, params=integers.LARGEST_INTEGERS)
def largest(request, monkeypatch):
    """Integers of each range for all blocks, however small."""
    use_products_of(monkeypatch, request.param)
    return request.param


def products_of(near, far, distance):
    """Screen in float32 and products in eight bits of two blocks."""
    plain = screen_pairs(distance, pair_rows(distance, near, far), np.float32)
    products = quantise(plain)
    assert products is not None
    return plain, products


def prepared_rows(plain):
    """Prepared rows of queries and gallery, float64."""
    n_query, n_gallery, dim = plain.shape
    query, gallery = np.empty((n_query, dim), np.float32), np.empty((n_gallery, dim), np.float32)
    plain.prepare_queries(RowRange(0, n_query), query)
    plain.gallery_tile(0, n_gallery, gallery)
    return query.astype(np.longdouble), gallery.astype(np.longdouble)


# ------------------------------------------------------------------------------------------------- bounds of values


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_products_lie_within_their_bounds(name, data):
    """Values by integers, with and without residuals, against products in extended precision."""
    near, far = map(block_of, data.draw(hard_blocks(name)))
    plain, products = products_of(near, far, REGISTERED.get(name))
    x, y = prepared_rows(plain)
    exact = x @ y.T
    every = RowRange(0, len(y))
    columns = products.columns(every)
    one, two = products.queries.factors, columns.factors

    tile = products.tile(RowRange(0, len(x)), columns, every).astype(np.int64)
    whole = [each.integers.astype(np.int64).swapaxes(0, 1) for each in (one, two)]
    np.testing.assert_array_equal(tile - two.shift, whole[0][0] @ whole[1][0].T)
    largest = integers.integer_product(1).largest
    assert np.array_equal(two.shift, largest * whole[1][0].sum(axis=1))
    assert max(np.abs(each[0]).max() for each in whole) <= largest

    def outer(left, right):
        return np.multiply.outer(left.astype(np.longdouble), right.astype(np.longdouble))

    # Values below the range of float32 may be lost: levels are lowered by more.
    tiny = 2.0**-120
    value = outer(one.scale, two.scale) * (tile - two.shift)
    error = outer(one.spread, two.span) + outer(one.length, two.residual)
    assert (np.abs(value - exact) <= error + tiny).all()
    near, far = one.fine.T, two.fine.T
    value += outer(near[SCALE], far[FINE_SCALE]) * (whole[0][0] @ whole[1][1].T)
    value += outer(near[FINE_SCALE], far[SCALE]) * (whole[0][1] @ whole[1][0].T)
    error = outer(near[SPREAD], far[SPAN]) + outer(near[LENGTH], far[RESIDUAL]) + outer(near[OMITTED], far[OMITTED])
    assert (np.abs(value - exact) <= error + tiny).all()
    # The widest of a row, which contains roundings to float32.
    with np.errstate(under="ignore"):
        rounded = value.astype(np.float32)
    assert (np.abs(rounded - exact) <= fine_error(one, largest_factors(two))[:, None]).all()


@pytest.mark.quick_cases(1)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_lengths_of_residuals_are_not_too_small(data):
    largest = integers.integer_product(1).largest
    rows = data.draw(hard_rows(12, data.draw(st.sampled_from(DIMS)), "cosine"))
    found = Quantised(*rows.shape, largest)
    found.fill(RowRange(0, len(rows)), rows)
    exact = rows.astype(np.longdouble)
    for place, parts in enumerate(
        (
            0.0,
            found.scale[:, None].astype(np.longdouble) * found.integers[:, 0],
            found.fine_scale[:, None].astype(np.longdouble) * found.integers[:, 1],
        )
    ):
        exact = exact - parts
        length = np.sqrt((exact * exact).sum(axis=1))
        assert (found.bounds[:, place] >= length).all()
        # Nor too large, where squares are in the range of float32.
        usual = np.abs(rows).max(axis=1) > 1e-11
        assert (found.bounds[usual, place] <= 1.01 * length[usual] + 1e-6 * found.bounds[usual, 0]).all()


# ------------------------------------------------------------------------------------------------------ the sweep


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(k=st.integers(1, 12), tile=st.sampled_from([3, 17, 64]), data=st.data())
def test_sweep_with_seeds(name, k, tile, data):
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
    found = coarse_tiles.run_coarse_tiles_both_ways(near, far, distance, tile, k, known)
    assert found is not None
    for side, each, table, numbers in zip(found, known, (matrix, matrix.T), (far.numbers, near.numbers), strict=True):
        expected = plain_surroundings(table, numbers, min(k, table.shape[1]))
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
    (found,) = coarse_tiles.run_coarse_tiles_within(block, distance, tile, k)
    expected = plain_surroundings(matrix, block.numbers, min(k, len(block)), own=True)
    assert_same(found, expected)
    for screen in ("int8", "float32"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(integers.VARIABLE, screen)
            (lists,) = run_symmetric_tiles(block, None, distance, tile, k, farthest=False)
        assert_same(replace(lists, farthest=expected.farthest), expected)
        assert np.isnan(lists.farthest).all()
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(block), max_size=len(block))))
    labelled = replace(block, label=labels)
    (found,) = coarse_tiles.run_coarse_tiles_within(labelled, distance, tile, k)
    (plain,) = run_plain_tiles(
        labelled, labelled, distance, TileShape(tile, tile), [SurroundBoth(k, distance)], triangle=True
    )
    assert_same(found, plain[0])


@pytest.mark.slow
def test_lists_that_overflow(monkeypatch):
    """Hundreds of equal rows, nearer and farther ones after them: bounds cannot decide, and distances do."""
    monkeypatch.setattr(coarse, "_MOST_WORK", 1e12)
    rng = np.random.default_rng(3)
    distance = REGISTERED.get("cosine")
    near = block_of(rng.normal(size=(5, 64)))
    equal = np.repeat(rng.normal(size=(3, 64)), 200, axis=0)
    far = block_of(np.concatenate([equal, rng.normal(size=(200, 64)), near.features, equal]), 10)
    matrix = canonical_matrix(near, far, distance)
    unknown = tuple(Seed(np.full(len(each), np.inf), np.full(len(each), -np.inf)) for each in (near, far))
    found = coarse_tiles.run_coarse_tiles_both_ways(near, far, distance, 256, 4, unknown)
    assert_same(found[0], plain_surroundings(matrix, far.numbers, 4))
    assert_same(found[1], plain_surroundings(matrix.T, near.numbers, 4))
    (alone,) = coarse_tiles.run_coarse_tiles_within(far, distance, 96, 4)
    assert_same(alone, plain_surroundings(canonical_matrix(far, far, distance), far.numbers, 4, own=True))


def nearest_at_the_edge(dim, largest):
    """List of the query among rows, with a level exactly at the canonical distance of the one at the edge."""
    distance = REGISTERED.get("cosine")
    query, row = rows_at_the_edge(dim, 1.0, largest)
    near, far = block_of(query), block_of(np.concatenate([row, -np.ones((3, dim))]), 10)
    matrix = canonical_matrix(near, far, distance)
    # No rows want the query: a pair that passes for one of both is compared again for the other.
    known = Seed(matrix[:, 0].copy(), np.full(1, 2.0)), Seed(np.zeros(4), np.full(4, 2.0))
    found = coarse_tiles.run_coarse_tiles_both_ways(near, far, distance, 8, 1, known)
    return found[0].index.tolist(), found[0].distance.tolist(), matrix[:, :1].tolist()


@pytest.mark.parametrize("dim", [64, 512, 2048])
def test_level_at_the_edge_of_a_bound(dim, largest):
    """The errors of these values reach 99 % of their bounds."""
    near, far = (block_of(rows) for rows in rows_at_the_edge(dim, 1.0, largest))
    plain, products = products_of(near, far, REGISTERED.get("cosine"))
    x, y = prepared_rows(plain)
    columns = products.columns(RowRange(0, 1))
    one, two = products.queries.factors, columns.factors
    tile = products.tile(RowRange(0, 1), columns, RowRange(0, 1)).astype(np.float64) - two.shift
    error = one.spread * two.span + one.length * two.residual
    assert 0.98 * error < (x @ y.T - one.scale * two.scale * tile)[0, 0] <= error
    index, found, expected = nearest_at_the_edge(dim, largest)
    assert index == [[10]]
    assert found == expected


def test_smaller_bounds_are_noticed(largest, monkeypatch):
    """With half the bound, the nearest row of the same set is missed."""
    halve_bounds(monkeypatch)
    assert nearest_at_the_edge(512, largest)[0] == [[-1]]


def test_bands_widen_for_columns_with_larger_errors():
    """Signs are exact in eight bits, random numbers are not, and rows of few large ones have longer integers."""
    rng, distance, unknown = np.random.default_rng(2), REGISTERED.get("cosine"), np.full(6, np.inf)
    parts = [np.sign(rng.normal(size=(4, 64))), rng.normal(size=(4, 64)), np.round(rng.normal(size=(4, 64))) ** 5]
    near, far = block_of(rng.normal(size=(6, 64))), block_of(np.concatenate(parts))
    plain, products = products_of(near, far, distance)
    lists = coarse.CoarseQueries(near, far, distance, 2, Seed(unknown, -unknown), products)
    own, errors = products.queries.factors, []
    for start in (0, 4, 8):
        columns = RowRange(start, start + 4)
        factors = products.columns(columns).factors
        lists.open(columns, factors)
        errors.append(fine_error(own, largest_factors(factors)))
        assert (lists._side.side.lists.epsilon >= plain.epsilon + np.max(errors, axis=0)).all()
    assert (errors[1] > errors[0]).all()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(k=st.integers(1, 12), shape=st.sampled_from([(3, 5), (64, 17), (64, 64)]), data=st.data())
def test_lists_of_queries(name, k, shape, data):
    """Nearest and farthest gallery rows, bounded by those of the first tile."""
    distance, tile = REGISTERED.get(name), TileShape(*shape)
    rows = data.draw(hard_blocks(name))
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    expected = plain_surroundings(canonical_matrix(near, far, distance), far.numbers, k)
    (found,) = run_tiles(near, far, distance, tile, [SurroundQueries(k, distance)])
    (listed,) = run_tiles(near, far, distance, tile, [KeepNearest(k, distance)])
    width = found.index.shape[1]
    assert_same(found, Surroundings(expected.index[:, :width], expected.distance[:, :width], expected.farthest))
    assert (expected.index[:, width:] == -1).all()
    np.testing.assert_array_equal(listed.index, expected.index)
    np.testing.assert_array_equal(listed.distance, expected.distance)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(k=st.integers(1, 12), data=st.data())
def test_lists_within_a_known_reach(name, k, data):
    """Any reach that is a distance there is, above or below that of the k-th row; rows beyond may be missing."""
    distance = REGISTERED.get(name)
    rows = data.draw(hard_blocks(name))
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    matrix = canonical_matrix(near, far, distance)
    values = [*np.unique(matrix).tolist()[:200], np.inf, float(matrix.mean())]
    reach = np.array(data.draw(st.lists(st.sampled_from(values), min_size=len(near), max_size=len(near))))
    (found,) = run_tiles(near, far, distance, TileShape(17, 17), [KeepNearest(k, distance, reach=reach)])
    expected = plain_surroundings(matrix, far.numbers, k)
    assert found.index.shape == found.distance.shape == (len(near), k)
    assert_same(Surroundings(found.index, found.distance, expected.farthest), expected, within=reach)


@pytest.mark.parametrize("k", [1, 5, 20])
def test_first_rows_nearer_than_all_others(k):
    """The nearest row and the farthest one are among the first, and so are k - 1 others, or only some of these."""
    rng = np.random.default_rng(4)
    distance, rows = REGISTERED.get("cosine"), rng.normal(size=(200, 64))
    for n_near in (k - 1, k, k + 1, 3 * k):
        first = np.concatenate([rows[:1] + 0.01 * rows[1 : 1 + n_near], -rows[:1] - 0.01 * rows[1:2]])
        near, far = block_of(rows[:1]), block_of(np.concatenate([first, rows[n_near + 1 :]]), 100)
        expected = plain_surroundings(canonical_matrix(near, far, distance), far.numbers, k)
        (found,) = run_tiles(near, far, distance, TileShape(64, 150), [SurroundQueries(k, distance)])
        (listed,) = run_tiles(near, far, distance, TileShape(64, 150), [KeepNearest(k, distance)])
        assert_same(found, expected)
        np.testing.assert_array_equal(listed.index, expected.index)
        np.testing.assert_array_equal(listed.distance, expected.distance)


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
            patch.setenv(integers.VARIABLE, screen)
            found[screen] = nearest(items, items, k=k, distance=name, chunk_rows=32)
    assert found["int8"].index.tobytes() == found["float32"].index.tobytes()
    assert found["int8"].distance.tobytes() == found["float32"].distance.tobytes()


def test_crowded_blocks_are_computed_in_float32(monkeypatch):
    """The result is the same, wherever integers are given up."""
    rng = np.random.default_rng(8)
    distance = REGISTERED.get("cosine")
    near, far = block_of(rng.normal(size=(90, 64))), block_of(rng.normal(size=(70, 64)), 100)
    unknown = tuple(Seed(np.full(len(each), np.inf), np.full(len(each), -np.inf)) for each in (near, far))
    expected = run_symmetric_tiles(near, far, distance, 32, 3, unknown)
    for most in (-1e9, 0, 500):
        monkeypatch.setattr(coarse, "_MOST_WORK", most)
        for one, two in zip(run_symmetric_tiles(near, far, distance, 32, 3, unknown), expected, strict=True):
            assert_same(one, two)
    monkeypatch.setattr(coarse, "_MOST_WORK", -1e9)
    assert coarse_tiles.run_coarse_tiles_both_ways(near, far, distance, 32, 3, unknown) is None


def test_lists_that_did_not_pay_are_tried_again_later(monkeypatch):
    """The next pairs of blocks with such lists are left to float32, those of other lists are not."""
    rows, distance = np.random.default_rng(3).normal(size=(60, 16)), REGISTERED.get("cosine")
    near, far = block_of(rows[:30]), block_of(rows[30:], 100)
    unknown = tuple(Seed(np.full(30, np.inf), np.full(30, -np.inf)) for _ in range(2))
    tried, real = [], coarse_tiles.quantise
    monkeypatch.setattr(coarse_tiles, "quantise", lambda *arguments: tried.append(None) or real(*arguments))
    monkeypatch.setattr(coarse_tiles, "CROWDED_LISTS", crowded_lists._CrowdedLists())
    # As where integers are not forced, and pay by the sizes of the blocks.
    monkeypatch.setattr(crowded_lists, "forced_screen", lambda: None)
    monkeypatch.setattr(crowded_lists, "_ELEMENTS_PER_NEIGHBOUR", 1)
    monkeypatch.setattr(coarse, "_MOST_WORK", -1e9)

    def attempts(run):
        before = len(tried)
        found = run()
        return len(tried) - before, found

    def both_ways(k=3):
        return coarse_tiles.run_coarse_tiles_both_ways(near, far, distance, 32, k, unknown)

    counts = [attempts(both_ways) for _ in range(18)]
    assert [n for n, _ in counts] == [1, *[0] * 15, 1, 0]
    assert all(found is None for _, found in counts)
    assert attempts(lambda: both_ways(k=4))[0] == 1
    for run in (
        lambda: coarse_tiles.run_coarse_tiles_within(near, distance, 32, 3),
        lambda: run_tiles(near, far, distance, TileShape(32, 32), [KeepNearest(3, distance)]),
    ):
        assert attempts(run)[0] == 0
        monkeypatch.setattr(coarse_tiles, "CROWDED_LISTS", crowded_lists._CrowdedLists())
        assert [attempts(run)[0] for _ in range(3)] == [1, 0, 0]
