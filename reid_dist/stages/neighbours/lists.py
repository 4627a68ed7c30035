"""Neighbour lists in a workspace, one part per block of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.reductions import Surroundings
from reid_dist.stores import Stage

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


class BlockedLists(ABC):
    """Lists of the k nearest items of each row, cut into blocks of rows.

    Attributes
    ----------
    stage
        Stage of the workspace.
    k
        Length of a list, the row itself counted if it is listed.
    block_rows
        Rows of a block.
    n_own
        1 if every list begins with the row itself, else 0.
    """

    stage: Stage
    k: int
    block_rows: int
    n_own: ClassVar[int] = 1

    @property
    @abstractmethod
    def n_items(self) -> int:
        """Rows that have a list."""

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.n_items // self.block_rows)

    def rows(self, block: int) -> RowRange:
        """Rows of a block."""
        start = block * self.block_rows
        return RowRange(start, min(start + self.block_rows, self.n_items))

    def tile_part(self, first: int, second: int) -> str:
        """Name of the part of a pair of blocks."""
        return f"tile-{first:05d}-{second:05d}"

    def block_part(self, block: int) -> str:
        """Name of the finished lists of a block."""
        return f"lists-{block:05d}"

    @property
    def is_complete(self) -> bool:
        """Whether all lists are finished."""
        return all(self.stage.has(self.block_part(block)) for block in range(self.n_blocks))

    def farthest(self, rows: RowRange) -> Float64:
        """Largest canonical distance of each row in a range, shape (len(rows),), float64; not for `TopLists`."""
        return np.concatenate(list(self._pieces(rows, "farthest")))

    def index(self, rows: RowRange) -> NDArray[np.signedinteger]:
        """Lists of a range of rows, shape (len(rows), k), int32 or int64; -1 after the last entry."""
        return np.concatenate(list(self._pieces(rows, "index")))

    def distances(self, rows: RowRange) -> Float64:
        """Distances of the lists of a range of rows, shape (len(rows), k), float64; inf after the last entry."""
        return np.concatenate(list(self._pieces(rows, "distance")))

    def others(self, rows: RowRange) -> tuple[Int64, Float64]:
        """Lists of a range of rows without the row itself: int64 and float64, of shape (len(rows), k - n_own)."""
        return self.index(rows)[:, self.n_own :].astype(np.int64), self.distances(rows)[:, self.n_own :]

    def last_kept(self, items: NDArray[np.int64], length: int) -> Float64:
        """Distance of the last entry in the lists of some items, ascending, for lists of `length`, the item counted.

        Returns
        -------
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


def own_first(numbers: Int64, own: Float64, others: Surroundings, k: int) -> dict[str, NDArray[np.generic]]:
    """Finished lists of some items: each item itself, with its number and own distance, then the others."""
    missing = ((0, 0), (0, k - 1 - others.index.shape[1]))
    index = np.pad(others.index, missing, constant_values=-1)
    distance = np.pad(others.distance, missing, constant_values=np.inf)
    return {
        "index": np.column_stack([numbers, index]).astype(np.int32),
        "distance": np.column_stack([own, distance]),
        "farthest": np.maximum(others.farthest, own),
    }
