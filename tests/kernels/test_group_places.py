"""Least places of groups over one tile, against those of their nearest items.

An item has the place of the positives before it and two for each nearer threshold; one at a threshold, one more.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples
from tiles import Tile, few_valued

from reid_dist.engine.distances import DISTANCES
from reid_dist.kernels.deciding import APART, decide, make_open_pairs
from reid_dist.kernels.group_places import lower_places
from reid_dist.kernels.placing import PlacedPairs, place_pairs

_N_QUERY, _N_POSITIVE, _N_GROUP = 3, 6, 20


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@given(
    seed=st.integers(0, 2**32 - 1),
    n_gallery=st.integers(_N_POSITIVE, 300),
    values=st.sampled_from([1, 2, 1000]),
    run=st.integers(1, 9),
)
@settings(max_examples=examples(60), deadline=None)
def test_the_place_of_a_group_is_the_least_of_its_items(
    dtype: type, seed: int, n_gallery: int, values: int, run: int
) -> None:
    """Groups of several runs of columns, of which the first item need not be the nearest."""
    rng = np.random.default_rng(seed)
    query, gallery = (few_valued(rng, n, 4, values) for n in (_N_QUERY, n_gallery))
    tile = Tile(DISTANCES.get("euclidean"), query, gallery, dtype)
    row_of, none_hidden = np.arange(n_gallery), np.zeros(n_gallery, bool)
    positives = [np.sort(rng.choice(n_gallery, _N_POSITIVE, replace=False)) for _ in query]
    bands = tile.bands(positives, positives, row_of)
    group_of = rng.integers(0, _N_GROUP, n_gallery).astype(np.int32)[np.arange(n_gallery) // run]
    # All bits are set where no item of a group has come.
    least = np.full((_N_QUERY, _N_GROUP), 255, np.uint8)
    start_of_places = bands.positive_start[bands.indptr] + 2 * bands.indptr
    n_pairs = (_N_QUERY + 1) * n_gallery
    pairs = make_open_pairs(n_pairs)
    placed = PlacedPairs(
        np.empty(_N_QUERY, np.int64), np.empty(_N_QUERY + 1, np.int64), np.empty(n_pairs, np.int32),
        np.empty(n_pairs, np.int32),
    )  # fmt: skip
    seen = tile.seen(none_hidden)
    done, n_open, _, n = place_pairs(seen, bands, pairs, 0, 0, 10**9, bands.indptr[1:], APART, group_of, placed)
    assert done == _N_QUERY
    lower_places(placed._replace(query=placed.query[:n]), least)
    for p in range(decide(pairs, n_open, row_of, bands, tile.rows, APART)):
        q, group = pairs.query[p], group_of[pairs.column[p]]
        least[q, group] = min(int(least[q, group]), pairs.place[p] - start_of_places[q])
    for q in range(_N_QUERY):
        exact, of_positives = tile.exact[q], tile.exact[q, positives[q]]
        thresholds = np.unique(of_positives)
        for group in range(_N_GROUP):
            items = np.setdiff1d(np.flatnonzero(group_of == group), positives[q])
            before = items[exact[items] <= thresholds[-1]]
            if len(before) == 0:
                assert least[q, group] >= _N_POSITIVE + 2 * len(thresholds)
                continue
            first = tile.in_order(q, before)[0]
            nearer, u = (of_positives < exact[first]).sum(), (thresholds < exact[first]).sum()
            tied = of_positives == exact[first]
            assert least[q, group] == nearer + (tied & (positives[q] < first)).sum() + 2 * u + tied.any()
