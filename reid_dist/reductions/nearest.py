"""The nearest gallery rows of every query: lists that merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.distances import Distance, Screen
from reid_dist.kernels.topk import collect_tile, make_candidates, settle
from reid_dist.model import Neighbours, RowRange
from reid_dist.reductions.base import FeatureBlock, Tile, pair_rows

__all__ = ["KeepNearest"]


@dataclass(frozen=True, slots=True)
class KeepNearest:
    """Keep the k nearest gallery rows of every query by (distance, gallery row).

    Attributes
    ----------
    k
        How many.
    own_first
        Whether query row i *is* gallery row i and comes first in its own list whatever else is at its distance.
    distance
        The distance.
    """

    k: int
    own_first: bool
    distance: Distance

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _Nearest:
        """Make an accumulator for a block pair."""
        return _Nearest(self, query, gallery, screen)

    def combine(self, partials: Sequence[Neighbours]) -> Neighbours:
        """Merge lists."""
        index = np.concatenate([partial.index for partial in partials], axis=1)
        distance = np.concatenate([partial.distance for partial in partials], axis=1)
        # Absent places are at infinite distance; among equal distances the lower row wins, absent ones (-1) last.
        order = np.lexsort((np.where(index < 0, np.iinfo(np.int64).max, index), distance), axis=-1)[:, : self.k]
        return Neighbours(np.take_along_axis(index, order, 1), np.take_along_axis(distance, order, 1))

    def finish(self, merged: Neighbours, rows: RowRange, own: NDArray[np.float64] | None) -> Neighbours:
        """Put each query itself in front of its list, where that is asked for.

        Parameters
        ----------
        merged
            Lists of all gallery blocks, without the queries themselves.
        rows
            Which rows the queries are.
        own
            Canonical distance of every query to itself, shape (len(rows),), when `own_first`.
        """
        if not self.own_first or own is None:
            return merged
        index = np.concatenate([np.arange(rows.start, rows.stop)[:, None], merged.index[:, :-1]], axis=1)
        distance = np.concatenate([own[:, None], merged.distance[:, :-1]], axis=1)
        return Neighbours(index, distance)


class _Nearest:
    """Accumulator of `KeepNearest`."""

    def __init__(self, reduction: KeepNearest, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> None:
        self._reduction = reduction
        self._query = query
        self._gallery = gallery
        self._screen = screen
        self._rows = pair_rows(reduction.distance, query, gallery)
        self._k = min(reduction.k, len(gallery.rows))
        self._lists = make_candidates(len(query.rows), self._k)
        rows = query.rows
        self._own = np.arange(rows.start, rows.stop) if reduction.own_first else np.full(len(rows), -1, np.int64)

    def absorb(self, tile: Tile) -> None:
        """Collect from one tile."""
        collect_tile(
            tile.values,
            tile.bias,
            tile.query_start,
            self._gallery.rows.start + tile.column_start,
            self._own,
            self._k,
            self._screen.epsilon,
            self._screen.centre,
            self._screen.slope,
            self._rows,
            self._gallery.rows.start,
            self._lists,
        )

    def result(self) -> Neighbours:
        """Settle all lists by canonical distance."""
        shape = (len(self._query.rows), self._reduction.k)
        index = np.full(shape, -1, np.int64)
        distance = np.full(shape, np.inf)
        settle(self._k, self._screen.epsilon, self._rows, self._gallery.rows.start, self._lists, index, distance)
        return Neighbours(index, distance)
