"""Neighbour searches as stages of a workspace: finished blocks are kept and reused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reid_dist.core.fingerprint import fingerprint
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.graph import run_job
from reid_dist.engine.jobs import SearchJob
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.plan import make_plan
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.stages.neighbours.items import Items, forget_blocks
from reid_dist.stages.neighbours.lists import NeighbourLists
from reid_dist.stages.neighbours.plan import choose_block_rows, choose_two_block_rows, rows_of_a_tile
from reid_dist.stages.neighbours.resources import Resources
from reid_dist.stages.neighbours.tasks import Search, merge_task, tile_task
from reid_dist.stores import FeatureSet, Stage, Workspace
from reid_dist.stores.locks import in_turn

# Rows of a block of lists that are found in the task graph of an evaluation.
_TOP_BLOCK_ROWS = 65536


def find_neighbours(
    items: Items, distance: Distance, k: int, where: Resources, *, farthest: bool = True
) -> NeighbourLists:
    """Find the `k` nearest items of every item, itself first, and its largest distance; finished lists are reused.

    `k` counts the item itself; longer finished lists of the workspace are accepted.  Without `farthest`, largest
    distances are not searched for.
    """
    of = fingerprint(items.identity, distance.name)
    return _find("neighbours", of, (items, None), distance, k, {"n_items": items.n_items}, where, farthest=farthest)


def find_query_neighbours(
    query: FeatureSet, gallery: FeatureSet, distance: Distance, k: int, where: Resources
) -> NeighbourLists:
    """Find the `k` nearest gallery items of every query, the query itself first, as `find_neighbours` does."""
    of = fingerprint(query.content_digest, gallery.content_digest, distance.name)
    sizes = {"n_query": query.n_rows, "n_gallery": gallery.n_rows}
    return _find("query_neighbours", of, (Items((query,)), Items((gallery,))), distance, k, sizes, where)


def _find(
    kind: str,
    of: str,
    sides: tuple[Items, Items | None],
    distance: Distance,
    k: int,
    sizes: dict[str, int],
    where: Resources,
    *,
    farthest: bool = True,
) -> NeighbourLists:
    """Finished lists of a kind of stage, or new ones; `of` identifies items and distance.

    `sides` are items and candidates; None for items among themselves.
    """
    # A list of length 1 holds no neighbour; length 2 costs no more.
    k = max(2, k)
    items, candidates = sides[0], sides[1] or sides[0]
    is_symmetric = sides[1] is None

    def lists_of(stage: Stage) -> NeighbourLists:
        plan = stage.description
        return NeighbourLists(
            stage,
            items,
            candidates,
            distance,
            plan["k"],
            plan["block_rows"],
            is_symmetric,
            has_farthest=plan.get("farthest", True),
        )

    ready = _ready(kind, of, k, lists_of, where.workspace, farthest=farthest)
    if ready is not None:
        return ready
    limits = where.n_threads, where.memory_per_thread, where.chunk_rows
    on_device = where.policy.expects_device(items.n_items * candidates.n_items * items.dim)
    if is_symmetric:
        rows = (choose_block_rows(items.n_items, items.dim, k, *limits, on_device=on_device), 0)
    else:
        rows = choose_two_block_rows((items.n_items, candidates.n_items), items.dim, k, *limits, on_device=on_device)
    plan: dict[str, Any] = {
        "k": k,
        "block_rows": rows[0],
        **({} if is_symmetric else {"gallery_rows": rows[1]}),
        "tile_rows": rows_of_a_tile(where.chunk_rows),
        "distance": distance.name,
        **({} if farthest else {"farthest": False}),
        **sizes,
        "of": of,
    }
    identity = [of, k, *([] if farthest else ["nearest alone"])]
    lists = lists_of(where.workspace.stage(kind, identity, plan))
    # An interrupted run may have used other blocks; its finished parts are reused.
    plan = lists.stage.description
    with in_turn(lists.stage.path, where.progress.warn):
        _compute(Search(lists, plan.get("gallery_rows", lists.block_rows), plan["tile_rows"], where.policy), where)
    return lists


def _ready(
    kind: str,
    of: str,
    k: int,
    lists_of: Callable[[Stage], NeighbourLists],
    workspace: Workspace,
    *,
    farthest: bool = False,
) -> NeighbourLists | None:
    """Finished lists of the same items with at least k entries, with largest distances if wanted; None without any."""
    for stage in workspace.stages(kind):
        found = stage.description
        if found.get("of") == of and found["k"] >= k and "block_rows" in found:
            lists = lists_of(stage)
            if lists.is_complete and (lists.has_farthest or not farthest):
                return lists
    return None


def _compute(search: Search, where: Resources) -> None:
    """Compute the blocks of lists that a stage lacks, and remove its tiles."""
    lists = search.lists
    stage = lists.stage
    graph = TaskGraph()
    at = fingerprint(stage.path)[:12]
    parts = set()

    def tile(first: int, second: int) -> list[str]:
        """Add the task of a pair of blocks, after the tasks of each block with itself, unless it is finished."""
        key = f"neighbours-{at}-{first}-{second}"
        if key not in graph.tasks:
            if stage.has(search.part(first, second)):
                return []
            seeded = lists.is_symmetric and first != second
            before = [*tile(first, first), *tile(second, second)] if seeded else []
            graph.add(key, tile_task, search, first, second, before, stage="neighbours")
        return [key]

    for block in range(lists.n_blocks):
        pairs = [search.pair(block, other) for other in range(len(search.candidate_blocks))]
        parts |= {search.part(*pair) for pair in pairs}
        if not stage.has(lists.block_part(block)):
            tiles = [key for pair in pairs for key in tile(*pair)]
            # A pair of blocks is of both: the first of them counts it.
            counted = [key for pair in pairs if pair[0] == block for key in tile(*pair)]
            graph.finals.append(graph.add(f"lists-{at}-{block}", merge_task, search, block, tiles, counted))
    try:
        where.run(graph)
    finally:
        forget_blocks()
    for part in sorted(parts):
        stage.remove(part)


def find_top_lists(query: FeatureSet, gallery: FeatureSet, k: int, where: Resources) -> NeighbourLists:
    """Find the `k` nearest gallery rows of every query by cosine distance, without the query itself.

    Finished lists of length k or more are reused.
    """
    k = min(k, gallery.n_rows)
    cosine = DISTANCES.get("cosine")
    of = fingerprint(query.content_digest, gallery.content_digest)
    sides = Items((query,)), Items((gallery,))

    def lists_of(stage: Stage) -> NeighbourLists:
        plan = stage.description
        return NeighbourLists(stage, *sides, cosine, plan["k"], plan["block_rows"], own_first=False)

    ready = _ready("toplists", of, k, lists_of, where.workspace)
    if ready is not None:
        return ready
    stage = where.workspace.stage("toplists", [of, k], {"of": of, "k": k, "block_rows": _TOP_BLOCK_ROWS})
    lists = lists_of(stage)
    scorer = FeatureScorer(query, gallery, cosine)
    plan = make_plan(
        *scorer.shapes,
        n_threads=where.n_threads,
        memory_per_thread=where.memory_per_thread,
        chunk_rows=where.chunk_rows,
        besides=NearestRows(k).memory,
        policy=where.policy,
    )
    job = SearchJob(query, gallery, scorer, plan, (NearestRows(k),), policy=where.policy)
    nearest = run_job(job, where).of(NearestRows)
    for block in range(lists.n_blocks):
        rows = lists.rows(block)
        here = slice(rows.start, rows.stop)
        stage.write(lists.block_part(block), {"index": nearest.index[here], "distance": nearest.distance[here]})
    return lists
