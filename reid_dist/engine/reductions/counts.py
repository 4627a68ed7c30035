"""Counts of the negatives that come before each positive: the reduction for ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Targets
from reid_dist.core.segments import segment_running_sums
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import OPEN_PAIRS
from reid_dist.engine.reductions.accumulator import Accumulator
from reid_dist.engine.reductions.backends import PlacedCounts
from reid_dist.engine.reductions.bands import ScreenedTargets, read_all
from reid_dist.engine.reductions.costs import Need, Precision
from reid_dist.engine.reductions.tiles import BlockPair, TileView
from reid_dist.kernels.counting import most_of_many
from reid_dist.kernels.deciding import OpenPairs, RankCounts, decide, make_open_pairs

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

    def start(self, pair: BlockPair) -> _Counting:
        """Make an accumulator for a block pair."""
        return _Counting(self, pair)

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

    need: ClassVar[Need] = Need.RANKS

    def __init__(self, reduction: CountNearer, pair: BlockPair) -> None:
        self._reduction = reduction
        self._thresholds = thresholds = ScreenedTargets(reduction.targets, reduction.mask, pair, self.need)
        targets = reduction.targets
        # Groups of the block, and the place of the group of each column; empty for a single group.
        self._groups, group_of = [0], np.empty(0, np.int64)
        if pair.gallery.group is not None:
            present, group_of = np.unique(pair.gallery.group, return_inverse=True)
            self._groups = present.tolist()
        sizes = len(targets.distance), len(targets.distance), len(targets.positive_row)
        # A block has far fewer than 2^31 rows.
        counts = RankCounts(*(np.zeros((len(self._groups), size), np.int32) for size in sizes))
        room, many = make_open_pairs(OPEN_PAIRS + pair.gallery_rows), most_of_many(targets.indptr)

        # No method: through it, the accumulator would refer to itself, and keep the blocks until garbage is collected.
        def settle(pairs: OpenPairs, n: int) -> None:
            bands = thresholds.bands(Precision.PLAIN)
            decide(pairs, n, pair.gallery.numbers, group_of, bands, pair.rows, counts)

        self._placed = PlacedCounts(counts, group_of, room, many, settle)

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query."""
        return self._thresholds.precisions

    def absorb(self, tile: TileView) -> None:
        """Count one tile."""

        def add(precision: Precision, first: int, limit: int) -> tuple[int, int]:
            backend, pairs = self._thresholds.read(tile, precision)
            return backend.place(pairs, self._thresholds.bands(precision), self._placed, first, limit)

        read_all(tile, self.need, add)

    def result(self) -> GroupedCounts:
        """Return the counts of the block pair."""
        self._placed.settle()
        targets, n_gallery = self._reduction.targets, len(self._reduction.mask.junk_row)
        return {
            group: partial_counts(RankCounts(*(each[place] for each in self._placed.counts)), targets, n_gallery)
            for place, group in enumerate(self._groups)
        }
