"""Re-ranking by propagation over a graph of neighbours (Zhang et al., 2020), in sparse rows.

Row i of ``A`` is 1 at the k1 nearest of i, itself among them.  Per round, ``A`` is replaced by ``A + A^T``, then row i
by the sum of ``cos(i, j)^2 A_j`` over the k2 nearest j of i, scaled to length 1.  Without rounds, rows are not scaled,
and ``A_q A_g`` is the number of items that both lists hold.  The score of a query and a gallery item is
``(1 - lambda) A_q A_g + lambda cos(q, g)``; the distance is 1 minus it.

Rows are computed where they are needed.  With the lists as a matrix ``L``, the weights ``W`` of the first k2 of each
list and ``D_r``, which divides rows by their lengths in round r, round r is ``A_r = D_r W S_(r-1)`` with
``S_0 = L + L^T`` and ``S_r = A_r + A_r^T``.  So ``x S_r = (x D_r W) S_(r-1) + (x S_(r-1)) W^T D_r``: a row of any round
is a product of few sparse matrices, and the lengths of the rows of earlier rounds are all that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import info
from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.core.registry import Registry
from reid_dist.core.segments import segment_offsets
from reid_dist.core.specs import value_text
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import ExtraMemory
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.errors import InputError
from reid_dist.kernels.jaccard import ColumnLists, columns_of, listed_products, products_into
from reid_dist.kernels.propagation import depth_first, mutual_rows, propagated_rows, transposed_rows
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.stages.items import Items
from reid_dist.stages.neighbour_search import NeighbourLists, find_neighbours, table_of
from reid_dist.stages.parts import Blocks, Latest, Parts, Rows, RowStage, join_rows, pieces_of, run, take_sparse
from reid_dist.stages.reranking.reranked_scorer import CandidateList, Mix, RerankedScorer, range_of
from reid_dist.stages.reranking.rerankers import BYTES_PER_ENTRY, Choice, Reranking, RowSizes, register
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

BYTES_PER_PAIR = 30
"""Largest memory of a pair of a query and a gallery item in a task."""

# Rows that are computed at once, rows of links that are, and rows whose sizes are counted.
_ROWS_AT_ONCE = 1024
_LINKS_AT_ONCE = 65536
_COUNTED_ROWS = 2048

# Growth of rows by ``A + A^T``, and by a sum over k2 rows per row after the first: measured on synthetic features of
# moderate noise, rounded up.  They project sizes and cause no refusal.
_GROWTH_BY_TRANSPOSE = 1.4
_GROWTH_PER_ROW = 0.6


@dataclass(frozen=True)
class _Variant(Choice):
    """Variant: the default weight of the plain similarity, and whether it is the only one."""

    weight: float
    is_fixed: bool


_VARIANTS: Registry[_Variant] = Registry("variant of gnn")
_VARIANTS.register(
    _Variant(
        "zhang_mixed",
        "(1 - lambda) A_q A_g + lambda cosine, lambda 0.3 unless given",
        "copies of the authors' code in vehicle re-identification challenges",
        0.3,
        False,
    )
)
_VARIANTS.register(
    _Variant(
        "zhang",
        "A_q A_g alone: lambda is 0",
        "Zhang et al., arXiv:2012.07620, the authors' code as torchreid includes it",
        0.0,
        True,
    )
)


@register
@dataclass(frozen=True)
class GNN(Reranking):
    """Re-ranking by graph propagation (Zhang et al., 2020).

    Attributes
    ----------
    k1
        Number of neighbours of an item in the graph, the item itself counted.
    k2
        Number of neighbours whose rows are summed, the item itself counted; 1 for no rounds, as in the authors' code.
    lambda_value
        Weight of the cosine similarity, from 0 to 1; None for that of the variant.
    rounds
        Number of rounds of propagation; 0 for the neighbour lists as they are, not scaled to length 1.
    variant
        Name of a variant.
    """

    name: ClassVar[str] = "gnn"
    summary: ClassVar[str] = "(1 - lambda) product of propagated neighbour rows + lambda cosine similarity"
    source: ClassVar[str] = (
        "Zhang et al., Understanding image retrieval re-ranking: a graph neural network perspective, 2020"
    )
    choices: ClassVar[Registry[_Variant]] = _VARIANTS
    kept: ClassVar[tuple[str, ...]] = ("gnn", "gnn_sizes")

    k1: int = 26
    k2: int = 7
    lambda_value: float | None = None
    rounds: int = 2
    variant: str = "zhang_mixed"

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = _VARIANTS.get(self.variant)
        if self.k2 > self.k1:
            raise InputError(f"k2 of gnn must not be larger than k1 = {self.k1}, found {self.k2}")
        if self.lambda_value is None:
            object.__setattr__(self, "lambda_value", rules.weight)
        if rules.is_fixed and self.lambda_value != rules.weight:
            fixed, found = value_text(rules.weight), value_text(self.lambda_value)
            raise InputError(
                f"the variant {self.variant!r} of gnn has lambda_value={fixed}, found {found}; leave it out, or leave "
                "out the variant"
            )

    @property
    def choice(self) -> Choice:
        """Definition of the variant."""
        return _VARIANTS.get(self.variant)

    @property
    def n_listed(self) -> int:
        """Length of the neighbour lists, the item itself counted."""
        return self.k1

    @property
    def shared(self) -> tuple[Any, ...]:
        """Values that determine the rows."""
        return self.k1, self.k2, self.n_rounds

    @property
    def n_rounds(self) -> int:
        """Rounds of propagation that are computed."""
        return 0 if self.k2 == 1 else self.rounds

    def graph_distance(self, requested: Distance) -> Distance:
        """Cosine; other distances are refused."""
        self._refuse_unless_cosine(requested)
        return requested

    def row_sizes(self, n_items: int) -> tuple[RowSizes, ...]:
        """Rows before and after each round; none has a known maximum but that of the mean."""
        expected = most = float(min(self.k1, n_items))
        found = [RowSizes("lists", expected, most)] if self.n_rounds == 0 else []
        for number in range(1, self.n_rounds + 1):
            expected, most = min(n_items, _GROWTH_BY_TRANSPOSE * expected), min(n_items, 2 * most)
            found.append(RowSizes(f"before round {number}", expected, most))
            growth = 1 + _GROWTH_PER_ROW * (self.k2 - 1)
            expected, most = min(n_items, growth * expected), min(n_items, self.k2 * most)
            found.append(RowSizes(f"after round {number}", expected, most))
        return tuple(found)

    @property
    def n_stages(self) -> int:
        """Number of stages: the lengths of the rows of all rounds but the last."""
        return max(self.n_rounds - 1, 0)

    def kept_bytes(self, n_items: int) -> float:
        """Lengths of the rows of all rounds but the last."""
        return 8.0 * self.n_stages

    def held(self, n_items: int, n_gallery: int) -> ExtraMemory:
        """All pairs of two blocks, rows of queries as computed and by column, and the links of all items."""
        entries = self.row_sizes(n_items)[-1].expected
        of_process = bytes_of_process(n_items, self.k1, self.k2, self.n_rounds)
        return ExtraMemory(int(3 * BYTES_PER_ENTRY * entries), bytes_per_pair=BYTES_PER_PAIR, bytes_per_task=of_process)

    def scorer(self, query: FeatureSet, gallery: FeatureSet, distance: Distance, where: Resources) -> RerankedScorer:
        """Find lists, propagate rows and return the scorer."""
        items = Items((query, gallery))
        lists = find_neighbours(items, distance, self.k1, where)
        rows = PropagatedRows(lists, *self.shared)
        for number in range(1, self.n_rounds):
            lengths = run(Lengths(lists.row_blocks(self.most_block_rows), rows, number), where)
            rows = replace(rows, lengths=(*rows.lengths, lengths))
        sizes = run(Sizes(Blocks(1, 1), rows), where).block(0, "entries")["entries"]
        plain = FeatureScorer(query, gallery, distance)
        n_lists, *others = sizes[0].tolist()
        notes = (info("gnn_entries", lists=n_lists, rounds=[*zip(others[::2], others[1::2], strict=True)]),)
        return PropagatedScorer(plain, rows, rows, lists, query.n_rows, items.n_items, self._mix, notes)

    def candidate_distances(self, items: CandidateList, requested: Distance) -> Float64:
        """Re-ranked distances of the first of a few items in memory and each other item."""
        listed = items.lists(requested, self.k1)
        rows = listed_rows(listed.index, listed.distance, *self.shared)
        return items.distances(rows, self._mix, requested, requested)

    @property
    def _mix(self) -> _ProductMix:
        return _ProductMix(weight=float(self.lambda_value or 0.0), squares=False)


@dataclass(frozen=True)
class _ProductMix(Mix):
    """1 minus the product of two rows, mixed with the cosine distance."""

    multiplies: ClassVar[bool] = True

    @property
    def mix_in_tiles(self) -> bool:
        """Whether the plain distance has a share."""
        return self.weight != 0.0

    def graph_distances(self, overlap: Float64, near: Float64, far: Float64) -> Float64:
        """1 minus the products."""
        return 1.0 - overlap


# ---- rows ------------------------------------------------------------------------------------------------------------


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

    def sparse(self, rows: Rows) -> SparseRows:
        """Compute some rows."""
        items = np.arange(rows.start, rows.stop) if isinstance(rows, RowRange) else rows
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


def listed_rows(index: NDArray[np.signedinteger], distance: Float64, k1: int, k2: int, n_rounds: int) -> SparseRows:
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
        cuts = [np.arange(cut.start, cut.stop) for cut in pieces_of(rows, _ROWS_AT_ONCE)]
        return {"length": _divisors(np.concatenate([self.of.propagate(self.number, items)[1] for items in cuts]))}


@dataclass(frozen=True)
class Sizes(RowStage):
    """Mean entries of 2,048 evenly spaced rows of the lists, and of those before and after each round: one part."""

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
            far = self.gallery_rows.sparse(self.first_gallery + gallery.numbers[cut.start : cut.stop])
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
