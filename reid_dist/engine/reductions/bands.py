"""Thresholds of a block of queries, expressed as bands of screening values of a gallery block."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.model import GalleryMask, Targets, cut_rows
from reid_dist.engine.distances import Screen
from reid_dist.engine.distances.integers import forced_screen
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.costs import OF_INTEGERS, Precision, cheapest
from reid_dist.engine.reductions.tiles import BlockPair, TileView
from reid_dist.kernels.deciding import Bands
from reid_dist.kernels.placing import Placing
from reid_dist.kernels.screening import count_in_bands
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]
Edges = tuple[NDArray[np.floating], NDArray[np.floating]]

# Share of pairs inside bands at which a computed tile is left to the next precision.
_GIVEN_UP = 0.2

# Fewer queries than these are not worth products of their own, which would take long for so few.
_FEWEST = 64

# Queries per computation of edges.
_EDGE_QUERIES = 256


def most_inside(size: int) -> int:
    """Pairs of a tile of `size` pairs that are looked at one by one before it is read in the next precision."""
    return int(_GIVEN_UP * size) + 64


def read_all(tile: TileView, add: Callable[[Precision, int, int], tuple[int, int]]) -> None:
    """Add all rows of a tile; those with too many pairs inside bands are read in the next precision.

    `add` adds rows in a precision, from one on, until more than a number of pairs lie inside bands; it returns the
    number of the first row that was not added, and of these pairs.
    """
    precision, done = tile.precision, 0
    while True:
        following = tile.wider(precision)
        done, _ = add(precision, done, tile.size if following is None else most_inside(tile.size))
        if following is None or done == len(tile.queries):
            return
        tile.leave(precision)
        precision = following


class ScreenedTargets:
    """Thresholds of a block of queries for the tiles of a block pair; `need` is that of `TileView.read`."""

    def __init__(self, targets: Targets, mask: GalleryMask, pair: BlockPair, need: str) -> None:
        self._targets, self._pair, self._need = targets, pair, need
        self._hidden = HiddenColumns(targets.hidden, mask, pair.gallery)
        self._bands: dict[DTypeLike, Bands] = {}

    def bands(self, precision: Precision) -> Bands:
        """Bands in a precision."""
        screen = self._pair.screen(precision)
        if screen.dtype not in self._bands:
            lower, upper = self._edges(screen)
            targets, hidden = self._targets, self._hidden
            self._bands[screen.dtype] = Bands(
                indptr=targets.indptr,
                lower=lower,
                upper=upper,
                distance=targets.distance,
                positive_start=targets.positive_start,
                positive_row=targets.positive_row,
                hidden_indptr=hidden.indptr,
                hidden_column=hidden.column,
            )
        return self._bands[screen.dtype]

    def read(self, tile: TileView, precision: Precision) -> Tile:
        """A tile in a precision, with columns that are hidden by label."""
        found = tile.read(precision, self._need)
        bias, bias_of = self._hidden.bias(found.bias[0], tile.columns, tile.queries)
        return found._replace(bias=bias, bias_of=bias_of)

    def placing(self, precision: Precision, ties: int = 0) -> Placing:
        """What values in a precision are placed by; see `reid_dist.kernels.placing` for the rule of ties."""
        return Placing(self.bands(precision), self._pair.rows, self._pair.gallery.numbers, ties)

    def _edges(self, screen: Screen) -> Edges:
        """Lower and upper edges of all thresholds."""
        own, squared = self._targets.indptr, self._pair.distance.squared
        lower, upper = (np.empty(own[-1], screen.dtype) for _ in range(2))
        for cut in cut_rows(len(own) - 1, _EDGE_QUERIES):
            # A few queries at a time: edges are computed in float64, with several intermediate arrays.
            owner = np.repeat(np.arange(cut.start, cut.stop), np.diff(own[cut.start : cut.stop + 1]))
            here = slice(own[cut.start], own[cut.stop])
            lower[here], upper[here] = screen.edges(owner, self._targets.distance[here], squared)
        return lower, upper

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """Precision of least cost for each query, from the share of its pairs inside bands; shape (n_query,).

        The share is that of some gallery rows of the block.
        """
        own, pair = self._targets.indptr, self._pair
        found = np.full(len(own) - 1, Precision.PLAIN, np.uint8)
        screen = pair.screen()
        if not screen.exact and own[-1]:
            kinds: tuple[Precision, ...] = (Precision.PLAIN, Precision.WIDE)
            if pair.integers is not None:
                kinds = OF_INTEGERS if forced_screen() == "int8" else (*OF_INTEGERS, *kinds)
            found[:] = cheapest(kinds, pair.gallery.features.shape[1], self._share_inside())
            numbers = {kind: int((found == kind).sum()) for kind in (*OF_INTEGERS, Precision.PLAIN)}
            most = max(numbers, key=lambda kind: numbers[kind])
            for kind, number in numbers.items():
                # Three products, and both integers of every gallery row.
                if number < (3 * _FEWEST if kind is Precision.RESIDUALS else _FEWEST):
                    found[found == kind] = most
        # Under re-ranked distances, known pairs may be all that matters.
        lowest = np.full(len(found), np.inf)
        has = np.flatnonzero(own[1:] > own[:-1])
        lowest[has] = self.bands(Precision.PLAIN).lower[own[has + 1] - 1]
        found[~screen.needs_product(lowest)] = Precision.KNOWN
        found[own[1:] == own[:-1]] = Precision.NOTHING
        return found

    def _share_inside(self) -> Callable[[Precision], NDArray[np.float64]]:
        """Estimate of the share of the pairs of each query that lie inside bands, in a precision; none in float64."""
        pair, n_query = self._pair, len(self._targets.indptr) - 1
        rows = pair.sampled_rows
        values, bands = pair.sample(rows), self.bands(Precision.PLAIN)

        def share(precision: Precision) -> NDArray[np.float64]:
            found = np.zeros(n_query)
            if precision is not Precision.WIDE:
                count_in_bands(values, rows, pair.errors(precision, rows), bands, found)
            return found / len(rows)

        return share
