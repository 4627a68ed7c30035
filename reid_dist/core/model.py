"""Values shared by all packages: frozen, validated on construction, small enough to be sent to workers.

Notation of the field docstrings: ``n_query`` and ``n_gallery`` are rows of the two sets, a *positive* is a relevant
gallery item of a query, flat arrays over positives or thresholds are cut into queries by an ``indptr`` (start offsets,
one more than there are queries).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.segments import entry_numbers, segment_offsets, take_segments

Int64 = NDArray[np.int64]
UNKNOWN_CAMERA: Final = -1
"""Camid of an item of unknown camera: it is equal to no other, not even to another one of these."""

TieRule = Literal["optimistic", "pessimistic"]


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


def nth_rows(block: int, n_rows: int, rows_per_block: int) -> RowRange:
    """Range number `block` of `cut_rows`."""
    start = block * rows_per_block
    return RowRange(start, min(start + rows_per_block, n_rows))


def even_rows(n_rows: int, most: int) -> int:
    """Rows per range, at most `most`, of the fewest ranges of nearly one length; a multiple of 32 where that fits."""
    even = -(-n_rows // max(1, -(-n_rows // most)))
    return max(1, min(-(-even // 32) * 32, most, n_rows))


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels that a protocol may use, shape (n,) each; item ids are int64 or text, further columns by name."""

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
    """Rows hidden from all queries, (n_gallery,), and a label, (n_gallery,), by which a query may hide others."""

    junk_row: NDArray[np.bool_]
    label: Int64 | None


@dataclass(frozen=True, slots=True)
class Hidden:
    """The gallery rows that each of some queries does not count among its negatives."""

    # Rows ``row[indptr[i]:indptr[i + 1]]`` of query ``i``, ascending: its positives and its own junk.
    indptr: Int64
    row: Int64
    # Rows with this value of `GalleryMask.label` are hidden as well, (n_query,).
    label: Int64 | None
    # Whether junk may have another pid than the query (by its own row or by a list; labels aside).
    crosses: bool

    def take(self, queries: Int64) -> Hidden:
        """Select queries by position."""
        indptr, place = take_segments(self.indptr, queries)
        return Hidden(indptr, self.row[place], None if self.label is None else self.label[queries], self.crosses)


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The items of the groups that hold positives of some queries, where groups of gallery items are ranked."""

    # Kept gallery rows ``row[indptr[i]:indptr[i + 1]]`` of query ``i``, ascending, int64.
    indptr: Int64
    row: Int64
    # The group of each row, and whether the row is a positive itself; int32 and bool.
    group: NDArray[np.int32]
    relevant: NDArray[np.bool_]
    # The rows that no query counts among the items of other groups: these, and its own junk.
    hidden: Hidden
    # Groups with a kept item, (n_query,), int64.
    n_kept: Int64


@dataclass(frozen=True, slots=True)
class Relevance:
    """Relevant and junk items of a block of queries, and why a query has none."""

    # Gallery rows of the positives of each query, ascending.
    relevant_indptr: Int64
    relevant_row: Int64
    hidden: Hidden
    # Items that the ranking of each query holds (all but junk), and its junk items, (n_query,).
    n_kept: Int64
    n_junk: Int64
    # Whether any gallery row that is not junk for all queries shows what the query shows, (n_query,).
    mated: NDArray[np.bool_]
    # Index into `reid_dist.relevance.protocols.REASONS`, (n_query,); 0 for a valid query.
    reason: NDArray[np.uint8]
    # The groups of the positives, if groups of gallery items are ranked.
    members: GroupMembers | None = None
    # Relevance under each of several protocols, if they are ranked from one pass; see
    # `reid_dist.engine.outputs.protocol_ranks`.
    variants: tuple[Relevance, ...] = ()

    @property
    def n_query(self) -> int:
        """Number of queries in the block."""
        return len(self.n_kept)

    @property
    def listed(self) -> tuple[Int64, Int64]:
        """Start offsets and gallery rows of the pairs whose distances are thresholds: positives, or their groups."""
        if self.members is None:
            return self.relevant_indptr, self.relevant_row
        return self.members.indptr, self.members.row


@dataclass(frozen=True, slots=True)
class Targets:
    """The thresholds that a block of queries is counted against."""

    # Thresholds of query ``i`` are ``indptr[i]:indptr[i + 1]``, near to far, without repetition.
    indptr: Int64
    # Canonical distances.
    distance: NDArray[np.float64]
    # Positives of threshold ``u`` are ``positive_start[u]:positive_start[u + 1]``, in order of gallery row.
    positive_start: Int64
    # Gallery rows of the positives by (distance, gallery row) within a query.
    positive_row: Int64
    hidden: Hidden

    @property
    def positive_indptr(self) -> Int64:
        """Positives of query ``i`` are ``positive_indptr[i]:positive_indptr[i + 1]``."""
        return self.positive_start[self.indptr]

    def reach(self, k: int) -> NDArray[np.float64]:
        """Distance of the k-th positive of each query, infinite for fewer positives; shape (n_query,), float64."""
        place = self.positive_indptr[:-1] + k - 1
        has = place < self.positive_indptr[1:]
        found = np.full(len(has), np.inf)
        found[has] = self.distance[np.searchsorted(self.positive_start, place[has], "right") - 1]
        return found

    def among_first(self, n: int) -> NDArray[np.bool_]:
        """Whether each threshold is that of one of the `n` nearest positives of its query."""
        first = np.repeat(self.positive_indptr[:-1], np.diff(self.indptr))
        return self.positive_start[:-1] - first < n

    def first(self, n: int) -> Targets:
        """Thresholds of the `n` nearest positives of each query, with all positives that are tied with the last."""
        chosen = self.among_first(n)
        positive_start, positive = take_segments(self.positive_start, np.flatnonzero(chosen))
        indptr = segment_offsets(chosen)[self.indptr]
        return Targets(indptr, self.distance[chosen], positive_start, self.positive_row[positive], self.hidden)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of a block of queries: of its positives, of groups if groups are ranked, and under protocols."""

    items: Targets
    # Those of `items` that are counted.
    counted: Targets
    # Every group with a positive as one positive, at the gallery row of its nearest item; or the first group of each
    # query alone.
    groups: Targets | None = None
    # Under some of several protocols, by their places; see `reid_dist.engine.outputs.protocol_ranks`.
    variants: Mapping[int, Targets] = field(default_factory=dict)


@dataclass(frozen=True)
class RankedQueries:
    """Everything that rank metrics are functions of, for a block of queries or for all of them."""

    # Positives of query ``i`` are ``indptr[i]:indptr[i + 1]`` of the flat arrays.
    indptr: Int64
    # 1-based ranks of the positives after junk is removed, ascending within a query.
    rank: Int64
    # Negatives at exactly the distance of each positive, and those that (distance, gallery row) puts before it.
    tied: Int64
    tied_before: Int64
    # Gallery rows and canonical distances of the positives, in the order of `rank`.
    row: Int64
    distance: NDArray[np.float64]
    # As in `Relevance`.
    n_kept: Int64
    n_junk: Int64
    reason: NDArray[np.uint8]

    @cached_property
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
        return entry_numbers(self.indptr) + 1

    def _rank_at(self, place: Int64) -> Int64:
        valid = self.n_relevant > 0
        ranks = np.ones(len(valid), np.int64)
        ranks[valid] = self.rank[place[valid]]
        return ranks

    def settled(self, rule: TieRule) -> RankedQueries:
        """Ranks as if every tie were settled for the positive (``optimistic``), or against it (``pessimistic``)."""
        best = self.rank - self.tied_before
        return replace(self, rank=best if rule == "optimistic" else best + self.tied)

    @classmethod
    def concatenate(cls, blocks: Sequence[RankedQueries]) -> RankedQueries:
        """Blocks of queries, in order, as one."""
        sizes = np.concatenate([block.n_relevant for block in blocks])
        flat = [each.name for each in fields(cls) if each.name != "indptr"]
        return cls(
            segment_offsets(sizes), *(np.concatenate([getattr(block, name) for block in blocks]) for name in flat)
        )


@dataclass(frozen=True, slots=True, repr=False)
class Neighbours:
    """The nearest gallery rows of each query by (distance, gallery row), padded with -1 and inf."""

    # Gallery rows and canonical distances, (n_query, k).
    index: Int64
    distance: NDArray[np.float64]
    # Which of them the protocol calls junk and relevant, (n_query, k); None outside an evaluation.
    junk: NDArray[np.bool_] | None = None
    relevant: NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        return described_lists("Neighbours", self.index.shape)


def described_lists(name: str, shape: tuple[int, ...]) -> str:
    """Return the name and the size of ranked lists, (n_query, k)."""
    n_query, k = shape
    return f"{name}: {counted(k, 'nearest item')} of each of {counted(n_query, 'query')}"
