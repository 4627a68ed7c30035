r"""Search for exact thresholds without storing all distances.

The result of the search is a *level*: the smallest distance ``t`` at which ``a I(t) + b G(t) >= c``, where ``I(t)`` and
``G(t)`` count the impostors and the genuine pairs at distance ``t`` or nearer.  With ``a, b, c = 1, 0, k`` that is the
k-th smallest impostor distance; with ``a, b, c = P, N, N P`` for P genuine pairs and N impostors it is where a ROC of
steps has passed FAR = 1 - TAR.  All genuine distances are in memory, sorted.  Impostors are available as counts of
brackets of distances in one pass or several (`reid_dist.engine.reductions.impostor_counts`).

*Correctness for all brackets.*  Counts of a bracket and of the gaps around it are exact.  They determine for any
bracket whether the level lies in it, nearer or farther.  Brackets of the first pass come from a sample of pairs
(`reid_dist.engine.verification.sampling`): one that misses its level costs another pass, and does not change the
result.  Those of a later pass are the ranges not yet excluded.

*Termination.*  A bracket that holds more distances than a partial result may count is counted by keys without their
lowest bits, and the key that holds the level is the bracket of the next pass: with four keys or more it is narrower by
half at least, and a float64 has 64 bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.reductions.impostor_counts import BracketCounts
from reid_dist.engine.reductions.key_counts import KeyCounts, distance_of, ordered_keys
from reid_dist.errors import DamagedStoreError

Float64 = NDArray[np.float64]
Range = tuple[int, int]
"""Ordered keys from the first to, exclusively, the second."""

_BEGIN, END = ordered_keys(np.array([-np.inf, np.inf])).tolist()
"""Keys between which all distances lie: these are finite, so that infinity can be an exclusive upper edge."""


@dataclass(frozen=True, slots=True)
class Level:
    """The smallest distance at which the weighted number of accepted pairs reaches a value."""

    # Weight of an impostor and of a genuine pair, 0 or more; not both 0.
    per_impostor: int
    per_genuine: int
    # Weighted number of pairs to reach.
    wanted: int

    def reached(self, n_impostor: int, n_genuine: int) -> bool:
        """Whether these numbers of pairs reach the level."""
        return self.per_impostor * n_impostor + self.per_genuine * n_genuine >= self.wanted


@dataclass(frozen=True, slots=True)
class Crossing:
    """The distance at which a level is reached."""

    # Canonical distance.
    distance: float
    # Numbers of impostors strictly nearer than the distance, and of impostors at most at it.
    nearer: int
    up_to: int


def crossings_of(levels: Iterable[Level], impostor: Float64, genuine: Float64) -> dict[Level, Crossing]:
    """Crossings of levels that are reached, from all distances, (n_impostor,) and, ascending, (n_genuine,)."""
    search = ThresholdSearch(levels, genuine)
    inside = KeyCounts.of(ordered_keys(impostor))
    search.update(BracketCounts(np.array([-np.inf, np.inf]), np.zeros(1, np.int64), (inside,), len(inside)))
    return search.found


def edges_of(brackets: Iterable[Range]) -> tuple[float, ...]:
    """Edges ``lo, hi, lo, hi, …`` of disjoint brackets [lo, hi), ascending; those that overlap are joined."""
    joined: list[Range] = []
    for low, high in sorted(brackets):
        if joined and low < joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return tuple(distance_of(key) for bracket in joined for key in bracket)


class ThresholdSearch:
    """Search for levels in passes over all pairs; each is reached by all pairs together.

    `genuine` are the distances of all genuine pairs, ascending, shape (n,).
    """

    def __init__(self, levels: Iterable[Level], genuine: Float64) -> None:
        # Crossings of the levels found so far.
        self.found: dict[Level, Crossing] = {}
        self._genuine = ordered_keys(genuine)
        # Proven ranges of the others.
        self._open: dict[Level, Range] = dict.fromkeys(levels, (_BEGIN, END))

    @property
    def edges(self) -> tuple[float, ...]:
        """Edges ``lo, hi, lo, hi, …`` of the brackets [lo, hi) of the next pass; empty when all levels are found."""
        return edges_of(self._open.values())

    def update(self, counts: BracketCounts) -> None:
        """Narrow or find levels from exact counts of any brackets.

        Raises `DamagedStoreError` if they contradict those of earlier passes.
        """
        edges: list[int] = ordered_keys(counts.edges).tolist()
        totals = [inside.total for inside in counts.inside]
        # Impostors nearer than each edge.
        nearer: list[int] = np.cumsum(np.stack([counts.below, totals], axis=1)).tolist()
        still_open = {}
        for level, known in self._open.items():
            place = bisect_left(range(len(edges)), True, key=partial(self._reached, level, edges, nearer))
            found, crossing = ([_BEGIN, *edges][place], [*edges, END][place]), None
            if place % 2:
                found, crossing = self._look_inside(level, found, nearer[place - 1], counts.inside[place // 2])
            low, high = max(found[0], known[0]), min(found[1], known[1])
            if low >= high:
                raise DamagedStoreError(
                    "two passes over all pairs counted differently: an input was changed while in use, or its storage "
                    "is not reliable; run again"
                )
            if crossing is None:
                still_open[level] = low, high
            else:
                self.found[level] = crossing
        self._open = still_open

    def _reached(self, level: Level, edges: Sequence[int], nearer: Sequence[int], at: int) -> bool:
        """Whether pairs nearer than an edge, with so many impostors, reach a level."""
        return level.reached(nearer[at], self._genuine_below(edges[at]))

    def _genuine_below(self, key: int) -> int:
        return int(np.searchsorted(self._genuine, key, "left"))

    def _look_inside(
        self, level: Level, bracket: Range, n_nearer: int, inside: KeyCounts
    ) -> tuple[Range, Crossing | None]:
        """Find the key inside a bracket at which a level is reached, and the crossing if keys are complete."""
        keys, shift = inside.key, inside.shift
        if level.per_genuine:
            genuine = self._genuine[self._genuine_below(bracket[0]) : self._genuine_below(bracket[1])]
            keys = np.union1d(keys, genuine >> shift)
        counted = np.append(0, np.cumsum(inside.count))

        def nearer(place: int, side: Literal["left", "right"]) -> int:
            """Number of impostors before a key, or up to and including it."""
            return n_nearer + int(counted[np.searchsorted(inside.key, keys[place], side)])

        def range_of(place: int) -> Range:
            key = int(keys[place])
            return max(key << shift, bracket[0]), min((key + 1) << shift, bracket[1])

        # Numbers of pairs do not fall.
        place = bisect_left(
            range(len(keys)),
            True,
            key=lambda at: level.reached(nearer(at, "right"), self._genuine_below(range_of(at)[1])),
        )
        if shift:
            return range_of(place), None
        return range_of(place), Crossing(distance_of(int(keys[place])), nearer(place, "left"), nearer(place, "right"))
