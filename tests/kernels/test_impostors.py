"""Histograms of screened distances and exact counts of brackets, against NumPy counting pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples
from tiles import Tile, few_valued

from reid_dist.engine.distances import DISTANCES
from reid_dist.kernels.deciding import make_open_pairs
from reid_dist.kernels.impostors import (
    LARGEST_KEY,
    N_PLACES,
    NEEDS_VALUE,
    Brackets,
    Screened,
    count_keys,
    falling_keys,
    key_edges,
    split_tile,
)

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(values=st.lists(finite | st.floats(-2, 2) | st.sampled_from([0.0, -0.0]), min_size=2, max_size=40))
def test_keys_are_in_the_order_of_the_values(values: list[float]) -> None:
    ascending = np.sort(np.array(values))
    keys = falling_keys(ascending)
    assert (np.diff(keys) >= 0).all()
    assert (np.abs(keys) <= LARGEST_KEY).all()
    assert falling_keys(-ascending[::-1]).tolist() == (-keys[::-1]).tolist()


@given(values=st.lists(st.floats(-3e38, 3e38), min_size=1, max_size=40))
def test_a_value_lies_between_the_edges_of_its_key(values: list[float]) -> None:
    array = np.array(values)
    low, high = key_edges(falling_keys(array))
    held = array.astype(np.float32)
    assert (low <= held).all()
    assert (held <= high).all()
    normal = np.abs(held) > 1e-37
    assert ((high - low)[normal] <= np.abs(array[normal]) / 4000).all()


class Case:
    """A tile somewhere in a block pair: columns hidden by rows and by their bias, and a query that counts not."""

    def __init__(self, seed: int, name: str, dtype: type, n_gallery: int, values: int) -> None:
        rng = np.random.default_rng(seed)
        n_query, dim = 5, int(rng.integers(1, 40))
        query, gallery = (few_valued(rng, n, dim, values) for n in (n_query, n_gallery))
        self.tile = tile = Tile(DISTANCES.get(name), query, gallery, dtype)
        # The block begins before the tile: some columns of it belong to other tiles.
        self.start = int(rng.integers(0, 50))
        kinds = rng.random((2, n_gallery)) < 0.2
        bias_of = rng.integers(0, 2, n_query)
        hidden = [np.flatnonzero(rng.random(self.start + n_gallery + 9) < 0.1) for _ in range(n_query)]
        counted = rng.random(n_query) < 0.8
        self.seen = ~kinds[bias_of] & counted[:, None]
        for q, columns in enumerate(hidden):
            mine = columns[(columns >= self.start) & (columns < self.start + n_gallery)] - self.start
            self.seen[q, mine] = False
        self.screened = Screened(
            tile=tile.seen(kinds, bias_of, column_start=self.start),
            hidden_indptr=np.cumsum([0, *map(len, hidden)]),
            hidden_column=np.concatenate(hidden).astype(np.int64),
            counted=counted,
            centre=tile.screen.centre.astype(tile.screen.dtype),
            scale=np.full(1, 1 / tile.screen.slope, tile.screen.dtype)[0],
        )

    def brackets(self, edges: np.ndarray) -> Brackets:
        """Every key that anything within reach of an edge can have is looked at."""
        screen = self.tile.screen
        falling = edges**2 if self.tile.distance.squared else edges
        off = screen.epsilon.max() + float(self.screened.tile.extra.max())
        reach = 2 * off / screen.slope + 1e-5 * (1 + screen.centre.max())
        entries = np.full(N_PLACES, len(edges), np.uint32)
        low = falling_keys(falling[::2] - reach) + LARGEST_KEY
        high = falling_keys(falling[1::2] + reach) + LARGEST_KEY
        for gap in range(len(low) - 1, -1, -1):
            entries[: low[gap]] = 2 * gap
        for first, last in zip(low, high, strict=True):
            # Of no edge it is known whether such values are beyond it.
            entries[first : last + 1] = NEEDS_VALUE
        return Brackets(entries, int(high.max(initial=0)), falling, screen.centre, screen.epsilon)


cases = st.builds(
    Case,
    st.integers(0, 2**32 - 1),
    st.sampled_from(DISTANCES.names()),
    st.sampled_from([np.int32, np.float32, np.float64]),
    st.sampled_from([1, 3, 130, 511, 512, 1100]),
    st.sampled_from([1, 2, 3, 1000]),
)


@pytest.mark.slow
@given(case=cases)
@settings(max_examples=examples(60))
def test_the_histogram_counts_every_pair_once(case: Case) -> None:
    counts = np.zeros(N_PLACES, np.int64)
    span = np.array([N_PLACES, 0], np.uint32)
    count_keys(case.screened, counts, span)
    tile = case.screened.tile
    scaled = (tile.products - tile.shift).astype(tile.scale.dtype) * (tile.scale * tile.factor[:, None])
    values = scaled - tile.bias[tile.bias_of]
    falling = (case.screened.centre[:, None] - values) * case.screened.scale
    expected = np.bincount(falling_keys(falling[case.seen].astype(np.float64)) + LARGEST_KEY, minlength=N_PLACES)
    assert np.array_equal(counts[: 2 * LARGEST_KEY], expected[: 2 * LARGEST_KEY])
    assert counts.sum() == case.tile.exact[case.screened.counted].size
    occupied = np.flatnonzero(counts[: 2 * LARGEST_KEY])
    if len(occupied):
        assert span.tolist() == occupied[[0, -1]].tolist()


@given(case=cases, data=st.data())
@settings(max_examples=examples(120))
def test_pairs_outside_brackets_are_counted_and_those_inside_are_open(case: Case, data: st.DataObject) -> None:
    """Edges lie on distances that occur, so that pairs at an edge abound; brackets may be empty, or touch."""
    exact = case.tile.exact
    occurring = sorted({*np.unique(exact).tolist(), 0.0, float(exact.max()) * 2 + 1})
    n_brackets = data.draw(st.integers(1, 4))
    edges = np.sort(data.draw(st.lists(st.sampled_from(occurring), min_size=2 * n_brackets, max_size=2 * n_brackets)))
    n_query, n_gallery = exact.shape
    gaps, tally = np.zeros(n_brackets, np.int64), np.zeros((n_query, 2, n_brackets), np.int32)
    pairs = make_open_pairs(n_gallery + data.draw(st.integers(0, exact.size)))
    opened: list[tuple[int, int]] = []
    row = 0
    while row < n_query:
        # Memory is filled, emptied and filled again.
        row, n_open, inside = split_tile(case.screened, case.brackets(edges), pairs, 0, row, exact.size, gaps, tally)
        assert n_open <= inside
        opened += zip(pairs.query[:n_open].tolist(), (pairs.column[:n_open] - case.start).tolist(), strict=True)
    place = np.where(case.seen, np.searchsorted(edges, exact, "right"), 2 * n_brackets)
    assert len(set(opened)) == len(opened)
    # All pairs inside a bracket are open; each of the others is open or counted.
    assert set(opened) >= set(map(tuple, np.argwhere(place % 2 == 1).tolist()))
    for query, column in opened:
        assert case.seen[query, column]
        place[query, column] = 2 * n_brackets
    by_query = [[int((own == 2 * gap).sum()) for gap in range(n_brackets)] for own in place]
    assert tally[:, 0].tolist() == by_query
    assert not tally[:, 1].any()
    assert gaps.tolist() == np.sum(by_query, axis=0).tolist()


NOT_BY_QUERY = np.empty((0, 0, 0), np.int32)


def test_a_crowded_tile_gives_up() -> None:
    """Behind the first row that counts, of which more pairs are inside than the limit."""
    case = Case(3, "cosine", np.float32, 600, 1)
    gaps, pairs = np.zeros(1, np.int64), make_open_pairs(9000)
    brackets = case.brackets(np.array([0.0, 1.0]))
    done, n_open, inside = split_tile(case.screened, brackets, pairs, 0, 0, 50, gaps, NOT_BY_QUERY)
    assert done == np.flatnonzero(case.screened.counted)[0] + 1
    assert n_open == inside == case.seen[done - 1].sum() > 50


@pytest.mark.parametrize("n_gallery", [1, 512, 513])
def test_what_lies_beyond_all_brackets_is_passed_over(n_gallery: int) -> None:
    case = Case(4, "euclidean", np.float32, n_gallery, 1000)
    gaps, pairs = np.zeros(1, np.int64), make_open_pairs(9000)
    brackets = case.brackets(np.array([0.0, 1e-3]))
    found = split_tile(case.screened, brackets, pairs, 0, 0, 10**6, gaps, NOT_BY_QUERY)
    assert (found, gaps.tolist()) == ((len(case.tile.query), 0, 0), [0])
