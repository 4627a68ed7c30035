"""Neighbour lists in a workspace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Distance
from reid_dist.stages.neighbours.items import Items
from reid_dist.stages.parts import Blocks, Latest, Parts

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Listed:
    """Lists of some items, the item itself first: two (n, k) arrays, and the largest distances, shape (n,)."""

    index: NDArray[np.signedinteger]
    distance: Float64
    farthest: Float64


@dataclass(frozen=True)
class NeighbourLists:
    """Lists of the `k` nearest candidates of each item.

    `candidates` are the items themselves, unless they are another set.  With `own_first`, each list begins with the
    item itself, which counts as one of `k`.  With `has_farthest`, the largest distance of each item is kept as well.
    """

    parts: Parts
    items: Items
    candidates: Items
    distance: Distance
    k: int
    own_first: bool = True
    has_farthest: bool = False

    @property
    def identity(self) -> list[Any]:
        """All that lists depend on but their length: the first entries of longer ones are the shorter ones."""
        return [self.items.identity, self.candidates.identity, self.distance.name]

    @property
    def n_items(self) -> int:
        """Number of lists."""
        return self.items.n_items

    def row_blocks(self, most_rows: int) -> Blocks:
        """Cut of rows that are made of the lists: as these, but with at most so many rows."""
        return Blocks(self.n_items, min(self.parts.blocks.block_rows, most_rows))

    def listed(self, rows: RowRange) -> Listed:
        """Lists of a range of items, with their largest distances."""
        return Listed(*self.parts.read(rows, "index", "distance", "farthest"))

    def farthest(self, rows: RowRange) -> Float64:
        """Largest canonical distance of each item in a range, shape (len(rows),), float64; only with `has_farthest`."""
        if not self.has_farthest:
            raise AssertionError("largest distances were not searched for")
        return self.parts.read(rows, "farthest")[0]

    def index(self, rows: RowRange) -> NDArray[np.signedinteger]:
        """Lists of a range of items, shape (len(rows), k), int32 or int64; -1 after the last entry."""
        return self.parts.read(rows, "index")[0]

    def distances(self, rows: RowRange) -> Float64:
        """Distances of the lists of a range of items, shape (len(rows), k), float64; inf after the last entry."""
        return self.parts.read(rows, "distance")[0]

    def others(self, rows: RowRange) -> tuple[Int64, Float64]:
        """Lists of a range of items without the item itself: int64 and float64, one row per item."""
        first = int(self.own_first)
        index, distance = self.parts.read(rows, "index", "distance")
        return index[:, first:].astype(np.int64), distance[:, first:]

    def last_kept(self, items: Int64, length: int) -> Float64:
        """Distance of the last entry in the lists of some items, ascending, for lists of `length`, the item counted.

        Shape (len(items),), float64: inf where a list is not full, -inf where it holds the item alone (`length` 1).
        """
        if length == 1 or not len(items):
            return np.full(len(items), -np.inf)
        last: Float64 = self.parts.take(items, "distance")[0][:, length - 1]
        return last


_TABLE: Latest[NDArray[np.int32]] = Latest()
forget_table = _TABLE.forget


def table_of(lists: NeighbourLists) -> NDArray[np.int32]:
    """Lists of all items, shape (n_items, k), int32, read once per process: 4 bytes per entry."""
    everything = RowRange(0, lists.n_items)
    key = lists.parts.stage.path, lists.k
    return _TABLE.get(key, lambda: lists.index(everything).astype(np.int32, copy=False))
