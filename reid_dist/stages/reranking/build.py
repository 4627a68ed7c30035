"""The stages of re-ranking, run in order: neighbour lists, rows of weights, means of them; what is there is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reid_dist.core.fingerprint import fingerprint
from reid_dist.engine.checks import check_sets
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import DEFAULT_MEMORY, readable_bytes, rounded_up
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.task_graph import Progress, TaskGraph, execute
from reid_dist.errors import PlanError
from reid_dist.stages.reranking.definition import KReciprocal
from reid_dist.stages.reranking.inductive import QueryLists, merge_query_task, place_task, query_tile_task
from reid_dist.stages.reranking.items import Items
from reid_dist.stages.reranking.neighbours import MOST_SEEDS, NeighbourLists, merge_task, tile_task
from reid_dist.stages.reranking.scorer import Mix, RerankedScorer
from reid_dist.stages.reranking.weights import Weighing, WeightRows, mean_task, weigh_task
from reid_dist.stores import FeatureSet, Stage, Workspace

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Resources", "find_neighbours", "make_weights", "rerank_scorer"]

_TILE_ROWS = 1024
_MOST_BLOCK_ROWS = 65536
# Blocks per root of a thread: enough pairs of blocks to keep all threads busy to the end.
_BLOCKS_PER_ROOT = 3


@dataclass(frozen=True)
class Resources:
    """Where stages run.

    Attributes
    ----------
    workspace
        Where they are kept.
    client
        A cluster, or None for threads of this process.
    n_threads
        Threads of all workers together.
    memory_per_thread
        Bytes that one task may fill.
    chunk_rows
        Rows of a tile; None for a choice.
    progress
        Told of finished tasks.
    """

    workspace: Workspace
    client: Client | None
    n_threads: int
    progress: Progress
    memory_per_thread: int = DEFAULT_MEMORY
    chunk_rows: int | None = None


def block_bytes(block_rows: int, dim: int, k: int) -> int:
    """Projected peak of a task that compares two blocks."""
    features = 2 * block_rows * dim * 8
    lists = 2 * block_rows * ((2 * k + 64) * 8 + 40 * k + 64)
    # What one of them has found so far, as read, put together and sorted; the other's is gone by then.
    found = 3 * MOST_SEEDS * block_rows * k * 8
    return features + max(lists, found) + 16 * _TILE_ROWS * _TILE_ROWS + 8 * _TILE_ROWS * dim


def choose_block_rows(
    n_items: int, dim: int, k: int, n_threads: int, memory_per_thread: int, chunk_rows: int | None
) -> int:
    """Rows of a block: as many as fit, and few enough that all threads have work.

    Raises
    ------
    PlanError
        If not even a tile fits.
    """
    tile = _TILE_ROWS if chunk_rows is None else chunk_rows
    fewest = max(2, math.ceil(_BLOCKS_PER_ROOT * math.sqrt(n_threads)))
    # Of up to twice as many, those whose pairs take all threads to the end; fewer are read less often.
    n_blocks = min(range(fewest, 2 * fewest), key=lambda n: rounded_up(n * (n + 1) // 2, n_threads) / (n * (n + 1)))
    rows = max(tile, min(_MOST_BLOCK_ROWS, -(-n_items // n_blocks)))
    while block_bytes(rows, dim, k) > memory_per_thread and rows > 64:
        rows = max(64, rows // 2)
    needed = block_bytes(rows, dim, k)
    if needed > memory_per_thread:
        raise PlanError(
            f"a block of {rows} items x {dim} features with {k} neighbours each needs {readable_bytes(needed)} and one "
            f"task may take {readable_bytes(memory_per_thread)}; give workers more memory per thread"
        )
    return rows


def find_neighbours(items: Items, distance: Distance, k: int, where: Resources) -> NeighbourLists:
    """Find the k nearest items of every item, itself first, and how far its farthest is, unless that is there already.

    Parameters
    ----------
    items
        Of what.
    distance
        By what.
    k
        Length of a list, the item itself counted; longer lists that are there will do as well.
    where
        Where to run, and where to keep them.

    Raises
    ------
    RunFailedError, StoreError, PlanError
        If it cannot be done.
    """
    # A list of one has no room for a neighbour; two cost nothing more.
    k = max(2, k)
    of = fingerprint(items.identity, distance.name)
    ready = _longer_lists(items, distance, k, of, where.workspace)
    if ready is not None:
        return ready
    plan: dict[str, Any] = {
        "k": k,
        "block_rows": choose_block_rows(
            items.n_items, items.dim, k, where.n_threads, where.memory_per_thread, where.chunk_rows
        ),
        "tile_rows": where.chunk_rows or _TILE_ROWS,
        "distance": distance.name,
        "n_items": items.n_items,
        "of": of,
    }
    stage = where.workspace.stage("neighbours", [of, k], plan)
    # An earlier run may have cut the items otherwise; what it has finished counts.
    plan = stage.description
    lists = NeighbourLists(stage, items, distance, k, plan["block_rows"], plan["tile_rows"])
    graph = TaskGraph()
    at = fingerprint(stage.path)[:12]

    def tile(first: int, second: int) -> list[str]:
        """Add a pair of blocks, after what each finds among itself, unless that is done."""
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
    _run(graph, where)
    for first in range(lists.n_blocks):
        for second in range(first, lists.n_blocks):
            stage.remove(lists.tile_part(first, second))
    return lists


def _longer_lists(items: Items, distance: Distance, k: int, of: str, workspace: Workspace) -> NeighbourLists | None:
    """Lists of the same items that are finished and long enough."""
    for stage in workspace.stages("neighbours"):
        plan = stage.description
        if plan.get("of") == of and plan["k"] >= k:
            lists = NeighbourLists(stage, items, distance, plan["k"], plan["block_rows"], plan["tile_rows"])
            if lists.is_complete:
                return lists
    return None


def make_weights(lists: NeighbourLists, how: Weighing, k2: int, where: Resources) -> tuple[WeightRows, WeightRows]:
    """Make rows of weights, and their means over the first `k2` items of each list.

    Returns
    -------
    Rows before and after the mean; the same ones when `k2` is 1.

    Raises
    ------
    RunFailedError, StoreError
        If it cannot be done.
    """
    identity: list[Any] = [lists.items.identity, lists.distance.name, lists.block_rows, how]
    weights = WeightRows(where.workspace.stage("weights", identity, {"lists": _name_of(lists.stage)}), lists)
    _fill(weights, "weights", weigh_task, (weights, lists, how), where)
    if k2 == 1:
        return weights, weights
    means = WeightRows(
        where.workspace.stage("means", [*identity, k2], {"weights": _name_of(weights.stage), "k2": k2}), lists
    )
    _fill(means, "means", mean_task, (means, weights, k2, how.n_near), where)
    return weights, means


def _name_of(stage: Stage) -> str:
    """Name of a stage in its workspace: a workspace may be moved, and its parts stay what they are."""
    return stage.path.rpartition("/")[2]


def _fill(rows: WeightRows, stage: str, task: Any, arguments: tuple[Any, ...], where: Resources) -> None:
    """Make the blocks of rows that are missing."""
    graph = TaskGraph()
    at = fingerprint(rows.stage.path)[:12]
    for block in range(rows.lists.n_blocks):
        if not rows.stage.has(rows.part(block)):
            graph.finals.append(graph.add(f"{stage}-{at}-{block}", task, *arguments, block, stage=stage))
    _run(graph, where)


def _run(graph: TaskGraph, where: Resources) -> None:
    if graph.finals:
        execute(graph, where.client, where.n_threads, where.progress)


def rerank_scorer(
    query: FeatureSet, gallery: FeatureSet, distance: Distance, spec: KReciprocal, where: Resources
) -> RerankedScorer:
    """Run all stages of a re-ranking.

    Parameters
    ----------
    query, gallery
        The two sides, where all workers see them.
    distance
        The distance asked for.
    spec
        The re-ranking.
    where
        Where to run.

    Returns
    -------
    The scorer of the re-ranked distance.

    Raises
    ------
    InputError
        For zero rows, where the graph goes by directions and the distance does not.
    RunFailedError, StoreError, PlanError
        If it cannot be done.
    """
    graph_distance = spec.graph_distance(distance)
    check_sets(query, gallery, graph_distance)
    how, mix = weighing(spec, graph_distance), mixing(spec, graph_distance)
    plain = FeatureScorer(query, gallery, spec.mixed_distance(distance))
    inductive = spec.mode == "inductive"
    items = Items((gallery,) if inductive else (query, gallery))
    lists = find_neighbours(items, graph_distance, max(spec.n_near, spec.n_half), where)
    weights, rows = make_weights(lists, how, spec.k2, where)
    if not inductive:
        return RerankedScorer(plain, rows, rows, lists, query.n_rows, items.n_items, mix)
    query_lists = _rank_queries(query, gallery, graph_distance, spec.n_near, where)
    query_rows = _place_queries(query_lists, lists, weights, how, spec.k2, where)
    # One column more: every query's own, which no row of the gallery has.
    return RerankedScorer(plain, query_rows, rows, query_lists, 0, items.n_items + 1, mix)


def _rank_queries(query: FeatureSet, gallery: FeatureSet, distance: Distance, k: int, where: Resources) -> QueryLists:
    """Find the nearest gallery items of every query, the query itself first, unless that is there already."""
    k = max(2, k)
    of = fingerprint(query.content_digest, gallery.content_digest, distance.name)

    def lists_of(stage: Stage) -> QueryLists:
        plan = stage.description
        sizes = (plan[name] for name in ("k", "block_rows", "gallery_rows", "tile_rows"))
        return QueryLists(stage, query, gallery, distance, *sizes)

    for ready in where.workspace.stages("query_neighbours"):
        if ready.description.get("of") == of and ready.description["k"] >= k and lists_of(ready).is_complete:
            return lists_of(ready)
    sizes = (
        choose_block_rows(n, gallery.dim, k, where.n_threads, where.memory_per_thread, where.chunk_rows)
        for n in (query.n_rows, gallery.n_rows)
    )
    plan: dict[str, Any] = {
        "k": k,
        **dict(zip(("block_rows", "gallery_rows"), sizes, strict=True)),
        "tile_rows": where.chunk_rows or _TILE_ROWS,
        "distance": distance.name,
        "n_query": query.n_rows,
        "n_gallery": gallery.n_rows,
        "of": of,
    }
    lists = lists_of(where.workspace.stage("query_neighbours", [of, k], plan))
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
    _run(graph, where)
    for near, far in tiles:
        lists.stage.remove(lists.tile_part(near, far))
    return lists


def _place_queries(
    lists: QueryLists, gallery: NeighbourLists, weights: WeightRows, how: Weighing, k2: int, where: Resources
) -> WeightRows:
    """Make the rows of weights of all queries, each beside the gallery alone, unless they are there."""
    identity = [lists.query.content_digest, lists.gallery.content_digest, lists.distance.name, lists.block_rows]
    description = {"lists": _name_of(lists.stage), "gallery_weights": _name_of(weights.stage), "k2": k2}
    means = WeightRows(where.workspace.stage("query_weights", [*identity, how, k2], description), lists)
    _fill(means, "weights", place_task, (means, lists, gallery, weights, how, k2), where)
    return means


def mixing(spec: KReciprocal, graph_distance: Distance) -> Mix:
    """How a re-ranking mixes the Jaccard distance with the plain one."""
    rules = spec.rules
    return Mix(
        weight=spec.lambda_value,
        squares=rules.squares,
        by_row_maximum=rules.by_row_maximum,
        # Twice a cosine distance is the square of the distance between rows of length 1.
        divisor=1.0 if rules.mixes_plain or graph_distance.name != "cosine" else 0.5,
        normalised=rules.normalised,
        clipped=rules.clipped,
    )


def weighing(spec: KReciprocal, graph_distance: Distance) -> Weighing:
    """How a re-ranking weighs neighbours."""
    rules = spec.rules
    return Weighing(
        n_near=spec.n_near,
        n_half=spec.n_half,
        inclusive=spec.two_thirds_will_do,
        normalised=rules.normalised,
        binary=spec.weights == "binary",
        factor=2.0 if graph_distance.name == "cosine" else 1.0,
        by_row_maximum=rules.by_row_maximum,
        squares=rules.squares,
    )
