"""Neighbour graph of one set among itself, as input of clustering: lists, sparse rows of weights, Jaccard distances.

A graph is a handle: its rows are kept in the workspace that they were computed in, or in a saved Zarr group, and are
read piece by piece.  Only ``indptr``, ``indices``, ``weights`` and ``lists`` load all of them into memory.
"""

from __future__ import annotations

import functools
import os
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.model import Neighbours, RowRange, cut_rows
from reid_dist.core.optional_packages import import_extra
from reid_dist.core.segments import entry_owners
from reid_dist.errors import DamagedPartError, InputError
from reid_dist.kernels.jaccard import overlap_block, row_sums
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.stages.neighbour_search import NeighbourLists
from reid_dist.stages.parts import Parts, join_rows, take_sparse
from reid_dist.stages.reranking.k_reciprocal import VARIANTS, JaccardMix
from reid_dist.stores.sparse import PIECE_ROWS, GraphPiece, GraphWriter, StoredGraph
from reid_dist.stores.workspace import remove_part

if TYPE_CHECKING:
    from typing import Self


Int64 = NDArray[np.int64]
Rows = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True)
class KeptRows:
    """Rows of weights, after the mean, and lists of length `k` that are kept in a workspace, possibly longer."""

    rows: Parts
    lists: NeighbourLists
    k: int

    @functools.cached_property
    def shape(self) -> tuple[int, int, int]:
        """Items, entries of all rows, and length of a list."""
        blocks = range(len(self.rows.blocks))
        n_entries = sum(int(self.rows.block(block, "indptr")["indptr"][-1]) for block in blocks)
        return self.lists.n_items, n_entries, self.k

    def read(self, rows: RowRange) -> GraphPiece:
        """Read a range of rows."""
        try:
            found = self.rows.sparse(rows)
            index, distance = self.lists.parts.read(rows, "index", "distance")
        except DamagedPartError as error:
            # The part cannot be recomputed here; once removed, the next graph of these features recomputes it.
            remove_part(error)
            raise
        return GraphPiece(*found, index[:, : self.k], distance[:, : self.k])


class _StoredRows(StoredGraph):
    """Rows stored in a Zarr group."""

    def read(self, rows: RowRange) -> GraphPiece:
        """Read a range of rows."""
        sparse, lists = [], []
        for number in range(rows.start // PIECE_ROWS, -(-rows.stop // PIECE_ROWS)):
            piece, first = self.piece(number), number * PIECE_ROWS
            here = slice(max(rows.start - first, 0), min(rows.stop - first, len(piece.neighbours)))
            sparse.append(take_sparse(_weights_of(piece), here))
            lists.append((piece.neighbours[here], piece.distances[here]))
        index, distance = (np.concatenate(each) for each in zip(*lists, strict=True))
        return GraphPiece(*join_rows(sparse), index, distance)


class NeighbourGraph:
    """k-reciprocal graph within one set; create it with `reid_dist.k_reciprocal_graph`, or open a saved one.

    Attributes
    ----------
    n_items
        Number of rows of the set.
    n_entries
        Number of stored weights over all rows.
    k
        Length of a neighbour list, including the item itself.
    rerank, distance, inputs
        Parameters of the re-ranking, the distance, and the features with their digest.
    """

    def __init__(
        self, rows: KeptRows | _StoredRows, description: Mapping[str, Any], *, temporary: str | None = None
    ) -> None:
        self._rows = rows
        self.n_items, self.n_entries, self.k = rows.shape
        self.rerank: dict[str, Any] = dict(description["rerank"])
        self.distance: dict[str, Any] = dict(description["distance"])
        self.inputs: dict[str, Any] = dict(description["inputs"])
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)

    @classmethod
    def open(cls, uri: str | os.PathLike[str]) -> Self:
        """Open a saved graph; only its manifest is read.

        Raises
        ------
        StoreNotFoundError, IncompleteStoreError, StoreError, DamagedStoreError
            If it does not exist, is incomplete, or is damaged.
        """
        stored = _StoredRows.open(uri)
        return cls(stored, stored.entry)

    def save(self, uri: str | os.PathLike[str], *, overwrite: bool = False) -> NeighbourGraph:
        """Write the graph to a Zarr group in pieces, and return the stored graph.

        The group holds ``indptr``, ``indices``, ``weights``, ``neighbours/index`` and ``neighbours/distance``, and a
        manifest of parameters, inputs and digests, which is written last.

        Raises
        ------
        StoreExistsError
            If a complete store, or anything else, exists at `uri`.
        StoreError
            If it cannot be written.
        """
        description = {"rerank": self.rerank, "distance": self.distance, "inputs": self.inputs}
        with GraphWriter(uri, self._rows.shape, description, overwrite=overwrite) as writer:
            for rows in cut_rows(self.n_items, PIECE_ROWS):
                writer.append(self._rows.read(rows))
        return NeighbourGraph.open(uri)

    def read(self, start: int, stop: int) -> GraphPiece:
        """Read the weights and lists of a range of rows.

        Raises
        ------
        InputError
            If the range exceeds the rows of the graph.
        """
        if not 0 <= start <= stop <= self.n_items:
            raise InputError(f"rows {start}:{stop} are not within the {self.n_items} rows of the graph")
        if start == stop:
            lists = np.empty((0, self.k), np.int32), np.empty((0, self.k))
            return GraphPiece(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0), *lists)
        return self._rows.read(RowRange(start, stop))

    @functools.cached_property
    def _whole(self) -> SparseRows:
        """All rows of weights, read once."""
        whole = SparseRows(
            np.zeros(self.n_items + 1, np.int64), np.empty(self.n_entries, np.int32), np.empty(self.n_entries)
        )
        first = 0
        for rows in cut_rows(self.n_items, PIECE_ROWS):
            piece = self._rows.read(rows)
            last = first + len(piece.indices)
            whole.indptr[rows.start + 1 : rows.stop + 1] = piece.indptr[1:] + first
            whole.column[first:last], whole.value[first:last] = piece.indices, piece.weights
            first = last
        return whole

    @property
    def indptr(self) -> Int64:
        """Row offsets: row ``i`` is ``indptr[i]:indptr[i + 1]``, shape (n_items + 1,), int64."""
        return self._whole.indptr

    @property
    def indices(self) -> NDArray[np.int32]:
        """Items with a weight in each row, ascending, shape (n_entries,), int32."""
        return self._whole.column

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights of `indices` after averaging over k2 items, shape (n_entries,), float64."""
        return self._whole.value

    @functools.cached_property
    def lists(self) -> Neighbours:
        """Lists ``index`` and ``distance``, sorted by (canonical distance, row); each item is first in its own list."""
        pieces = [self._rows.read(rows) for rows in cut_rows(self.n_items, PIECE_ROWS)]
        index = np.concatenate([piece.neighbours for piece in pieces]).astype(np.int64)
        return Neighbours(index, np.concatenate([piece.distances for piece in pieces]))

    def to_scipy(self) -> Any:
        """Return the weights as a `scipy.sparse.csr_matrix`, shape (n_items, n_items), without a copy.

        Raises
        ------
        InputError
            If SciPy is not installed.
        """
        advice = "; indptr, indices and weights are there without it"
        sparse = import_extra("scipy.sparse", "mat", "to_scipy", advice=advice)
        shape = (self.n_items, self.n_items)
        return sparse.csr_matrix((self.weights, self.indices, self.indptr), shape=shape, copy=False)

    def __repr__(self) -> str:
        size = f"{counted(self.n_items, 'item')}, {counted(self.n_entries, 'weight')}"
        return f"NeighbourGraph: {size}, {self.rerank['variant']}"


def jaccard_distances(graph: NeighbourGraph, rows: Rows, columns: Rows | None = None) -> NDArray[np.float64]:
    """Compute Jaccard distances between items as dense rows, for small sets.

    Parameters
    ----------
    graph
        Neighbour graph of the items.
    rows
        Items, in any order.
    columns
        Items compared with them, in any order; None for all.

    Returns
    -------
    numpy.ndarray
        Jaccard distances, shape (len(rows), len(columns)), float64: exactly 1 where two items share no weight.
        Equal to the distances of a re-ranking with ``lambda_value=0``; due to rounding, the distance of an item to
        itself may differ from 0 by some 1e-16 in either direction (the variant ``faiss_k1`` clips at 0).

    Raises
    ------
    InputError
        For items outside the graph.
    """
    if not isinstance(graph, NeighbourGraph):
        raise InputError(f"graph must be a NeighbourGraph, found {type(graph).__name__}; see k_reciprocal_graph")
    near_rows = _checked("rows", rows, graph.n_items)
    far_rows = np.arange(graph.n_items) if columns is None else _checked("columns", columns, graph.n_items)
    rules = VARIANTS.get(graph.rerank["variant"])
    mix = JaccardMix(0.0, False, False, 1.0, rules.normalised, rules.clipped)
    known, place = np.unique(near_rows, return_inverse=True)
    near = take_sparse(join_rows(rows for _, rows in _rows_by_piece(graph, known)), place)
    near_sums = row_sums(near)
    result = np.ones((len(near_rows), len(far_rows)))
    for wanted, far in _rows_by_piece(graph, far_rows):
        shared = overlap_block(near, far, graph.n_items, mix.multiplies)
        owner = entry_owners(shared.indptr)
        distance = mix.graph_distances(shared.value, near_sums[owner], row_sums(far)[shared.column])
        result[owner, wanted[shared.column]] = distance
    return result


def _weights_of(piece: GraphPiece) -> SparseRows:
    return SparseRows(piece.indptr, piece.indices, piece.weights)


def _rows_by_piece(graph: NeighbourGraph, items: Int64) -> Iterator[tuple[Int64, SparseRows]]:
    """Rows of weights of some items, one piece of the graph after the other, and where the items of the piece are."""
    for cut in cut_rows(graph.n_items, PIECE_ROWS):
        wanted = np.flatnonzero((items >= cut.start) & (items < cut.stop))
        if len(wanted):
            yield wanted, take_sparse(_weights_of(graph.read(cut.start, cut.stop)), items[wanted] - cut.start)


def _checked(name: str, given: Rows, n_items: int) -> Int64:
    rows = np.asarray(given)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise InputError(f"{name} must be a sequence of items, found {given!r}")
    wanted = rows.astype(np.int64)
    wrong = wanted[(wanted < 0) | (wanted >= n_items)]
    if len(wrong):
        raise InputError(f"{name} must be from 0 to {n_items - 1}, found {int(wrong[0])}")
    return wanted
