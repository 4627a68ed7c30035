"""Counts by key, and keys that order float64 numbers: what histograms of distances are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["KeyCounts", "add_key_counts", "distance_of", "falling_of", "ordered_keys"]

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def ordered_keys(distance: Float64) -> Int64:
    """Integers in the order of the numbers, one for each number there is; int64.  -0.0 counts as 0.0."""
    bits = (np.asarray(distance, np.float64) + 0.0).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(np.iinfo(np.int64).max), bits)


def distance_of(key: int) -> float:
    """Return the number of an ordered key."""
    bits = key if key >= 0 else key ^ np.iinfo(np.int64).max
    return float(np.array(bits, np.int64).view(np.float64))


def falling_of(distance: Float64, squared: bool) -> Float64:
    """What screening values fall with: the distance, or its square; never falls when the distance rises."""
    with np.errstate(over="ignore", under="ignore"):
        return distance * np.abs(distance) if squared else distance


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Counts by key.

    Attributes
    ----------
    key
        Ascending, without repetition, int64, less the lowest `shift` bits.
    count
        int64.
    shift
        How many bits of the keys are left out; 0 for keys that say everything.
    """

    key: Int64
    count: Int64
    shift: int = 0

    def __len__(self) -> int:
        return len(self.key)

    @property
    def total(self) -> int:
        """All counts together."""
        return int(self.count.sum())

    @classmethod
    def of(cls, keys: Int64) -> KeyCounts:
        """Count keys that may repeat."""
        key, count = np.unique(keys, return_counts=True)
        return cls(key, count.astype(np.int64, copy=False))

    def shifted(self, shift: int) -> KeyCounts:
        """Leave out more bits."""
        if shift == self.shift:
            return self
        return _gathered(self.key >> (shift - self.shift), self.count, shift)

    def shrunk(self, size: int) -> KeyCounts:
        """Leave out as many bits as it takes to have at most `size` counts (two or more)."""
        shift = self.shift
        while np.count_nonzero(np.diff(self.key >> (shift - self.shift))) >= size:
            shift += 1
        return self.shifted(shift)


def _gathered(key: Int64, count: Int64, shift: int) -> KeyCounts:
    """Add up the counts of equal keys, which lie side by side."""
    if not len(key):
        return KeyCounts(key, count, shift)
    first = np.flatnonzero(np.diff(key, prepend=key[0] - 1))
    return KeyCounts(key[first], np.add.reduceat(count, first), shift)


def add_key_counts(parts: Sequence[KeyCounts]) -> KeyCounts:
    """Add counts; the result leaves out as many bits as that part which leaves out most."""
    if len(parts) == 1:
        return parts[0]
    shift = max(part.shift for part in parts)
    parts = [part.shifted(shift) for part in parts]
    key = np.concatenate([part.key for part in parts])
    order = np.argsort(key, kind="stable")
    return _gathered(key[order], np.concatenate([part.count for part in parts])[order], shift)
