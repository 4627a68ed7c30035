"""Sparse rows of weights over k-reciprocal neighbours, kept in the workspace by blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import RowRange, cut_rows, nth_rows
from reid_dist.core.segments import entry_owners, segment_offsets, take_segments
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.kernels.reciprocal import (
    SparseRows,
    binary_rows,
    gaussian_rows,
    listed_distances,
    mean_rows,
    reciprocal_sets,
)
from reid_dist.stages.neighbours import Listed, NeighbourLists, Resources, Table
from reid_dist.stores import Stage

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Rows of weights of a block that are computed at once.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Weighing:
    """Definition of rows of weights over neighbour lists; see `reid_dist.stages.reranking.definition.Variant`.

    `n_near` and `n_half` are lengths of lists, the item itself counted; canonical distances are multiplied by `factor`.
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
        """Convert canonical distances, with the maximum of each one's row, to the distances of the definition."""
        value = distance * self.factor
        value = value * value if self.squares else value
        if not self.by_row_maximum:
            return value
        largest = farthest * self.factor
        largest = largest * largest if self.squares else largest
        return np.divide(value, largest, out=np.zeros_like(value), where=largest != 0)


class RowSource(Protocol):
    """Sparse rows of items that any worker can read; the name of `stage` identifies them."""

    @property
    def stage(self) -> Stage:
        """Stage whose name identifies the rows."""

    def read(self, rows: RowRange) -> SparseRows:
        """Read a range of rows."""

    def read_items(self, items: Int64) -> SparseRows:
        """Read the rows of some items, shape (n,), int64, ascending."""


@dataclass(frozen=True)
class WeightRows:
    """Sparse rows of weights of `n_items` items, in blocks of `block_rows`."""

    stage: Stage
    n_items: int
    block_rows: int
    # Beginning of the names of the parts.
    name: str = "rows"

    @classmethod
    def of(cls, stage: Stage, lists: NeighbourLists) -> WeightRows:
        """Rows of the items of neighbour lists, in the blocks of these."""
        return cls(stage, lists.n_items, lists.block_rows)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.n_items // self.block_rows)

    def rows(self, block: int) -> RowRange:
        """Items of a block."""
        return nth_rows(block, self.n_items, self.block_rows)

    def part(self, block: int) -> str:
        """Name of the rows of a block."""
        return f"{self.name}-{block:05d}"

    def write(self, block: int, rows: SparseRows) -> None:
        """Write the rows of a block."""
        self.stage.write(self.part(block), rows._asdict())

    def read_block(self, block: int) -> SparseRows:
        """Read the rows of a block."""
        return SparseRows(**self.stage.read(self.part(block), *SparseRows._fields))

    def read(self, rows: RowRange) -> SparseRows:
        """Read a range of rows."""
        size = self.block_rows
        pieces = []
        for block in range(rows.start // size, -(-rows.stop // size)):
            own = self.rows(block)
            start, stop = max(rows.start - own.start, 0), min(rows.stop, own.stop) - own.start
            pieces.append(cut_sparse(self.read_block(block), start, stop))
        return join_rows(pieces)

    def read_items(self, items: Int64) -> SparseRows:
        """Read the rows of some items, shape (n,), int64, ascending, block by block."""
        size = self.block_rows
        pieces = []
        for block in np.unique(items // size).tolist():
            own = items[np.searchsorted(items, block * size) : np.searchsorted(items, (block + 1) * size)]
            pieces.append(take_sparse(self.read_block(block), own - block * size))
        return join_rows(pieces)


def name_of(stage: Stage) -> str:
    """Name of a stage in its workspace, independent of the location of the workspace."""
    return stage.path.rpartition("/")[2]


def fill(rows: WeightRows, stage: str, task: Any, arguments: tuple[Any, ...], where: Resources) -> None:
    """Compute the missing blocks of rows; `task` is called with the arguments and the number of a block."""
    graph = TaskGraph()
    at = fingerprint(rows.stage.path)[:12]
    for block in range(rows.n_blocks):
        if not rows.stage.has(rows.part(block)):
            graph.finals.append(graph.add(f"{stage}-{at}-{rows.part(block)}", task, *arguments, block, stage=stage))
    where.run(graph)


def cut_sparse(rows: SparseRows, start: int, stop: int) -> SparseRows:
    """Rows `start` to `stop` (exclusive)."""
    first, last = rows.indptr[start], rows.indptr[stop]
    return SparseRows(rows.indptr[start : stop + 1] - first, rows.column[first:last], rows.value[first:last])


def take_sparse(rows: SparseRows, place: Int64) -> SparseRows:
    """Rows at the given positions, shape (n,), int64."""
    indptr, at = take_segments(rows.indptr, place)
    return SparseRows(indptr, rows.column[at], rows.value[at])


def join_rows(pieces: list[SparseRows]) -> SparseRows:
    """Concatenation of sparse rows."""
    if not pieces:
        return SparseRows(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))
    sizes = np.concatenate([np.diff(piece.indptr) for piece in pieces])
    return SparseRows(
        segment_offsets(sizes),
        np.concatenate([piece.column for piece in pieces]),
        np.concatenate([piece.value for piece in pieces]),
    )


def weigh_task(weights: WeightRows, lists: NeighbourLists, how: Weighing, block: int) -> None:
    """Compute the rows of weights of a block: R*(i), and a weight for each member."""
    table = Table.of(lists)
    pieces = []
    for here in pieces_of(lists, block):

        def compute(owner: Int64, member: Int64, start: int = here.start) -> Float64:
            return lists.items.pair_distances(lists.distance, start + owner, member)

        indptr, member = reciprocal_sets(table, here.start, here.stop, how.n_near, how.n_half, how.inclusive)
        if how.binary:
            pieces.append(binary_rows(indptr, member))
            continue
        listed = Listed(lists.index(here), lists.distances(here), lists.farthest(here))
        pieces.append(gaussian_weights(indptr, member, listed, how, compute))
    weights.write(block, join_rows(pieces))


def pieces_of(lists: NeighbourLists, block: int) -> Iterator[RowRange]:
    """Pieces of the rows of a block that are computed at once."""
    rows = lists.rows(block)
    for cut in cut_rows(len(rows), _ROWS_AT_ONCE):
        yield RowRange(rows.start + cut.start, rows.start + cut.stop)


def gaussian_weights(
    indptr: Int64,
    member: NDArray[np.int32],
    listed: Listed,
    how: Weighing,
    compute: Callable[[Int64, Int64], Float64],
) -> SparseRows:
    """Rows of Gaussian weights of some items whose members are given.

    `compute` returns the distances of pairs that are not listed, by row of `listed` and member.
    """
    distance = listed_distances(indptr, member, listed.index, listed.distance)
    owner = entry_owners(indptr)
    missing = np.flatnonzero(np.isnan(distance))
    distance[missing] = compute(owner[missing], member[missing].astype(np.int64))
    return gaussian_rows(indptr, member, how.scaled(distance, listed.farthest[owner]), how.normalised)


def mean_task(means: WeightRows, weights: WeightRows, lists: NeighbourLists, k2: int, n_near: int, block: int) -> None:
    """Replace each row of a block by the mean over the first `k2` items of its list."""
    pieces = []
    for here in pieces_of(lists, block):
        first = lists.index(here)[:, : min(k2, n_near)].astype(np.int64)
        needed = np.unique(first[first >= 0])
        pieces.append(mean_rows(places_among(needed, first), weights.read_items(needed)))
    means.write(block, join_rows(pieces))
