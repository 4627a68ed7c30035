"""Distribution of the distances of impostors: a histogram of all of them, then exact counts around a few distances.

An *impostor* is a negative of any query, valid or not: a gallery row that is visible to the query and not relevant to
it.  Partial results hold sparse counts, never a distance per pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden
from reid_dist.engine.distances import Distance, Screen
from reid_dist.engine.reductions.accumulator import Accumulator
from reid_dist.engine.reductions.bands import Adding, DecidingTiles
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.by_query import CountsByQuery, QueryTally, add_by_query, join_queries
from reid_dist.engine.reductions.costs import Precision, cost_of
from reid_dist.engine.reductions.key_counts import FallingScale, KeyCounts, add_key_counts, ordered_keys
from reid_dist.engine.reductions.tiles import BlockPair, TileView
from reid_dist.kernels.canonical import pair_distances
from reid_dist.kernels.impostors import (
    LARGEST_KEY,
    N_PLACES,
    TOUCHED,
    Brackets,
    Screened,
    count_keys,
    falling_keys,
    split_tile,
)

Int64 = NDArray[np.int64]

# Minimal counts kept per bracket.  With two or more, a bracket is always narrower in the next pass.
FEWEST_COUNTS = 4


# ---- partial results -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImpostorHistogram:
    """A histogram of screened distances."""

    # Counts by key of the falling value; see `reid_dist.kernels.impostors`.  Values too large for a float32 are
    # omitted: their number is the number of impostors less the total.
    counts: KeyCounts
    # Bound on the deviation of a falling value from that of the canonical distance, maximal over all queries, to which
    # a 2^-22nd of the value is added.
    error: float


@dataclass(frozen=True, slots=True)
class BracketCounts:
    """Exact counts of some brackets of distances, and of the gaps between them."""

    # Pairs in the gap below each bracket, shape (n_bracket,), int64.
    below: Int64
    # Counts of the distances inside each bracket, by ordered key.
    inside: tuple[KeyCounts, ...]
    # The same by query, if requested.
    by_query: CountsByQuery | None = None


# ---- shared by both reductions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Visibility:
    """Visibility of impostors: the pairs to count, and their distance."""

    # Hidden rows of the block of queries.
    hidden: Hidden
    # Gallery rows hidden from queries.
    mask: GalleryMask
    # Whether each query is counted by the protocol, shape (n_query,), bool.
    counted: NDArray[np.bool_]
    # Registered, re-ranked or precomputed distance, and its falling values.
    distance: Distance
    scale: FallingScale


class _VisibleTiles:
    """Reads the tiles of a block pair as kernels take them."""

    def __init__(self, visibility: Visibility, pair: BlockPair) -> None:
        self._counted, self._pair = visibility.counted, pair
        self._hidden = HiddenColumns(visibility.hidden, visibility.mask, pair.gallery)

    def read(self, tile: TileView, precision: Precision) -> Screened:
        """A tile in a precision."""
        screen, read = self._pair.screen(precision), tile.read(precision, "verification")
        bias, bias_of = self._hidden.bias(read.bias[0], tile.columns, tile.queries)
        return Screened(
            tile=read._replace(bias=bias, bias_of=bias_of),
            hidden_indptr=self._hidden.indptr,
            hidden_column=self._hidden.column,
            counted=self._counted,
            centre=screen.centre.astype(screen.dtype),
            scale=np.full(1, 1.0 / screen.slope, screen.dtype)[0],
        )


def _error(screen: Screen, extra: float = 0.0) -> float:
    """Bound on the deviation of a falling value computed by a kernel from the canonical one, less a 2^-22nd of it.

    The screening value deviates by at most epsilon, and `extra` more; the centre is rounded to the dtype of the tile.
    """
    rounded = 2.0 * np.finfo(screen.dtype).eps * np.abs(screen.centre)
    return float(((screen.epsilon + extra + rounded) / screen.slope).max(initial=0.0)) * (1.0 + 2.0**-20) + 2.0**-120


# ---- first pass ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountImpostors:
    """Compute a histogram of the screened distances of all impostors."""

    # Visibility of impostors.
    visibility: Visibility

    def start(self, pair: BlockPair) -> _Histogram:
        """Make an accumulator for a block pair."""
        return _Histogram(self.visibility, pair)


def add_histograms(partials: Sequence[ImpostorHistogram]) -> ImpostorHistogram:
    """Add the histograms of different pairs."""
    counts = add_key_counts([partial.counts for partial in partials])
    return ImpostorHistogram(counts, max(partial.error for partial in partials))


class _Histogram(Accumulator[ImpostorHistogram]):
    """Accumulator of `CountImpostors`."""

    def __init__(self, visibility: Visibility, pair: BlockPair) -> None:
        self._pair, self._tiles = pair, _VisibleTiles(visibility, pair)
        # Few of its pages are touched.
        self._counts = np.zeros(N_PLACES, np.int64)
        self._span = np.array([N_PLACES, 0], np.uint32)

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query."""
        return np.full(len(self._pair.query), Precision.PLAIN, np.uint8)

    def absorb(self, tile: TileView) -> None:
        """Count one tile."""
        count_keys(self._tiles.read(tile, Precision.PLAIN), self._counts, self._span)

    def result(self) -> ImpostorHistogram:
        """Return the counts of visible pairs whose values fit into a float32."""
        first, last = self._span.tolist()
        place = np.flatnonzero(self._counts[first : last + 1]) + first
        return ImpostorHistogram(KeyCounts(place - LARGEST_KEY, self._counts[place]), _error(self._pair.screen()))


# ---- further passes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CollectImpostors:
    """Count impostors exactly: those between brackets of distances, and those inside by distance."""

    # Visibility of impostors.
    visibility: Visibility
    # Edges ``lo, hi, lo, hi, …`` of the brackets [lo, hi), ascending canonical distances.
    edges: tuple[float, ...]
    # Maximal counts of a partial result; beyond it, keys of the fullest brackets lose their lowest bits.
    capacity: int
    # Whether pairs are also counted by query.
    by_query: bool = False

    def start(self, pair: BlockPair) -> _Collection:
        """Make an accumulator for a block pair."""
        return _Collection(self, pair)


def combine_brackets(partials: Sequence[BracketCounts], capacity: int) -> BracketCounts:
    """Add the counts of different gallery rows for the same queries; `capacity` is that of the reduction."""
    own = [partial.by_query for partial in partials if partial.by_query is not None]
    return _added(partials, capacity, add_by_query(own, capacity) if own else None)


def join_brackets(blocks: Sequence[BracketCounts], capacity: int) -> BracketCounts:
    """Add the counts of different queries, and concatenate those by query; `capacity` is that of the reduction."""
    own = [block.by_query for block in blocks if block.by_query is not None]
    return _added(blocks, capacity, join_queries(own) if own else None)


def _added(partials: Sequence[BracketCounts], capacity: int, by_query: CountsByQuery | None) -> BracketCounts:
    below = np.sum([partial.below for partial in partials], axis=0)
    inside = zip(*(partial.inside for partial in partials), strict=True)
    return BracketCounts(below, _fitted([add_key_counts(parts) for parts in inside], capacity), by_query)


def _fitted(inside: Sequence[KeyCounts], capacity: int) -> tuple[KeyCounts, ...]:
    if sum(map(len, inside)) <= capacity:
        return tuple(inside)
    share = max(capacity // len(inside), FEWEST_COUNTS)
    return tuple(counts.shrunk(share) for counts in inside)


class _Collection(DecidingTiles[BracketCounts]):
    """Accumulator of `CollectImpostors`."""

    def __init__(self, reduction: CollectImpostors, pair: BlockPair) -> None:
        super().__init__(pair)
        self._tiles, self._capacity = _VisibleTiles(reduction.visibility, pair), reduction.capacity
        self._distance = np.array(reduction.edges, np.float64)
        scale = reduction.visibility.scale
        self._falling, self._slack = scale.falling(self._distance), scale.error(self._distance)
        self._at_place = np.empty(N_PLACES, np.uint16)
        self._last_place, self._extra, self._filled = 0, 0.0, (pair.screen(), -1.0)
        nothing = KeyCounts(np.empty(0, np.int64), np.empty(0, np.int64))
        self._below = np.zeros(len(reduction.edges) // 2, np.int64)
        self._inside = (nothing,) * len(self._below)
        self._by_query = None if not reduction.by_query else QueryTally(len(pair.query), self._distance, self._capacity)

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query: that of least cost, from the share of the pairs near brackets."""
        pair, found = self._pair, np.full(len(self._pair.query), Precision.PLAIN, np.uint8)
        if pair.integers is None:
            return found
        screen, rows = pair.screen(), pair.sampled_rows
        fall = (screen.centre[:, None] - pair.sample(rows)) / screen.slope
        inside = []
        for extra in (pair.errors(rows), 0.0):
            width = ((screen.epsilon + extra) / screen.slope)[:, None]
            edges = np.searchsorted(self._falling, fall - width), np.searchsorted(self._falling, fall + width)
            inside.append(float(((edges[0] != edges[1]) | (edges[0] % 2 == 1)).mean()))
        dim = pair.gallery.features.shape[1]
        if cost_of(Precision.INTEGERS, dim, inside[0]) < cost_of(Precision.PLAIN, dim, inside[1]):
            found[:] = Precision.INTEGERS
        return found

    def _fill_places(self, screen: Screen, extra: float) -> None:
        """Mark every key as certainly in a gap, or as in or near a bracket."""
        if (screen, extra) == self._filled:
            return
        self._filled = screen, extra
        error = _error(screen, extra) + 2.0**-22 * np.abs(self._falling) + self._slack
        sign = np.tile([-1.0, 1.0], len(self._falling) // 2)
        with np.errstate(over="ignore"):
            place = falling_keys(self._falling + sign * error) + LARGEST_KEY
        begin, self._first_edge = 0, np.zeros(N_PLACES, np.uint16)
        for gap, (first, last) in enumerate(zip(place[::2].tolist(), place[1::2].tolist(), strict=True)):
            self._at_place[begin:first] = gap + 1
            self._at_place[max(begin, first) : last + 1] = TOUCHED
            # Keys that the bracket before does not touch lie beyond it.
            self._first_edge[max(begin, first) : last + 1] = 2 * gap
            begin = max(begin, last + 1)
        self._at_place[begin:] = len(place) // 2 + 1
        self._last_place = begin - 1

    def _adding(self, tile: TileView, precision: Precision) -> Adding:
        """Read a tile, with the table of its keys."""
        screen, screened = self._pair.screen(precision), self._tiles.read(tile, precision)
        # The largest so far: the table is filled anew when it grows.
        self._extra = max(self._extra, float(screened.tile.extra.max(initial=0.0)))
        self._fill_places(screen, self._extra if precision is Precision.INTEGERS else 0.0)
        brackets = Brackets(
            at_place=self._at_place,
            last_place=self._last_place,
            first_edge=self._first_edge,
            falling=self._falling,
            centre=screen.centre,
            epsilon=screen.epsilon + screen.slope * self._slack.max(initial=0.0),
            slope=screen.slope,
        )
        tally = np.empty((0, 0, 0), np.int32) if self._by_query is None else self._by_query.tally

        def add(n_open: int, first: int, limit: int) -> tuple[int, int, int]:
            return split_tile(screened, brackets, self._open, n_open, first, limit, self._below, tally)

        return add

    def _decide(self) -> None:
        """Count the open pairs by their distances."""
        query, column = self._open.query[: self._n_open], self._open.column[: self._n_open]
        self._n_open = 0
        distance = pair_distances(self._pair.rows, query, column)
        if self._by_query is not None:
            self._by_query.add(query, distance)
        distance.sort()
        ends = np.searchsorted(distance, self._distance, "left")
        self._below += np.diff(ends, prepend=0)[::2]
        fresh = [KeyCounts.of(ordered_keys(distance[start:stop])) for start, stop in ends.reshape(-1, 2).tolist()]
        added = [add_key_counts([old, new]) for old, new in zip(self._inside, fresh, strict=True)]
        self._inside = _fitted(added, self._capacity)

    def result(self) -> BracketCounts:
        """Return the counts of the block pair."""
        self._decide()
        return BracketCounts(self._below, self._inside, None if self._by_query is None else self._by_query.result())
