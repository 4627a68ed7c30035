"""Lists of the nearest items, and the farthest ones, per block pair: of both of its sides, or of its queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.costs import ListWork, Need, Precision, pay_for_lists
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.tile_products import BlockPair, TileView
from reid_dist.kernels.canonical import GIVEN, PairRows, read_only
from reid_dist.kernels.rescoring import falling_values
from reid_dist.kernels.symmetric import Side
from reid_dist.kernels.topk import make_candidates, merge_lists, settle

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The nearest rows to each item of a block, and its largest distance, among some other items.

    Items of its own label are not among them, where items have labels (`FeatureBlock.label`).
    """

    # Rows of the set by (canonical distance, row), without the item itself, shape (n, k), int64; -1 for absent entries.
    index: Int64
    # Canonical distances, shape (n, k), float64; inf for absent entries.
    distance: Float64
    # Largest canonical distance, shape (n,), float64; 0 without other items, NaN if it was not searched for.
    farthest: Float64


@dataclass(frozen=True, slots=True)
class Seed:
    """Bounds for the items of a block from other block pairs; pairs that cannot improve on them are skipped.

    Those that are not finite are unknown, and None are.
    """

    # A canonical distance within which each item has k others, shape (n,), float64.
    reach: Float64 | None = None
    # A canonical distance at which each item has another, shape (n,), float64.
    farthest: Float64 | None = None


class Listing:
    """The k nearest items of each item of one block among those of the other of a pair, and the largest distances.

    `seed` holds bounds.  `of_columns` lists the items of the second block; gallery rows that are `hidden` from single
    queries are left out.  Of k items, no more are listed than there are: `n_listed`.
    """

    def __init__(
        self,
        pair: BlockPair,
        k: int,
        seed: Seed,
        *,
        farthest: bool,
        of_columns: bool = False,
        hidden: HiddenColumns | None = None,
    ) -> None:
        screen = pair.screen()
        self._block, self._against = (pair.gallery, pair.query) if of_columns else (pair.query, pair.gallery)
        rows, own = pair.rows, screen.far if of_columns else screen.near
        is_symmetric = rows.kind != GIVEN and not rows.rescoring.active
        if of_columns:
            if not is_symmetric:
                raise AssertionError("distances that may be asymmetric are not screened both ways")
            rows = PairRows(rows.kind, rows.gallery, rows.query, rows.gallery_norm, rows.query_norm)
        block, against, n = self._block, self._against, len(self._block)
        labels = (_NONE, _NONE) if block.label is None or against.label is None else (block.label, against.label)
        self._k, self.n_listed = k, min(k, len(against))
        self.side = Side(
            lists=make_candidates(self.n_listed, rows, own.epsilon, own.centre, screen.slope, screen.dtype),
            farthest=np.full(n, -np.inf if farthest else np.nan),
            lower_bound=np.full(n, np.finfo(screen.dtype).max if farthest else np.nan, screen.dtype),
            bias=own.bias if is_symmetric else own.bias[:0],
            label=read_only(labels[0]),
            other_label=read_only(labels[1]),
            struck_indptr=np.zeros(n + 1, np.int64) if hidden is None else hidden.indptr,
            struck=_NONE if hidden is None else hidden.column,
        )
        self._apply(seed, farthest=farthest)

    def _apply(self, seed: Seed, *, farthest: bool) -> None:
        """Set thresholds for nearest and farthest items from the seed bounds."""
        side, lists = self.side, self.side.lists
        known = seed.farthest if farthest else None
        if known is not None:
            side.farthest[:] = known
        for of, sign, into in ((seed.reach, 1.0, lists.level), (known, -1.0, side.lower_bound)):
            if of is None:
                continue
            item = np.flatnonzero(np.isfinite(of))
            falling = falling_values(lists.rows, item, of[item], sign)
            edge = lists.centre[item] - lists.slope * falling - sign * lists.epsilon[item]
            # Outward by more than the error of rounding to the type of the tiles.
            into[item] = edge - sign * (np.abs(edge) * 2.0**-22 + 2.0**-125)

    def result(self) -> Surroundings:
        """Return all lists, decided by canonical distance, and the largest distances."""
        column = np.full((len(self._block), self._k), -1, np.int64)
        distance = np.full(column.shape, np.inf)
        settle(self.side.lists, column, distance)
        index = np.where(column < 0, -1, self._against.numbers[column])
        return Surroundings(index, distance, np.maximum(self.side.farthest, 0.0))


def listed_in(pair: BlockPair, k: int, share: float = 1.0) -> Precision:
    """First precision of lists of `k` items, of which a share of the pairs is compared per product."""
    n_gallery, dim = pair.gallery.features.shape
    pays = pay_for_lists(share * n_gallery, dim, k, pair.policy) and pair.has_integers
    return Precision.INTEGERS if pays else Precision.PLAIN


@dataclass(eq=False)
class KeepNearest(Reduction[Surroundings]):
    """Keep the k nearest gallery rows of every query by (distance, gallery row), those of its own label left out."""

    # Length of the lists.
    k: int
    # Gallery rows to omit: those hidden from all queries or from some.  Single rows hidden from a query are omitted if
    # they may have another pid, or with `drops_single_rows`; otherwise its positives and its junk of the same pid may
    # remain, and the lists are read only for queries without either.  None to list all rows.
    hidden: Hidden | None = None
    mask: GalleryMask | None = None
    drops_single_rows: bool = False
    # Canonical distances within which each query has k gallery rows, in this block or in others, shape (n_query,),
    # float64; inf if unknown.  Rows beyond may be missing in lists.
    reach: Float64 | None = None
    # Whether the largest distance of every query is searched for.
    farthest: bool = False
    need: Need = field(default=Need.LISTS, kw_only=True)

    def _begin(self, pair: BlockPair) -> None:
        hidden, mask = self.hidden, self.mask
        self._hidden = None if hidden is None or mask is None else HiddenColumns(hidden, mask, pair.gallery)
        struck = self._hidden if hidden is not None and (hidden.crosses or self.drops_single_rows) else None
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


def merge_surroundings(parts: Iterable[Surroundings]) -> Surroundings:
    """Merge results among different items, with lists of one length."""
    return reduce(_merged, parts)


def _merged(one: Surroundings, other: Surroundings) -> Surroundings:
    index, distance = np.empty_like(one.index), np.empty_like(one.distance)
    merge_lists(one.index, one.distance, other.index, other.distance, index, distance)
    return Surroundings(index, distance, np.maximum(one.farthest, other.farthest))
