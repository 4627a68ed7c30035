"""Counts of impostors by query around brackets of distances, beside those of all queries together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import segment_offsets
from reid_dist.engine.reductions.key_counts import ordered_keys

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

        `edges` are the ordered keys ``lo, hi, lo, hi, …`` of the brackets, `points` those of distances.  None if a
        point lies in a gap, or inside a bracket whose pairs are not known.
        """
        before = np.zeros((len(self.tally), len(edges) + 1), np.int64)
        before[:, 1::2], before[:, 2::2] = self.tally[:, 0], self.tally[:, 1]
        np.cumsum(before, axis=1, out=before)
        # The lower edge of a bracket follows its gap.
        place = np.searchsorted(edges, points, "right")
        found = before[:, place]
        off_edges = np.flatnonzero((place == 0) | (edges[np.maximum(place - 1, 0)] != points))
        if not len(off_edges):
            return found
        if self.pairs is None or (place[off_edges] % 2 == 0).any():
            return None
        key, query = self.pairs
        for at in off_edges.tolist():
            low = edges[place[at] - 1]
            own = query[(key >= low) & (key < points[at])]
            found[:, at] += np.bincount(own, minlength=len(found))
        return found


def join_queries(blocks: Sequence[CountsByQuery]) -> CountsByQuery:
    """Concatenate the counts of blocks of queries."""
    tally = np.concatenate([block.tally for block in blocks])
    first = segment_offsets([len(block.tally) for block in blocks])
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
    """Accumulates counts by query; `edges` are those of the brackets as distances, ``lo, hi, lo, hi, …``.

    `tally` is as in `CountsByQuery`: kernels add to it.
    """

    def __init__(self, n_query: int, edges: Float64, capacity: int) -> None:
        self.tally = np.zeros((n_query, 2, len(edges) // 2), np.int32)
        self._edges = edges
        keys = ordered_keys(edges)
        # Brackets may reach from minus infinity to beyond zero: the difference of such keys exceeds 64 bits.
        self._has_many_keys = keys[1::2] > keys[::2] + 1
        self._capacity = capacity
        none = np.empty(0, np.int64)
        self._pairs: list[tuple[Int64, Int64]] | None = [(none, none)]

    def add(self, query: Int64, distance: Float64) -> None:
        """Count pairs, and keep those inside brackets of several keys, unless there are too many."""
        region = np.searchsorted(self._edges, distance, "right")
        within = np.flatnonzero(region < len(self._edges))
        query, distance, side, bracket = query[within], distance[within], region[within] % 2, region[within] // 2
        np.add.at(self.tally, (query, side, bracket), 1)
        if self._pairs is None:
            return
        kept = np.flatnonzero((side == 1) & self._has_many_keys[bracket])
        self._pairs.append((ordered_keys(distance[kept]), query[kept]))
        if sum(len(keys) for keys, _ in self._pairs) > self._capacity:
            self._pairs = None

    def result(self) -> CountsByQuery:
        """Counts of the block pair."""
        if self._pairs is None:
            return CountsByQuery(self.tally, None)
        keys, queries = zip(*self._pairs, strict=True)
        return CountsByQuery(self.tally, (np.concatenate(keys), np.concatenate(queries)))
