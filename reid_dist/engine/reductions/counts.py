"""Counts of the negatives that come before each positive: the reduction for ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Targets
from reid_dist.core.segments import segment_running_sums
from reid_dist.engine.distances import Distance, Screen
from reid_dist.engine.reductions.bands import ScreenedTargets, most_decided
from reid_dist.engine.reductions.base import Accumulator, FeatureBlock
from reid_dist.engine.reductions.tiles import Precision, Tile
from reid_dist.kernels.counting import count_tile, most_of_many
from reid_dist.kernels.deciding import RankCounts, ScreenedTile

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CountNearer:
    """Count negatives nearer than each threshold, tied with it, and tied with each positive in a lower gallery row.

    A partial result is a mapping from group of gallery rows to the counts of that group.
    """

    # Thresholds of the block of queries.
    targets: Targets
    # Gallery rows hidden from queries.
    mask: GalleryMask
    # Registered, re-ranked or precomputed distance.
    distance: Distance

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _Counting:
        """Make an accumulator for a block pair."""
        return _Counting(self, query, gallery, screen)

    def take(self, queries: Int64) -> CountNearer:
        """Select queries by position."""
        return replace(self, targets=self.targets.take(queries))

    @staticmethod
    def combine(partials: Sequence[GroupedCounts]) -> GroupedCounts:
        """Add counts, group by group."""
        groups = sorted({group for partial in partials for group in partial})
        return {group: add_counts([partial[group] for partial in partials if group in partial]) for group in groups}


@dataclass(frozen=True, slots=True)
class SparseCounts:
    """Counts that are nearly all 0: positions of the others, ascending, and their counts, both int64."""

    place: Int64
    count: Int64

    @classmethod
    def of(cls, dense: NDArray[np.signedinteger]) -> SparseCounts:
        """Keep counts other than 0."""
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
    """Counts of some gallery blocks, in the compact form sent between tasks."""

    # Negatives nearer than each threshold, shape (n_threshold,), int32 (int64 for galleries beyond 2^31 rows).
    near: NDArray[np.signedinteger]
    # As in `RankCounts`; nearly always 0, hence sparse.
    tied: SparseCounts
    before: SparseCounts

    @classmethod
    def zeros(cls, n_threshold: int) -> PartialCounts:
        """Counts of no gallery rows."""
        none = SparseCounts(np.empty(0, np.int64), np.empty(0, np.int64))
        return cls(np.zeros(n_threshold, np.int32), none, none)


GroupedCounts = dict[int, PartialCounts]
"""Counts by group of gallery rows; a single group 0 without partitions."""


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


def partial_counts(counts: RankCounts, targets: Targets, n_gallery: int) -> PartialCounts:
    """Counts of kernels in the compact form; `n_gallery` are the rows of the whole gallery."""
    nearer = segment_running_sums(counts.near, targets.indptr)
    near: NDArray[np.signedinteger] = nearer
    if n_gallery <= np.iinfo(np.int32).max:
        near = nearer.astype(np.int32, copy=False)
    return PartialCounts(near, SparseCounts.of(counts.tied), SparseCounts.of(counts.before))


class _Counting(Accumulator[GroupedCounts]):
    """Accumulator of `CountNearer`."""

    def __init__(self, reduction: CountNearer, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> None:
        self._reduction = reduction
        self._query = query
        self._gallery = gallery
        targets = reduction.targets
        self._thresholds = ScreenedTargets(targets, reduction.mask, reduction.distance, query, gallery, screen)
        self._exact = screen.exact
        sizes = len(targets.distance), len(targets.distance), len(targets.positive_row)
        # A block has far fewer than 2^31 rows.
        self._counts = RankCounts(*(np.zeros(size, np.int32) for size in sizes))

    @property
    def lower_bound(self) -> NDArray[np.floating]:
        """Screening values of the farthest thresholds, shape (n_query,)."""
        return self._thresholds.lower_bound

    def absorb(self, tile: Tile) -> None:
        """Count one tile; if its bands are too crowded, the tile or its rest is screened in float64."""
        done = 0
        precision = self._thresholds.precision(tile)
        if precision is not Precision.WIDE:
            limit = tile.size if self._exact else most_decided(tile.size)
            done, decided = self._count(self._thresholds.screened(tile, precision, 0), tile, 0, limit)
            self._thresholds.note(tile, precision, decided if done == len(tile.queries) else tile.size)
        if done < len(tile.queries):
            self._count(self._thresholds.screened(tile, Precision.WIDE, done), tile, done, tile.size)

    def _count(self, screened: ScreenedTile, tile: Tile, first: int, limit: int) -> tuple[int, int]:
        targets, counts = self._reduction.targets, self._counts
        own = slice(targets.indptr[tile.queries.start + first], targets.indptr[tile.queries.stop])
        positives = slice(targets.positive_start[own.start], targets.positive_start[own.stop])
        own_counts = RankCounts(counts.near[own], counts.tied[own], counts.before[positives])
        return count_tile(screened, own_counts, limit, most_of_many(screened.bands.indptr))

    def result(self) -> GroupedCounts:
        """Return the counts of the block pair."""
        targets = self._reduction.targets
        return {self._gallery.group: partial_counts(self._counts, targets, len(self._reduction.mask.junk_row))}
