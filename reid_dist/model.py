"""The values that flow through the house: frozen, validated when they are made, small enough to travel.

Notation of the field docstrings: ``n_query`` and ``n_gallery`` are rows of the two sets, a *positive* is a relevant
gallery item of a query, flat arrays over positives or thresholds are cut into queries by an ``indptr`` (start offsets,
one more than there are queries).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Judgement", "Labels", "Neighbours", "RankedQueries", "RowRange", "Targets", "cut_rows"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows ``start`` to ``stop`` (exclusive) of a set."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise ValueError(f"rows {self.start}:{self.stop} are no range")

    def __len__(self) -> int:
        return self.stop - self.start


def cut_rows(n_rows: int, rows_per_block: int) -> Iterator[RowRange]:
    """Cut `n_rows` into ranges of `rows_per_block`, the last one as long as what is left."""
    for start in range(0, n_rows, rows_per_block):
        yield RowRange(start, min(start + rows_per_block, n_rows))


@dataclass(frozen=True, slots=True)
class Labels:
    """What a protocol may look at.

    Attributes
    ----------
    pids
        Identities, shape (n,), int64.
    camids
        Cameras, shape (n,), int64, or None.
    item_ids
        Names of the items, shape (n,), int64 or text, or None.
    """

    pids: Int64
    camids: Int64 | None
    item_ids: NDArray[np.generic] | None

    def take(self, rows: RowRange) -> Labels:
        """Labels of some rows."""
        cut = slice(rows.start, rows.stop)
        return Labels(
            self.pids[cut],
            None if self.camids is None else self.camids[cut],
            None if self.item_ids is None else self.item_ids[cut],
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """Who is relevant to a block of queries, who is junk, and why a query has nobody.

    Attributes
    ----------
    relevant_indptr, relevant_row
        Gallery rows of the positives of each query, ascending; int64.
    hidden_indptr, hidden_row
        Gallery rows, ascending, that a query does not count among its negatives: positives and its own junk; int64.
    n_kept
        Items that the ranking of each query holds (all but junk), shape (n_query,), int64.
    n_junk
        Junk items of each query, shape (n_query,), int64.
    reason
        Index into `reid_dist.protocols.REASONS`, shape (n_query,), uint8; 0 for a valid query.
    """

    relevant_indptr: Int64
    relevant_row: Int64
    hidden_indptr: Int64
    hidden_row: Int64
    n_kept: Int64
    n_junk: Int64
    reason: NDArray[np.uint8]

    @property
    def n_query(self) -> int:
        """Number of queries in the block."""
        return len(self.n_kept)


@dataclass(frozen=True, slots=True)
class Targets:
    """The thresholds that a block of queries is counted against.

    Attributes
    ----------
    indptr
        Thresholds of query ``i`` are ``indptr[i]:indptr[i + 1]``, near to far, without repetition; int64.
    distance
        Canonical distances, float64.
    positive_start
        Positives of threshold ``u`` are ``positive_start[u]:positive_start[u + 1]``, in order of gallery row; int64.
    positive_row
        Gallery rows of the positives by (distance, gallery row) within a query, int64.
    hidden_indptr, hidden_row
        As in `Judgement`.
    """

    indptr: Int64
    distance: NDArray[np.float64]
    positive_start: Int64
    positive_row: Int64
    hidden_indptr: Int64
    hidden_row: Int64

    @property
    def positive_indptr(self) -> Int64:
        """Positives of query ``i`` are ``positive_indptr[i]:positive_indptr[i + 1]``."""
        return self.positive_start[self.indptr]


@dataclass(frozen=True, slots=True)
class RankedQueries:
    """Everything that rank metrics are functions of, for a block of queries or for all of them.

    Attributes
    ----------
    indptr
        Positives of query ``i`` are ``indptr[i]:indptr[i + 1]``; int64.
    rank
        1-based ranks of the positives after junk is removed, ascending within a query; int64.
    tied
        Negatives at exactly the distance of each positive, int64.
    row
        Gallery rows of the positives, in the order of `rank`; int64.
    distance
        Canonical distances of the positives, float64.
    n_kept, n_junk, reason
        As in `Judgement`.
    """

    indptr: Int64
    rank: Int64
    tied: Int64
    row: Int64
    distance: NDArray[np.float64]
    n_kept: Int64
    n_junk: Int64
    reason: NDArray[np.uint8]

    @property
    def n_relevant(self) -> Int64:
        """Number of positives of each query."""
        return np.diff(self.indptr)

    @classmethod
    def concatenate(cls, blocks: list[RankedQueries]) -> RankedQueries:
        """Blocks of queries, in order, as one."""
        sizes = np.concatenate([block.n_relevant for block in blocks])
        indptr = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=indptr[1:])
        return cls(
            indptr,
            np.concatenate([block.rank for block in blocks]),
            np.concatenate([block.tied for block in blocks]),
            np.concatenate([block.row for block in blocks]),
            np.concatenate([block.distance for block in blocks]),
            np.concatenate([block.n_kept for block in blocks]),
            np.concatenate([block.n_junk for block in blocks]),
            np.concatenate([block.reason for block in blocks]),
        )


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest gallery rows of each query by (distance, gallery row).

    Attributes
    ----------
    index
        Gallery rows, shape (n_query, k), int64; -1 where the gallery has no more.
    distance
        Canonical distances, shape (n_query, k), float64; inf where the gallery has no more.
    junk, relevant
        Which of them the protocol calls junk and relevant, shape (n_query, k), bool; None outside an evaluation.
    """

    index: Int64
    distance: NDArray[np.float64]
    junk: NDArray[np.bool_] | None = None
    relevant: NDArray[np.bool_] | None = None
