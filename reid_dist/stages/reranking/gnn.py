"""Re-ranking by propagation over a graph of neighbours (Zhang et al., 2020), in sparse rows.

Row i of ``A`` is 1 at the k1 nearest of i, itself among them.  Per round, ``A`` is replaced by ``A + A^T``, then row i
by the sum of ``cos(i, j)^2 A_j`` over the k2 nearest j of i, scaled to length 1.  Without rounds, rows are not scaled,
and ``A_q A_g`` is the number of items that both lists hold.  The score of a query and a gallery item is
``(1 - lambda) A_q A_g + lambda cos(q, g)``; the distance is 1 minus it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.registry import Registry
from reid_dist.core.specs import value_text
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import Besides
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.errors import InputError
from reid_dist.stages.neighbours import Items, Resources, find_neighbours
from reid_dist.stages.parts import Blocks
from reid_dist.stages.reranking.propagated import (
    BYTES_PER_PAIR,
    PropagatedScorer,
    bytes_of_process,
    propagate,
    rows_of_few,
)
from reid_dist.stages.reranking.reranked_scorer import FewItems, Mix, RerankedScorer
from reid_dist.stages.reranking.rerankers import BYTES_PER_ENTRY, Choice, Reranking, RowSizes, register
from reid_dist.stores import FeatureSet

Float64 = NDArray[np.float64]

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
        rules = _VARIANTS.get(self.variant)
        for name, least in (("k1", 1), ("k2", 1), ("rounds", 0)):
            self._check_whole(name, least)
        if self.k2 > self.k1:
            raise InputError(f"k2 of gnn must not be larger than k1 = {self.k1}, found {self.k2}")
        if self.lambda_value is None:
            object.__setattr__(self, "lambda_value", rules.weight)
        self._check_weight("lambda_value")
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

    def held(self, n_items: int, n_gallery: int) -> Besides:
        """All pairs of two blocks, rows of queries as computed and by column, and the links of all items."""
        entries = self.row_sizes(n_items)[-1].expected
        of_process = bytes_of_process(n_items, self.k1, self.k2, self.n_rounds)
        return Besides(int(3 * BYTES_PER_ENTRY * entries), bytes_per_pair=BYTES_PER_PAIR, bytes_per_task=of_process)

    def scorer(self, query: FeatureSet, gallery: FeatureSet, distance: Distance, where: Resources) -> RerankedScorer:
        """Find lists, propagate rows and return the scorer."""
        items = Items((query, gallery))
        lists = find_neighbours(items, distance, self.k1, where)
        blocks = Blocks(items.n_items, min(lists.parts.blocks.block_rows, self.most_block_rows))
        rows, sizes = propagate(lists, self.shared, blocks, where)
        plain = FeatureScorer(query, gallery, distance)
        notes = (_size_note(sizes),)
        return PropagatedScorer(plain, rows, rows, lists, query.n_rows, items.n_items, self._mix, notes)

    def few_distances(self, items: FewItems, requested: Distance) -> Float64:
        """Re-ranked distances of the first of a few items in memory and each other item."""
        listed = items.lists(requested, self.k1)
        rows = rows_of_few(listed.index, listed.distance, *self.shared)
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


def _size_note(sizes: list[float]) -> str:
    lists, *others = sizes
    rounds = [
        f"{before:.1f} before and {after:.1f} after round {number}"
        for number, (before, after) in enumerate(zip(others[::2], others[1::2], strict=True), start=1)
    ]
    return f"gnn: entries of a row: {', '.join([f'{lists:.1f} in the lists', *rounds])}"
