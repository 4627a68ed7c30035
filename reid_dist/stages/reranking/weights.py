"""Rows of weights over k-reciprocal neighbours: sparse, block by block, kept in the workspace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.kernels.lists import listed_distances
from reid_dist.kernels.reciprocal import SparseRows, binary_rows, gaussian_rows, mean_rows, reciprocal_sets
from reid_dist.stages.neighbours import BlockedLists, NeighbourLists, Table
from reid_dist.stores import Stage

__all__ = ["Weighing", "WeightRows", "join_rows", "mean_task", "weigh_task"]

Float64 = NDArray[np.float64]

# Rows of weights that are made at once within a block.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Weighing:
    """How rows of weights are made of neighbour lists; see `reid_dist.stages.reranking.definition.Variant`.

    Attributes
    ----------
    n_near, n_half
        Lengths of the lists, the item itself counted.
    inclusive, normalised, binary
        Whether a share of two thirds will do, whether rows sum to 1, and whether all weights are 1 before that.
    factor
        By what a canonical distance is multiplied.
    by_row_maximum, squares
        Whether distances are divided by the largest of their row, and whether they are squared.
    """

    n_near: int
    n_half: int
    inclusive: bool
    normalised: bool
    binary: bool
    factor: float
    by_row_maximum: bool
    squares: bool

    def scaled(self, distance: Float64, farthest: Float64) -> Float64:
        """Turn canonical distances, each with the largest of its row, into those of the definition."""
        value = distance * self.factor
        value = value * value if self.squares else value
        if not self.by_row_maximum:
            return value
        largest = farthest * self.factor
        largest = largest * largest if self.squares else largest
        return np.divide(value, largest, out=np.zeros_like(value), where=largest != 0)


@dataclass(frozen=True)
class WeightRows:
    """Sparse rows of all items, cut into the blocks of their neighbour lists.

    Attributes
    ----------
    stage
        Where they are.
    lists
        The neighbour lists that they are made of.
    """

    stage: Stage
    lists: BlockedLists

    def part(self, block: int) -> str:
        """Name of the rows of a block."""
        return f"rows-{block:05d}"

    @property
    def is_complete(self) -> bool:
        """Whether all rows are there."""
        return all(self.stage.has(self.part(block)) for block in range(self.lists.n_blocks))

    def write(self, block: int, rows: SparseRows) -> None:
        """Write the rows of a block."""
        self.stage.write(self.part(block), rows._asdict())

    def read_block(self, block: int) -> SparseRows:
        """Read the rows of a block."""
        return SparseRows(**self.stage.read(self.part(block), *SparseRows._fields))

    def read(self, rows: RowRange) -> SparseRows:
        """Read a range of rows."""
        size = self.lists.block_rows
        pieces = []
        for block in range(rows.start // size, -(-rows.stop // size)):
            own = self.lists.rows(block)
            start, stop = max(rows.start - own.start, 0), min(rows.stop, own.stop) - own.start
            pieces.append(cut_sparse(self.read_block(block), start, stop))
        return join_rows(pieces)

    def read_items(self, items: NDArray[np.int64]) -> SparseRows:
        """Read the rows of some items, ascending, one block after the other."""
        size = self.lists.block_rows
        pieces = []
        for block in np.unique(items // size).tolist():
            own = items[np.searchsorted(items, block * size) : np.searchsorted(items, (block + 1) * size)]
            pieces.append(take_sparse(self.read_block(block), own - block * size))
        return join_rows(pieces)


def cut_sparse(rows: SparseRows, start: int, stop: int) -> SparseRows:
    """Rows that follow each other."""
    first, last = rows.indptr[start], rows.indptr[stop]
    return SparseRows(rows.indptr[start : stop + 1] - first, rows.column[first:last], rows.value[first:last])


def take_sparse(rows: SparseRows, place: NDArray[np.int64]) -> SparseRows:
    """Some rows."""
    size = np.diff(rows.indptr)[place]
    indptr = np.zeros(len(place) + 1, np.int64)
    np.cumsum(size, out=indptr[1:])
    at = np.repeat(rows.indptr[place] - indptr[:-1], size) + np.arange(indptr[-1])
    return SparseRows(indptr, rows.column[at], rows.value[at])


def join_rows(pieces: list[SparseRows]) -> SparseRows:
    """Rows one after the other."""
    if not pieces:
        return SparseRows(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))
    sizes = np.concatenate([np.diff(piece.indptr) for piece in pieces])
    indptr = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return SparseRows(
        indptr,
        np.concatenate([piece.column for piece in pieces]),
        np.concatenate([piece.value for piece in pieces]),
    )


def weigh_task(weights: WeightRows, lists: NeighbourLists, how: Weighing, block: int) -> None:
    """Make the rows of weights of a block: R*(i), and a weight for each member."""
    table = Table.of(lists)
    rows = lists.rows(block)
    pieces = []
    for cut in cut_rows(len(rows), _ROWS_AT_ONCE):
        here = RowRange(rows.start + cut.start, rows.start + cut.stop)
        indptr, member = reciprocal_sets(table, here.start, here.stop, how.n_near, how.n_half, how.inclusive)
        if how.binary:
            pieces.append(binary_rows(indptr, member))
            continue
        distance = listed_distances(indptr, member, lists.index(here), lists.distances(here))
        owner = np.repeat(np.arange(len(here)), np.diff(indptr))
        missing = np.flatnonzero(np.isnan(distance))
        other = member[missing].astype(np.int64)
        distance[missing] = lists.items.pair_distances(lists.distance, here.start + owner[missing], other)
        scaled = how.scaled(distance, lists.farthest(here)[owner])
        pieces.append(gaussian_rows(indptr, member, scaled, how.normalised))
    weights.write(block, join_rows(pieces))


def mean_task(means: WeightRows, weights: WeightRows, k2: int, n_near: int, block: int) -> None:
    """Replace each row of a block by the mean over the first `k2` items of its list."""
    lists = weights.lists
    rows = lists.rows(block)
    pieces = []
    for cut in cut_rows(len(rows), _ROWS_AT_ONCE):
        here = RowRange(rows.start + cut.start, rows.start + cut.stop)
        first = lists.index(here)[:, : min(k2, n_near)].astype(np.int64)
        needed = np.unique(first[first >= 0])
        pieces.append(mean_rows(first, needed, weights.read_items(needed)))
    means.write(block, join_rows(pieces))
