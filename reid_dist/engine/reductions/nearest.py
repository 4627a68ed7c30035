"""Lists of the nearest gallery rows of every query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden, Neighbours, RowRange
from reid_dist.engine.distances import Distance, Screen
from reid_dist.engine.reductions.base import Accumulator, FeatureBlock, HiddenColumns, bias_by_label, pair_rows
from reid_dist.engine.reductions.tiles import Tile
from reid_dist.kernels.lists import merge_lists
from reid_dist.kernels.topk import collect_tile, make_candidates, settle

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KeepNearest:
    """Keep the k nearest gallery rows of every query by (distance, gallery row), those of its own label left out."""

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

    @property
    def strikes_rows(self) -> bool:
        """Whether rows that are hidden from single queries are omitted."""
        return self.hidden is not None and (self.hidden.crosses or self.strikes)

    def hidden_columns(self, gallery: FeatureBlock) -> HiddenColumns | None:
        """Gallery rows to omit; None to list all rows."""
        return None if self.hidden is None or self.mask is None else HiddenColumns(self.hidden, self.mask, gallery)

    def take(self, queries: Int64, reach: Float64) -> KeepNearest:
        """Reduction for some queries, with other distances; see `reach`."""
        hidden = None if self.hidden is None else self.hidden.take(queries)
        return replace(self, hidden=hidden, reach=reach[queries])

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _Nearest:
        """Make an accumulator for a block pair."""
        return _Nearest(self, query, gallery, screen)

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

    def __init__(self, reduction: KeepNearest, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> None:
        self._reduction = reduction
        self._query = query
        self._gallery = gallery
        rows, k = pair_rows(reduction.distance, query, gallery), min(reduction.k, len(gallery))
        self._lists = make_candidates(k, rows, screen.epsilon, screen.centre, screen.slope, screen.dtype)
        if reduction.reach is not None:
            known = np.flatnonzero(np.isfinite(reduction.reach))
            level, _ = screen.edges(known, reduction.reach[known], reduction.distance.squared)
            self._lists.level[known] = np.maximum(level, self._lists.level[known])
        self._hidden = reduction.hidden_columns(gallery)

    def absorb(self, tile: Tile) -> None:
        """Collect candidates from one tile."""
        biases, bias_of = tile.bias[None], np.zeros(len(tile.queries), np.int64)
        near, far = self._query.label, self._gallery.label
        if near is not None and far is not None:
            own = near[tile.queries.start : tile.queries.stop]
            biases, bias_of = bias_by_label(tile.bias, far[tile.columns.start : tile.columns.stop], own)
        elif self._hidden is not None:
            biases, bias_of = self._hidden.bias(tile.bias, tile.columns, tile.queries)
            values = tile.values
            owner, column = self._struck(tile.columns, tile.queries, self._hidden)
            # Other reductions read the same tile.
            kept = values[owner, column]
            values[owner, column] = -np.inf
            collect_tile(values, biases, bias_of, tile.queries.start, tile.columns.start, self._lists)
            values[owner, column] = kept
            return
        collect_tile(tile.values, biases, bias_of, tile.queries.start, tile.columns.start, self._lists)

    def _struck(self, columns: RowRange, queries: RowRange, hidden: HiddenColumns) -> tuple[Int64, Int64]:
        """Queries and columns of a tile of the rows hidden from single queries, both (n,), as far as they matter."""
        if not self._reduction.strikes_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        indptr = hidden.indptr[queries.start : queries.stop + 1]
        column = hidden.column[indptr[0] : indptr[-1]] - columns.start
        owner = np.repeat(np.arange(len(queries)), np.diff(indptr))
        here = (column >= 0) & (column < len(columns))
        return owner[here], column[here]

    def result(self) -> Neighbours:
        """Return all lists, decided by canonical distance."""
        shape = (len(self._query), self._reduction.k)
        column = np.full(shape, -1, np.int64)
        distance = np.full(shape, np.inf)
        settle(self._lists, column, distance)
        return Neighbours(np.where(column < 0, -1, self._gallery.numbers[column]), distance)
