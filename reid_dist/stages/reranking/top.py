"""Re-ranking of the nearest gallery items of each query alone; all others follow in plain order.

The m nearest gallery items of a query, by (distance, row), and the query itself are the whole set of a re-ranking of
their own, whose lists hold these items alone.  Cost and memory are linear in the gallery: a neighbour search of the
queries, and a graph of m + 1 items for each.

Distances of the head are its re-ranked values lowered by one number per query, so that the largest is -1; those of the
rest are the plain distances, which are not negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, info
from reid_dist.core.formatting import byte_size
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.core.segments import entry_keys
from reid_dist.core.sorted_values import places_among
from reid_dist.core.specs import call_text
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import ExtraMemory
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.scorers import FeatureScorer, read_block
from reid_dist.errors import InputError, PlanError
from reid_dist.kernels.canonical import Rescoring
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.stages.neighbour_search import NeighbourLists, find_query_neighbours
from reid_dist.stages.parts import Blocks, Parts, RowStage, join_rows, run
from reid_dist.stages.reranking.reranked_scorer import CandidateList, ScorerOfFeatures, range_of
from reid_dist.stages.reranking.rerankers import BYTES_PER_ENTRY, Choice, Reranking, RowSizes, register
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Queries of a part at most, and tasks per thread at least.
_MOST_QUERIES, _TASKS_PER_THREAD = 64, 4

GATHERED_BYTES = 2**27
"""Bytes of the gallery rows that are read at once."""


@register
@dataclass(frozen=True)
class Top(Reranking):
    """Re-ranking of the `m` nearest gallery items of each query alone.

    Attributes
    ----------
    of
        The re-ranking of these items.
    m
        Number of nearest gallery items of a query, junk items counted; the whole gallery if it is smaller.
    """

    name: ClassVar[str] = "top"
    summary: ClassVar[str] = "re-ranks only the m nearest gallery items of each query; the rest keep their plain order"
    source: ClassVar[str] = (
        "short lists as Philbin et al., Object retrieval with large vocabularies and fast spatial matching, CVPR 2007, "
        "verify them"
    )
    kept: ClassVar[tuple[str, ...]] = ("heads",)
    nests: ClassVar[bool] = True

    of: Reranking
    m: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.of, Reranking) or self.of.nests:
            found = str(self.of) if isinstance(self.of, Reranking) else repr(self.of)
            raise InputError(f"top takes a re-ranking such as k_reciprocal or gnn(k1=26), found {found}")
        if self.of.gallery_alone:
            raise InputError(
                "top re-ranks each query in a graph of its own with its nearest gallery items, whatever other queries "
                "there are: mode=inductive has no meaning in it; leave it out"
            )

    @property
    def n_listed(self) -> int:
        """Length of the lists of the queries, the query itself counted."""
        return self.m + 1

    @property
    def shared(self) -> tuple[Any, ...]:
        """Values that determine the re-ranked heads."""
        return (str(self),)

    @property
    def choice(self) -> Choice:
        """The definition."""
        return Choice(self.name, f"the {self.m} nearest are re-ranked, the rest follow in plain order", self.source)

    @property
    def per_query_scale(self) -> str | None:
        """Why distances of different queries have no common scale."""
        return "each query's nearest items are re-ranked among themselves, and all others have their plain distance"

    def graph_bytes(self, m: int) -> int:
        """Expected bytes of the rows of the graph of one query and `m` items, as summed and as joined."""
        n_entries = (m + 1) * sum(each.expected for each in self.of.row_sizes(m + 1))
        return int(3 * BYTES_PER_ENTRY * n_entries)

    def graph_distance(self, requested: Distance) -> Distance:
        """Distance of the graphs."""
        return self.of.graph_distance(requested)

    def row_sizes(self, n_items: int) -> tuple[RowSizes, ...]:
        """Re-ranked heads, a row for each query."""
        return (RowSizes("heads", min(self.m, n_items), min(self.m, n_items)),)

    def known_pairs(self, n_gallery: int) -> int:
        """The head of a query."""
        return min(self.m, n_gallery)

    def held(self, n_items: int, n_gallery: int) -> ExtraMemory:
        """The heads alone."""
        return ExtraMemory(64 * self.known_pairs(n_gallery))

    def warnings(self, n_items: int) -> tuple[str, ...]:
        """Those of a graph of the head, and a head of the whole gallery."""
        return self.of.warnings(1 + min(self.m, n_items))

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of all parameters, those of the re-ranking within included."""
        return {"m": self.m, **self.of.parameters}

    def describe(self) -> dict[str, Any]:
        """Report entries, with those of the re-ranking within."""
        own = {"m": self.m, "definition": self.choice.summary, "source": self.source}
        return {"name": self.name, "of": self.of.describe(), **own}

    def __str__(self) -> str:
        return call_text(self.name, {"m": self.m}, str(self.of))

    def scorer(self, query: FeatureSet, gallery: FeatureSet, distance: Distance, where: Resources) -> TopScorer:
        """Find the nearest items of each query, re-rank them, and return the scorer."""
        needed = self.graph_bytes(min(self.m, gallery.n_rows))
        if needed > where.memory_per_thread:
            raise PlanError(
                f"top: the graph of the {self.m} nearest items of one query needs some {byte_size(needed)}, and one "
                f"task may take {byte_size(where.memory_per_thread)}; take a smaller m, or give workers more memory "
                "per thread"
            )
        lists = find_query_neighbours(query, gallery, distance, 1 + min(self.m, gallery.n_rows), where)
        blocks = Blocks(query.n_rows, queries_of_a_part(query.n_rows, where.n_threads))
        heads = run(Heads(blocks, lists, self, where.policy), where)
        note = info("top_of_lists", m=self.m, n_gallery=gallery.n_rows)
        return TopScorer(FeatureScorer(query, gallery, distance), heads, (note,))

    def candidate_distances(self, items: CandidateList, requested: Distance) -> Float64:
        """Those of the re-ranking within."""
        return self.of.candidate_distances(items, requested)


@dataclass(frozen=True)
class TopScorer(ScorerOfFeatures):
    """Plain distances, but for the head of each query: `heads` holds gallery rows, ascending, with their distances."""

    heads: Parts
    notes: tuple[Finding, ...] = ()

    @property
    def identity(self) -> tuple[str, ...]:
        """Digests of the two sets and of the heads."""
        return (*self.plain.identity, self.heads.identity)

    def meet(self, query: FeatureBlock, gallery: FeatureBlock) -> FeatureBlock:
        """Add the distances of the heads to a block of queries."""
        heads = self.heads.sparse(range_of(query))
        here = np.flatnonzero((heads.column >= gallery.numbers[0]) & (heads.column <= gallery.numbers[-1]))
        indptr, row = np.searchsorted(here, heads.indptr), heads.column[here].astype(np.int64)
        # All others: 0 + 1 (distance / 1), which is the distance.
        known = Rescoring(True, 1.0, False, np.ones(len(query)), indptr, row, heads.value[here])
        return replace(query, reranked=known)

    def pair_distances(self, rows: RowRange, owner: Int64, gallery_row: Int64) -> Float64:
        """Look up pairs of heads and compute the others; see `Scorer.pair_distances`."""
        heads, n_gallery = self.heads.sparse(rows), self.plain.gallery.n_rows
        known = entry_keys(heads.indptr, heads.column, n_gallery)
        place = places_among(known, owner * n_gallery + gallery_row)
        distance, others = heads.value[place], np.flatnonzero(place < 0)
        distance[others] = self.plain.pair_distances(rows, owner[others], gallery_row[others])
        return distance


def queries_of_a_part(n_query: int, n_threads: int) -> int:
    """Queries whose heads are kept together: few enough to occupy all threads."""
    return min(_MOST_QUERIES, -(-n_query // (_TASKS_PER_THREAD * n_threads)))


# ---- the stage -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Heads(RowStage):
    """Re-ranked heads of queries: gallery rows, ascending, with their distances."""

    kind: ClassVar[str] = "heads"
    progress: ClassVar[str] = "heads"

    lists: NeighbourLists
    spec: Top
    policy: Policy = field(compare=False)

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Re-rank the heads of a block of queries."""
        (query,), (gallery,) = self.lists.items.sets, self.lists.candidates.sets
        index = np.sort(self.lists.others(rows)[0][:, : self.spec.m])
        features = read_block(query, rows).features
        pieces = []
        for cut in cut_rows(len(rows), max(1, GATHERED_BYTES // (4 * self.spec.m * gallery.dim))):
            needed = np.unique(index[cut.start : cut.stop])
            gathered = gallery.read_rows(needed)
            for i in range(cut.start, cut.stop):
                others = gathered[np.searchsorted(needed, index[i])]
                items = CandidateList.of(np.concatenate([features[i : i + 1], others]), self.policy)
                value = lowered(self.spec.candidate_distances(items, self.lists.distance))
                pieces.append(SparseRows(np.array([0, len(value)]), index[i].astype(np.int32), value))
        return join_rows(pieces)._asdict()


def lowered(value: Float64) -> Float64:
    """Values less one number, so that the largest is -1; where rounding would make two of them equal, they stay apart.

    Order and ties of the values remain.
    """
    distinct, place = np.unique(value, return_inverse=True)
    less = distinct - (distinct[-1] + 1.0)
    if (np.diff(less) <= 0).any():
        for at in range(len(less) - 2, -1, -1):
            less[at] = min(less[at], np.nextafter(less[at + 1], -np.inf))
    found: Float64 = less[place]
    return found
