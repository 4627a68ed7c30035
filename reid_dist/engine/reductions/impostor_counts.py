"""Distribution of the distances of impostors: a histogram of a sample of them, and exact counts around a few distances.

An *impostor* is a negative of any query, valid or not: a gallery row that is visible to the query and not relevant to
it.  Partial results hold sparse counts, never a distance per pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden
from reid_dist.engine.distances import Screen
from reid_dist.engine.reductions.backends import Advance, Rest, Seen
from reid_dist.engine.reductions.bands import Adding, DecidingTiles
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.costs import Need, Precision
from reid_dist.engine.reductions.key_counts import KeyCounts, ScreenScale, add_key_counts, ordered_keys
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.tile_products import BlockPair, TileView
from reid_dist.kernels.canonical import pair_distances
from reid_dist.kernels.impostors import LARGEST_KEY, N_PLACES, NEEDS_VALUE, Brackets, falling_keys

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Minimal counts kept per bracket.  With two or more, a bracket is always narrower in the next pass.
FEWEST_COUNTS = 4

# Queries from which the share of undecided pairs is estimated.
_SAMPLED_QUERIES = 128


@dataclass(frozen=True, slots=True)
class BracketCounts:
    """Exact counts of some brackets of distances, and of the gaps between them."""

    # Edges ``lo, hi, lo, hi, …`` of the brackets [lo, hi), ascending, shape (2 n_bracket,), float64.
    edges: Float64
    # Pairs in the gap below each bracket, shape (n_bracket,), int64.
    below: Int64
    # Counts of the distances inside each bracket, by ordered key.
    inside: tuple[KeyCounts, ...]
    # Maximal number of these; beyond it, keys of the fullest brackets lose their lowest bits.
    capacity: int
    # Pairs of each query in the gap below each bracket and in the bracket, in turn, shape (n_query, 2 n_bracket),
    # int32, if requested.
    by_query: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True)
class Visibility:
    """Visibility of impostors: the pairs to count, and the scale of their distances."""

    # Hidden rows of the block of queries.
    hidden: Hidden
    # Gallery rows hidden from queries.
    mask: GalleryMask
    # Whether each query is counted by the protocol, shape (n_query,), bool.
    counted: NDArray[np.bool_]
    # Falling values of distances.
    scale: ScreenScale

    def columns(self, pair: BlockPair) -> HiddenColumns:
        """Columns of a block pair that are hidden from its queries."""
        return HiddenColumns(self.hidden, self.mask, pair.gallery)

    def seen(self, hidden: HiddenColumns, screen: Screen) -> Seen:
        """The pairs that are counted, by the values of a screen."""
        return Seen(
            hidden_indptr=hidden.indptr,
            hidden_column=hidden.column,
            counted=self.counted,
            centre=screen.centre.astype(screen.dtype),
            scale=np.full(1, 1.0 / screen.slope, screen.dtype)[0],
        )


def _error(screen: Screen, extra: float) -> float:
    """Bound on the deviation of a falling value computed by a kernel from the canonical one, less a 2^-22nd of it.

    The screening value deviates by at most epsilon, and `extra` more; the centre is rounded to the dtype of the tile.
    """
    rounded = 2.0 * np.finfo(screen.dtype).eps * np.abs(screen.centre)
    return float(((screen.epsilon + extra + rounded) / screen.slope).max(initial=0.0)) * (1.0 + 2.0**-20) + 2.0**-120


@dataclass(eq=False)
class CountImpostors(Reduction[KeyCounts]):
    """Count the screened distances of all impostors by key of the falling value; see `reid_dist.kernels.impostors`.

    Values too large for a float32 are omitted.
    """

    need = Need.HISTOGRAM

    visibility: Visibility

    def _begin(self, pair: BlockPair) -> None:
        self._hidden = self.visibility.columns(pair)
        # Few of its pages are touched.
        self._counts = np.zeros(N_PLACES, np.int64)
        self._span = np.array([N_PLACES, 0], np.uint32)

    def absorb(self, tile: TileView) -> None:
        """Count one tile."""
        backend, pairs = tile.read(tile.first(self.need), self.need, self._hidden)
        backend.histogram(pairs, self.visibility.seen(self._hidden, backend.screen), self._counts, self._span)

    def result(self) -> KeyCounts:
        """Return the counts of visible pairs whose values fit into a float32."""
        first, last = self._span.tolist()
        place = np.flatnonzero(self._counts[first : last + 1]) + first
        return KeyCounts(place - LARGEST_KEY, self._counts[place])


def combine_brackets(partials: Sequence[BracketCounts]) -> BracketCounts:
    """Add the counts of different gallery rows for the same queries."""
    own = [partial.by_query for partial in partials if partial.by_query is not None]
    return _added(partials, np.add.reduce(own, axis=0, dtype=np.int32) if own else None)


def join_brackets(blocks: Sequence[BracketCounts]) -> BracketCounts:
    """Add the counts of different queries, and concatenate those by query."""
    own = [block.by_query for block in blocks if block.by_query is not None]
    return _added(blocks, np.concatenate(own) if own else None)


def _added(partials: Sequence[BracketCounts], by_query: NDArray[np.int32] | None) -> BracketCounts:
    below, capacity = np.sum([partial.below for partial in partials], axis=0), partials[0].capacity
    inside = _added_inside([partial.inside for partial in partials], capacity)
    return BracketCounts(partials[0].edges, below, inside, capacity, by_query)


def _added_inside(parts: Sequence[Sequence[KeyCounts]], capacity: int) -> tuple[KeyCounts, ...]:
    """Counts inside each bracket, of which those of the fullest brackets lose bits beyond the capacity."""
    inside = tuple(map(add_key_counts, zip(*parts, strict=True)))
    if sum(map(len, inside)) <= capacity:
        return inside
    share = max(capacity // len(inside), FEWEST_COUNTS)
    return tuple(counts.shrunk(share) for counts in inside)


# Block pairs of a job mostly share it, for three precisions.
@lru_cache(maxsize=6)
def _make_table(falling: tuple[float, ...], slack: tuple[float, ...], error: float) -> tuple[NDArray[np.uint32], int]:
    """Entries of all keys around brackets with edges `falling`, and the last place with a mark; see `Brackets`."""
    edges = np.array(falling)
    width = error + 2.0**-22 * np.abs(edges) + np.array(slack)
    sign = np.tile([-1.0, 1.0], len(edges) // 2)
    with np.errstate(over="ignore"):
        place = falling_keys(edges + sign * width) + LARGEST_KEY
    begin, at_place = 0, np.empty(N_PLACES, np.uint32)
    for bracket, (first, last) in enumerate(place.reshape(-1, 2).tolist()):
        at_place[begin:first] = 2 * bracket
        # Keys that the bracket before does not touch lie beyond it.
        at_place[max(begin, first) : last + 1] = 2 * bracket + NEEDS_VALUE
        begin = max(begin, last + 1)
    at_place[begin:] = len(edges)
    return at_place, begin - 1


def _rounded_up(error: float) -> float:
    """Round a positive number up to one with four leading bits, so that similar errors share a table."""
    fraction, exponent = math.frexp(error)
    return math.ldexp(math.ceil(16.0 * fraction), exponent - 4)


@dataclass(eq=False)
class CollectImpostors(DecidingTiles[BracketCounts]):
    """Count impostors exactly: those between brackets of distances, and those inside by distance."""

    need = Need.VERIFICATION

    visibility: Visibility
    # Edges ``lo, hi, lo, hi, …`` of the brackets [lo, hi), ascending canonical distances.
    edges: tuple[float, ...]
    # As in `BracketCounts`.
    capacity: int
    # Whether pairs are also counted by query.
    by_query: bool = False

    def _begin(self, pair: BlockPair) -> None:
        super()._begin(pair)
        self._hidden = self.visibility.columns(pair)
        self._distance = np.array(self.edges, np.float64)
        scale = self.visibility.scale
        self._falling, self._slack = scale.falling(self._distance), scale.error(self._distance)
        self._edges = tuple(self._falling.tolist()), tuple(self._slack.tolist())
        self._below = np.zeros(len(self.edges) // 2, np.int64)
        # Counts inside brackets, and distances there that are not counted yet.
        self._inside: tuple[KeyCounts, ...] | None = None
        self._fresh: list[Float64] = []
        shape = len(pair.query), 2, len(self._below)
        # Of each query in the gap below each bracket, and in it; without elements unless requested.
        self._tally = np.zeros(shape if self.by_query else (0, 0, 0), np.int32)

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of each query: that of least cost, from the share of the pairs near brackets."""
        pair, found = self._pair, np.full(len(self._pair.query), Precision.PLAIN, np.uint8)
        if pair.integers is None:
            return found
        if pair.policy.forced == "int8":
            return np.full_like(found, Precision.INTEGERS)
        screen, rows = pair.screen(), pair.sampled_rows
        every = slice(None, None, -(-len(found) // _SAMPLED_QUERIES))
        fall = (screen.centre[every, None] - pair.sample(rows)[every]) / screen.slope

        def inside(kind: Precision) -> NDArray[np.float64]:
            width = ((screen.epsilon + pair.backend(kind).errors(rows)) / screen.slope)[every, None]
            edges = np.searchsorted(self._falling, fall - width), np.searchsorted(self._falling, fall + width)
            return np.array([((edges[0] != edges[1]) | (edges[0] % 2 == 1)).mean()])

        found[:] = pair.costs.cheapest((Precision.INTEGERS, Precision.PLAIN), inside)
        return found

    def _adding(self, tile: TileView, precision: Precision) -> Adding:
        """Read a tile, with the table of its keys."""
        backend, pairs = tile.read(precision, self.need, self._hidden)
        screen = backend.screen
        error = _rounded_up(_error(screen, backend.error(pairs)))
        at_place, last_place = _make_table(*self._edges, error)
        brackets = Brackets(
            at_place=at_place,
            last_place=last_place,
            falling=self._falling,
            centre=screen.centre,
            epsilon=screen.epsilon + screen.slope * self._slack.max(initial=0.0),
        )
        seen = self.visibility.seen(self._hidden, screen)

        def add(rest: Rest) -> Advance:
            return backend.split(pairs, seen, brackets, rest, self._below, self._tally)

        return add

    def _decide(self) -> None:
        """Count the open pairs by their distances."""
        query, column = self._open.query[: self._n_open], self._open.column[: self._n_open]
        self._n_open = 0
        distance = pair_distances(self._pair.rows, query, column)
        if self._tally.size:
            region = np.searchsorted(self._distance, distance, "right")
            within = np.flatnonzero(region < len(self._distance))
            side, bracket = region[within] % 2, region[within] // 2
            np.add.at(self._tally, (query[within], side, bracket), 1)
        distance.sort()
        ends = np.searchsorted(distance, self._distance)
        self._below += np.diff(ends, prepend=0)[::2]
        self._fresh += [distance[start:stop] for start, stop in ends.reshape(-1, 2).tolist()]
        if sum(map(len, self._fresh)) > self.capacity:
            self._inside = self._counted()

    def _counted(self) -> tuple[KeyCounts, ...]:
        """Counts inside brackets."""
        distance = np.sort(np.concatenate([np.empty(0), *self._fresh]))
        self._fresh = []
        ends, keys = np.searchsorted(distance, self._distance).reshape(-1, 2).tolist(), ordered_keys(distance)
        fresh = [KeyCounts.of(keys[start:stop]) for start, stop in ends]
        return _added_inside([fresh] if self._inside is None else [self._inside, fresh], self.capacity)

    def result(self) -> BracketCounts:
        """Return the counts of the block pair."""
        self._decide()
        by_query = self._tally.transpose(0, 2, 1).reshape(len(self._tally), -1) if self._tally.size else None
        return BracketCounts(self._distance, self._below, self._counted(), self.capacity, by_query)
