"""Thresholds of a block of queries, expressed as bands of screening values of a gallery block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, RowRange, Targets, cut_rows
from reid_dist.engine.distances import Distance, Screen, Values, can_be_split, part_width
from reid_dist.engine.reductions.base import FeatureBlock, HiddenColumns, cut_pairs, pair_rows
from reid_dist.engine.reductions.tiles import Precision, Tile
from reid_dist.kernels.canonical import pair_distances
from reid_dist.kernels.deciding import Bands, ScreenedTile
from reid_dist.kernels.screening import count_in_bands

Edges = tuple[NDArray[np.floating], NDArray[np.floating]]

# Cost of a pair decided by its canonical distance, in pairs of a float32 product.
_DECIDED = 14.0
# Cost of a pair in each precision, relative to the first.
_COSTS = {Precision.PLAIN: 1.0, Precision.IN_PARTS: 1.12, Precision.WIDE: 2.0}
# Share of decided pairs at which a computed float32 product is discarded.
_GIVEN_UP = 0.2
# Thresholds per query whose bands are hardly ever crowded; if they are, the count of decided pairs shows it.
_FEW_THRESHOLDS = 10
# Sampled queries of a tile, and sampled gallery rows for each.
_SAMPLED_QUERIES, _SAMPLED_ROWS = 16, 64

# Queries per computation of edges.
_EDGE_QUERIES = 256


def most_decided(size: int) -> int:
    """Maximal pairs decided one by one in a tile of `size` pairs before it is screened in float64."""
    return int(_GIVEN_UP * size) + 64


class ScreenedTargets:
    """Combines thresholds and tiles of two blocks for the kernels.

    `screen` is that of the blocks in the first precision; for `ties` see `reid_dist.kernels.deciding.ScreenedTile`.
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
        self._gallery = gallery
        self._ties = ties
        self._pairs = pair_rows(distance, query, gallery)
        self._hidden = HiddenColumns(targets.hidden, mask, gallery)
        self._screen = screen
        self._edges_in: dict[Precision, Edges] = {}
        self._chosen: dict[RowRange, Precision] = {}
        # Width of bands in each precision, relative to the first; 0 is assumed for float64.
        self._widths = {Precision.PLAIN: 1.0, Precision.WIDE: 0.0}
        dim = query.features.shape[1]
        if can_be_split(dim) and not (screen.exact or self._pairs.rescoring.active):
            self._widths[Precision.IN_PARTS] = part_width(dim) / dim / screen.width

    def _edges(self, screen: Screen) -> Edges:
        """Lower and upper edges of all thresholds."""
        own = self._targets.indptr
        lower, upper = (np.empty(own[-1] - own[0], screen.dtype) for _ in range(2))
        for cut in cut_rows(len(own) - 1, _EDGE_QUERIES):
            # A few queries at a time: edges are computed in float64, with several intermediate arrays.
            owner = np.repeat(np.arange(cut.start, cut.stop), np.diff(own[cut.start : cut.stop + 1]))
            here = slice(own[cut.start], own[cut.stop])
            lower[here], upper[here] = screen.edges(owner, self._targets.distance[here], self._distance.squared)
        return lower, upper

    @property
    def lower_bound(self) -> NDArray[np.floating]:
        """Lower edge of the farthest threshold of each query, infinite where there is none, shape (n_query,)."""
        own = self._targets.indptr
        lower_bound = np.full(len(own) - 1, np.inf, self._screen.dtype)
        has = np.flatnonzero(own[1:] > own[:-1])
        lower_bound[has], _ = self._screen.edges(has, self._targets.distance[own[has + 1] - 1], self._distance.squared)
        return lower_bound

    def precision(self, tile: Tile) -> Precision:
        """Precision of least cost for a tile, from the share of its pairs that lie inside bands.

        The share is estimated from a sample of its queries and of all gallery rows of the block, until a tile of these
        queries has been counted.
        """
        known = self._chosen.get(tile.queries)
        if known is None:
            known = self._chosen[tile.queries] = self._cheapest(self._sampled_share(tile.queries), tile.shared)
        return known

    def note(self, tile: Tile, precision: Precision, decided: int) -> None:
        """Record the number of canonically decided pairs of a tile, for the next tiles of these queries."""
        self._chosen[tile.queries] = self._cheapest(decided / tile.size / self._widths[precision], tile.shared)

    def _cheapest(self, share: float, shared: bool) -> Precision:
        """Precision of least cost for a share of pairs inside float32 bands.

        A tile shared with other reductions is computed in plain float32 in any case.
        """

        def cost(precision: Precision) -> float:
            product = _COSTS[precision]
            if precision is Precision.PLAIN:
                product = 0.0 if shared else self._screen.cost
            return product + _DECIDED * share * self._widths[precision]

        return min(self._widths, key=cost)

    def _sampled_share(self, queries: RowRange) -> float:
        """Estimate the share of pairs of some queries that lie inside bands, from a sample."""
        own = self._targets.indptr[queries.start : queries.stop + 1]
        if self._screen.exact or own[-1] - own[0] <= _FEW_THRESHOLDS * len(queries):
            return 0.0
        some = np.unique(np.linspace(queries.start, queries.stop - 1, _SAMPLED_QUERIES).astype(np.int64))
        rows = np.unique(np.linspace(0, len(self._gallery) - 1, _SAMPLED_ROWS).astype(np.int64))
        query, column = np.repeat(some, len(rows)), np.tile(rows, len(some))
        distance = pair_distances(self._pairs, query, column)
        low, high = self._screen.edges(query, distance, self._distance.squared)
        # Edges of these queries only: with crowded bands, float32 edges of the others are not needed.
        whole = self._targets.indptr
        n_own = np.zeros(len(whole) - 1, np.int64)
        n_own[some] = whole[some + 1] - whole[some]
        here = np.concatenate([np.arange(whole[i], whole[i + 1]) for i in some.tolist()])
        thresholds = self._targets.distance[here]
        inside = count_in_bands(
            query,
            column,
            (low + high) / 2,
            np.concatenate([[0], np.cumsum(n_own)]),
            *self._screen.edges(np.repeat(some, n_own[some]), thresholds, self._distance.squared),
            self._hidden.indptr,
            self._hidden.column,
        )
        return inside / len(query)

    def screened(self, tile: Tile, precision: Precision, first: int) -> ScreenedTile:
        """Return a tile in a precision, from query `first` on, with the thresholds of its queries."""
        screen, values, bias = tile.read(precision)
        queries = RowRange(tile.queries.start + first, tile.queries.stop)
        return self._screened(screen, precision, queries, tile.columns, (values[first:], bias))

    def without_values(self, columns: RowRange, bias: Values) -> ScreenedTile:
        """Return the thresholds of all queries, for some columns with their biases, without screening values."""
        queries, none = RowRange(0, len(self._targets.indptr) - 1), np.empty((0, 0), self._screen.dtype)
        return self._screened(self._screen, Precision.PLAIN, queries, columns, (none, bias))

    def _screened(
        self, screen: Screen, precision: Precision, queries: RowRange, columns: RowRange, found: tuple[Values, Values]
    ) -> ScreenedTile:
        """Return values and biases of a tile with the thresholds of its queries."""
        if precision not in self._edges_in:
            self._edges_in[precision] = self._edges(screen)
        values, bias = found
        edges, targets = self._edges_in[precision], self._targets
        own = targets.indptr[queries.start : queries.stop + 1]
        here = slice(own[0], own[-1])
        biases, bias_of = self._hidden.bias(bias, columns, queries)
        return ScreenedTile(
            values=values,
            bias=biases,
            bias_of=bias_of,
            column_start=columns.start,
            row_of=self._gallery.numbers[columns.start : columns.stop],
            bands=Bands(
                indptr=own - own[0],
                lower=edges[0][here],
                upper=edges[1][here],
                distance=targets.distance[here],
                positive_start=targets.positive_start[own[0] : own[-1] + 1],
                positive_row=targets.positive_row,
                hidden_indptr=self._hidden.indptr[queries.start : queries.stop + 1],
                hidden_column=self._hidden.column,
            ),
            rows=cut_pairs(self._pairs, queries, columns),
            ties=self._ties,
        )
