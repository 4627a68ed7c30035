"""Lists of the nearest gallery rows of every query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden, Neighbours
from reid_dist.engine.distances import Distance
from reid_dist.engine.reductions.accumulator import Accumulator
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.surroundings import Listing, ListingTiles, listed_in, unknown
from reid_dist.engine.reductions.tiles import BlockPair, TileView
from reid_dist.kernels.topk import merge_lists

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KeepNearest:
    """Keep the k nearest gallery rows of every query by (distance, gallery row), those of its own label left out."""

    need: ClassVar[Need] = Need.LISTS

    # Length of the lists.
    k: int
    # Registered, re-ranked or precomputed distance.
    distance: Distance
    # Gallery rows to omit: those hidden from all queries or from some.  Single rows hidden from a query are omitted if
    # they may have another pid, or with `strikes`; otherwise its positives and its junk of the same pid may remain, and
    # the lists are read only for queries without either.  None to list all rows.
    hidden: Hidden | None = None
    mask: GalleryMask | None = None
    strikes: bool = False
    # Canonical distances within which each query has k gallery rows, in this block or in others, shape (n_query,),
    # float64; inf if unknown.  Rows beyond may be missing in lists.
    reach: Float64 | None = None

    def start(self, pair: BlockPair) -> _Nearest:
        """Make an accumulator for a block pair."""
        return _Nearest(self, pair)

    @staticmethod
    def combine(partials: Sequence[Neighbours]) -> Neighbours:
        """Merge lists of one length."""
        return reduce(_merge, partials)


def _merge(one: Neighbours, other: Neighbours) -> Neighbours:
    index, distance = np.empty(one.index.shape, np.int64), np.empty(one.distance.shape)
    merge_lists(one.index, one.distance, other.index, other.distance, index, distance)
    return Neighbours(index, distance)


class _Nearest(Accumulator[Neighbours]):
    """Accumulator of `KeepNearest`."""

    need: ClassVar[Need] = KeepNearest.need

    def __init__(self, reduction: KeepNearest, pair: BlockPair) -> None:
        self._pair, self._k = pair, reduction.k
        hidden, mask = reduction.hidden, reduction.mask
        self._hidden = None if hidden is None or mask is None else HiddenColumns(hidden, mask, pair.gallery)
        struck = self._hidden if hidden is not None and (hidden.crosses or reduction.strikes) else None
        seed = unknown(pair.query)
        if reduction.reach is not None:
            seed = replace(seed, reach=reduction.reach)
        self._listing = Listing(pair, reduction.k, seed, farthest=False, hidden=struck)
        self._tiles = ListingTiles(pair, self._listing, self.need)

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query."""
        return np.full(len(self._pair.query), listed_in(self._pair, self._listing.k), np.uint8)

    def absorb(self, tile: TileView) -> None:
        """Add one tile."""
        self._tiles.absorb(tile, self._hidden)

    def result(self) -> Neighbours:
        """Return all lists, decided by canonical distance."""
        found, missing = self._listing.result(), ((0, 0), (0, self._k - self._listing.k))
        index = np.pad(found.index, missing, constant_values=-1)
        return Neighbours(index, np.pad(found.distance, missing, constant_values=np.inf))
