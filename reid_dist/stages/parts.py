"""Stages whose results are arrays of rows, kept in a workspace by blocks: how they are named, cut, computed and read.

A `PartStage` is a definition: its fields are all that its rows depend on, and their fingerprint is its name.  `run`
returns its parts: it takes its turn, lists the parts that are there once, and computes the missing ones.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint, plain
from reid_dist.core.model import RowRange, cut_rows, nth_rows
from reid_dist.core.segments import segment_offsets, take_segments
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.screened_pairs import ScreenedPairs, count_screened
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.errors import StoreError
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet, Stage
from reid_dist.stores.locks import stage_lock
from reid_dist.stores.workspace import stage_name

if TYPE_CHECKING:
    from typing import Self

Int64 = NDArray[np.int64]
Rows = RowRange | Int64
"""A range of rows, or some rows, shape (n,), int64, ascending."""

Arrays = dict[str, NDArray[Any]]
Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Blocks:
    """Cut of `n_rows` into blocks of `block_rows`, the last one as long as what is left."""

    n_rows: int
    block_rows: int

    def __len__(self) -> int:
        return -(-self.n_rows // self.block_rows)

    def __iter__(self) -> Iterator[RowRange]:
        return map(self.rows, range(len(self)))

    def rows(self, block: int) -> RowRange:
        """Rows of a block."""
        return nth_rows(block, self.n_rows, self.block_rows)

    def holding(self, rows: Int64) -> Int64:
        """Block of each of some rows."""
        return rows // self.block_rows

    def adopted(self, description: Mapping[str, Any]) -> Self:
        """The cut that a stage was begun with."""
        return replace(self, **{name: description[name] for name in vars(self)})


def pieces_of(rows: RowRange, most_rows: int) -> Iterator[RowRange]:
    """Pieces of at most so many rows of a range, which are computed at once."""
    for cut in cut_rows(len(rows), most_rows):
        yield RowRange(rows.start + cut.start, rows.start + cut.stop)


@dataclass(frozen=True)
class Parts:
    """Arrays of rows in a stage of a workspace, one part for each block; dense ones, or those of `SparseRows`."""

    stage: Stage
    blocks: Blocks

    @property
    def identity(self) -> str:
        """Name of the stage in its workspace, wherever that is: it stands for all that the rows depend on."""
        return self.stage.path.rpartition("/")[2]

    def part(self, block: int) -> str:
        """Name of the part of a block."""
        return f"rows-{block:05d}"

    def missing(self, done: frozenset[str]) -> list[int]:
        """Blocks whose parts are not among those that are done."""
        return [block for block in range(len(self.blocks)) if self.part(block) not in done]

    def write(self, block: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the arrays of a block."""
        self.stage.write(self.part(block), arrays)

    def block(self, block: int, *names: str) -> Arrays:
        """Read arrays of a block."""
        return self.stage.read(self.part(block), *names)

    def read(self, rows: Rows, *names: str) -> list[NDArray[Any]]:
        """Read arrays of some rows."""
        pieces = ((self.block(block, *names), here) for block, here in self._places(rows))
        found = [[arrays[name][here] for name in names] for arrays, here in pieces]
        return [np.concatenate(each) for each in zip(*found, strict=True)]

    def sparse(self, rows: Rows) -> SparseRows:
        """Read some sparse rows."""
        pieces = ((self.block(block, *SparseRows._fields), here) for block, here in self._places(rows))
        return join_rows(take_sparse(SparseRows(**arrays), here) for arrays, here in pieces)

    def _places(self, rows: Rows) -> Iterator[tuple[int, slice | Int64]]:
        """Blocks that hold some rows, and where these lie in them."""
        if isinstance(rows, RowRange):
            first, last = self.blocks.holding(np.array([rows.start, rows.stop - 1])).tolist()
            for block in range(first, last + 1):
                own = self.blocks.rows(block)
                yield block, slice(max(rows.start - own.start, 0), min(rows.stop, own.stop) - own.start)
            return
        held_by = self.blocks.holding(rows)
        for block in np.unique(held_by).tolist():
            yield block, rows[held_by == block] - self.blocks.rows(block).start


# ---- definitions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartStage(ABC):
    """Definition of a stage: its fields, but for `blocks` and those that are not compared, identify its rows.

    Attributes
    ----------
    kind
        Readable beginning of its name.
    progress
        Name under which progress counts its tasks.
    blocks
        Cut of its rows; that of an earlier run which was interrupted replaces it.
    """

    kind: ClassVar[str]
    progress: ClassVar[str]

    blocks: Blocks

    @property
    def identity(self) -> Any:
        """All that the rows depend on, as `fingerprint` takes it."""
        own = [each.name for each in fields(self) if each.compare and each.name != "blocks"]
        return {name: _identity_of(getattr(self, name)) for name in own}

    @abstractmethod
    def fill(self, parts: Parts, missing: Sequence[int], done: frozenset[str], where: Resources) -> None:
        """Compute the blocks that are missing; `done` are the names of all parts of the stage."""


@dataclass(frozen=True)
class RowStage(PartStage):
    """Definition of a stage with one task for each block of rows."""

    @abstractmethod
    def compute(self, rows: RowRange) -> Mapping[str, NDArray[Any]]:
        """Arrays of a block of rows: dense ones by row, or those of `SparseRows`."""

    def of_rows(self, rows: RowRange) -> RowStage:
        """The definition as a task of some rows needs it: without what is of other rows alone."""
        return self

    def fill(self, parts: Parts, missing: Sequence[int], done: frozenset[str], where: Resources) -> None:
        """Compute the missing blocks, each in a task."""
        graph, at = TaskGraph(), fingerprint(parts.stage.path)[:12]
        for block in missing:
            own = self.of_rows(parts.blocks.rows(block))
            key = f"{self.kind}-{at}-{block}"
            graph.finals.append(graph.add(key, part_task, own, parts, block, stage=self.progress))
        where.run(graph)


def _identity_of(value: Any) -> Any:
    if isinstance(value, FeatureSet):
        return value.content_digest
    if isinstance(value, Distance):
        return value.name
    if isinstance(value, tuple):
        return [_identity_of(each) for each in value]
    return getattr(value, "identity", value)


def part_task(stage: RowStage, parts: Parts, block: int) -> ScreenedPairs:
    """Compute a block and write its part; count the pairs of rows that are compared by products."""
    with one_blas_thread(), count_screened() as screened:
        arrays = stage.compute(parts.blocks.rows(block))
    parts.write(block, arrays)
    return screened


# ---- runs ------------------------------------------------------------------------------------------------------------


def run(stage: PartStage, where: Resources) -> Parts:
    """Return all parts of a stage: those that are in the workspace, and the others once they are computed."""
    with turn(stage, where):
        return completed(stage, where)


def turn(stage: PartStage, where: Resources) -> AbstractContextManager[None]:
    """Wait until no other run works on a stage, and keep it to this one meanwhile."""
    return stage_lock(where.workspace.place(stage_name(stage.kind, stage.identity)), where.progress.warn)


def completed(stage: PartStage, where: Resources) -> Parts:
    """Do what `run` does, in a turn that the caller has taken."""
    identity = stage.identity
    own = {**vars(stage.blocks), "of": plain(identity)}
    kept, description = where.workspace.begin(stage.kind, identity, own)
    # An interrupted run may have used other blocks; its finished parts are reused.
    parts = Parts(kept, stage.blocks.adopted(description))
    done = kept.done()
    try:
        stage.fill(parts, parts.missing(done), done, where)
    except BaseException:
        # Nothing to go on from: no empty stage is left.  The error on its way is the one to report.
        with suppress(StoreError, OSError):
            if not done and kept.is_empty:
                where.workspace.remove(kept)
        raise
    return parts


class Latest(Generic[Kept]):
    """What this process made last, by a key, for all of its threads: of large tables, one is in memory at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Hashable, Kept] | None = None

    def get(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """What was made for a key; made now unless it is there."""
        with self._lock:
            if self._held is None or self._held[0] != key:
                # What was there is freed before anything is made.
                self._held = None
                self._held = key, make()
            return self._held[1]

    def forget(self) -> None:
        """Free it."""
        with self._lock:
            self._held = None


# ---- sparse rows -----------------------------------------------------------------------------------------------------


def take_sparse(rows: SparseRows, place: Int64 | slice) -> SparseRows:
    """Rows at the given positions: shape (n,), int64, or from one to another (exclusive)."""
    if isinstance(place, slice):
        ends = rows.indptr[place.start : place.stop + 1]
        entries = slice(ends[0], ends[-1])
        return SparseRows(ends - ends[0], rows.column[entries], rows.value[entries])
    indptr, at = take_segments(rows.indptr, place)
    return SparseRows(indptr, rows.column[at], rows.value[at])


def join_rows(pieces: Iterable[SparseRows]) -> SparseRows:
    """Concatenation of sparse rows."""
    pieces = list(pieces)
    if not pieces:
        return SparseRows(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))
    sizes = np.concatenate([np.diff(piece.indptr) for piece in pieces])
    return SparseRows(
        segment_offsets(sizes),
        np.concatenate([piece.column for piece in pieces]),
        np.concatenate([piece.value for piece in pieces]),
    )
