"""Items of a neighbour graph: the rows of one feature set, or of queries followed by gallery."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Distance
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.scorers import read_block
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.stores import FeatureSet
from reid_dist.stores.labels import joint_labels

Int64 = NDArray[np.int64]

PAIR_ROWS = 8192
"""Rows in memory at once, on either side, for the distances of single pairs."""

_Key = tuple[tuple[str, ...], tuple[str, ...], RowRange]


class _Blocks:
    """Blocks that are in use, and as many of the latest ones as fit: the tiles of a search read each of them often."""

    _MOST_BYTES: ClassVar[int] = 1 << 26

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_use: WeakValueDictionary[_Key, FeatureBlock] = WeakValueDictionary()
        self._latest: OrderedDict[_Key, FeatureBlock] = OrderedDict()

    def get(self, key: _Key, read: Callable[[], FeatureBlock]) -> FeatureBlock:
        """Block of a key, which is read unless it is there."""
        with self._lock:
            block = self._in_use.get(key)
        if block is None:
            block = read()
        with self._lock:
            self._in_use[key] = self._latest[key] = block
            self._latest.move_to_end(key)
            while sum(each.features.nbytes for each in self._latest.values()) > self._MOST_BYTES:
                self._latest.popitem(last=False)
        return block

    def forget(self) -> None:
        """Forget the blocks that are not in use."""
        with self._lock:
            self._latest.clear()


_BLOCKS = _Blocks()
forget_blocks = _BLOCKS.forget


@dataclass(frozen=True)
class Items:
    """Items of several sets of equal dimension, numbered consecutively in the order of the sets.

    Items with equal values of the label `exclude`, if there is one, are in no list of each other.  Items of the value
    `apart` are equal to no other.
    """

    sets: tuple[FeatureSet, ...]
    exclude: str | None = None
    apart: int | None = None

    @property
    def n_items(self) -> int:
        """Number of rows of all sets."""
        return sum(features.n_rows for features in self.sets)

    @property
    def dim(self) -> int:
        """Number of features of an item."""
        return self.sets[0].dim

    @property
    def identity(self) -> tuple[str, ...]:
        """Content digests of the sets, and the label by which items are left out."""
        excluded = () if self.exclude is None else (f"exclude {self.exclude}",)
        apart = () if self.apart is None else (f"{self.apart} apart",)
        return (*(features.content_digest for features in self.sets), *excluded, *apart)

    @property
    def _numbered(self) -> Iterator[tuple[int, FeatureSet]]:
        """First item of each set, and the set."""
        return zip(accumulate((each.n_rows for each in self.sets), initial=0), self.sets, strict=False)

    def read(self, rows: RowRange) -> FeatureBlock:
        """Read items, verified; a block that another thread uses is shared, and so is one that was read lately."""
        key = (tuple(each.uri for each in self.sets), self.identity, rows)
        return _BLOCKS.get(key, lambda: self._read(rows))

    def _read(self, rows: RowRange) -> FeatureBlock:
        blocks = []
        for first, features in self._numbered:
            start, stop = max(rows.start - first, 0), min(rows.stop - first, features.n_rows)
            if start < stop:
                block = read_block(features, RowRange(start, stop))
                blocks.append(replace(block, numbers=block.numbers + first))
        found = blocks[0]
        if len(blocks) > 1:
            found = FeatureBlock(
                np.concatenate([block.numbers for block in blocks]),
                np.concatenate([block.features for block in blocks]),
                np.concatenate([block.norm for block in blocks]),
            )
        if self.exclude is None:
            return found
        label = np.concatenate(joint_labels(self.exclude, self.sets))[rows.start : rows.stop]
        if self.apart is not None:
            own = np.iinfo(np.int64).min + np.arange(rows.start, rows.stop)
            label = np.where(label == self.apart, own, label)
        return replace(found, label=label)

    def read_rows(self, items: Int64) -> NDArray[np.float32]:
        """Read single items, ascending."""
        parts = []
        for first, features in self._numbered:
            low, high = np.searchsorted(items, [first, first + features.n_rows])
            if low < high:
                parts.append(features.read_rows(items[low:high] - first))
        return read_only(np.concatenate(parts) if len(parts) != 1 else parts[0])

    def pair_distances(self, distance: Distance, one: Int64, other: Int64) -> NDArray[np.float64]:
        """Canonical distances of listed pairs, computed in pieces of bounded memory.

        `one` and `other` are the items of each pair, shape (n,); `one` is ascending.
        """
        found = np.empty(len(one))
        start = 0
        while start < len(one):
            # A fixed number of pairs per piece bounds the distinct items of either side.
            stop = min(len(one), start + PAIR_ROWS)
            near, owner = np.unique(one[start:stop], return_inverse=True)
            far, place = np.unique(other[start:stop], return_inverse=True)
            near_rows, far_rows = self.read_rows(near), self.read_rows(far)
            rows = PairRows(distance.kind, near_rows, far_rows, squared_norms(near_rows), squared_norms(far_rows))
            found[start:stop] = pair_distances(rows, owner, place)
            start = stop
        return found
