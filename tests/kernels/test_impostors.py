"""Histograms of screened distances and exact counts of brackets, against NumPy counting pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import examples
from tiles import Tile, few_valued

from reid_dist.engine.distances import DISTANCES
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.impostors import (
    HIDDEN,
    LARGEST_KEY,
    N_PLACES,
    TOUCHED,
    Brackets,
    ByQuery,
    Screened,
    count_keys,
    falling_keys,
    key_edges,
    split_tile,
    untallied,
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
        before = self.start
        # The rows of the columns of the block, of which the tile is the last part.
        gallery = read_only(np.concatenate([gallery[:1].repeat(before, axis=0), gallery]))
        norm = np.concatenate([np.zeros(before), tile.rows.gallery_norm])
        self.rows = tile.rows._replace(gallery=gallery, gallery_norm=norm)
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
        codes = np.full(N_PLACES, len(edges) // 2 + 1, np.uint16)
        low = falling_keys(falling[::2] - reach) + LARGEST_KEY
        high = falling_keys(falling[1::2] + reach) + LARGEST_KEY
        for gap in range(len(low) - 1, -1, -1):
            codes[: low[gap]] = gap + 1
        for first, last in zip(low, high, strict=True):
            codes[first : last + 1] = TOUCHED
        last = int(high.max(initial=0))
        return Brackets(
            codes, last, np.zeros(N_PLACES, np.uint16), falling, edges, screen.centre, screen.epsilon, screen.slope
        )


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
    assert counts[HIDDEN] <= len(case.screened.hidden_column)
    occupied = np.flatnonzero(counts[: 2 * LARGEST_KEY])
    if len(occupied):
        assert span.tolist() == occupied[[0, -1]].tolist()


@given(case=cases, data=st.data())
@settings(max_examples=examples(120))
def test_brackets_are_counted_by_canonical_distances(case: Case, data: st.DataObject) -> None:
    """Edges lie on distances that occur, so that pairs at an edge abound; brackets may be empty, or touch."""
    exact, rows = case.tile.exact, case.rows
    occurring = sorted({*np.unique(exact).tolist(), 0.0, float(exact.max()) * 2 + 1})
    n_brackets = data.draw(st.integers(1, 4))
    edges = np.sort(data.draw(st.lists(st.sampled_from(occurring), min_size=2 * n_brackets, max_size=2 * n_brackets)))
    gaps, found, progress = np.zeros(n_brackets, np.int64), np.full(exact.size, np.nan), np.zeros(2, np.int64)
    capacity = max(len(case.tile.gallery), data.draw(st.integers(1, exact.size)))
    collected: list[float] = []
    n_query = len(case.tile.query)
    by_query = ByQuery(np.zeros((n_query, 2, n_brackets), np.int32), np.zeros(capacity, np.int64))
    owners: list[int] = []
    row = 0
    while row < len(case.tile.query):
        # A small buffer is filled, emptied and filled again.
        brackets, buffer = case.brackets(edges), found[:capacity]
        row = split_tile(case.screened, brackets, rows, row, 2 * exact.size, gaps, buffer, progress, by_query)
        assert row >= 0
        owners += by_query.owner[: progress[0]].tolist()
        collected += found[: progress[0]].tolist()
        progress[:] = 0
    seen = exact[case.seen]
    region = np.searchsorted(edges, seen, "right")
    assert sorted(collected) == sorted(seen[region % 2 == 1].tolist())
    assert gaps.tolist() == [int((region == 2 * gap).sum()) for gap in range(n_brackets)]
    # The same by query.
    place = np.where(case.seen, np.searchsorted(edges, exact, "right"), 2 * n_brackets)
    expected = [[[int((own == 2 * gap + side).sum()) for gap in range(n_brackets)] for side in (0, 1)] for own in place]
    assert by_query.tally.tolist() == expected
    inside = [(query, float(exact[query, column])) for query, column in np.argwhere(place % 2 == 1).tolist()]
    assert sorted(zip(owners, collected, strict=True)) == sorted(inside)


def test_a_crowded_tile_gives_up() -> None:
    case = Case(3, "cosine", np.float32, 600, 1)
    brackets = case.brackets(np.array([0.0, 1.0]))
    gaps, progress = np.zeros(1, np.int64), np.zeros(2, np.int64)
    assert split_tile(case.screened, brackets, case.rows, 0, 50, gaps, np.empty(9000), progress, untallied()) == -1


@pytest.mark.parametrize("n_gallery", [1, 512, 513])
def test_what_lies_beyond_all_brackets_is_passed_over(n_gallery: int) -> None:
    case = Case(4, "euclidean", np.float32, n_gallery, 1000)
    gaps, progress = np.zeros(1, np.int64), np.zeros(2, np.int64)
    brackets = case.brackets(np.array([0.0, 1e-3]))
    done = split_tile(case.screened, brackets, case.rows, 0, 10**6, gaps, np.empty(9000), progress, untallied())
    assert (done, gaps.tolist(), progress.tolist()) == (len(case.tile.query), [0], [0, 0])
