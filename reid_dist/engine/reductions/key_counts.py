"""Counts by key, and integer keys in the order of float64 numbers, for histograms of distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def falling_of(distance: Float64, squared: bool) -> Float64:
    """Return the argument of screening values, the distance or its square: a non-decreasing function of distance."""
    with np.errstate(over="ignore", under="ignore"):
        return distance * np.abs(distance) if squared else distance


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
        key, count = np.unique(keys, return_counts=True)
        return cls(key, count.astype(np.int64, copy=False))

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
    first = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
    return KeyCounts(key[first], np.add.reduceat(count, first), shift)


def add_key_counts(parts: Sequence[KeyCounts]) -> KeyCounts:
    """Add counts; the result has the largest shift of all parts."""
    if len(parts) == 1:
        return parts[0]
    shift = max(part.shift for part in parts)
    parts = [part.shifted(shift) for part in parts]
    key = np.concatenate([part.key for part in parts])
    order = np.argsort(key, kind="stable")
    return _gathered(key[order], np.concatenate([part.count for part in parts])[order], shift)
