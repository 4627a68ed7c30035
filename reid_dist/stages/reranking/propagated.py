"""Rows of a propagated graph, computed where they are needed, and their scorer.

With the lists as a matrix ``L``, the weights ``W`` of the first k2 of each list and ``D_r``, which divides rows by
their lengths in round r, round r is ``A_r = D_r W S_(r-1)`` with ``S_0 = L + L^T`` and ``S_r = A_r + A_r^T``.  So
``x S_r = (x D_r W) S_(r-1) + (x S_(r-1)) W^T D_r``: a row of any round is a product of few sparse matrices, and the
lengths of the rows of earlier rounds are all that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.core.segments import segment_offsets
from reid_dist.engine.reductions import FeatureBlock
from reid_dist.kernels.jaccard import ColumnLists, columns_of, listed_products, products_into
from reid_dist.kernels.propagation import depth_first, mutual_rows, propagated_rows, transposed_rows
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.stages.neighbours import NeighbourLists, Resources, table_of
from reid_dist.stages.parts import Blocks, Latest, Parts, RowStage, join_rows, run, take_sparse
from reid_dist.stages.reranking.reranked_scorer import RerankedScorer, range_of
from reid_dist.stages.reranking.rerankers import BYTES_PER_ENTRY

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

BYTES_PER_PAIR = 30
"""Largest memory of a pair of a query and a gallery item in a task."""

# Rows that are computed at once, rows of links that are, and rows whose sizes are counted.
_ROWS_AT_ONCE = 1024
_LINKS_AT_ONCE = 65536
_COUNTED_ROWS = 2048


class _Links(NamedTuple):
    """Arguments of `reid_dist.kernels.propagation.propagated_rows`: ``S_0``, ``W`` and ``W^T D_r`` of each round.

    Without rounds, ``L`` alone.  Items have other places there than in the lists; `place` holds that of each, shape
    (n_items,), int32.
    """

    rows: SparseRows
    scale: Float64
    place: NDArray[np.int32]


@dataclass(frozen=True)
class PropagatedRows:
    """Rows of all items after `n_rounds` rounds; `lengths` are parts with the lengths of the rows of each round."""

    lists: NeighbourLists
    k1: int
    k2: int
    n_rounds: int
    lengths: tuple[Parts, ...] = ()

    @property
    def identity(self) -> str:
        """Text that stands for all that the rows depend on."""
        return fingerprint(self.lists.identity, self.k1, self.k2, self.n_rounds)

    def sparse(self, rows: RowRange) -> SparseRows:
        """Compute a range of rows."""
        return self.sparse_items(np.arange(rows.start, rows.stop))

    def sparse_items(self, items: Int64) -> SparseRows:
        """Compute the rows of some items, shape (n,), int64."""
        return self.propagate(self.n_rounds, items)[0]

    def propagate(self, number: int, items: Int64) -> tuple[SparseRows, Float64]:
        """Rows of some items after a round, and their lengths before they are divided by them."""
        return _rows_after(number, self._links, items)

    def sums(self, number: int, items: Int64) -> SparseRows:
        """Rows of ``A + A^T`` of some items before a round, scaled to length 1."""
        links = self._links
        unit = SparseRows(np.arange(len(items) + 1), links.place[items], np.ones(len(items)))
        return propagated_rows(unit, links.rows, links.scale, _steps(number))[0]

    @property
    def _links(self) -> _Links:
        """Links of the rows of all rounds whose predecessors have lengths, held by the process."""
        key = self.lists.parts.stage.path, self.k1, self.k2, self.n_rounds > 0, len(self.lengths)
        return _LINKS.get(key, self._make_links)

    def _make_links(self) -> _Links:
        everything = RowRange(0, self.lists.n_items)
        distance = np.concatenate([self.lists.distances(rows)[:, : self.k2] for rows in self.lists.parts.blocks])
        lengths = [parts.read(everything, "length")[0] for parts in self.lengths]
        return _make_links(table_of(self.lists)[:, : self.k1], distance, self.n_rounds, lengths)


_LINKS: Latest[_Links] = Latest()
forget_links = _LINKS.forget


def rows_of_few(index: NDArray[np.signedinteger], distance: Float64, k1: int, k2: int, n_rounds: int) -> SparseRows:
    """Rows of all items of lists in memory after the last round."""
    table, items, lengths = index[:, :k1].astype(np.int32), np.arange(len(index)), list[Float64]()
    for number in range(1, n_rounds):
        links = _make_links(table, distance[:, :k2], n_rounds, lengths)
        lengths.append(_divisors(_rows_after(number, links, items)[1]))
    return _rows_after(n_rounds, _make_links(table, distance[:, :k2], n_rounds, lengths), items)[0]


def _make_links(table: NDArray[np.int32], distance: Float64, n_rounds: int, lengths: list[Float64]) -> _Links:
    """Links from lists, the distances of the first k2 of each, and the lengths of rows of earlier rounds."""
    n_items = len(table)
    place = np.arange(n_items, dtype=np.int32)
    scale = np.ones((1 + len(lengths), n_items))
    if not n_rounds:
        return _Links(_rows_of(table, np.ones(table.shape)), scale, place)
    k2 = distance.shape[1]
    order = depth_first(table, k2)
    place[order] = np.arange(n_items, dtype=np.int32)
    index = np.where(table >= 0, place[table], np.int32(-1))[order]
    both = [mutual_rows(index, cut.start, cut.stop) for cut in cut_rows(n_items, _LINKS_AT_ONCE)]
    near = index[:, :k2]
    weight = np.where(near >= 0, 1.0 - distance[order], 0.0)
    weight *= weight
    matrices = [*both, _rows_of(near, weight)]
    for number, length in enumerate(lengths, start=1):
        scale[number] = length[order]
        matrices.append(transposed_rows(_rows_of(near, weight / scale[number][:, None]), n_items))
    return _Links(join_rows(matrices), scale, place)


def _rows_after(number: int, links: _Links, items: Int64) -> tuple[SparseRows, Float64]:
    """Rows of some items after a round, and their lengths before they are divided by them."""
    # Those of round 0 are the links themselves; otherwise ``W`` is the second matrix.
    first = links.scale.shape[1] if number else 0
    begin = take_sparse(links.rows, first + links.place[items].astype(np.int64))
    return propagated_rows(begin, links.rows, links.scale, _steps(number))


def _divisors(length: Float64) -> Float64:
    """Lengths of rows; 1 for rows of zeros."""
    return np.where(length > 0.0, length, 1.0)


def _rows_of(index: NDArray[np.int32], value: Float64) -> SparseRows:
    """Rows of lists with their values, in list order."""
    there = index >= 0
    return SparseRows(segment_offsets(there.sum(axis=1)), index[there], value[there])


def _steps(number: int) -> Int64:
    """Steps of ``x S_(number - 1)``; none for the lists themselves."""

    def product(rounds: int, source: int, target: int) -> list[tuple[int, int, int, int]]:
        if rounds == 0:
            return [(0, 0, source, target)]
        between = rounds + 1
        return [
            *product(rounds - 1, source, between),
            (1 + rounds, 0, between, target),
            (-1, 0, between, between),
            (1, rounds, source, between),
            *product(rounds - 1, between, target),
            (-1, 0, between, between),
        ]

    return np.array(product(number - 1, 0, 1) if number else [], np.int64).reshape(-1, 4)


def bytes_of_process(n_items: int, k1: int, k2: int, n_rounds: int) -> int:
    """Memory of the lists and links of all items and of the vectors of a thread, in bytes."""
    if not n_rounds:
        return n_items * (4 * k1 + 36)
    links = BYTES_PER_ENTRY * (1.3 * k1 + n_rounds * k2) + 8 * (n_rounds + 1)
    return int(n_items * (4 * k1 + links + 8 * n_rounds + 4 + 12 * (n_rounds + 1)))


# ---- the stages ------------------------------------------------------------------------------------------------------


def propagate(
    lists: NeighbourLists, parameters: tuple[int, int, int], blocks: Blocks, where: Resources
) -> tuple[PropagatedRows, list[float]]:
    """Rows after the last round, and mean sizes of rows: of the lists, before and after each round.

    `parameters` are ``k1``, ``k2`` and the number of rounds.  Sizes are counted over at most 2,048 rows.
    """
    rows = PropagatedRows(lists, *parameters)
    for number in range(1, rows.n_rounds):
        rows = replace(rows, lengths=(*rows.lengths, run(Lengths(blocks, rows, number), where)))
    sizes = run(Sizes(Blocks(1, 1), rows), where)
    return rows, sizes.read(RowRange(0, 1), "entries")[0][0].tolist()


@dataclass(frozen=True)
class Lengths(RowStage):
    """Lengths of the rows after a round; 1 for rows of zeros."""

    kind: ClassVar[str] = "gnn"
    progress: ClassVar[str] = "weights"

    of: PropagatedRows
    number: int

    @property
    def identity(self) -> Any:
        """Lists and parameters of the graph, and the round; those after it play no part."""
        return [self.of.lists.identity, self.of.k1, self.of.k2, self.number]

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Lengths of a block of rows."""
        cuts = [np.arange(rows.start + cut.start, rows.start + cut.stop) for cut in cut_rows(len(rows), _ROWS_AT_ONCE)]
        return {"length": _divisors(np.concatenate([self.of.propagate(self.number, items)[1] for items in cuts]))}


@dataclass(frozen=True)
class Sizes(RowStage):
    """Mean entries of evenly spaced rows of the lists, and of those before and after each round: one part."""

    kind: ClassVar[str] = "gnn_sizes"
    progress: ClassVar[str] = "weights"

    of: PropagatedRows

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Means of all rows, shape (1, 1 + 2 n_rounds)."""
        lists, n_items = self.of.lists, self.of.lists.n_items
        items = np.arange(0, n_items, -(-n_items // _COUNTED_ROWS))
        entries = [int(np.count_nonzero(table_of(lists)[items, : self.of.k1] >= 0))]
        for number in range(1, self.of.n_rounds + 1):
            entries += [len(self.of.sums(number, items).column), len(self.of.propagate(number, items)[0].column)]
        return {"entries": np.array([entries]) / len(items)}


# ---- the scorer ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PropagatedScorer(RerankedScorer):
    """Scorer of rows that overlap with most others: products of all pairs of two blocks."""

    pair_rows_at_once: ClassVar[int] = _ROWS_AT_ONCE

    def meet(self, query: FeatureBlock, gallery: FeatureBlock) -> FeatureBlock:
        """Score all pairs of two blocks."""
        near = self._columns(range_of(query))
        products = np.empty((len(gallery), len(query)))
        for cut in cut_rows(len(gallery), _ROWS_AT_ONCE):
            far = self.gallery_rows.sparse_items(self.first_gallery + gallery.numbers[cut.start : cut.stop])
            products_into(near, far, products[cut.start : cut.stop])
        indptr, row, overlap = listed_products(products, gallery.numbers)
        del products
        return self._known(query, indptr, row, self.mix.graph_distances(overlap, overlap, overlap))

    def _columns(self, rows: RowRange) -> ColumnLists:
        """Entries of the rows of some queries by column; see `columns_of`."""
        key = self.query_rows.identity, rows
        return _COLUMNS.get(key, lambda: columns_of(self.query_rows.sparse(rows), self.n_columns))


# Entries by column of the queries that were scored last.
_COLUMNS: Latest[ColumnLists] = Latest()
