"""What a ground truth is once it is read: for every query, gallery rows by name of the list."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.segments import entry_owners, owner_offsets, segment_offsets

Int64 = NDArray[np.int64]

LISTS: Final[Mapping[str, tuple[str, ...]]] = {"oxford": ("good", "ok", "junk"), "revisitop": ("easy", "hard", "junk")}
"""The lists of each kind, in the order in which they are kept."""


@dataclass(frozen=True, slots=True, eq=False)
class RowLists:
    """One list of gallery rows for every query, ascending: ``rows[indptr[i]:indptr[i + 1]]``, both int64."""

    indptr: Int64
    rows: Int64

    def __post_init__(self) -> None:
        if not len(self.indptr) or self.indptr[0] != 0 or self.indptr[-1] != len(self.rows):
            raise ValueError(f"the offsets of {len(self.rows)} rows must run from 0 to {len(self.rows)}")
        if np.any(np.diff(self.indptr) < 0):
            raise ValueError("the offsets of lists must not fall")
        step = np.diff(self.rows)
        starts = self.indptr[1:-1]
        step[starts[(starts > 0) & (starts < len(self.rows))] - 1] = 1
        if np.any(step <= 0):
            raise ValueError("the rows of a list must ascend without repetition")

    @classmethod
    def of_queries(cls, lists: Sequence[Int64]) -> RowLists:
        """Join one array of rows per query, each ascending."""
        indptr = segment_offsets([len(rows) for rows in lists])
        return cls(indptr, np.concatenate([np.empty(0, np.int64), *lists]))

    @property
    def n_query(self) -> int:
        """Number of queries."""
        return len(self.indptr) - 1

    def of(self, query: int) -> Int64:
        """Rows of one query."""
        return self.rows[self.indptr[query] : self.indptr[query + 1]]

    def take(self, rows: RowRange) -> RowLists:
        """Lists of some queries."""
        start = self.indptr[rows.start]
        return RowLists(
            self.indptr[rows.start : rows.stop + 1] - start, self.rows[start : self.indptr[rows.stop]].copy()
        )


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """The lists of every query, all of one kind of `LISTS`, in its order; no row occurs in two lists of a query."""

    n_gallery: int
    lists: Mapping[str, RowLists]

    def __post_init__(self) -> None:
        if tuple(self.lists) not in LISTS.values():
            raise ValueError(f"lists {', '.join(self.lists)} are of no kind; known: {dict(LISTS)}")
        if len({lists.n_query for lists in self.lists.values()}) != 1:
            raise ValueError("lists must have the same number of queries")
        for name, lists in self.lists.items():
            if len(lists.rows) and not 0 <= lists.rows.min() <= lists.rows.max() < self.n_gallery:
                raise ValueError(f"list {name!r} leaves the {self.n_gallery} rows of the gallery")

    @property
    def n_query(self) -> int:
        """Number of queries."""
        return self.lists["junk"].n_query

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the lists."""
        return tuple(self.lists)

    @property
    def kind(self) -> str:
        """``oxford`` (good, ok, junk) or ``revisitop`` (easy, hard, junk)."""
        return next(kind for kind, names in LISTS.items() if names == self.names)

    @cached_property
    def content_digest(self) -> str:
        """SHA-256 over names and arrays, 64 hexadecimal digits; one value for every form of the same lists."""
        hasher = hashlib.sha256()
        for name, lists in self.lists.items():
            for part in (name.encode(), lists.indptr.astype("<i8").tobytes(), lists.rows.astype("<i8").tobytes()):
                hasher.update(len(part).to_bytes(8, "little"))
                hasher.update(part)
        return hasher.hexdigest()

    def take(self, rows: RowRange) -> GroundTruth:
        """Lists of some queries."""
        return GroundTruth(self.n_gallery, {name: lists.take(rows) for name, lists in self.lists.items()})

    def union(self, *names: str) -> RowLists:
        """Rows that occur in any of some lists, ascending within a query."""
        parts = [self.lists[name] for name in names]
        rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)])
        owner = np.concatenate([np.empty(0, np.int64), *(entry_owners(part.indptr) for part in parts)])
        return RowLists(owner_offsets(owner, self.n_query), rows[np.lexsort((rows, owner))])

    def describe(self) -> dict[str, Any]:
        """Return its description for reports: kind, number of queries, entries of each list and the digest."""
        return {
            "kind": self.kind,
            "n_query": self.n_query,
            "n_gallery": self.n_gallery,
            "entries": {name: len(lists.rows) for name, lists in self.lists.items()},
            "content_digest": self.content_digest,
        }
