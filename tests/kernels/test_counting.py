"""The counting kernel against a count by definition, in all branches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples
from tiles import Tile, few_valued, tile_of

from reid_dist.engine.distances import DISTANCES
from reid_dist.kernels.canonical import PairRows, read_only, squared_norms
from reid_dist.kernels.counting import count_tile, most_of_many
from reid_dist.kernels.deciding import APART, Bands, decide, make_open_pairs


class Case:
    """A block of queries against a tile, with some gallery rows relevant and some hidden."""

    def __init__(
        self, seed: int, name: str, dtype: type, n_query: int, n_gallery: int, dim: int, n_positive: int, values: int
    ) -> None:
        rng = np.random.default_rng(seed)
        query, gallery = (few_valued(rng, n, dim, values) for n in (n_query, n_gallery))
        self.tile = Tile(DISTANCES.get(name), query, gallery, dtype)
        self.hidden = [np.sort(rng.choice(n_gallery, min(n_gallery, n_positive + 3), replace=False)) for _ in query]
        positives = [np.sort(rng.choice(rows, min(len(rows), n_positive), replace=False)) for rows in self.hidden]
        self.junk = rng.random(n_gallery) < 0.1
        self.row_of = np.arange(n_gallery)
        self.bands = self.tile.bands(positives, self.hidden, self.row_of)
        self.group_of = rng.integers(0, 3, n_gallery)

    def by_definition(self, group: int | None = None) -> tuple[list[int], list[int], list[int]]:
        near, tied, preceding = [], [], []
        bands, (n_query, n_gallery) = self.bands, self.tile.shape
        for q in range(n_query):
            exact = self.tile.exact[q]
            kept = np.ones(n_gallery, bool)
            kept[self.hidden[q]] = False
            kept[self.junk] = False
            if group is not None:
                kept &= self.group_of == group
            for u in range(bands.indptr[q], bands.indptr[q + 1]):
                at = bands.distance[u]
                near.append(int((exact[kept] < at).sum()))
                tied.append(int((exact[kept] == at).sum()))
                for row in bands.positive_row[bands.positive_start[u] : bands.positive_start[u + 1]]:
                    preceding.append(int((kept & (exact == at) & (self.row_of < row)).sum()))
        return near, tied, preceding


def count(case: Case, limit: int = 10**9, n_groups: int = 1) -> tuple[int, list[tuple[list[int], ...]]]:
    """Rows that were added, and the counts of every group of columns."""
    tile, bands = case.tile, case.bands
    counts = np.zeros((n_groups, len(bands.positive_row) + 2 * len(bands.distance)), np.int32)
    open_pairs = make_open_pairs(tile.exact.size + tile.shape[1])
    seen, many = tile.seen(case.junk), most_of_many(bands.indptr)
    group_of = case.group_of if n_groups > 1 else case.group_of[:0]
    done, n_open, _ = count_tile(seen, bands, counts, open_pairs, 0, 0, limit, group_of, many)
    for p in range(decide(open_pairs, n_open, case.row_of, bands, tile.rows, APART)):
        counts[case.group_of[open_pairs.column[p]] if n_groups > 1 else 0, open_pairs.place[p]] += 1
    return done, [by_threshold(bands, own.tolist()) for own in counts]


def by_threshold(bands: Bands, counts: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Nearer negatives and tied ones of each threshold, and tied ones before each positive, from counts by place."""
    near, tied, preceding = [], [], []
    for q in range(len(bands.indptr) - 1):
        before = 0
        for u in range(bands.indptr[q], bands.indptr[q + 1]):
            start, stop = (int(bands.positive_start[v]) for v in (u, u + 1))
            before += counts[start + 2 * u]
            near.append(before)
            ties = counts[start + 2 * u + 1 : stop + 2 * u + 2]
            tied.append(sum(ties))
            preceding += np.cumsum(ties[:-1]).tolist()
            before += sum(ties)
    return near, tied, preceding


@given(
    seed=st.integers(0, 2**32 - 1),
    n_gallery=st.integers(1, 1300),
    dim=st.integers(1, 40),
    n_positive=st.sampled_from([0, 1, 2, 10, 40, 300]),
    values=st.sampled_from([1, 2, 1000]),
    name=st.sampled_from(DISTANCES.names()),
    dtype=st.sampled_from([np.int32, np.float32, np.float64]),
)
@settings(max_examples=examples(120), deadline=None)
def test_counts_are_those_of_the_definition(
    seed: int, n_gallery: int, dim: int, n_positive: int, values: int, name: str, dtype: type
) -> None:
    case = Case(seed, name, dtype, 3, n_gallery, dim, n_positive, values)
    assert count(case) == (3, [case.by_definition()])
    assert count(case, n_groups=3) == (3, [case.by_definition(group) for group in range(3)])


@pytest.mark.parametrize("n_positive", [3, 60])
def test_a_crowded_band_ends_the_count(n_positive: int) -> None:
    case = Case(5, "cosine", np.float32, 4, 900, 8, n_positive, 1)
    # Some 813 pairs of a row are inside: the limit is exceeded in the second row, of which nothing is counted.
    done, [(near, tied, preceding)] = count(case, limit=1000)
    expected = case.by_definition()
    assert done == 1
    thresholds = case.bands.indptr[1]
    assert near[:thresholds] + tied[:thresholds] == expected[0][:thresholds] + expected[1][:thresholds]
    assert not any(near[thresholds:] + tied[thresholds:])
    assert preceding[:n_positive] == expected[2][:n_positive]


@pytest.mark.parametrize("width", [1e-3, 0.05])
@pytest.mark.parametrize("n_positive", [20, 40])
@pytest.mark.parametrize("one_each", [False, True])
def test_values_at_every_threshold(n_positive: int, width: float, one_each: bool) -> None:
    """Values exactly at the edges and one step beyond them, or one value in the middle of each band.

    Few thresholds and many, bands apart and overlapping.
    """
    query = read_only(np.ones((1, 1), np.float32))
    positives = np.linspace(0.1, 0.9, n_positive)
    lower = (positives[::-1] - width).astype(np.float32)
    upper = (positives[::-1] + width).astype(np.float32)
    edges = np.concatenate([lower, upper])
    values = np.concatenate([edges, np.nextafter(edges, np.float32(-1)), np.nextafter(edges, np.float32(2))])
    if one_each:
        values = positives.astype(np.float32)
    # Canonically every column is nearer than every threshold: a value inside a band then counts as near.
    gallery = read_only(np.ones((len(values), 1), np.float32))
    n = len(lower)
    bands = Bands(
        np.array([0, n]), lower, upper, np.arange(1.0, n + 1), np.arange(n + 1), np.full(n, 10**6), np.zeros(2, int),
        np.empty(0, np.int64),
    )  # fmt: skip
    counts, none = np.zeros((1, 3 * n), np.int32), np.empty(0, np.int64)
    rows = PairRows(1, query, gallery, squared_norms(query), squared_norms(gallery))
    tile, open_pairs = tile_of(values[None], np.zeros((1, len(values)))), make_open_pairs(2 * len(values))
    _, n_open, inside = count_tile(tile, bands, counts, open_pairs, 0, 0, 10**9, none, most_of_many(bands.indptr))
    for p in range(decide(open_pairs, n_open, np.arange(len(values)), bands, rows, APART)):
        counts[0, open_pairs.place[p]] += 1
    near, _, _ = by_threshold(bands, counts[0].tolist())
    assert near == [(values >= low).sum() for low in lower]
    assert inside == n_open == ((values[:, None] >= lower) & (values[:, None] <= upper)).any(axis=1).sum()
