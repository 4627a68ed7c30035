"""Counts of impostors by query around brackets of distances, beside those of all queries together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.reductions.key_counts import ordered_keys
from reid_dist.kernels.impostors import ByQuery

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CountsByQuery:
    """Impostors of each query of a block, or of all queries, in brackets of distances and in the gaps below them."""

    # Pairs in the gap below each bracket, and in each bracket, shape (n_query, 2, n_bracket), int32.
    tally: NDArray[np.int32]
    # Ordered key and query of each pair inside a bracket of several keys, both shape (n,), int64, in no order; None if
    # there are more than the capacity of the reduction.
    pairs: tuple[Int64, Int64] | None

    def nearer(self, edges: Int64, points: Int64) -> Int64 | None:
        """Number of impostors of each query nearer than each point, shape (n_query, n_point), int64.

        `edges` are the ordered keys ``lo, hi, lo, hi, …`` of the brackets, `points` those of edges or of distances
        inside brackets.  None if the pairs inside are not known.
        """
        before = np.zeros((len(self.tally), len(edges) + 1), np.int64)
        before[:, 1::2], before[:, 2::2] = self.tally[:, 0], self.tally[:, 1]
        np.cumsum(before, axis=1, out=before)
        # The lower edge of a bracket follows its gap.
        place = np.searchsorted(edges, points, "right")
        found = before[:, place]
        inside = np.flatnonzero((place % 2 == 1) & (edges[np.maximum(place - 1, 0)] != points))
        if not len(inside):
            return found
        if self.pairs is None:
            return None
        key, query = self.pairs
        for at in inside.tolist():
            low = edges[place[at] - 1]
            own = query[(key >= low) & (key < points[at])]
            found[:, at] += np.bincount(own, minlength=len(found))
        return found


def join_queries(blocks: Sequence[CountsByQuery]) -> CountsByQuery:
    """Concatenate the counts of blocks of queries."""
    tally = np.concatenate([block.tally for block in blocks])
    first = np.cumsum([0, *(len(block.tally) for block in blocks)])
    known = [block.pairs for block in blocks if block.pairs is not None]
    if len(known) < len(blocks):
        return CountsByQuery(tally, None)
    query = np.concatenate([own + start for (_, own), start in zip(known, first[:-1], strict=True)])
    return CountsByQuery(tally, (np.concatenate([key for key, _ in known]), query))


def add_by_query(parts: Sequence[CountsByQuery], capacity: int) -> CountsByQuery:
    """Add the counts of different gallery rows for the same queries."""
    tally: NDArray[np.int32] = np.add.reduce([part.tally for part in parts], axis=0, dtype=np.int32)
    known = [part.pairs for part in parts if part.pairs is not None]
    if len(known) < len(parts) or sum(len(key) for key, _ in known) > capacity:
        return CountsByQuery(tally, None)
    keys, queries = zip(*known, strict=True)
    return CountsByQuery(tally, (np.concatenate(keys), np.concatenate(queries)))


class QueryTally:
    """Accumulates counts by query, tile by tile; `edges` are those of the brackets as distances."""

    def __init__(self, n_query: int, edges: Float64, capacity: int) -> None:
        self._tally = np.zeros((n_query, 2, len(edges) // 2), np.int32)
        self._of_tile = self._tally[:0]
        self._edges = ordered_keys(edges)
        self._capacity = capacity
        self._pairs: list[tuple[Int64, Int64]] | None = []
        # Query of each collected distance.
        self.owner = np.empty(0, np.int64)

    def begin(self, n_rows: int) -> None:
        """Start a tile, or start it again."""
        self._of_tile = np.zeros((n_rows, *self._tally.shape[1:]), np.int32)

    def of_tile(self) -> ByQuery:
        """Argument of the kernel."""
        return ByQuery(self._of_tile, self.owner)

    def end(self, queries: Int64) -> None:
        """Add the counts of the tile of some queries."""
        self._tally[queries] += self._of_tile

    def put_away(self, found: Float64) -> None:
        """Keep the pairs inside brackets of several keys, unless there are too many."""
        if self._pairs is None:
            return
        key = ordered_keys(found)
        bracket = (np.searchsorted(self._edges, key, "right") - 1) // 2
        # Brackets may reach from minus infinity to beyond zero: the difference of such keys exceeds 64 bits.
        wide = np.flatnonzero((self._edges[1::2] > self._edges[::2] + 1)[bracket])
        self._pairs.append((key[wide], self.owner[wide]))
        if sum(len(keys) for keys, _ in self._pairs) > self._capacity:
            self._pairs = None

    def result(self) -> CountsByQuery:
        """Counts of the block pair."""
        none = np.empty(0, np.int64)
        if self._pairs is None:
            return CountsByQuery(self._tally, None)
        keys, queries = zip((none, none), *self._pairs, strict=True)
        return CountsByQuery(self._tally, (np.concatenate(keys), np.concatenate(queries)))
