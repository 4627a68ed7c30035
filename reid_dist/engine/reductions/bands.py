"""Thresholds of a block of queries, expressed as bands of screening values of a gallery block.

Pairs before them are counted, or *entered* one by one, as for the single-shot CMC and a ranking by group.  Both keep
entries, each of which is one integer: a place among the positives of a query above, and the number of an identity or of
a group in the low bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.model import GalleryMask, Targets, cut_rows
from reid_dist.core.segments import entry_owners
from reid_dist.engine.distances import Screen
from reid_dist.engine.plan import OPEN_BYTES, OPEN_PAIRS
from reid_dist.engine.reductions.backends import Advance, Backend, Pairs, Rest
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.costs import Precision
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.targets import place_starts
from reid_dist.engine.reductions.tile_products import BlockPair, TileView
from reid_dist.kernels.deciding import APART, Bands, OpenPairs, decide, make_open_pairs
from reid_dist.kernels.placing import PlacedPairs, place_pairs
from reid_dist.kernels.screen_rows import count_in_bands
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]
Edges = tuple[NDArray[np.floating], NDArray[np.floating]]
R = TypeVar("R")

Adding = Callable[[Rest], Advance]
"""Adds the rest of a tile, as primitives of backends do."""

# Pairs inside bands that are always looked at.
_SPARED = 64

# Fewer queries than these are not worth products of their own, which would take long for so few.
_FEWEST = 64

# Queries per computation of edges.
_EDGE_QUERIES = 256

# Pairs that are entered together: they stay in the cache of a core.
_TOGETHER = 2**15

ENTERING_BYTES = OPEN_BYTES + 24 * _TOGETHER
"""Memory of open and of placed pairs, per task."""


def most_inside(size: int, given_up: float) -> int:
    """Pairs of a tile of `size` pairs that are looked at one by one before it is read in the next precision."""
    return int(given_up * size) + _SPARED


class DecidingTiles(Reduction[R]):
    """Accumulates tiles whose values leave pairs open, which are decided together."""

    def _begin(self, pair: BlockPair) -> None:
        self._open, self._n_open = make_open_pairs(OPEN_PAIRS + pair.gallery_rows), 0

    @abstractmethod
    def _adding(self, tile: TileView, precision: Precision) -> Adding:
        """Read a tile in a precision; return the function that adds its rows."""

    @abstractmethod
    def _decide(self) -> None:
        """Decide the open pairs, and add them."""

    def absorb(self, tile: TileView) -> None:
        """Add one tile; rows with too many pairs inside bands are read in the next precision."""
        precision, done = tile.first(self.need), 0
        while True:
            following, inside = tile.wider(precision, self.need), 0
            limit = tile.size if following is None else most_inside(tile.size, tile.given_up(precision))
            add = self._adding(tile, precision)
            while True:
                done, self._n_open, more = add(Rest(self._open, self._n_open, done, limit - inside))
                inside += more
                if done == len(tile.queries) or inside > limit:
                    break
                self._decide()
            if following is None or done == len(tile.queries):
                return
            tile.leave(precision, self.need)
            precision = following


@dataclass(eq=False)
class PlacingTiles(DecidingTiles[R]):
    """Gives the pairs of a block pair their places among thresholds; see `reid_dist.kernels.deciding`."""

    # Thresholds of the block of queries.
    targets: Targets
    # Gallery rows hidden from queries.
    mask: GalleryMask
    # Rule of ties.
    ties: int = field(default=APART, kw_only=True)

    def _begin(self, pair: BlockPair) -> None:
        super()._begin(pair)
        self._hidden = HiddenColumns(self.targets.hidden, self.mask, pair.gallery)
        self._bands: dict[DTypeLike, Bands] = {}

    @abstractmethod
    def _place(self, backend: Backend, pairs: Pairs, bands: Bands, rest: Rest) -> Advance:
        """Add the rest of some pairs; as `Adding`."""

    @abstractmethod
    def _enter(self, decided: OpenPairs) -> None:
        """Add pairs that are at their places."""

    def _adding(self, tile: TileView, precision: Precision) -> Adding:
        """Read a tile, with columns that are hidden by label."""
        return partial(self._place, *tile.read(precision, self.need, self._hidden), self.bands(precision))

    def _decide(self) -> None:
        """Give the open pairs their places, and add them."""
        bands, numbers = self.bands(Precision.PLAIN), self._pair.gallery.numbers
        n = decide(self._open, self._n_open, numbers, bands, self._pair.rows, self.ties)
        self._n_open = 0
        self._enter(OpenPairs(*(each[:n] for each in self._open)))

    def bands(self, precision: Precision) -> Bands:
        """Bands in a precision."""
        screen = self._pair.screen(precision)
        if screen.dtype not in self._bands:
            lower, upper = self._edges(screen)
            targets, hidden = self.targets, self._hidden
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
        own, squared = self.targets.indptr, self._pair.distance.squared
        lower, upper = (np.empty(own[-1], screen.dtype) for _ in range(2))
        for cut in cut_rows(len(own) - 1, _EDGE_QUERIES):
            # A few queries at a time: edges are computed in float64, with several intermediate arrays.
            owner = entry_owners(own[cut.start : cut.stop + 1]) + cut.start
            here = slice(own[cut.start], own[cut.stop])
            lower[here], upper[here] = screen.edges(owner, self.targets.distance[here], squared)
        return lower, upper

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """Precision of least cost for each query, from the share of its pairs inside bands; shape (n_query,).

        The share is that of some gallery rows of the block.
        """
        own, pair = self.targets.indptr, self._pair
        found = np.full(len(own) - 1, Precision.PLAIN, np.uint8)
        if not pair.screen().exact and own[-1]:
            kinds: tuple[Precision, ...] = (Precision.PLAIN, Precision.WIDE)
            if pair.has_integers:
                kinds = (Precision.INTEGERS,) if pair.policy.forced == "int8" else (Precision.INTEGERS, *kinds)
            found[:] = pair.costs.cheapest(kinds, self._share_inside())
            kind_of, numbers = np.unique(found, return_counts=True)
            for kind in kind_of[numbers < _FEWEST]:
                found[found == kind] = kind_of[numbers.argmax()]
        found[own[1:] == own[:-1]] = Precision.NOTHING
        return found

    def _share_inside(self) -> Callable[[Precision], NDArray[np.float64]]:
        """Estimate of the share of the pairs of each query that lie inside bands, in a precision; none in float64."""
        pair, n_query = self._pair, len(self.targets.indptr) - 1
        rows = pair.sampled_rows
        values, bands = pair.sample(rows), self.bands(Precision.PLAIN)

        def share(precision: Precision) -> NDArray[np.float64]:
            found = np.zeros(n_query)
            if precision is not Precision.WIDE:
                count_in_bands(values, rows, pair.backend(precision).errors(rows), bands, found)
            return found / len(rows)

        return share


def number_bits(n: int) -> int:
    """Low bits of an entry that hold one of `n` numbers."""
    return max(1, (n - 1).bit_length())


def entry_type(bits: int, n_places: int) -> np.dtype[np.signedinteger]:
    """Smallest type of entries of so many places, one of none included."""
    return np.dtype(np.int32 if (n_places + 1) << bits <= np.iinfo(np.int32).max else np.int64)


class EnteringTiles(PlacingTiles[R]):
    """Gives all pairs that come before a threshold to `_enter_placed`, with the numbers of their columns."""

    def _begin(self, pair: BlockPair) -> None:
        super()._begin(pair)
        targets, self._number_of = self.targets, self._numbers(pair)
        # First place of each query, and their number at the end.
        self._start = place_starts(targets) if self.ties == APART else targets.positive_indptr
        # The thresholds of each query end here; those from here on need no pairs.
        self._stop = targets.indptr[1:]
        n = _TOGETHER + pair.gallery_rows
        self._placed = PlacedPairs(
            np.empty(_TOGETHER, np.int64),
            np.empty(_TOGETHER + 1, np.int64),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
        )

    @abstractmethod
    def _numbers(self, pair: BlockPair) -> NDArray[np.int32]:
        """Number of every column."""

    @abstractmethod
    def _enter_placed(self, placed: PlacedPairs) -> None:
        """Add pairs that are at their places."""

    def _place(self, backend: Backend, pairs: Pairs, bands: Bands, rest: Rest) -> Advance:
        placed, number_of = self._placed, self._number_of[pairs.columns.start : pairs.columns.stop]

        def take(tile: Tile) -> Advance:
            first, n_open, inside = rest.first, rest.n_open, 0
            while True:
                first, n_open, more, n = place_pairs(
                    tile,
                    bands,
                    rest.open,
                    n_open,
                    first,
                    rest.limit - inside,
                    self._stop,
                    self.ties,
                    number_of,
                    placed,
                )
                inside += more
                self._enter_placed(placed._replace(query=placed.query[:n]))
                # Unless it is for want of room for placed pairs that the kernel ends, it ends for good.
                if n < len(placed.query) and placed.start[n] <= _TOGETHER:
                    return first, n_open, inside

        return backend.enter(pairs, take)

    def _enter(self, decided: OpenPairs) -> None:
        place = decided.place - self._start[decided.query]
        rows = np.arange(len(place) + 1)
        number = self._number_of[decided.column]
        self._enter_placed(PlacedPairs(decided.query, rows, number, place.astype(np.int32)))
