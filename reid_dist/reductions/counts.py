"""Counts of the negatives that come before each positive: the reduction that ranks are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.distances import Distance, Screen
from reid_dist.errors import DamagedStoreError
from reid_dist.kernels.canonical import PairRows, pair_distances
from reid_dist.kernels.counting import Bands, RankCounts, count_tile
from reid_dist.model import GalleryMask, RowRange, Targets, cut_rows
from reid_dist.reductions.base import FeatureBlock, HiddenColumns, Tile, pair_rows

__all__ = ["CountNearer", "GroupedCounts", "PartialCounts", "SparseCounts", "add_counts"]

Int64 = NDArray[np.int64]

# Above this share of a tile decided pair by pair, a float64 product of the tile is cheaper.
CROWDED = 0.02

# Queries whose edges are computed together.
_EDGE_QUERIES = 256


@dataclass(frozen=True, slots=True)
class CountNearer:
    """Count, for every target, the negatives that lie nearer, at its distance, and there but before it.

    Counts of different groups of gallery rows are kept apart: a partial result is a mapping from group to counts.

    Attributes
    ----------
    targets
        Of the block of queries.
    mask
        What queries may not see of the gallery.
    distance
        The distance.
    """

    targets: Targets
    mask: GalleryMask
    distance: Distance

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _Counting:
        """Make an accumulator for a block pair."""
        return _Counting(self, query, gallery, screen)

    def combine(self, partials: Sequence[GroupedCounts]) -> GroupedCounts:
        """Add counts, group by group."""
        groups = sorted({group for partial in partials for group in partial})
        return {group: add_counts([partial[group] for partial in partials if group in partial]) for group in groups}


def count_dtype(n_gallery: int) -> np.dtype[np.signedinteger]:
    """Smallest type that holds a count of gallery rows."""
    return np.dtype(np.int32 if n_gallery <= np.iinfo(np.int32).max else np.int64)


@dataclass(frozen=True, slots=True)
class SparseCounts:
    """Counts that are nearly all 0: places, ascending, and the counts there, both int64."""

    place: Int64
    count: Int64

    @classmethod
    def of(cls, dense: NDArray[np.signedinteger]) -> SparseCounts:
        """Keep what is not 0."""
        place = np.flatnonzero(dense)
        return cls(place, dense[place].astype(np.int64))

    def dense(self, size: int) -> Int64:
        """Return all counts, shape (size,), int64."""
        out = np.zeros(size, np.int64)
        out[self.place] = self.count
        return out


def _add_sparse(parts: Sequence[SparseCounts]) -> SparseCounts:
    place, inverse = np.unique(np.concatenate([part.place for part in parts]), return_inverse=True)
    total = np.zeros(len(place), np.int64)
    np.add.at(total, inverse, np.concatenate([part.count for part in parts]))
    return SparseCounts(place, total)


@dataclass(frozen=True, slots=True)
class PartialCounts:
    """Counts of some gallery blocks, as small as they travel.

    Attributes
    ----------
    near
        Per threshold: negatives nearer than it, int32 (int64 for galleries beyond 2^31 rows).
    tied, before
        As in `RankCounts`, and rarely anything but 0.
    """

    near: NDArray[np.signedinteger]
    tied: SparseCounts
    before: SparseCounts

    @classmethod
    def zeros(cls, n_threshold: int) -> PartialCounts:
        """Counts of no gallery rows."""
        none = SparseCounts(np.empty(0, np.int64), np.empty(0, np.int64))
        return cls(np.zeros(n_threshold, np.int32), none, none)


GroupedCounts = dict[int, PartialCounts]
"""Counts by group of gallery rows; a single group 0 where nobody asked for groups."""


def add_counts(partials: Sequence[PartialCounts]) -> PartialCounts:
    """Add the counts of different gallery rows."""
    if len(partials) == 1:
        return partials[0]
    near = partials[0].near.astype(np.int64)
    for partial in partials[1:]:
        near += partial.near
    widest = max((partial.near.dtype for partial in partials), key=lambda dtype: dtype.itemsize)
    return PartialCounts(
        near.astype(widest),
        *(_add_sparse([getattr(partial, name) for partial in partials]) for name in ("tied", "before")),
    )


class _Counting:
    """Accumulator of `CountNearer`."""

    def __init__(self, reduction: CountNearer, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> None:
        self._reduction = reduction
        self._query = query
        self._gallery = gallery
        targets = reduction.targets
        self._hidden = HiddenColumns(targets.hidden, reduction.mask, gallery)
        self._bands = self._make_bands(screen, RowRange(0, len(targets.indptr) - 1))
        self._counts = _zeros(len(targets.distance), len(targets.positive_row))
        self._check_thresholds()

    def _check_thresholds(self) -> None:
        """Compute the distances of this block's positives again, from rows that were verified when they were read.

        Thresholds come from rows that were fetched one by one and not verified.

        Raises
        ------
        DamagedStoreError
            If one of them differs.
        """
        targets = self._reduction.targets
        place, column = self._gallery.find(targets.positive_row)
        threshold = np.searchsorted(targets.positive_start, place, "right") - 1
        owner = np.searchsorted(targets.indptr, threshold, "right") - 1
        pairs = pair_rows(self._reduction.distance, self._query, self._gallery)
        again = pair_distances(pairs, owner, column)
        wrong = np.flatnonzero(again != targets.distance[threshold])
        if len(wrong):
            raise DamagedStoreError(
                f"gallery row {targets.positive_row[place[wrong[0]]]} was read with other features than before; the "
                "store changed, or its storage is not reliable: run `reid-dist check` on it"
            )

    def _make_bands(self, screen: Screen, queries: RowRange) -> Bands:
        """Thresholds of some queries of the block in screening values; the screen is for these queries alone."""
        targets = self._reduction.targets
        own = targets.indptr[queries.start : queries.stop + 1]
        lower, upper = (np.empty(own[-1] - own[0], screen.dtype) for _ in range(2))
        for cut in cut_rows(len(queries), _EDGE_QUERIES):
            # A few queries at a time: edges are computed in float64, with several arrays of that on the way.
            owner = np.repeat(np.arange(cut.start, cut.stop), np.diff(own[cut.start : cut.stop + 1]))
            here = slice(own[cut.start] - own[0], own[cut.stop] - own[0])
            distance = targets.distance[own[cut.start] : own[cut.stop]]
            lower[here], upper[here] = screen.edges(owner, distance, self._reduction.distance.squared)
        return Bands(
            indptr=own - own[0],
            lower=lower,
            upper=upper,
            distance=targets.distance[own[0] : own[-1]],
            positive_start=targets.positive_start[own[0] : own[-1] + 1],
            positive_row=targets.positive_row,
            hidden_indptr=self._hidden.indptr[queries.start : queries.stop + 1],
            hidden_column=self._hidden.column,
        )

    def absorb(self, tile: Tile) -> None:
        """Count one tile; one whose bands are too crowded is screened again in float64."""
        n_query, n_column = tile.values.shape
        columns = slice(tile.column_start, tile.column_start + n_column)
        queries = RowRange(tile.query_start, tile.query_start + n_query)
        targets = self._reduction.targets
        own = slice(targets.indptr[queries.start], targets.indptr[queries.stop])
        positives = slice(targets.positive_start[own.start], targets.positive_start[own.stop])
        # Counts of a tile that is given up half-way must not stay: they are taken apart, then added.
        counts = _zeros(own.stop - own.start, positives.stop - positives.start)
        limit = int(CROWDED * tile.values.size) + 64
        if self._count(tile.values, tile.bias, self._bands, queries, columns, counts, limit) < 0:
            counts = _zeros(own.stop - own.start, positives.stop - positives.start)
            self._count_wide(queries, columns, counts)
        self._counts.near[own] += counts.near
        self._counts.tied[own] += counts.tied
        self._counts.before[positives] += counts.before

    def _count(
        self,
        values: NDArray[np.floating],
        bias: NDArray[np.floating],
        bands: Bands,
        queries: RowRange,
        columns: slice,
        counts: RankCounts,
        limit: int,
    ) -> int:
        """Count screening values of some queries; `bands` are of these queries, or of the whole block."""
        own = bands if len(bands.indptr) == len(queries) + 1 else _cut_bands(bands, queries)
        biases, bias_of = self._hidden.bias(bias, columns, queries)
        rows = PairRows(
            self._reduction.distance.kind,
            self._query.features[queries.start : queries.stop],
            self._gallery.features[columns],
            self._query.norm[queries.start : queries.stop],
            self._gallery.norm[columns],
        )
        row_of = self._gallery.numbers[columns]
        return count_tile(values, biases, bias_of, columns.start, row_of, own, rows, counts, limit)

    def _count_wide(self, queries: RowRange, columns: slice, counts: RankCounts) -> None:
        """Count a tile by a product in float64, whose bands are some 2^29 times narrower."""
        features, norm = (
            self._query.features[queries.start : queries.stop],
            self._query.norm[queries.start : queries.stop],
        )
        gallery, gallery_norm = self._gallery.features[columns], self._gallery.norm[columns]
        screen = self._reduction.distance.screen(features, gallery, norm, gallery_norm, np.float64)
        wide: NDArray[np.floating] = np.empty(gallery.shape, np.float64)
        matrix, bias = screen.gallery_tile(0, len(gallery), wide)
        values: NDArray[np.floating] = np.empty((len(features), len(gallery)), np.float64)
        screen.multiply(RowRange(0, len(features)), matrix, values)
        self._count(values, bias, self._make_bands(screen, queries), queries, columns, counts, values.size)

    def result(self) -> GroupedCounts:
        """Return the counts of the block pair."""
        counts = self._counts
        near = counts.near.astype(count_dtype(len(self._reduction.mask.junk_row)), copy=False)
        partial = PartialCounts(near, SparseCounts.of(counts.tied), SparseCounts.of(counts.before))
        return {self._gallery.group: partial}


def _zeros(n_threshold: int, n_positive: int) -> RankCounts:
    # A block has far fewer than 2^31 rows.
    return RankCounts(*(np.zeros(size, np.int32) for size in (n_threshold, n_threshold, n_positive)))


def _cut_bands(bands: Bands, queries: RowRange) -> Bands:
    """Bands of some queries out of those of a whole block."""
    own = bands.indptr[queries.start : queries.stop + 1]
    cut = slice(own[0], own[-1])
    return Bands(
        indptr=own - own[0],
        lower=bands.lower[cut],
        upper=bands.upper[cut],
        distance=bands.distance[cut],
        positive_start=bands.positive_start[own[0] : own[-1] + 1],
        positive_row=bands.positive_row,
        hidden_indptr=bands.hidden_indptr[queries.start : queries.stop + 1],
        hidden_column=bands.hidden_column,
    )
