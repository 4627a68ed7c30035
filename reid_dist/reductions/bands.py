"""The thresholds of a block of queries, in the screening values of a gallery block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.distances import Distance, Screen
from reid_dist.kernels.counting import Bands
from reid_dist.kernels.placing import ScreenedTile
from reid_dist.model import GalleryMask, RowRange, Targets, cut_rows
from reid_dist.reductions.base import FeatureBlock, HiddenColumns, Tile, cut_pairs, pair_rows
from reid_dist.reductions.wide import screen_again

__all__ = ["ScreenedTargets"]

# Queries whose edges are computed together.
_EDGE_QUERIES = 256


class ScreenedTargets:
    """Puts thresholds and tiles together.

    Parameters
    ----------
    targets
        Of the block of queries.
    mask
        What queries may not see of the gallery.
    distance
        The distance.
    query, gallery
        The two blocks.
    screen
        How they are screened.
    ties
        See `reid_dist.kernels.placing.ScreenedTile`.
    """

    def __init__(
        self,
        targets: Targets,
        mask: GalleryMask,
        distance: Distance,
        query: FeatureBlock,
        gallery: FeatureBlock,
        screen: Screen,
        ties: int = 0,
    ) -> None:
        self._targets = targets
        self._distance = distance
        self._query = query
        self._gallery = gallery
        self._ties = ties
        self._pairs = pair_rows(distance, query, gallery)
        self._hidden = HiddenColumns(targets.hidden, mask, gallery)
        self._lower, self._upper = self._edges(screen, RowRange(0, len(targets.indptr) - 1))

    def _edges(self, screen: Screen, queries: RowRange) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Edges of the thresholds of some queries of the block; the screen is for these queries alone."""
        own = self._targets.indptr[queries.start : queries.stop + 1]
        lower, upper = (np.empty(own[-1] - own[0], screen.dtype) for _ in range(2))
        for cut in cut_rows(len(queries), _EDGE_QUERIES):
            # A few queries at a time: edges are computed in float64, with several arrays of that on the way.
            owner = np.repeat(np.arange(cut.start, cut.stop), np.diff(own[cut.start : cut.stop + 1]))
            here = slice(own[cut.start] - own[0], own[cut.stop] - own[0])
            distance = self._targets.distance[own[cut.start] : own[cut.stop]]
            lower[here], upper[here] = screen.edges(owner, distance, self._distance.squared)
        return lower, upper

    @property
    def floor(self) -> NDArray[np.floating]:
        """Lower edge of the farthest threshold of each query, infinite where there is none, shape (n_query,)."""
        own = self._targets.indptr
        floor = np.full(len(own) - 1, np.inf, self._lower.dtype)
        has = own[1:] > own[:-1]
        floor[has] = self._lower[own[1:][has] - 1]
        return floor

    def screened(self, tile: Tile) -> ScreenedTile:
        """A tile with the thresholds of its queries."""
        queries = RowRange(tile.query_start, tile.query_start + len(tile.values))
        own = slice(self._targets.indptr[queries.start], self._targets.indptr[queries.stop])
        edges = self._lower[own], self._upper[own]
        return self._put_together(tile.values, tile.bias, queries, tile.column_start, edges)

    def screened_in_float64(self, tile: Tile, first: int) -> ScreenedTile:
        """Screen a tile anew from row `first` on, by a product in float64, whose bands are some 2^29 times narrower."""
        queries = RowRange(tile.query_start + first, tile.query_start + len(tile.values))
        columns = slice(tile.column_start, tile.column_start + tile.values.shape[1])
        wide = screen_again(self._distance, self._pairs, queries, columns)
        return self._put_together(wide.values, wide.bias, queries, tile.column_start, self._edges(wide.screen, queries))

    def _put_together(
        self,
        values: NDArray[np.floating],
        bias: NDArray[np.floating],
        queries: RowRange,
        column_start: int,
        edges: tuple[NDArray[np.floating], NDArray[np.floating]],
    ) -> ScreenedTile:
        targets = self._targets
        columns = slice(column_start, column_start + values.shape[1])
        own = targets.indptr[queries.start : queries.stop + 1]
        biases, bias_of = self._hidden.bias(bias, columns, queries)
        return ScreenedTile(
            values=values,
            bias=biases,
            bias_of=bias_of,
            column_start=column_start,
            row_of=self._gallery.numbers[columns],
            bands=Bands(
                indptr=own - own[0],
                lower=edges[0],
                upper=edges[1],
                distance=targets.distance[own[0] : own[-1]],
                positive_start=targets.positive_start[own[0] : own[-1] + 1],
                positive_row=targets.positive_row,
                hidden_indptr=self._hidden.indptr[queries.start : queries.stop + 1],
                hidden_column=self._hidden.column,
            ),
            rows=cut_pairs(self._pairs, queries, columns),
            ties=self._ties,
        )
