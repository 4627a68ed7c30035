"""Nearest and farthest items per block pair: within one set, each pair of blocks once, or for one side of two sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.distances import Distance
from reid_dist.engine.reductions.accumulator import Accumulator
from reid_dist.engine.reductions.base import FeatureBlock, HiddenColumns
from reid_dist.engine.reductions.costs import ListWork, Need, Precision, pay_for_lists
from reid_dist.engine.reductions.tiles import BlockPair, TileView
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
    """Bounds for the items of a block from other block pairs; pairs that cannot improve on them are skipped."""

    # A canonical distance within which each item has k others, shape (n,), float64; inf if unknown.
    reach: Float64
    # A canonical distance at which each item has another, shape (n,), float64; -inf if unknown.
    farthest: Float64


def unknown(block: FeatureBlock) -> Seed:
    """No bounds for the items of a block."""
    nothing = np.full(len(block), np.inf)
    return Seed(nothing, -nothing)


class Listing:
    """The k nearest items of each item of one block among those of the other of a pair, and the largest distances.

    `seed` holds bounds.  `columns` lists the items of the second block; gallery rows that are `hidden` from single
    queries are left out.
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
        self.k = min(k, len(against))
        self.side = Side(
            lists=make_candidates(self.k, rows, own.epsilon, own.centre, screen.slope, screen.dtype),
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
        bounds = [(np.isfinite(seed.reach), seed.reach, 1.0, lists.level)]
        if farthest:
            bounds.append((np.isfinite(seed.farthest), seed.farthest, -1.0, side.lower_bound))
            side.farthest[:] = seed.farthest
        for known, of, sign, into in bounds:
            item = np.flatnonzero(known)
            falling = falling_values(lists.rows, item, of[item], sign)
            edge = lists.centre[item] - lists.slope * falling - sign * lists.epsilon[item]
            # Outward by more than the error of rounding to the type of the tiles.
            into[item] = edge - sign * (np.abs(edge) * 2.0**-22 + 2.0**-125)

    def result(self) -> Surroundings:
        """Return all lists, decided by canonical distance, and the largest distances."""
        column = np.full((len(self._block), self.k), -1, np.int64)
        distance = np.full((len(self._block), self.k), np.inf)
        settle(self.side.lists, column, distance)
        index = np.where(column < 0, -1, self._against.numbers[column])
        return Surroundings(index, distance, np.maximum(self.side.farthest, 0.0))


def listed_in(pair: BlockPair, k: int, share: float = 1.0) -> Precision:
    """First precision of lists of `k` items, of which a share of the pairs is compared per product."""
    n_gallery, dim = pair.gallery.features.shape
    pays = pay_for_lists(share * n_gallery, dim, k, pair.policy) and pair.has_integers
    return Precision.INTEGERS if pays else Precision.PLAIN


class ListingTiles:
    """Adds tiles to the lists of their rows."""

    def __init__(self, pair: BlockPair, listing: Listing, need: Need) -> None:
        self._listing, self._need = listing, need
        self._work = ListWork(pair.gallery.features.shape[1], listing.k * len(pair.query), pair.policy, pair.table)

    def absorb(self, tile: TileView, hidden: HiddenColumns | None = None) -> None:
        """Add one tile, without columns that are hidden by label."""
        precision = tile.first(self._need)
        backend, pairs = tile.read(precision, self._need, hidden)
        n_refined = backend.nearest(pairs, self._listing.side)
        if self._work.exceeds(precision, n_refined, tile.size):
            tile.leave(precision, self._need)


@dataclass(frozen=True, slots=True)
class SurroundQueries:
    """Keep the k nearest gallery rows of every query, and its largest distance."""

    need: ClassVar[Need] = Need.NEIGHBOURS

    # Length of the lists.
    k: int
    # Registered distance.
    distance: Distance
    # Whether largest distances are searched for.
    farthest: bool = True

    def start(self, pair: BlockPair) -> _QuerySide:
        """Make an accumulator for a block pair."""
        return _QuerySide(self, pair)


class _QuerySide(Accumulator[Surroundings]):
    """Accumulator of `SurroundQueries`."""

    need: ClassVar[Need] = SurroundQueries.need

    def __init__(self, reduction: SurroundQueries, pair: BlockPair) -> None:
        self._pair = pair
        self._listing = Listing(pair, reduction.k, unknown(pair.query), farthest=reduction.farthest)
        self._tiles = ListingTiles(pair, self._listing, self.need)

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query."""
        return np.full(len(self._pair.query), listed_in(self._pair, self._listing.k), np.uint8)

    def absorb(self, tile: TileView) -> None:
        """Add one tile."""
        self._tiles.absorb(tile)

    def result(self) -> Surroundings:
        """Return all lists, decided by canonical distance, and the largest distances."""
        return self._listing.result()


def merge_surroundings(one: Surroundings, other: Surroundings, k: int) -> Surroundings:
    """Merge results among different items; lists have length `k`."""
    index, distance = np.empty((len(one.index), k), np.int64), np.empty((len(one.index), k))
    merge_lists(one.index, one.distance, other.index, other.distance, index, distance)
    return Surroundings(index, distance, np.maximum(one.farthest, other.farthest))
