"""Neighbour lists in a workspace, one part per block of rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, nth_rows
from reid_dist.engine.distances import Distance
from reid_dist.stages.neighbours.items import Items
from reid_dist.stores import Stage

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
    """Lists of the `k` nearest candidates of each item, cut into blocks of `block_rows` items.

    With `is_symmetric`, items are compared among themselves: `candidates` are the items.  With `own_first`, each list
    begins with the item itself, which counts as one of `k`.  With `has_farthest`, the largest distance of each item is
    kept as well.
    """

    stage: Stage
    items: Items
    candidates: Items
    distance: Distance
    k: int
    block_rows: int
    is_symmetric: bool = False
    own_first: bool = True
    has_farthest: bool = False

    @property
    def n_items(self) -> int:
        """Number of lists."""
        return self.items.n_items

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.n_items // self.block_rows)

    def rows(self, block: int) -> RowRange:
        """Items of a block."""
        return nth_rows(block, self.n_items, self.block_rows)

    def block_part(self, block: int) -> str:
        """Name of the part that holds the lists of a block."""
        return f"lists-{block:05d}"

    @property
    def is_complete(self) -> bool:
        """Whether all lists are finished."""
        return all(self.stage.has(self.block_part(block)) for block in range(self.n_blocks))

    def farthest(self, rows: RowRange) -> Float64:
        """Largest canonical distance of each item in a range, shape (len(rows),), float64; only with `has_farthest`."""
        if not self.has_farthest:
            raise AssertionError("largest distances were not searched for")
        return np.concatenate(list(self._pieces(rows, "farthest")))

    def index(self, rows: RowRange) -> NDArray[np.signedinteger]:
        """Lists of a range of items, shape (len(rows), k), int32 or int64; -1 after the last entry."""
        return np.concatenate(list(self._pieces(rows, "index")))

    def distances(self, rows: RowRange) -> Float64:
        """Distances of the lists of a range of items, shape (len(rows), k), float64; inf after the last entry."""
        return np.concatenate(list(self._pieces(rows, "distance")))

    def others(self, rows: RowRange) -> tuple[Int64, Float64]:
        """Lists of a range of items without the item itself: int64 and float64, one row per item."""
        first = int(self.own_first)
        return self.index(rows)[:, first:].astype(np.int64), self.distances(rows)[:, first:]

    def last_kept(self, items: Int64, length: int) -> Float64:
        """Distance of the last entry in the lists of some items, ascending, for lists of `length`, the item counted.

        Shape (len(items),), float64: inf where a list is not full, -inf where it holds the item alone (`length` 1).
        """
        found = np.full(len(items), -np.inf)
        if length == 1:
            return found
        for block in np.unique(items // self.block_rows).tolist():
            rows = self.rows(block)
            here = slice(*np.searchsorted(items, [rows.start, rows.stop]))
            found[here] = self.distances(rows)[items[here] - rows.start, length - 1]
        return found

    def _pieces(self, rows: RowRange, name: str) -> Iterator[NDArray[np.generic]]:
        for block in range(rows.start // self.block_rows, -(-rows.stop // self.block_rows)):
            own = self.rows(block)
            cut = slice(max(rows.start - own.start, 0), rows.stop - own.start)
            yield self.stage.read(self.block_part(block), name)[name][cut]


class Table:
    """Lists of all items as one array, read once per process: 4 bytes per entry."""

    _lock = threading.Lock()
    _key: tuple[str, int] | None = None
    _index: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, lists: NeighbourLists) -> NDArray[np.int32]:
        """Lists of all items, shape (n_items, k), int32."""
        with cls._lock:
            key = (lists.stage.path, lists.k)
            if cls._index is None or cls._key != key:
                cls._index, cls._key = None, None
                cls._index = lists.index(RowRange(0, lists.n_items)).astype(np.int32, copy=False)
                cls._key = key
            return cls._index
