"""Where one call of a public function runs: made of its keywords at once, and taken by everything below."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from reid_dist.clusters.workers import awaited_workers
from reid_dist.core.environment import threads_of_process
from reid_dist.core.temporary import temporary_directory
from reid_dist.engine.plan import DEFAULT_MEMORY
from reid_dist.engine.task_graph import Execution, Progress, Stopwatch
from reid_dist.stages.neighbours import Resources
from reid_dist.stages.visibility import visible_block, visible_sets
from reid_dist.stores import DistanceBlock, FeatureSet, Workspace
from reid_dist.stores.workspace import retry_damaged_parts

if TYPE_CHECKING:
    from distributed import Client

Made = TypeVar("Made")

# Share of a worker's memory that tasks may plan with; the rest is the interpreter, its libraries and what Dask holds.
_PLANNED_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Session:
    """Client, workspace, tile rows and progress of one call.

    `client` is that of a Dask cluster, None for threads of this process; `workspace` keeps parts and sets in memory,
    None for a temporary one; `chunk_rows` are the rows of tiles, None for a choice; `progress` is also the stopwatch of
    an evaluation.
    """

    client: Client | None = None
    workspace: Workspace | None = None
    chunk_rows: int | None = None
    progress: Stopwatch = field(default_factory=lambda: Stopwatch(None))

    def showing(self, progress: Progress) -> Self:
        """The same with another progress, and a stopwatch that starts now."""
        return replace(self, progress=Stopwatch(progress))

    def within(self, workspace: Workspace | Path | str) -> Self:
        """The same for an evaluation of several, in a workspace within that of the session."""
        place = workspace if isinstance(workspace, Workspace) else Workspace.at(workspace)
        return replace(self, workspace=place).showing(self.progress)

    def warn(self, message: str) -> None:
        """Report a one-line warning."""
        self.progress.warn(message)

    @contextlib.contextmanager
    def placed(self) -> Iterator[Self]:
        """The same with a workspace, a temporary one if there is none."""
        if self.workspace is not None:
            yield self
            return
        with temporary_directory() as folder:
            yield replace(self, workspace=Workspace.at(folder))

    def execution(self) -> Execution:
        """Execution of tasks, with the threads and the memory that this process or the cluster has now."""
        n_threads, memory = self._threads_and_memory()
        return Execution(
            client=self.client,
            n_threads=n_threads,
            memory_per_thread=memory,
            progress=self.progress,
            workspace=self.workspace,
            chunk_rows=self.chunk_rows,
        )

    def resources(self) -> Resources:
        """The same for stages, which need a workspace; see `placed`."""
        if self.workspace is None:
            raise AssertionError("stages need a workspace")
        return Resources(**vars(self.execution()))

    @contextlib.contextmanager
    def visible(self, query: FeatureSet, gallery: FeatureSet) -> Iterator[tuple[FeatureSet, FeatureSet]]:
        """Both sets as workers can read them; what they cannot read is refused.

        Sets in the memory of this process are written to the workspace, once each.
        """
        if self.client is None:
            yield query, gallery
            return
        with visible_sets(self.client, self.workspace, query, gallery, self.warn) as seen:
            yield seen

    @contextlib.contextmanager
    def visible_distances(self, block: DistanceBlock) -> Iterator[DistanceBlock]:
        """A block of distances as workers can read it, as `visible` does it."""
        if self.client is None:
            yield block
            return
        with visible_block(self.client, self.workspace, block, self.warn) as seen:
            yield seen

    def retried(self, work: Callable[[], Made]) -> Made:
        """Do work; repeat it where a kept part was missing, damaged or another one, which is then made again."""
        return retry_damaged_parts(work, self.workspace, self.warn)

    def _threads_and_memory(self) -> tuple[int, int]:
        """Threads of all workers, and the bytes that one task may fill."""
        if self.client is None:
            n_threads, memory = threads_of_process()
            return n_threads, planned_memory(memory)
        workers = [*awaited_workers(self.client, self.warn).values()]
        limits = [worker["memory_limit"] // worker["nthreads"] for worker in workers if worker["memory_limit"]]
        return sum(worker["nthreads"] for worker in workers), planned_memory(min(limits) if limits else None)


def planned_memory(limit: int | None) -> int:
    """Bytes that a task may fill where a thread has so many; None where there is no limit."""
    return DEFAULT_MEMORY if limit is None else int(limit * _PLANNED_SHARE)
