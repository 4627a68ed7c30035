"""An output of a job: one class that says what the tiles are reduced to for it, and what becomes of the results.

For a block of queries, with the method of the output that takes part::

    relevance (`relevance`) ── thresholds (`thresholds`) ── tiles of every gallery block (`reductions`)
                                                                │
    all blocks (`join`) ── the block, in pieces if that is expensive (`finish`) ── merged in a tree (`merges`)

An output whose tiles depend on all queries `prepares`: before the first tile, each block gives a `summary`, and
`prepared` makes of these the output that takes the place of this one.

Outputs of a job share its tiles.  Two of them may share a reduction: then both give it the same name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Labels, RankedQueries, Relevance, RowRange, Thresholds
from reid_dist.engine.plan import NO_EXTRA_MEMORY, ExtraMemory, SetShape
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.scorers import Scorer
from reid_dist.relevance.assignment import GalleryIndex
from reid_dist.relevance.protocols import Protocol
from reid_dist.stores import LabelledSet

Float64 = NDArray[np.float64]
R = TypeVar("R")
T = TypeVar("T")

Merge = Callable[[Sequence[Any]], Any]
"""Merges partial results of different gallery blocks for the same queries, in any order and grouping."""


class JobLabels:
    """Labels of both sides as the protocol uses them, and values that outputs derive from those of the gallery.

    Each is computed once per process.
    """

    # A job derives fewer; those of earlier jobs are given up.
    _MOST_DERIVED: ClassVar[int] = 4

    def __init__(
        self, index: GalleryIndex | None = None, query: Labels | None = None, *, is_listed: bool = False
    ) -> None:
        self._index = index
        self._query = query
        # Whether relevance comes from lists and not from labels.
        self.is_listed = is_listed
        self._lock = threading.RLock()
        self._derived: dict[Hashable, Any] = {}

    @property
    def index(self) -> GalleryIndex:
        """Sorted labels of the gallery."""
        return _known(self._index, "labels")

    @property
    def query(self) -> Labels:
        """Labels of all queries."""
        return _known(self._query, "labels")

    @property
    def mask(self) -> GalleryMask:
        """Gallery rows hidden from queries."""
        return self.index.mask

    def derive(self, key: Hashable, make: Callable[[GalleryIndex], T]) -> T:
        """Value of a key, which is computed at the first call."""
        with self._lock:
            value: T = self._derived.pop(key) if key in self._derived else make(self.index)
            while len(self._derived) >= self._MOST_DERIVED:
                del self._derived[next(iter(self._derived))]
            self._derived[key] = value
            return value


@dataclass(frozen=True)
class QueryBlock:
    """A block of queries as outputs see it."""

    scorer: Scorer
    labels: JobLabels
    # Rows of the block in the query set.
    rows: RowRange
    # None where the job has none, and in tiles also where no output reads them.
    assigned: Relevance | None = None
    known: Thresholds | None = None
    # Positions of the queries that are finished; None for all.
    piece: RowRange | None = None
    # Maximal counts of distances in a partial result: `Plan.bracket_counts`.
    bracket_counts: int = 0

    @property
    def relevance(self) -> Relevance:
        """Relevance of the queries."""
        return _known(self.assigned, "relevance")

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds of the queries."""
        return _known(self.known, "thresholds")

    @property
    def queries(self) -> RowRange:
        """Positions of the queries that are finished."""
        return RowRange(0, len(self.rows)) if self.piece is None else self.piece


def _known(value: T | None, name: str) -> T:
    if value is None:
        raise AssertionError(f"the job has no {name}, or no output says that it reads them")
    return value


@dataclass(frozen=True)
class JobSizes:
    """Sizes on which the memory of an output depends."""

    gallery: LabelledSet
    protocol: Protocol
    # Listed pairs of a query, mean over the block with the most.
    per_query: float
    # Shape of the gallery side, as it is compared.
    shape: SetShape


class Output(Generic[R]):
    """An output of a job, with results of type R for a block of queries; a frozen dataclass.

    Its fields are part of the identity of the job, and say all that partial results depend on.
    """

    # Whether its reductions read the relevance of all queries, those without positives included.
    reads_relevance: ClassVar[bool] = False
    # Whether it needs thresholds: distances of all listed pairs.
    reads_thresholds: ClassVar[bool] = False
    # Whether it is prepared from summaries of all blocks of queries.
    prepares: ClassVar[bool] = False
    # Dataclasses in its partial results, which are stored in workspaces.
    stored: ClassVar[tuple[type, ...]] = ()
    # Merges of the partial results of its reductions, by name, where these are the same for every gallery.
    merged_by: ClassVar[Mapping[str, Merge]] = {}
    # Queries that are finished by one task of their own, if that is expensive; None for those of a block.
    queries_per_piece: ClassVar[int | None] = None

    def relevance(self, block: QueryBlock) -> Relevance:
        """Relevance of a block, with what this output adds to it."""
        return block.relevance

    def thresholds(self, block: QueryBlock, distance: Float64) -> Thresholds:
        """Thresholds of a block, with what this output adds to them; `distance` belongs to `Relevance.listed`."""
        return block.thresholds

    def summary(self, block: QueryBlock) -> Any:
        """What this output is prepared from, for a block with the relevance and the thresholds that the job has."""
        raise AssertionError(f"{type(self).__name__} is not prepared")

    def prepared(self, summaries: Sequence[Any]) -> Self:
        """Return the output with what follows from the summaries of all blocks, in order: the same in every process."""
        return self

    def row_groups(self, labels: JobLabels) -> NDArray[np.int64] | None:
        """Group of every gallery row, (n_gallery,), for separate counts; None if there are none."""
        return None

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Reductions of the tiles, by name."""
        return {}

    def merges(self, labels: JobLabels) -> Mapping[str, Merge]:
        """Merges of the partial results of all its reductions, by name."""
        return self.merged_by

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> R:
        """Results of the queries ``block.queries``, from the merged partial results of the whole gallery.

        Without a method of its own: the partial result of its only reduction.
        """
        (name,) = self.merges(block.labels)
        only: R = merged[name]
        return only

    def join(self, parts: Sequence[R]) -> R:
        """Join results of different queries, in order: those of pieces, and then those of blocks."""
        joined: R = _concatenated(parts)
        return joined

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """Memory in addition to features, tiles, thresholds and ranks."""
        return NO_EXTRA_MEMORY


def _concatenated(parts: Sequence[Any]) -> Any:
    """Concatenate arrays, ranks, and tuples and dataclasses of these."""
    first = parts[0]
    if isinstance(first, RankedQueries):
        return RankedQueries.concatenate(parts)
    if isinstance(first, tuple):
        return tuple(map(_concatenated, zip(*parts, strict=True)))
    if is_dataclass(first) and not isinstance(first, type):
        return type(first)(*(_concatenated([getattr(part, own.name) for part in parts]) for own in fields(first)))
    return None if first is None else np.concatenate(parts)


@dataclass(frozen=True)
class Results:
    """Results of the outputs of a job for all queries, by the class of the output."""

    values: Mapping[type[Output[Any]], Any]

    def of(self, kind: type[Output[R]]) -> R:
        """Result of an output of the job."""
        value: R = self.values[kind]
        return value

    def get(self, kind: type[Output[R]]) -> R | None:
        """Result of an output; None if the job does not have it."""
        return self.values.get(kind)
