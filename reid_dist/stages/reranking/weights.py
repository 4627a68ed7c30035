"""Sparse rows of weights over k-reciprocal neighbours, as stages.

In the inductive mode, queries are placed in the graph of a gallery independently of each other.  The gallery's lists,
rows of weights and largest distances are those of the gallery among itself, computed once for all query sets and not
changed by queries.  A query ranks itself and the gallery.  Whether it belongs to the list of a gallery item depends on
the distance of the last item of that list: the query must be strictly nearer, unless the list is not full.  All queries
have the same column in their own rows of weights, after all gallery items: no row of the gallery has this column, so no
query and gallery row share it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.core.segments import entry_owners
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.kernels.reciprocal import (
    SparseRows,
    binary_rows,
    gaussian_rows,
    grown_sets,
    listed_distances,
    mean_rows,
    reciprocal_sets,
)
from reid_dist.stages.neighbours import Listed, NeighbourLists, table_of
from reid_dist.stages.parts import Parts, RowStage, join_rows

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Rows of weights of a block that are computed at once.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Weighing:
    """Definition of rows of weights over neighbour lists; see `reid_dist.stages.reranking.k_reciprocal.Variant`.

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


@dataclass(frozen=True)
class _WeightStage(RowStage):
    """Rows of weights of the items of `lists`, in pieces of bounded memory."""

    lists: NeighbourLists

    @abstractmethod
    def piece(self, rows: RowRange) -> SparseRows:
        """Rows of a piece of a block."""

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Rows of a block."""
        return join_rows(map(self.piece, pieces_of(rows)))._asdict()


@dataclass(frozen=True)
class Weights(_WeightStage):
    """Rows of weights of items among themselves: R*(i), and a weight for each member."""

    kind: ClassVar[str] = "weights"
    progress: ClassVar[str] = "weights"

    how: Weighing

    def piece(self, rows: RowRange) -> SparseRows:
        """Rows of a range of items."""
        lists, how = self.lists, self.how
        members = reciprocal_sets(table_of(lists), rows.start, rows.stop, how.n_near, how.n_half, how.inclusive)
        if how.binary:
            return binary_rows(*members)

        def compute(owner: Int64, member: Int64) -> Float64:
            return lists.items.pair_distances(lists.distance, rows.start + owner, member)

        return gaussian_weights(*members, lists.listed(rows), how, compute)


@dataclass(frozen=True)
class Means(_WeightStage):
    """Means of the rows of weights of the first `n_averaged` items of each list."""

    kind: ClassVar[str] = "means"
    progress: ClassVar[str] = "means"

    weights: Parts
    n_averaged: int

    def piece(self, rows: RowRange) -> SparseRows:
        """Rows of a range of items."""
        first = self.lists.index(rows)[:, : self.n_averaged].astype(np.int64)
        needed = np.unique(first[first >= 0])
        return mean_rows(places_among(needed, first), self.weights.sparse_items(needed))


@dataclass(frozen=True)
class QueryWeights(_WeightStage):
    """Rows of weights of queries, after the mean over the first `n_averaged` of each list.

    `lists` are those of the queries; `gallery` and `weights` are the lists of the gallery among itself and its rows of
    weights before the mean.
    """

    kind: ClassVar[str] = "query_weights"
    progress: ClassVar[str] = "weights"

    gallery: NeighbourLists
    weights: Parts
    how: Weighing
    n_averaged: int

    def piece(self, rows: RowRange) -> SparseRows:
        """Rows of a range of queries."""
        listed = self.lists.listed(rows)
        own = self._own_rows(listed, rows)
        first = listed.index[:, : self.n_averaged].astype(np.int64)
        needed = np.unique(first[:, 1:])
        needed = needed[needed >= 0]
        # Every query has a row of weights of its own, behind those of the gallery.
        row = places_among(needed, first)
        row[:, 0] = len(needed) + np.arange(len(rows))
        return mean_rows(row, join_rows([self.weights.sparse_items(needed), own]))

    def _own_rows(self, listed: Listed, rows: RowRange) -> SparseRows:
        """Rows of weights of a range of queries before the mean."""
        how, others = self.how, slice(1, self.how.n_near)
        reciprocal = self._reciprocal(listed.index[:, others], listed.distance[:, others])
        (query,), (candidates,) = self.lists.items.sets, self.lists.candidates.sets
        members = grown_sets(table_of(self.gallery), reciprocal, how.n_half, how.inclusive, candidates.n_rows)
        if how.binary:
            return binary_rows(*members)
        pairs = FeatureScorer(query, candidates, self.lists.distance)

        def compute(owner: Int64, member: Int64) -> Float64:
            return pairs.pair_distances(rows, owner, member)

        return gaussian_weights(*members, listed, how, compute)

    def _reciprocal(self, index: Int64, distance: Float64) -> NDArray[np.int32]:
        """Gallery items of each list whose own list would contain the query; -1 in place of the others."""
        listed = np.unique(index[index >= 0]).astype(np.int64)
        last = self.gallery.last_kept(listed, self.how.n_near)
        # Those of empty places, -1, are below all distances.
        returned = distance < np.append(last, -np.inf)[places_among(listed, index)]
        return np.where(returned, index, -1).astype(np.int32)


def pieces_of(rows: RowRange) -> Iterator[RowRange]:
    """Pieces of a range of rows that are computed at once."""
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
