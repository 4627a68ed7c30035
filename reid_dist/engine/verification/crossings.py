r"""Search for exact thresholds without storing all distances.

The result of the search is a *level*: the smallest distance ``t`` at which ``a I(t) + b G(t) >= c``, where ``I(t)`` and
``G(t)`` count the impostors and the genuine pairs at distance ``t`` or nearer.  With ``a, b, c = 1, 0, k`` that is the
k-th smallest impostor distance; with ``a, b, c = P, N, N P`` for P genuine pairs and N impostors it is where a ROC of
steps has passed FAR = 1 - TAR.  All genuine distances are in memory, sorted.  Impostors are available as counts of
brackets of distances in one pass or several (`reid_dist.engine.reductions.impostors`).

*Correctness for every guess.*  Counts of a bracket and of the gaps around it are exact.  They determine for any bracket
whether the level lies in it, nearer or farther, so a wrong guess costs another pass and does not change the result.
Guesses come from a sample of pairs before the first pass (`reid_dist.engine.verification.sampling`), or from a
histogram of all pairs, made in the first pass (`guesses_of_histogram`); after the last guess, the bracket is the range
not yet excluded.

*Termination.*  A bracket that holds more distances than a partial result may count is counted by keys without their
lowest bits, and the key that holds the level is the bracket of the next pass: with four keys or more it is narrower by
half at least, and a float64 has 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.reductions import (
    BracketCounts,
    FallingScale,
    ImpostorHistogram,
    KeyCounts,
    distance_of,
    ordered_keys,
)
from reid_dist.errors import DamagedStoreError
from reid_dist.kernels.impostors import key_edges

Float64 = NDArray[np.float64]
Range = tuple[int, int]
"""Ordered keys from the first to, exclusively, the second."""

# Maximal pairs of a bin and its neighbourhood for which the whole bin is the first bracket.
FEW_PAIRS = 4096

# Half width of a guess within a bin: this many standard deviations, and this share of the bound on screening errors.
_DEVIATIONS = 4.0
_SHARE_OF_ERROR = 1 / 64

# Distances are finite, so that infinity can be an exclusive upper edge.
_FIRST, _LAST = ordered_keys(np.array([-np.inf, np.inf])).tolist()
EVERYTHING: Range = (_FIRST, _LAST)


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


Guesses = Mapping[Level, tuple[Range, ...]]
"""Brackets that may contain each level, the most probable first."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """The distance at which a level is reached."""

    # Canonical distance.
    distance: float
    # Numbers of impostors strictly nearer than the distance, and of impostors at most at it.
    nearer: int
    up_to: int


def crossing_of(level: Level, impostor: Float64, genuine: Float64) -> Crossing:
    """Crossing of a level that is reached, from all distances, each ascending, (n_impostor,) and (n_genuine,)."""
    distances = np.union1d(impostor, genuine) if level.per_genuine else impostor

    def up_to(values: Float64, distance: float) -> int:
        return int(np.searchsorted(values, distance, "right"))

    def is_reached(place: int) -> bool:
        return level.reached(up_to(impostor, distances[place]), up_to(genuine, distances[place]))

    distance = float(distances[first_place(len(distances), is_reached)])
    return Crossing(distance, int(np.searchsorted(impostor, distance, "left")), up_to(impostor, distance))


@dataclass(frozen=True)
class _Open:
    """A level not yet found: its proven range, and guesses within."""

    known: Range
    guesses: tuple[Range, ...]

    def bracket(self) -> Range:
        """Bracket for the next pass."""
        for low, high in self.guesses:
            cut = max(low, self.known[0]), min(high, self.known[1])
            if cut[0] < cut[1]:
                return cut
        return self.known

    def narrowed(self, known: Range) -> _Open:
        """Return the level restricted to a proven range, without the guess that was counted.

        Raises `DamagedStoreError` if the remaining range is empty.
        """
        cut = max(known[0], self.known[0]), min(known[1], self.known[1])
        if cut[0] >= cut[1]:
            raise DamagedStoreError(
                "two passes over all pairs counted differently: an input was changed while in use, or its storage is "
                "not reliable; run again"
            )
        return _Open(cut, self.guesses[1:])


class ThresholdSearch:
    """Search for levels in passes over all pairs; each is reached by all pairs together.

    `guesses` are brackets that may contain a level, the most probable first; `genuine` are the distances of all genuine
    pairs, ascending, shape (n,).  The first pass also has a bracket at each of the distances `beside`.
    """

    def __init__(self, guesses: Guesses, genuine: Float64, beside: Float64 | None = None) -> None:
        # Crossings of the levels found so far.
        self.found: dict[Level, Crossing] = {}
        self._genuine = ordered_keys(genuine)
        self._open = {level: _Open(EVERYTHING, of_level) for level, of_level in guesses.items()}
        keys = ordered_keys(np.empty(0) if beside is None else beside).tolist()
        self._beside: list[Range] = [(key, key + 1) for key in keys]

    @property
    def edges(self) -> tuple[float, ...]:
        """Edges ``lo, hi, lo, hi, …`` of the brackets [lo, hi) of the next pass; empty when all levels are found."""
        return tuple(distance_of(key) for bracket in self._brackets() for key in bracket)

    def _brackets(self) -> list[Range]:
        """Disjoint brackets, ascending; adjacent ones are not joined, as this would not make them narrower."""
        joined: list[Range] = []
        for low, high in sorted([*(each.bracket() for each in self._open.values()), *self._beside]):
            if joined and low < joined[-1][1]:
                joined[-1] = joined[-1][0], max(high, joined[-1][1])
            else:
                joined.append((low, high))
        return joined

    def update(self, counts: BracketCounts) -> None:
        """Narrow or find levels from the exact counts of the brackets of `edges`.

        Raises `DamagedStoreError` if they contradict those of earlier passes.
        """
        brackets = self._brackets()
        totals = [inside.total for inside in counts.inside]
        # Impostors nearer than the lower edge of each bracket.
        nearer = np.cumsum(counts.below) + np.cumsum([0, *totals[:-1]])
        still_open = {}
        for level, before in self._open.items():
            known = before.known
            for (low, high), n_nearer, total, inside in zip(
                brackets, nearer.tolist(), totals, counts.inside, strict=True
            ):
                if level.reached(n_nearer, self._genuine_below(low)):
                    known = known[0], min(low, known[1])
                    break
                if level.reached(n_nearer + total, self._genuine_below(high)):
                    place, crossing = self._look_inside(level, (low, high), n_nearer, inside)
                    known = max(place[0], known[0]), min(place[1], known[1])
                    if crossing is not None:
                        self.found[level] = crossing
                    before = replace(before, guesses=())
                    break
                known = max(high, known[0]), known[1]
            if level not in self.found:
                still_open[level] = before.narrowed(known)
        self._open = still_open
        self._beside = []

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

        place = first_place(
            len(keys), lambda at: level.reached(nearer(at, "right"), self._genuine_below(range_of(at)[1]))
        )
        if shift:
            return range_of(place), None
        distance = distance_of(int(keys[place]))
        return range_of(place), Crossing(distance, nearer(place, "left"), nearer(place, "right"))


def first_place(size: int, holds: Callable[[int], bool]) -> int:
    """Find the first of `size` positions at which a monotone predicate holds; `size` if it never holds."""
    start, stop = 0, size
    while start < stop:
        middle = (start + stop) // 2
        if holds(middle):
            stop = middle
        else:
            start = middle + 1
    return start


def guesses_of_histogram(
    levels: Iterable[Level], genuine: Float64, n_impostor: int, histogram: ImpostorHistogram, scale: FallingScale
) -> Guesses:
    """Brackets that may contain levels, from a histogram of all impostors.

    The first is the whole bin, widened by the bound on screening errors, if it holds few pairs; otherwise a small part
    of it, around the level for evenly distributed pairs in the bin.  Screening errors are far smaller than their bound,
    and symmetric, so that this guess is nearly always right.  Otherwise, the second is the whole bin.

    `genuine` are the distances of all genuine pairs, ascending, shape (n,); `scale` converts distances to the falling
    values of the histogram.
    """
    bins = _Bins(histogram, genuine, n_impostor, scale)
    return {level: bins.guesses(level) for level in levels}


class _Bins:
    """The histogram of the first pass, combined with the genuine distances."""

    def __init__(self, histogram: ImpostorHistogram, genuine: Float64, n_impostor: int, scale: FallingScale) -> None:
        self._low, self._high = key_edges(histogram.counts.key)
        self._key = histogram.counts.key
        self._count = histogram.counts.count
        self._before = np.append(0, np.cumsum(self._count))
        self._error = histogram.error
        self._genuine = scale.falling(genuine)
        self._scale = scale
        if self._before[-1] > n_impostor:
            raise AssertionError("the histogram holds impostors only, each once")

    def guesses(self, level: Level) -> tuple[Range, ...]:
        """Brackets that may contain a level, the most probable first."""
        n_bins = len(self._key)
        at = first_place(
            n_bins, lambda at: level.reached(int(self._before[at + 1]), self._genuine_below(self._high[at]))
        )
        if at == n_bins:
            last = self._high[-1] if n_bins else -np.inf
            return (self._range(last - self._error_at(last), np.inf),)
        low, high = self._low[at], self._high[at]
        between = level.reached(int(self._before[at]), self._genuine_below(low))
        if between:
            # The level is reached by a genuine pair before the bin, not by an impostor.
            low, high = (self._high[at - 1] if at else -np.inf), low
        wide = low - self._error_at(low), high + self._error_at(high)
        if between or not np.isfinite(wide).all() or self._pairs_between(*wide) <= FEW_PAIRS:
            return (self._range(*wide),)
        middle, half = self._within(level, at)
        if middle - half <= wide[0] and wide[1] <= middle + half:
            return (self._range(*wide),)
        return self._range(middle - half, middle + half), self._range(*wide)

    def _genuine_below(self, falling: float) -> int:
        return int(np.searchsorted(self._genuine, falling, "left"))

    def _error_at(self, falling: float) -> float:
        return self._error + 2.0**-22 * abs(falling) if math.isfinite(falling) else 0.0

    def _pairs_between(self, low: float, high: float) -> int:
        """Count the pairs of all bins between two values, including bins that contain them."""
        first = np.searchsorted(self._high, low, "left")
        last = np.searchsorted(self._low, high, "right")
        return int(self._before[max(last, first)] - self._before[first])

    def _within(self, level: Level, at: int) -> tuple[float, float]:
        """Position of a level in a bin for evenly distributed impostors, and its tolerance."""
        low, count = float(self._low[at]), int(self._count[at])
        width = float(self._high[at]) - low
        start, stop = self._genuine_below(low), self._genuine_below(float(self._high[at]))
        places = (self._genuine[start:stop] - low) / width

        def share(n_genuine: int) -> float:
            """Share of the bin with the impostors that reach the level together with `n_genuine` genuine pairs."""
            wanted = (level.wanted - level.per_genuine * n_genuine) / max(level.per_impostor, 1)
            return (wanted - int(self._before[at])) / count

        # Between two genuine pairs only impostors are added; at a genuine pair the count may jump past the level.
        passed = first_place(len(places), lambda place: share(start + place + 1) <= places[place])
        middle = share(start + passed)
        if passed < len(places):
            middle = min(middle, float(places[passed]))
        middle = min(max(middle, 0.0), 1.0)
        spread = _DEVIATIONS * math.sqrt(middle * (1.0 - middle) / count) + _DEVIATIONS / count
        half = width * (spread + abs(self._slope(at)) / 4.0) + min(self._error * _SHARE_OF_ERROR, width / 8.0)
        return low + middle * width, half

    def _slope(self, at: int) -> float:
        """Relative change of density within a bin, estimated from the adjacent bins."""

        def beside(other: int, step: int) -> int:
            is_next = 0 <= other < len(self._key) and self._key[other] == self._key[at] + step
            return int(self._count[other]) if is_next else 0

        return (beside(at + 1, 1) - beside(at - 1, -1)) / (2.0 * int(self._count[at]))

    def _range(self, low: float, high: float) -> Range:
        """Ordered keys of the distances between two falling values."""
        first, last = ordered_keys(self._scale.distance(np.array([low, high]))).tolist()
        return first, last + 1
