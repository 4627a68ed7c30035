"""Values shared by all packages: frozen, validated on construction, small enough to be sent to workers.

Notation of the field docstrings: ``n_query`` and ``n_gallery`` are rows of the two sets, a *positive* is a relevant
gallery item of a query, flat arrays over positives or thresholds are cut into queries by an ``indptr`` (start offsets,
one more than there are queries).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

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


def even_rows(n_rows: int, most: int) -> int:
    """Rows per range, at most `most`, of the fewest ranges of nearly one length; a multiple of 32 where that fits."""
    even = -(-n_rows // max(1, -(-n_rows // most)))
    return max(1, min(-(-even // 32) * 32, most, n_rows))


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
    columns
        Further labels by name, shape (n,), int64.
    """

    pids: Int64
    camids: Int64 | None
    item_ids: NDArray[np.generic] | None
    columns: Mapping[str, Int64] = field(default_factory=dict)

    def take(self, rows: RowRange) -> Labels:
        """Labels of some rows."""
        cut = slice(rows.start, rows.stop)
        return Labels(
            self.pids[cut],
            None if self.camids is None else self.camids[cut],
            None if self.item_ids is None else self.item_ids[cut],
            {name: values[cut] for name, values in self.columns.items()},
        )

    def has(self, name: str) -> bool:
        """Whether there is a label of that name."""
        return name == "pid" or (name == "camid" and self.camids is not None) or name in self.columns

    def get(self, name: str) -> Int64:
        """Return ``pid``, ``camid`` or a label column."""
        if name == "pid":
            return self.pids
        if name == "camid" and self.camids is not None:
            return self.camids
        return self.columns[name]


@dataclass(frozen=True, slots=True)
class GalleryMask:
    """Gallery items hidden from all queries or from some.

    Attributes
    ----------
    junk_row
        Rows that are junk for every query, shape (n_gallery,), bool.
    label
        A label of every row, shape (n_gallery,), int64, by which a query may hide rows; None where none does.
    """

    junk_row: NDArray[np.bool_]
    label: Int64 | None


@dataclass(frozen=True, slots=True)
class Hidden:
    """The gallery rows that each of some queries does not count among its negatives.

    Attributes
    ----------
    indptr, row
        Rows ``row[indptr[i]:indptr[i + 1]]`` of query ``i``, ascending: its positives and its own junk; int64.
    label
        Rows that carry this label in `GalleryMask.label` are hidden as well, shape (n_query,), int64; None for none.
    crosses
        Whether junk may have another pid than the query (by its own row or by a list; labels aside).
    """

    indptr: Int64
    row: Int64
    label: Int64 | None
    crosses: bool


@dataclass(frozen=True, slots=True)
class Relevance:
    """Relevant and junk items of a block of queries, and why a query has none.

    Attributes
    ----------
    relevant_indptr, relevant_row
        Gallery rows of the positives of each query, ascending; int64.
    hidden
        What a query does not count among its negatives.
    n_kept
        Items that the ranking of each query holds (all but junk), shape (n_query,), int64.
    n_junk
        Junk items of each query, shape (n_query,), int64.
    mated
        Whether any gallery row, junk or not, shows what the query shows, shape (n_query,), bool.
    reason
        Index into `reid_dist.relevance.protocols.REASONS`, shape (n_query,), uint8; 0 for a valid query.
    """

    relevant_indptr: Int64
    relevant_row: Int64
    hidden: Hidden
    n_kept: Int64
    n_junk: Int64
    mated: NDArray[np.bool_]
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
    hidden
        As in `Relevance`.
    """

    indptr: Int64
    distance: NDArray[np.float64]
    positive_start: Int64
    positive_row: Int64
    hidden: Hidden

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
    tied_before
        Those of them that the order (distance, gallery row) puts before it, int64.
    row
        Gallery rows of the positives, in the order of `rank`; int64.
    distance
        Canonical distances of the positives, float64.
    n_kept, n_junk, reason
        As in `Relevance`.
    """

    indptr: Int64
    rank: Int64
    tied: Int64
    tied_before: Int64
    row: Int64
    distance: NDArray[np.float64]
    n_kept: Int64
    n_junk: Int64
    reason: NDArray[np.uint8]

    @property
    def n_relevant(self) -> Int64:
        """Number of positives of each query."""
        return np.diff(self.indptr)

    @property
    def first_rank(self) -> Int64:
        """Rank of the nearest positive of each query; 1 for queries without positives, whose values are not used."""
        return self._rank_at(self.indptr[:-1])

    @property
    def last_rank(self) -> Int64:
        """Rank of the farthest positive of each query; 1 for queries without positives."""
        return self._rank_at(self.indptr[1:] - 1)

    @property
    def number(self) -> Int64:
        """j of every positive: its number among the positives of its query, from 1."""
        return np.arange(1, len(self.rank) + 1) - np.repeat(self.indptr[:-1], self.n_relevant)

    def _rank_at(self, place: Int64) -> Int64:
        valid = self.n_relevant > 0
        ranks = np.ones(len(valid), np.int64)
        ranks[valid] = self.rank[place[valid]]
        return ranks

    def optimistic(self) -> RankedQueries:
        """Ranks as if every tie were settled for the positive."""
        return replace(self, rank=self.rank - self.tied_before)

    def pessimistic(self) -> RankedQueries:
        """Ranks as if every tie were settled against the positive."""
        return replace(self, rank=self.rank - self.tied_before + self.tied)

    @classmethod
    def concatenate(cls, blocks: list[RankedQueries]) -> RankedQueries:
        """Blocks of queries, in order, as one."""
        sizes = np.concatenate([block.n_relevant for block in blocks])
        indptr = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=indptr[1:])
        flat = [each.name for each in fields(cls) if each.name != "indptr"]
        return cls(indptr, *(np.concatenate([getattr(block, name) for block in blocks]) for name in flat))


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
