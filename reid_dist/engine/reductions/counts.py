"""Counts of the negatives that come before each positive: the reduction for ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Targets
from reid_dist.core.segments import segment_running_sums
from reid_dist.core.sorted_values import is_among
from reid_dist.engine.reductions.backends import Advance, Backend, Pairs, Rest
from reid_dist.engine.reductions.bands import PlacingTiles
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.tiles import BlockPair
from reid_dist.kernels.counting import most_of_many
from reid_dist.kernels.deciding import Bands, OpenPairs

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SparseCounts:
    """Counts that are nearly all 0: positions of the others, ascending, and their counts, both int64."""

    place: Int64
    count: Int64

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
    # Negatives at exactly each threshold; nearly always 0, hence sparse.
    tied: SparseCounts
    # By positive: tied negatives whose gallery row lies between that of the positive before it, within the same
    # threshold, and its own.  A running sum within the threshold gives the tied negatives that precede it.
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


def place_starts(targets: Targets) -> Int64:
    """First place of every query under ``APART``, and the number of places at the end, shape (n_query + 1,), int64."""
    return targets.positive_indptr + 2 * targets.indptr


def counts_of_places(count: NDArray[np.int32], targets: Targets, n_most: int) -> PartialCounts:
    """Convert counts by place under ``APART``, (n_places,); no sum of them exceeds `n_most`."""
    start = targets.positive_start
    nearest = start + 2 * np.arange(len(start))
    near, rest = count[nearest[:-1]].astype(np.int64), count.copy()
    rest[nearest[:-1]] = 0
    place = np.flatnonzero(rest)
    threshold = np.searchsorted(nearest, place, "right") - 1
    positive, n_tied = place - 2 * threshold - 1, rest[place].astype(np.int64)
    tied, comes_before = _add_sparse([SparseCounts(threshold, n_tied)]), positive < start[threshold + 1]
    # Those tied with the threshold before are nearer than this one.
    has_next = ~is_among(targets.indptr, tied.place + 1)
    near[tied.place[has_next] + 1] += tied.count[has_next]
    nearer = segment_running_sums(near, targets.indptr)
    fits = n_most <= np.iinfo(np.int32).max
    return PartialCounts(
        nearer.astype(np.int32) if fits else nearer, tied, SparseCounts(positive[comes_before], n_tied[comes_before])
    )


class CountNearer(PlacingTiles[GroupedCounts]):
    """Count negatives nearer than each threshold, tied with it, and tied with each positive in a lower gallery row.

    A partial result is a mapping from group of gallery rows to the counts of that group.
    """

    need = Need.RANKS

    def _begin(self, pair: BlockPair) -> None:
        """Make room for counts."""
        super()._begin(pair)
        # Groups of the block, and the place of the group of each column; empty for a single group.
        self._groups, self._group_of = [0], np.empty(0, np.int64)
        if pair.gallery.group is not None:
            present, self._group_of = np.unique(pair.gallery.group, return_inverse=True)
            self._groups = present.tolist()
        # A block has far fewer than 2^31 rows.
        self._counts = np.zeros((len(self._groups), place_starts(self.targets)[-1]), np.int32)
        self._many = most_of_many(self.targets.indptr)

    def _place(self, backend: Backend, pairs: Pairs, bands: Bands, rest: Rest) -> Advance:
        group_of = self._group_of[pairs.columns.start : pairs.columns.stop]
        return backend.place(pairs, bands, rest, self._counts, group_of, self._many)

    def _enter(self, decided: OpenPairs) -> None:
        place = decided.place
        if len(self._group_of):
            place = self._group_of[decided.column] * self._counts.shape[1] + place
        np.add.at(self._counts.reshape(-1), place, np.int32(1))

    def result(self) -> GroupedCounts:
        """Return the counts of the block pair."""
        self._decide()
        counts, n_gallery = zip(self._groups, self._counts, strict=True), len(self.mask.junk_row)
        return {group: counts_of_places(count, self.targets, n_gallery) for group, count in counts}

    @staticmethod
    def combine(partials: Sequence[GroupedCounts]) -> GroupedCounts:
        """Add counts, group by group."""
        groups = sorted({group for partial in partials for group in partial})
        return {group: add_counts([partial[group] for partial in partials if group in partial]) for group in groups}
