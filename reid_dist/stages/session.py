"""Where one call of a public function runs: made of its keywords at once, and taken by everything below."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from reid_dist.core.environment import threads_of_process
from reid_dist.core.temporary import draft_of, temporary_directory
from reid_dist.engine.plan import DEFAULT_MEMORY
from reid_dist.engine.task_graph import Execution, Progress, Stopwatch, TaskGraph, execute
from reid_dist.errors import ReidDistError, StoreError, StoreNotFoundError
from reid_dist.stores import DistanceBlock, FeatureSet, Workspace
from reid_dist.stores.featureset import stores_of
from reid_dist.stores.locks import stage_lock
from reid_dist.stores.stored import StoreReader
from reid_dist.stores.workspace import retry_damaged_parts

if TYPE_CHECKING:
    from distributed import Client

Made = TypeVar("Made")

# Share of a worker's memory that tasks may plan with; the rest is the interpreter, its libraries and what Dask holds.
_PLANNED_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Resources(Execution):
    """Execution of stages, which always have a workspace."""

    workspace: Workspace

    def run(self, graph: TaskGraph) -> None:
        """Run a task graph; nothing if all of its tasks are finished.

        Its final tasks return the pairs that were read from products for them, or None.
        """
        if graph.finals:
            self.note(filter(None, execute(graph, self.client, self.n_threads, self.progress)))


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
        limit: int | None
        if self.client is None:
            n_threads, limit = threads_of_process()
        else:
            # Without a cluster, nothing of clusters is imported.
            from reid_dist.clusters.workers import awaited_workers

            workers = [*awaited_workers(self.client, self.warn).values()]
            n_threads = sum(worker["nthreads"] for worker in workers)
            limits = [worker["memory_limit"] // worker["nthreads"] for worker in workers if worker["memory_limit"]]
            limit = min(limits, default=None)
        return Execution(
            client=self.client,
            n_threads=n_threads,
            memory_per_thread=planned_memory(limit),
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
        """Both sets as workers can read them.

        Sets in the memory of this process are written to the workspace, once each.  Stores and workspaces that a worker
        cannot read, and workers without this package or with another version of it, are refused.
        """
        if self.client is None:
            yield query, gallery
            return
        self._refuse_unfit_workers(self.client)
        sets = query, gallery
        with contextlib.ExitStack() as stack:
            if not all(map(self._stays, sets)):
                place = stack.enter_context(self._kept())
                stored: dict[str, FeatureSet] = {}
                for each in sets:
                    if each.content_digest not in stored:
                        target = place.place(f"features-{each.content_digest[:16]}.zarr")
                        stored[each.content_digest] = each if self._stays(each) else _saved(each, target, self.warn)
                sets = stored[query.content_digest], stored[gallery.content_digest]
            _refuse_unseen_stores(self.client, sets)
            yield sets

    @contextlib.contextmanager
    def visible_distances(self, block: DistanceBlock) -> Iterator[DistanceBlock]:
        """The same for distances, which are a file that every worker maps."""
        if self.client is None:
            yield block
            return
        self._refuse_unfit_workers(self.client)
        with contextlib.ExitStack() as stack:
            if not block.is_stored:
                place = stack.enter_context(self._kept())
                block = block.save(place.place(f"distances-{block.content_digest[:16]}.npy"))
            unseen = _not_seen_by(self.client, os.path.isfile, block.uri)
            if unseen is not None:
                raise StoreNotFoundError(
                    f"worker {unseen} cannot read the distances {block.uri} of this process; put the file where all "
                    "workers have it under the same path"
                )
            yield block

    @contextlib.contextmanager
    def _kept(self) -> Iterator[Workspace]:
        """The workspace, or a temporary one."""
        with self.placed() as placed:
            if placed.workspace is None:
                raise AssertionError("it is placed")
            yield placed.workspace

    def _stays(self, features: FeatureSet) -> bool:
        """Whether a set is in stores that workers may be able to read: temporary ones are, within the workspace."""
        return features.is_stored and (
            self.workspace is None
            or all(not each.origin or each.uri.startswith(self.workspace.path) for each in stores_of(features))
        )

    def _refuse_unfit_workers(self, client: Client) -> None:
        """Refuse workers with other code, and those that do not see the workspace."""
        from reid_dist.clusters.versions import refuse_unlike_code
        from reid_dist.clusters.workers import awaited_workers

        awaited_workers(client, self.warn)
        refuse_unlike_code(client, self.warn)
        if self.workspace is not None:
            _refuse_unseen_workspace(client, self.workspace.path)

    def retried(self, work: Callable[[], Made]) -> Made:
        """Do work; repeat it where a kept part was missing, damaged or another one, which is then made again."""
        return retry_damaged_parts(work, self.workspace, self.warn)


def planned_memory(limit: int | None) -> int:
    """Bytes that a task may fill where a thread has so many; None where there is no limit."""
    return DEFAULT_MEMORY if limit is None else int(limit * _PLANNED_SHARE)


# ---- what workers can read -------------------------------------------------------------------------------------------


def _saved(features: FeatureSet, target: str, warn: Callable[[str], None]) -> FeatureSet:
    """Save a set to a place that is named after its content; the store of another run is used again."""
    # The lock of the place itself is that of its writer.
    with stage_lock(f"{target}-turn", warn):
        with contextlib.suppress(StoreError):
            stored = StoreReader.open(target)
            if stored.manifest.source.get("content_digest") == features.content_digest:
                return FeatureSet.open(target)
        return features.save(target, overwrite=True)


def _refuse_unseen_stores(client: Client, sets: Iterable[FeatureSet]) -> None:
    """Have every worker open the stores: the error of a task would not name its worker."""
    stores = [(each.uri, each.content_digest) for features in sets for each in stores_of(features)]
    found = _run_on_all(client, _first_problem, stores)
    for worker, problem in found.items():
        if problem is not None:
            # A store that this process can no longer read either is no matter of paths.
            for uri, content_digest in stores:
                StoreReader.of_content(uri, content_digest)
            raise StoreNotFoundError(
                f"worker {worker} cannot read the stores of this process: {problem}; put the stores where all workers "
                "have them under the same path, or on S3"
            )


def _first_problem(stores: list[tuple[str, str]]) -> str | None:
    """Run on a worker: why it cannot read one of the stores, given by URI and content digest."""
    for uri, content_digest in stores:
        try:
            # As its tasks will: rows may have been appended since.
            StoreReader.of_content(uri, content_digest)
        except ReidDistError as error:
            with contextlib.suppress(ReidDistError):
                StoreReader.open(uri)
                return f"{uri} holds something else there"
            return str(error)
    return None


def _refuse_unseen_workspace(client: Client, path: str) -> None:
    """Have every worker look for a file that is there for a moment."""
    if "://" in path:
        return
    folder = Path(path)
    made = not folder.exists()
    probe = draft_of(folder / "seen")
    try:
        _make_probe(probe)
        unseen = _not_seen_by(client, os.path.exists, str(probe))
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
            if made:
                folder.rmdir()
    if unseen is not None:
        raise StoreError(
            f"worker {unseen} cannot read the workspace {path} of this process; choose a --workspace that all "
            "workers have under the same path, or one on S3"
        )


def _make_probe(probe: Path) -> None:
    for is_last in (False, False, True):
        try:
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
        except OSError as error:
            # Another run may have made the folder for its own probe, and removed it in between.
            if is_last or not isinstance(error, FileNotFoundError):
                raise StoreError(
                    f"cannot write to the workspace {probe.parent}: {error.strerror}; make room or choose another "
                    "--workspace"
                ) from None
        else:
            return


def _not_seen_by(client: Client, sees: Callable[[str], bool], path: str) -> str | None:
    """Address of the first worker that does not see a path; None if all do."""
    return next((worker for worker, seen in _run_on_all(client, sees, path).items() if not seen), None)


def _run_on_all(client: Client, function: Any, argument: Any) -> dict[str, Any]:
    """Results of a function by address of the worker; a worker that leaves meanwhile has none."""
    from reid_dist.clusters.workers import run_on_workers

    found = run_on_workers(client, function, argument)
    return {worker: result for worker, result in found.items() if not isinstance(result, BaseException)}
