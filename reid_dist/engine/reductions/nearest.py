"""Lists of the nearest gallery rows of every query."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.costs import ListWork, Need
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.surroundings import Listing, Seed, Surroundings, listed_in
from reid_dist.engine.reductions.tiles import BlockPair, TileView

Float64 = NDArray[np.float64]


@dataclass(eq=False)
class KeepNearest(Reduction[Surroundings]):
    """Keep the k nearest gallery rows of every query by (distance, gallery row), those of its own label left out."""

    # Length of the lists.
    k: int
    # Gallery rows to omit: those hidden from all queries or from some.  Single rows hidden from a query are omitted if
    # they may have another pid, or with `strikes`; otherwise its positives and its junk of the same pid may remain, and
    # the lists are read only for queries without either.  None to list all rows.
    hidden: Hidden | None = None
    mask: GalleryMask | None = None
    strikes: bool = False
    # Canonical distances within which each query has k gallery rows, in this block or in others, shape (n_query,),
    # float64; inf if unknown.  Rows beyond may be missing in lists.
    reach: Float64 | None = None
    # Whether the largest distance of every query is searched for.
    farthest: bool = False
    need: Need = field(default=Need.LISTS, kw_only=True)

    def _begin(self, pair: BlockPair) -> None:
        hidden, mask = self.hidden, self.mask
        self._hidden = None if hidden is None or mask is None else HiddenColumns(hidden, mask, pair.gallery)
        struck = self._hidden if hidden is not None and (hidden.crosses or self.strikes) else None
        self._listing = Listing(pair, self.k, Seed(self.reach), farthest=self.farthest, hidden=struck)
        self._work = ListWork(pair.costs, self._listing.n_listed * len(pair.query), pair.policy)

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query."""
        return np.full(len(self._pair.query), listed_in(self._pair, self._listing.n_listed), np.uint8)

    def absorb(self, tile: TileView) -> None:
        """Add one tile, without columns that are hidden by label."""
        precision = tile.first(self.need)
        backend, pairs = tile.read(precision, self.need, self._hidden)
        n_refined = backend.nearest(pairs, self._listing.side)
        if self._work.exceeds(precision, n_refined, tile.size):
            tile.leave(precision, self.need)

    def result(self) -> Surroundings:
        """Return all lists, decided by canonical distance, and the largest distances."""
        return self._listing.result()
