"""Counts by key, and integer keys in the order of float64 numbers, for histograms of distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import run_offsets
from reid_dist.kernels.canonical import LOWEST

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def ordered_keys(distance: Float64) -> Int64:
    """Map float64 numbers to integers of the same order, one-to-one, int64; -0.0 counts as 0.0."""
    bits = (np.asarray(distance, np.float64) + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)


def distance_of(key: int) -> float:
    """Return the float64 number of an ordered key."""
    bits = key if key >= 0 else key ^ np.iinfo(np.int64).max
    return float(np.array(bits, np.int64).view(np.float64))


@dataclass(frozen=True, slots=True)
class ScreenScale:
    """Falling values of distances: what screening values decrease linearly with, alike for all queries.

    They are plain distances, or signed squares of these.  With a `divisor`, distances are rescored: ``(1 - weight) *
    apart + weight * (plain / divisor)``, as in `reid_dist.kernels.canonical.Rescoring`, or given ones; with weight 0
    the falling value is the rescored distance itself.
    """

    squared: bool
    weight: float = 1.0
    apart: float = 0.0
    # Divisor of the plain distances of every query; None for distances that are not rescored.
    divisor: float | None = None

    def falling(self, distance: Float64) -> Float64:
        """Falling values of canonical distances, shape (n,): a non-decreasing function."""
        return self._falling(distance, 0.0)

    def error(self, distance: Float64) -> Float64:
        """Bound on the errors of rescoring, in falling values around finite distances; 0 around infinite ones."""
        with np.errstate(invalid="ignore"):
            found = self._falling(distance, 1.0) - self._falling(distance, -1.0)
        return np.where(np.isfinite(found), found, 0.0)

    def distance(self, falling: Float64) -> Float64:
        """Distances at falling values, up to rounding; -inf at and below the lowest value of a rescored distance."""
        with np.errstate(invalid="ignore"):
            plain = np.sign(falling) * np.sqrt(np.abs(falling)) if self.squared else falling
        if self.divisor is None or self.weight == 0.0:
            return plain
        rescored = (1.0 - self.weight) * self.apart + self.weight * (plain / self.divisor)
        return np.where(plain <= LOWEST * self.divisor, -np.inf, rescored)

    def _falling(self, distance: Float64, side: float) -> Float64:
        """Falling values as those of `reid_dist.kernels.canonical.on_screen_scale`."""
        value = distance
        with np.errstate(over="ignore", under="ignore"):
            if self.divisor is not None and self.weight != 0.0:
                slack = side * 2.0**-50 * (1.0 + np.where(np.isfinite(distance), np.abs(distance), 0.0))
                value = np.maximum((distance - (1.0 - self.weight) * self.apart + slack) / self.weight, LOWEST)
                value = value * self.divisor
            return value * np.abs(value) if self.squared else value


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Counts by key."""

    # Keys without their lowest `shift` bits, strictly ascending, shape (n,), int64.
    key: Int64
    # Count of each key, shape (n,), int64.
    count: Int64
    # Number of omitted low bits; 0 for complete keys.
    shift: int = 0

    def __len__(self) -> int:
        return len(self.key)

    @property
    def total(self) -> int:
        """Sum of all counts."""
        return int(self.count.sum())

    @classmethod
    def of(cls, keys: Int64) -> KeyCounts:
        """Count keys that may repeat."""
        keys = np.sort(keys)
        runs = run_offsets(keys)
        return cls(keys[runs[:-1]], np.diff(runs))

    def shifted(self, shift: int) -> KeyCounts:
        """Omit `shift` low bits, at least as many as now."""
        if shift == self.shift:
            return self
        return _gathered(self.key >> (shift - self.shift), self.count, shift)

    def shrunk(self, size: int) -> KeyCounts:
        """Omit low bits until there are at most `size` counts (two or more)."""
        shift = self.shift
        while np.count_nonzero(np.diff(self.key >> (shift - self.shift))) >= size:
            shift += 1
        return self.shifted(shift)


def _gathered(key: Int64, count: Int64, shift: int) -> KeyCounts:
    """Add the counts of equal keys, which are adjacent."""
    if not len(key):
        return KeyCounts(key, count, shift)
    first = run_offsets(key)[:-1]
    return KeyCounts(key[first], np.add.reduceat(count, first), shift)


def add_key_counts(parts: Sequence[KeyCounts]) -> KeyCounts:
    """Add counts; the result has the largest shift of all parts."""
    if len(parts) == 1:
        return parts[0]
    shift = max(part.shift for part in parts)
    parts = [part.shifted(shift) for part in parts]
    key, count = (np.concatenate(each) for each in zip(*((part.key, part.count) for part in parts), strict=True))
    if (count == 1).all():
        # Most distances occur once: keys alone are sorted in half the time.
        return _gathered(np.sort(key), count, shift)
    order = np.argsort(key)
    return _gathered(key[order], count[order], shift)
