"""Distribution of the distances of impostors: a histogram of all of them, then exact counts around a few distances.

An *impostor* is a negative of any query, valid or not: a gallery row that is visible to the query and not relevant to
it.  Partial results hold sparse counts, never a distance per pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden
from reid_dist.engine.distances import Distance, Screen
from reid_dist.engine.reductions.accumulator import Accumulator
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.by_query import CountsByQuery, QueryTally, add_by_query, join_queries
from reid_dist.engine.reductions.costs import Precision, cost_of
from reid_dist.engine.reductions.key_counts import FallingScale, KeyCounts, add_key_counts, ordered_keys
from reid_dist.engine.reductions.tiles import BlockPair, TileView
from reid_dist.kernels.impostors import (
    LARGEST_KEY,
    N_PLACES,
    TOUCHED,
    Brackets,
    Screened,
    count_keys,
    falling_keys,
    split_tile,
    untallied,
)

Int64 = NDArray[np.int64]
R = TypeVar("R")

# Minimal counts kept per bracket.  With two or more, a bracket is always narrower in the next pass.
FEWEST_COUNTS = 4

# Queries from which the share of undecided pairs is estimated.
_SAMPLED_QUERIES = 128

# Above these shares of a tile decided pair by pair, the products of the next precision are cheaper.
_MOST_UNDECIDED = {Precision.INTEGERS: 0.1, Precision.PLAIN: 0.02}


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
    # Maximal number of these; beyond it, keys of the fullest brackets lose their lowest bits.
    capacity: int
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


class _ImpostorTiles(Accumulator[R]):
    """Prepares tiles for the kernels."""

    def __init__(self, visibility: Visibility, pair: BlockPair) -> None:
        self._visibility, self._pair = visibility, pair
        self._hidden = HiddenColumns(visibility.hidden, visibility.mask, pair.gallery)
        self._screen = pair.screen()

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query."""
        return np.full(len(self._pair.query), Precision.PLAIN, np.uint8)

    def _screened(self, tile: TileView, precision: Precision = Precision.PLAIN) -> tuple[Screen, Screened]:
        """Return a tile in a precision as the argument of kernels, and its screen."""
        screen, read = self._pair.screen(precision), tile.read(precision, "verification")
        bias, bias_of = self._hidden.bias(read.bias[0], tile.columns, tile.queries)
        return screen, Screened(
            tile=read._replace(bias=bias, bias_of=bias_of),
            hidden_indptr=self._hidden.indptr,
            hidden_column=self._hidden.column,
            counted=self._visibility.counted,
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


class _Histogram(_ImpostorTiles[ImpostorHistogram]):
    """Accumulator of `CountImpostors`."""

    def __init__(self, visibility: Visibility, pair: BlockPair) -> None:
        super().__init__(visibility, pair)
        # Few of its pages are touched.
        self._counts = np.zeros(N_PLACES, np.int64)
        self._span = np.array([N_PLACES, 0], np.uint32)

    def absorb(self, tile: TileView) -> None:
        """Count one tile."""
        _, screened = self._screened(tile)
        count_keys(screened, self._counts, self._span)

    def result(self) -> ImpostorHistogram:
        """Return the counts of visible pairs whose values fit into a float32."""
        first, last = self._span.tolist()
        place = np.flatnonzero(self._counts[first : last + 1]) + first
        return ImpostorHistogram(KeyCounts(place - LARGEST_KEY, self._counts[place]), _error(self._screen))


# ---- further passes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CollectImpostors:
    """Count impostors exactly: those between brackets of distances, and those inside by distance."""

    # Visibility of impostors.
    visibility: Visibility
    # Edges ``lo, hi, lo, hi, …`` of the brackets [lo, hi), ascending canonical distances.
    edges: tuple[float, ...]
    # As in `BracketCounts`.
    capacity: int
    # Whether pairs are also counted by query.
    by_query: bool = False

    def start(self, pair: BlockPair) -> _Collection:
        """Make an accumulator for a block pair."""
        return _Collection(self, pair)


def combine_brackets(partials: Sequence[BracketCounts]) -> BracketCounts:
    """Add the counts of different gallery rows for the same queries."""
    own = [partial.by_query for partial in partials if partial.by_query is not None]
    return _added(partials, add_by_query(own, partials[0].capacity) if own else None)


def join_brackets(blocks: Sequence[BracketCounts]) -> BracketCounts:
    """Add the counts of different queries, and concatenate those by query."""
    own = [block.by_query for block in blocks if block.by_query is not None]
    return _added(blocks, join_queries(own) if own else None)


def _added(partials: Sequence[BracketCounts], by_query: CountsByQuery | None) -> BracketCounts:
    below, capacity = np.sum([partial.below for partial in partials], axis=0), partials[0].capacity
    inside = zip(*(partial.inside for partial in partials), strict=True)
    return BracketCounts(below, _fitted([add_key_counts(parts) for parts in inside], capacity), capacity, by_query)


def _fitted(inside: Sequence[KeyCounts], capacity: int) -> tuple[KeyCounts, ...]:
    if sum(map(len, inside)) <= capacity:
        return tuple(inside)
    share = max(capacity // len(inside), FEWEST_COUNTS)
    return tuple(counts.shrunk(share) for counts in inside)


class _Table(NamedTuple):
    """Places of keys among brackets; see `Brackets`."""

    at_place: NDArray[np.uint16]
    first_edge: NDArray[np.uint16]
    last_place: int


# Block pairs of a job mostly share it, for two precisions.
@lru_cache(maxsize=4)
def _make_table(falling: tuple[float, ...], slack: tuple[float, ...], error: float) -> _Table:
    """Mark every key as certainly in a gap, or as in or near a bracket with edges `falling`."""
    edges = np.array(falling)
    width = error + 2.0**-22 * np.abs(edges) + np.array(slack)
    sign = np.tile([-1.0, 1.0], len(edges) // 2)
    with np.errstate(over="ignore"):
        place = falling_keys(edges + sign * width) + LARGEST_KEY
    begin, at_place, first_edge = 0, np.empty(N_PLACES, np.uint16), np.zeros(N_PLACES, np.uint16)
    for gap, (first, last) in enumerate(zip(place[::2].tolist(), place[1::2].tolist(), strict=True)):
        at_place[begin:first] = gap + 1
        at_place[max(begin, first) : last + 1] = TOUCHED
        # Keys that the bracket before does not touch lie beyond it.
        first_edge[max(begin, first) : last + 1] = 2 * gap
        begin = max(begin, last + 1)
    at_place[begin:] = len(place) // 2 + 1
    return _Table(at_place, first_edge, begin - 1)


def _rounded_up(error: float) -> float:
    """Round a positive number up to one with four leading bits, so that similar errors share a table."""
    fraction, exponent = math.frexp(error)
    return math.ldexp(math.ceil(16.0 * fraction), exponent - 4)


class _Collection(_ImpostorTiles[BracketCounts]):
    """Accumulator of `CollectImpostors`."""

    def __init__(self, reduction: CollectImpostors, pair: BlockPair) -> None:
        super().__init__(reduction.visibility, pair)
        self._capacity = reduction.capacity
        self._distance = np.array(reduction.edges, np.float64)
        scale = reduction.visibility.scale
        self._falling, self._slack = scale.falling(self._distance), scale.error(self._distance)
        self._extra = 0.0
        n_bracket = len(reduction.edges) // 2
        nothing = KeyCounts(np.empty(0, np.int64), np.empty(0, np.int64))
        self._counts = BracketCounts(np.zeros(n_bracket, np.int64), (nothing,) * n_bracket, self._capacity)
        self._found = np.empty(0)
        self._by_query = None if not reduction.by_query else QueryTally(len(pair.query), self._distance, self._capacity)
        # Number of distances in use, and number of decided pairs of the current tile.
        self._progress = np.zeros(2, np.int64)

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query: that of least cost, from the share of the pairs near brackets."""
        pair, found = self._pair, super().precisions
        if pair.integers is None:
            return found
        screen, rows = self._screen, pair.sampled_rows
        every = slice(None, None, -(-len(found) // _SAMPLED_QUERIES))
        fall = (screen.centre[every, None] - pair.sample(rows)[every]) / screen.slope
        inside = []
        for extra in (pair.errors(rows), 0.0):
            width = ((screen.epsilon + extra) / screen.slope)[every, None]
            edges = np.searchsorted(self._falling, fall - width), np.searchsorted(self._falling, fall + width)
            inside.append(float(((edges[0] != edges[1]) | (edges[0] % 2 == 1)).mean()))
        dim = pair.gallery.features.shape[1]
        if cost_of(Precision.INTEGERS, dim, inside[0]) < cost_of(Precision.PLAIN, dim, inside[1]):
            found[:] = Precision.INTEGERS
        return found

    def absorb(self, tile: TileView) -> None:
        """Add one tile; one with too many undecided pairs is read in the next precision."""
        precision: Precision = min(tile.precision, Precision.PLAIN)
        while not self._add(tile, precision):
            # Others that read the tile need not read it in float64.
            if precision is Precision.INTEGERS:
                tile.leave(precision)
            precision = Precision(precision + 1)

    def _add(self, tile: TileView, precision: Precision) -> bool:
        """Add a tile in a precision; whether few enough pairs were undecided."""
        screen, screened = self._screened(tile, precision)
        # The largest so far: the table changes when it grows.
        self._extra = max(self._extra, float(screened.tile.extra.max(initial=0.0)))
        error = _rounded_up(_error(screen, self._extra if precision is Precision.INTEGERS else 0.0))
        self._table = _make_table(tuple(self._falling.tolist()), tuple(self._slack.tolist()), error)
        gaps = np.zeros_like(self._counts.below)
        if self._by_query is not None:
            self._by_query.begin(len(tile.queries))
        row = 0
        if tile.wider(precision) is not None:
            limit = int(_MOST_UNDECIDED[precision] * tile.size) + 64
            # Capacity for all pairs up to the limit, so that no distance is counted before the tile is complete.
            kept = self._make_room(limit + 2 * len(tile.columns))
            row = self._split(screen, screened, 0, limit, gaps)
            if row < 0:
                self._progress[0] = kept
                return False
        while row < len(tile.queries):
            # All pairs may be inside brackets; the distances are counted whenever memory is full.
            self._make_room(len(tile.columns))
            row = self._split(screen, screened, row, tile.size, gaps)
        if self._by_query is not None:
            self._by_query.end(tile.queries)
        self._counts = replace(self._counts, below=self._counts.below + gaps)
        return True

    def _split(self, screen: Screen, screened: Screened, row: int, limit: int, gaps: Int64) -> int:
        """Call the kernel, from query `row` of the tile on."""
        brackets = Brackets(
            at_place=self._table.at_place,
            last_place=self._table.last_place,
            first_edge=self._table.first_edge,
            falling=self._falling,
            distance=self._distance,
            centre=screen.centre,
            epsilon=screen.epsilon + screen.slope * self._slack.max(initial=0.0),
            slope=screen.slope,
            exact=screen.exact,
        )
        self._progress[1] = 0
        own = untallied() if self._by_query is None else self._by_query.of_tile()
        return split_tile(screened, brackets, self._pair.rows, row, limit, gaps, self._found, self._progress, own)

    def _make_room(self, n_pairs: int) -> int:
        """Ensure capacity for `n_pairs` more distances; return the number of those in use."""
        if len(self._found) - self._progress[0] < n_pairs:
            self._put_away()
            if len(self._found) < n_pairs:
                self._found = np.empty(n_pairs)
                if self._by_query is not None:
                    self._by_query.owner = np.empty(n_pairs, np.int64)
        return int(self._progress[0])

    def _put_away(self) -> None:
        """Convert the collected distances to counts."""
        found = np.sort(self._found[: self._progress[0]])
        if self._by_query is not None:
            self._by_query.put_away(self._found[: self._progress[0]])
        self._progress[0] = 0
        ends = np.searchsorted(found, self._distance, "left").tolist()
        fresh = [
            KeyCounts.of(ordered_keys(found[start:stop])) for start, stop in zip(ends[::2], ends[1::2], strict=True)
        ]
        added = [add_key_counts([old, new]) for old, new in zip(self._counts.inside, fresh, strict=True)]
        self._counts = replace(self._counts, inside=_fitted(added, self._capacity))

    def result(self) -> BracketCounts:
        """Return the counts of the block pair."""
        self._put_away()
        return self._counts if self._by_query is None else replace(self._counts, by_query=self._by_query.result())
