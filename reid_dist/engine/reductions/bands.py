"""Thresholds of a block of queries, expressed as bands of screening values of a gallery block."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.model import GalleryMask, Targets, cut_rows
from reid_dist.core.segments import entry_owners
from reid_dist.engine.distances import Screen
from reid_dist.engine.distances.integers import forced_screen
from reid_dist.engine.plan import OPEN_PAIRS
from reid_dist.engine.reductions.accumulator import Accumulator
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.costs import Precision, cost_of
from reid_dist.engine.reductions.tiles import BlockPair, TileView
from reid_dist.kernels.deciding import Bands, OpenPairs, decide, make_open_pairs
from reid_dist.kernels.screening import count_in_bands
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]
Edges = tuple[NDArray[np.floating], NDArray[np.floating]]
R = TypeVar("R")

Adding = Callable[[int, int, int], tuple[int, int, int]]
"""Adds rows of a tile, and pairs that values leave open behind so many others, from a row on.

It ends where more than a number of values, the last argument, lie inside bands, or where open pairs find no room.
Returns the first row that was not added, and the numbers of open pairs and of values inside bands.
"""

# Share of pairs inside bands at which a computed tile is left to the next precision.
_GIVEN_UP = 0.2

# Fewer queries than these are not worth products of their own, which would take long for so few.
_FEWEST = 64

# Queries per computation of edges.
_EDGE_QUERIES = 256


def most_inside(size: int) -> int:
    """Pairs of a tile of `size` pairs that are looked at one by one before it is read in the next precision."""
    return int(_GIVEN_UP * size) + 64


class DecidingTiles(Accumulator[R]):
    """Accumulates tiles whose values leave pairs open, which are decided together."""

    takes_known: ClassVar[bool] = True

    def __init__(self, pair: BlockPair) -> None:
        self._pair = pair
        self._open, self._n_open = make_open_pairs(OPEN_PAIRS + pair.gallery_rows), 0

    @abstractmethod
    def _adding(self, tile: TileView, precision: Precision) -> Adding:
        """Read a tile in a precision; return the function that adds its rows."""

    @abstractmethod
    def _decide(self) -> None:
        """Decide the open pairs, and add them."""

    def absorb(self, tile: TileView) -> None:
        """Add one tile; rows with too many pairs inside bands are read in the next precision."""
        precision, done = tile.precision, 0
        while True:
            following, inside = tile.wider(precision), 0
            limit = tile.size if following is None else most_inside(tile.size)
            add = self._adding(tile, precision)
            while True:
                done, self._n_open, more = add(self._n_open, done, limit - inside)
                inside += more
                if done == len(tile.queries) or inside > limit:
                    break
                self._decide()
            if following is None or done == len(tile.queries):
                return
            tile.leave(precision)
            precision = following


class PlacingTiles(DecidingTiles[R]):
    """Gives the pairs of a block pair their places among thresholds; see `reid_dist.kernels.deciding`."""

    # As the need of `TileView.read`.
    need: ClassVar[str]

    def __init__(self, targets: Targets, mask: GalleryMask, pair: BlockPair, ties: int) -> None:
        super().__init__(pair)
        self._targets, self._ties = targets, ties
        self._hidden = HiddenColumns(targets.hidden, mask, pair.gallery)
        self._bands: dict[DTypeLike, Bands] = {}

    @abstractmethod
    def _place(
        self, tile: Tile, bands: Bands, columns: slice, n_open: int, first: int, limit: int
    ) -> tuple[int, int, int]:
        """Add rows of a tile of some columns of the block; as `Adding`."""

    @abstractmethod
    def _enter(self, decided: OpenPairs) -> None:
        """Add pairs that are at their places."""

    def _adding(self, tile: TileView, precision: Precision) -> Adding:
        """Read a tile, with columns that are hidden by label."""
        found = tile.read(precision, self.need)
        bias, bias_of = self._hidden.bias(found.bias[0], tile.columns, tile.queries)
        read = found._replace(bias=bias, bias_of=bias_of)
        return partial(self._place, read, self.bands(precision), slice(tile.columns.start, tile.columns.stop))

    def _decide(self) -> None:
        """Give the open pairs their places, and add them."""
        bands, numbers = self.bands(Precision.PLAIN), self._pair.gallery.numbers
        n = decide(self._open, self._n_open, numbers, bands, self._pair.rows, self._ties)
        self._n_open = 0
        self._enter(OpenPairs(*(each[:n] for each in self._open)))

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

    def _edges(self, screen: Screen) -> Edges:
        """Lower and upper edges of all thresholds."""
        own, squared = self._targets.indptr, self._pair.distance.squared
        lower, upper = (np.empty(own[-1], screen.dtype) for _ in range(2))
        for cut in cut_rows(len(own) - 1, _EDGE_QUERIES):
            # A few queries at a time: edges are computed in float64, with several intermediate arrays.
            owner = entry_owners(own[cut.start : cut.stop + 1]) + cut.start
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
            kinds = [Precision.PLAIN, Precision.WIDE]
            if pair.integers is not None:
                kinds = [Precision.INTEGERS] if forced_screen() == "int8" else [Precision.INTEGERS, *kinds]
            dim = pair.gallery.features.shape[1]
            costs = [cost_of(kind, dim, share) for kind, share in zip(kinds, self._shares(kinds), strict=True)]
            found[:] = np.array(kinds)[np.argmin(costs, axis=0)]
            few, many = sorted((Precision.INTEGERS, Precision.PLAIN), key=lambda kind: int((found == kind).sum()))
            if (found == few).sum() < _FEWEST:
                found[found == few] = many
        # Under re-ranked distances, known pairs may be all that matters.
        lowest = np.full(len(found), np.inf)
        has = np.flatnonzero(own[1:] > own[:-1])
        lowest[has] = self.bands(Precision.PLAIN).lower[own[has + 1] - 1]
        found[~screen.needs_product(lowest)] = Precision.KNOWN
        found[own[1:] == own[:-1]] = Precision.NOTHING
        return found

    def _shares(self, kinds: list[Precision]) -> list[NDArray[np.float64]]:
        """Estimate the share of the pairs of each query that lie inside bands, in each precision."""
        pair, n_query = self._pair, len(self._targets.indptr) - 1
        rows = pair.sampled_rows
        values = pair.sample(rows)
        bands, inside = self.bands(Precision.PLAIN), []
        for kind in kinds:
            extra = pair.errors(rows) if kind is Precision.INTEGERS else np.zeros(n_query, np.float32)
            found = np.zeros(n_query)
            if kind is not Precision.WIDE:
                count_in_bands(values, rows, extra, bands, found)
            inside.append(found / len(rows))
        return inside
