"""Re-ranking by propagation over a graph of neighbours (Zhang et al., 2020), in sparse rows.

Row i of ``A`` is 1 at the k1 nearest of i, itself among them.  Per round, ``A`` is replaced by ``A + A^T``, then row i
by the sum of ``cos(i, j)^2 A_j`` over the k2 nearest j of i, scaled to length 1.  The score of a query and a gallery
item is ``(1 - lambda) A_q A_g + lambda cos(q, g)``; the distance is 1 minus it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import byte_size
from reid_dist.core.model import RowRange
from reid_dist.core.registry import Registry
from reid_dist.engine.distances import Distance
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.errors import InputError, PlanError
from reid_dist.kernels.propagation import (
    append_columns,
    mutual_rows,
    propagated_rows,
    summed_rows,
    transposed_rows,
    unit_lists,
)
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.stages.neighbours import Items, NeighbourLists, Resources, Table, find_neighbours
from reid_dist.stages.reranking.definition import Choice, Reranking, RowSizes, register
from reid_dist.stages.reranking.few import FewItems
from reid_dist.stages.reranking.scorer import Mix, RerankedScorer
from reid_dist.stages.reranking.stage import name_of
from reid_dist.stages.reranking.weights import BYTES_PER_ENTRY, WeightRows, cut_sparse, join_rows
from reid_dist.stores import FeatureSet, Stage
from reid_dist.stores.locks import in_turn

Float64 = NDArray[np.float64]

# Growth of rows by ``A + A^T``, and by a sum over k2 rows per row summed: measured on synthetic features of moderate
# noise, rounded up.  They project sizes and cause no refusal.
_GROWTH_BY_TRANSPOSE = 1.3
_GROWTH_PER_ROW = 0.3
# Largest number of gallery rows of a task.
_MOST_GALLERY_ROWS = 65536


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
        Number of rounds of propagation; 0 for the neighbour lists as they are.
    variant
        Name of a variant.
    """

    name: ClassVar[str] = "gnn"
    summary: ClassVar[str] = "(1 - lambda) product of propagated neighbour rows + lambda cosine similarity"
    source: ClassVar[str] = (
        "Zhang et al., Understanding image retrieval re-ranking: a graph neural network perspective, 2020"
    )
    choices: ClassVar[Registry[_Variant]] = _VARIANTS
    kept: ClassVar[tuple[str, ...]] = ("gnn",)

    k1: int = 26
    k2: int = 7
    lambda_value: float | None = None
    rounds: int = 2
    variant: str = "zhang_mixed"

    def __post_init__(self) -> None:
        rules = _VARIANTS.get(self.variant)
        for name, least in (("k1", 1), ("k2", 1), ("rounds", 0)):
            self._check_whole(name, least)
        if self.k2 > self.k1:
            raise InputError(f"k2 of gnn must not be larger than k1 = {self.k1}, found {self.k2}")
        if self.lambda_value is None:
            object.__setattr__(self, "lambda_value", rules.weight)
        self._check_weight("lambda_value")
        if rules.is_fixed and self.lambda_value != rules.weight:
            raise InputError(
                f"the variant {self.variant!r} of gnn has lambda_value={rules.weight:g}, found {self.lambda_value:g}; "
                "leave it out, or leave out the variant"
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
            growth = 1 + _GROWTH_PER_ROW * self.k2
            expected, most = min(n_items, growth * expected), min(n_items, self.k2 * most)
            found.append(RowSizes(f"after round {number}", expected, most))
        return tuple(found)

    def known_pairs(self, n_gallery: int) -> int:
        """All of a block of the gallery: rows are long, and most pairs share an entry."""
        return min(n_gallery, _MOST_GALLERY_ROWS)

    def scorer(self, query: FeatureSet, gallery: FeatureSet, distance: Distance, where: Resources) -> RerankedScorer:
        """Find lists, propagate rows and return the scorer."""
        items = Items((query, gallery))
        lists = find_neighbours(items, distance, self.k1, where)
        rows, sizes = _make_rows(self, lists, where)
        plain = FeatureScorer(query, gallery, distance)
        notes = (_size_note(sizes),)
        return RerankedScorer(plain, rows, rows, lists, query.n_rows, items.n_items, self._mix, notes)

    def few_distances(self, items: FewItems, requested: Distance) -> Float64:
        """Re-ranked distances of the first of a few items in memory and each other item."""
        n, listed = items.n_items, items.lists(requested, self.k1)
        index, weight = _weighted(listed.index, listed.distance, self.k2)
        rows = unit_lists(listed.index, self.k1, 0, n)
        for number in range(1, self.n_rounds + 1):
            if number == 1:
                rows = mutual_rows(listed.index, self.k1, 0, n)
            else:
                rows = summed_rows(rows, transposed_rows(rows, 0, n))
            rows = propagated_rows(index, weight, np.arange(n), rows)
        return items.distances(rows, self._mix, requested, requested)

    @property
    def _mix(self) -> _ProductMix:
        return _ProductMix(weight=float(self.lambda_value or 0.0), squares=False)


@dataclass(frozen=True)
class _ProductMix(Mix):
    """1 minus the product of two rows, mixed with the cosine distance."""

    multiplies: ClassVar[bool] = True

    @property
    def mixes_late(self) -> bool:
        """Whether the plain distance has a share."""
        return self.weight != 0.0

    def graph_distances(self, overlap: Float64, near: Float64, far: Float64) -> Float64:
        """1 minus the products."""
        return 1.0 - overlap


# ---- the stage -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Propagation:
    """Rows of every round, as parts of one stage: ``sums`` before a round, ``rows`` after it, and ``columns``.

    A part of columns holds what a block of rows adds, transposed, to another block in the next round.
    """

    stage: Stage
    lists: NeighbourLists
    k1: int
    k2: int
    n_rounds: int
    block_rows: int
    # Largest memory of a task, in bytes.
    memory: int

    def sums(self, number: int) -> WeightRows:
        """Rows of ``A + A^T`` before a round."""
        return WeightRows(self.stage, self.lists.n_items, self.block_rows, f"sums{number}")

    def rows(self, number: int) -> WeightRows:
        """Rows of ``A`` after a round; after the last one, the result."""
        name = "rows" if number == self.n_rounds else f"rows{number}"
        return WeightRows(self.stage, self.lists.n_items, self.block_rows, name)

    def columns(self, number: int, block: int, other: int) -> str:
        """Name of the part of what the rows of a block add to another block."""
        return f"columns{number}-{block:05d}-{other:05d}"

    def parts(self, step: tuple[str, int], block: int) -> list[str]:
        """Parts that a task of a step writes."""
        kind, number = step
        if kind == "sums":
            return [self.sums(number).part(block)]
        rows = self.rows(number)
        others = range(rows.n_blocks) if number < self.n_rounds else ()
        return [*(self.columns(number, block, other) for other in others), rows.part(block)]

    def refuse_beyond_memory(self, n_entries: float, block: int, what: str) -> None:
        """Raise `PlanError` if the rows of a task do not fit in its memory."""
        needed = int(n_entries * BYTES_PER_ENTRY)
        if needed > self.memory:
            raise PlanError(
                f"gnn: {what} of block {block} hold {int(n_entries)} entries, which need {byte_size(needed)}, and one "
                f"task may take {byte_size(self.memory)}; give workers more memory per thread, or take a smaller k1, "
                "k2 or rounds"
            )


def _make_rows(spec: GNN, lists: NeighbourLists, where: Resources) -> tuple[WeightRows, list[int]]:
    """Rows after the last round, and numbers of entries of all rows: of the lists, before and after each round."""
    block_rows = min(lists.block_rows, spec.most_block_rows)
    identity = [lists.items.identity, lists.distance.name, block_rows, spec.k1, spec.k2, spec.n_rounds]
    description = {"lists": name_of(lists.stage), "k1": spec.k1, "k2": spec.k2, "rounds": spec.n_rounds}
    stage = where.workspace.stage("gnn", identity, description)
    job = _Propagation(stage, lists, spec.k1, spec.k2, spec.n_rounds, block_rows, where.memory_per_thread)
    last = job.rows(spec.n_rounds)
    with in_turn(stage.path, where.progress.warn):
        if not (stage.has("sizes") and last.is_complete):
            steps = [(kind, number) for number in range(1, spec.n_rounds + 1) for kind in ("sums", "rows")]
            _compute(job, steps or [("rows", 0)], where)
            entries = [int(np.count_nonzero(Table.of(lists)[:, : spec.k1] >= 0))]
            entries += [
                int((job.sums(number) if kind == "sums" else job.rows(number)).sizes().sum()) for kind, number in steps
            ]
            stage.write("sizes", {"entries": np.array(entries, np.int64)})
        kept = {"sizes", *(last.part(block) for block in range(last.n_blocks))}
        for part in sorted(stage.done() - kept):
            stage.remove(part)
    n_items = lists.n_items
    return last, [n_items, *stage.read("sizes", "entries")["entries"].tolist()]


def _size_note(sizes: list[int]) -> str:
    n_items, lists, *others = sizes
    rounds = [
        f"{before / n_items:.1f} before and {after / n_items:.1f} after round {number}"
        for number, (before, after) in enumerate(zip(others[::2], others[1::2], strict=True), start=1)
    ]
    return f"gnn: entries of a row: {', '.join([f'{lists / n_items:.1f} in the lists', *rounds])}"


def _compute(job: _Propagation, steps: list[tuple[str, int]], where: Resources) -> None:
    """Compute the last step, and the steps before it where parts of it are missing."""
    n_blocks = job.rows(0).n_blocks
    done = job.stage.done()
    missing = [block for block in range(n_blocks) if not done.issuperset(job.parts(steps[-1], block))]
    if not missing:
        return
    if len(steps) > 1:
        _compute(job, steps[:-1], where)
    graph = TaskGraph()
    kind, number = steps[-1]
    task = _sum_task if kind == "sums" else _propagate_task
    key = f"gnn-{fingerprint(job.stage.path)[:12]}-{kind}{number}"
    for block in missing:
        graph.finals.append(graph.add(f"{key}-{block}", task, job, number, block, stage="weights"))
    where.run(graph)


def _sum_task(job: _Propagation, number: int, block: int) -> None:
    """Compute the rows of ``A + A^T`` of a block."""
    found = job.sums(number)
    here = found.rows(block)
    if number == 1:
        found.write(block, mutual_rows(Table.of(job.lists), job.k1, here.start, here.stop))
        return
    before = job.rows(number - 1)
    names = [job.columns(number - 1, other, block) for other in range(before.n_blocks)]
    sizes = np.zeros(len(here), np.int64)
    for name in names:
        sizes += np.diff(job.stage.read(name, "indptr")["indptr"])
    own = before.read_block(block)
    job.refuse_beyond_memory(2.0 * (len(own.column) + int(sizes.sum())), block, "the rows before a round")
    indptr = np.append(0, np.cumsum(sizes))
    column, value, at = np.empty(indptr[-1], np.int32), np.empty(indptr[-1]), indptr[:-1].copy()
    for name in names:
        append_columns(SparseRows(**job.stage.read(name, *SparseRows._fields)), at, column, value)
    found.write(block, summed_rows(own, SparseRows(indptr, column, value)))


def _propagate_task(job: _Propagation, number: int, block: int) -> None:
    """Compute the rows of a block after a round, and what they add to other blocks in the next one."""
    found = job.rows(number)
    here = found.rows(block)
    if number == 0:
        found.write(block, unit_lists(Table.of(job.lists), job.k1, here.start, here.stop))
        return
    sums = job.sums(number)
    index, weight = _weighted(job.lists.index(here), job.lists.distances(here), job.k2)
    pieces: list[SparseRows] = []
    for cut in _cut(np.where(index >= 0, sums.sizes()[index], 0).sum(axis=1), job.memory):
        first = index[cut.start : cut.stop]
        needed = np.unique(first[first >= 0])
        pieces.append(propagated_rows(first, weight[cut.start : cut.stop], needed, sums.read_items(needed)))
        job.refuse_beyond_memory(2.0 * sum(len(piece.column) for piece in pieces), block, "the rows after a round")
    rows = join_rows(pieces)
    if number < job.n_rounds:
        transposed = transposed_rows(rows, here.start, job.lists.n_items)
        for other in range(found.n_blocks):
            own = found.rows(other)
            job.stage.write(job.columns(number, block, other), cut_sparse(transposed, own.start, own.stop)._asdict())
    found.write(block, rows)


def _weighted(index: NDArray[np.signedinteger], distance: Float64, k2: int) -> tuple[NDArray[np.int64], Float64]:
    """The first `k2` items of lists, with their weights in the sums of a round."""
    first, similarity = index[:, :k2].astype(np.int64), 1.0 - distance[:, :k2]
    return first, np.where(first >= 0, similarity * similarity, 0.0)


def _cut(sizes: NDArray[np.int64], memory: int) -> list[RowRange]:
    """Pieces of rows whose sources fit in half of the memory; `sizes` are the entries that each row is summed from."""
    most = memory / (2 * BYTES_PER_ENTRY)
    bounds, total = [0], 0
    for row, size in enumerate(sizes.tolist()):
        if total + size > most and row > bounds[-1]:
            bounds.append(row)
            total = 0
        total += size
    return [RowRange(start, stop) for start, stop in zip(bounds, [*bounds[1:], len(sizes)], strict=True)]
