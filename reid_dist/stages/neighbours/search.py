"""Neighbour searches as stages of a workspace: finished blocks are kept and reused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reid_dist.core.fingerprint import fingerprint
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import DEFAULT_MEMORY
from reid_dist.engine.task_graph import Progress, TaskGraph, execute
from reid_dist.stages.neighbours.directed import QueryLists, merge_query_task, query_tile_task
from reid_dist.stages.neighbours.items import Items
from reid_dist.stages.neighbours.plan import choose_block_rows, rows_of_a_tile
from reid_dist.stages.neighbours.symmetric import NeighbourLists, merge_task, tile_task
from reid_dist.stores import FeatureSet, Stage, Workspace
from reid_dist.stores.locks import in_turn

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Resources:
    """Execution of stages: workspace, client, threads and memory.

    Attributes
    ----------
    workspace
        Workspace that keeps finished blocks.
    client
        Client of a Dask cluster, or None for threads of this process.
    n_threads
        Number of threads of all workers together.
    memory_per_thread
        Memory limit of one task, in bytes.
    chunk_rows
        Rows of a tile; None for the default.
    progress
        Callback for finished tasks.
    """

    workspace: Workspace
    client: Client | None
    n_threads: int
    progress: Progress
    memory_per_thread: int = DEFAULT_MEMORY
    chunk_rows: int | None = None

    def run(self, graph: TaskGraph) -> None:
        """Run a task graph; nothing if all of its tasks are finished."""
        if graph.finals:
            execute(graph, self.client, self.n_threads, self.progress)

    def block_rows(self, n_items: int, dim: int, k: int) -> int:
        """Rows of a block of a neighbour search; see `choose_block_rows`."""
        return choose_block_rows(n_items, dim, k, self.n_threads, self.memory_per_thread, self.chunk_rows)

    @property
    def tile_rows(self) -> int:
        """Rows and columns of a tile."""
        return rows_of_a_tile(self.chunk_rows)


def find_neighbours(items: Items, distance: Distance, k: int, where: Resources) -> NeighbourLists:
    """Find the k nearest items of every item, itself first, and its largest distance; finished lists are reused.

    Parameters
    ----------
    items
        Rows of one feature set, or of queries and gallery.
    distance
        Distance between items.
    k
        Length of a list, the item itself counted; longer finished lists of the workspace are accepted.
    where
        Execution, and the workspace that keeps the lists.

    Raises
    ------
    RunFailedError, StoreError, PlanError
        If it cannot be done.
    """
    # A list of length 1 holds no neighbour; length 2 costs no more.
    k = max(2, k)
    of = fingerprint(items.identity, distance.name)
    ready = _longer_lists(items, distance, k, of, where.workspace)
    if ready is not None:
        return ready
    plan: dict[str, Any] = {
        "k": k,
        "block_rows": where.block_rows(items.n_items, items.dim, k),
        "tile_rows": where.tile_rows,
        "distance": distance.name,
        "n_items": items.n_items,
        "of": of,
    }
    stage = where.workspace.stage("neighbours", [of, k], plan)
    with in_turn(stage.path, where.progress.warn):
        return _find(items, distance, k, stage, where)


def _find(items: Items, distance: Distance, k: int, stage: Stage, where: Resources) -> NeighbourLists:
    """Compute the blocks that a stage lacks, and remove its tiles."""
    # An interrupted run may have used other blocks; its finished parts are reused.
    plan = stage.description
    lists = NeighbourLists(stage, items, distance, k, plan["block_rows"], plan["tile_rows"])
    graph = TaskGraph()
    at = fingerprint(stage.path)[:12]

    def tile(first: int, second: int) -> list[str]:
        """Add the task of a pair of blocks, after the tasks of each block with itself, unless it is finished."""
        key = f"neighbours-{at}-{first}-{second}"
        if key not in graph.tasks:
            if stage.has(lists.tile_part(first, second)):
                return []
            own = [] if first == second else [*tile(first, first), *tile(second, second)]
            graph.add(key, tile_task, lists, first, second, own, stage="neighbours")
        return [key]

    for block in range(lists.n_blocks):
        if not stage.has(lists.block_part(block)):
            others = [tile(min(block, other), max(block, other)) for other in range(lists.n_blocks)]
            tiles = [key for keys in others for key in keys]
            graph.finals.append(graph.add(f"lists-{at}-{block}", merge_task, lists, block, tiles))
    where.run(graph)
    for first in range(lists.n_blocks):
        for second in range(first, lists.n_blocks):
            stage.remove(lists.tile_part(first, second))
    return lists


def _longer_lists(items: Items, distance: Distance, k: int, of: str, workspace: Workspace) -> NeighbourLists | None:
    """Finished lists of the same items with at least k entries; None if there are none."""
    for stage in workspace.stages("neighbours"):
        plan = stage.description
        if plan.get("of") == of and plan["k"] >= k:
            lists = NeighbourLists(stage, items, distance, plan["k"], plan["block_rows"], plan["tile_rows"])
            if lists.is_complete:
                return lists
    return None


def find_query_neighbours(
    query: FeatureSet, gallery: FeatureSet, distance: Distance, k: int, where: Resources
) -> QueryLists:
    """Find the nearest gallery items of every query, the query itself first; finished lists are reused."""
    k = max(2, k)
    of = fingerprint(query.content_digest, gallery.content_digest, distance.name)

    def lists_of(stage: Stage) -> QueryLists:
        plan = stage.description
        sizes = (plan[name] for name in ("k", "block_rows", "gallery_rows", "tile_rows"))
        return QueryLists(stage, query, gallery, distance, *sizes)

    for ready in where.workspace.stages("query_neighbours"):
        if ready.description.get("of") == of and ready.description["k"] >= k and lists_of(ready).is_complete:
            return lists_of(ready)
    sizes = (where.block_rows(n, gallery.dim, k) for n in (query.n_rows, gallery.n_rows))
    plan: dict[str, Any] = {
        "k": k,
        **dict(zip(("block_rows", "gallery_rows"), sizes, strict=True)),
        "tile_rows": where.tile_rows,
        "distance": distance.name,
        "n_query": query.n_rows,
        "n_gallery": gallery.n_rows,
        "of": of,
    }
    lists = lists_of(where.workspace.stage("query_neighbours", [of, k], plan))
    with in_turn(lists.stage.path, where.progress.warn):
        return _find_of_queries(lists, where)


def _find_of_queries(lists: QueryLists, where: Resources) -> QueryLists:
    """Compute the blocks that a stage lacks, and remove its tiles."""
    graph = TaskGraph()
    at = fingerprint(lists.stage.path)[:12]
    tiles: list[tuple[int, int]] = []
    for block in range(lists.n_blocks):
        if lists.stage.has(lists.block_part(block)):
            continue
        pairs = [(block, other) for other in range(len(lists.gallery_blocks))]
        keys = [
            graph.add(f"query-neighbours-{at}-{near}-{far}", query_tile_task, lists, near, far, stage="neighbours")
            for near, far in pairs
            if not lists.stage.has(lists.tile_part(near, far))
        ]
        graph.finals.append(graph.add(f"query-lists-{at}-{block}", merge_query_task, lists, block, keys))
        tiles += pairs
    where.run(graph)
    for near, far in tiles:
        lists.stage.remove(lists.tile_part(near, far))
    return lists
