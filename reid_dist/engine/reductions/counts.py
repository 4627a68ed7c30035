"""Counts of the negatives that come before each positive: the reduction for ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.reductions.backends import Advance, Backend, Pairs, Rest
from reid_dist.engine.reductions.bands import PlacingTiles
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.targets import place_starts
from reid_dist.engine.reductions.tile_products import BlockPair
from reid_dist.kernels.counting import most_of_many
from reid_dist.kernels.deciding import Bands, OpenPairs

Int64 = NDArray[np.int64]


GroupedCounts = dict[int, NDArray[np.unsignedinteger]]
"""Counts by place, shape (n_places,), by group of gallery rows; a single group 0 without partitions."""


def _narrowed(counts: NDArray[np.signedinteger]) -> NDArray[np.unsignedinteger]:
    """Counts in the smallest type that holds them: most are small."""
    return counts.astype(np.min_scalar_type(counts.max(initial=0)))


class CountNearer(PlacingTiles[GroupedCounts]):
    """Count negatives nearer than each threshold, tied with it, and tied with each positive in a lower gallery row.

    The places of a query are those of `reid_dist.kernels.deciding` with ``APART``.
    """

    need = Need.RANKS

    def _begin(self, pair: BlockPair) -> None:
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
        return {group: _narrowed(counts) for group, counts in zip(self._groups, self._counts, strict=True)}

    @staticmethod
    def combine(partials: Sequence[GroupedCounts]) -> GroupedCounts:
        """Add counts, group by group."""
        parts: dict[int, list[NDArray[np.unsignedinteger]]] = defaultdict(list)
        for group, counts in chain.from_iterable(partial.items() for partial in partials):
            parts[group].append(counts)
        return {group: _narrowed(np.add.reduce(parts[group], dtype=np.int64)) for group in sorted(parts)}
