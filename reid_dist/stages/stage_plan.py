"""Plans of re-rankings and expansions from shapes alone: tasks and costs of their stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

from reid_dist.core.formatting import byte_size
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.plan import MERGED_AT_ONCE, SetShape, make_plan
from reid_dist.errors import PlanError
from reid_dist.stages.expansion.expansion_steps import (
    Convolution,
    Expansion,
    LearnedMap,
    Normalisation,
    Step,
    Treatment,
)
from reid_dist.stages.expansion.learned_maps import SUMMED_ROWS, summed_together
from reid_dist.stages.expansion.new_features import GATHERED_BYTES, feature_blocks
from reid_dist.stages.items import PAIR_ROWS
from reid_dist.stages.reranking.rerankers import BYTES_PER_ENTRY, Reranking, RowSizes
from reid_dist.stages.reranking.top import GATHERED_BYTES as HEAD_BYTES
from reid_dist.stages.reranking.top import Top, queries_of_a_part
from reid_dist.stages.search_plan import (
    Cost,
    SearchPlan,
    block_bytes,
    choose_two_block_rows,
    list_bytes,
    plan_search,
)

# Bytes of a neighbour in the tables from which rows are averaged: row number, weight, distance, and copies.
_BYTES_PER_NEIGHBOUR = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """Blocks, tasks and costs of the stages of a re-ranking, or of all repetitions of one step of an expansion."""

    # Neighbour search: of queries and gallery; of the gallery alone in the inductive mode of a re-ranking; or of the
    # gallery rows next to each query.  None for a step without one.
    search: SearchPlan | None
    # Pairs of blocks, one task each, those of queries with the gallery in the inductive mode included.
    n_tasks: int
    # Tasks for rows of the stages after the search.
    row_tasks: int
    # Costs of the lists, and of all stages.
    lists: Cost
    cost: Cost
    # Sparse rows of the stages after the lists, in their order.
    rows: tuple[RowSizes, ...] = ()
    # What makes a re-ranking costly or pointless.
    warnings: tuple[str, ...] = ()
    # Neighbour search among a query and its nearest gallery rows, one for each query, where these are re-ranked alone.
    head: SearchPlan | None = None
    step: Step | None = None

    @property
    def times(self) -> int:
        """Repetitions of the step."""
        return 1 if self.step is None else self.step.times

    @property
    def n_compared(self) -> int:
        """Length of the lists in which pairs are compared for both sides; 0 without any."""
        search = self.head or self.search
        return 0 if search is None else search.k


# ---- re-rankings -----------------------------------------------------------------------------------------------------


def plan_rerank(
    query: SetShape,
    gallery: SetShape,
    spec: Reranking,
    *,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None = None,
) -> StagePlan:
    """Plan the stages of a re-ranking, which precede the tile loop.

    The limits are those of `reid_dist.engine.plan.make_plan`; raises `PlanError` if a task exceeds them.
    """
    limits: dict[str, Any] = {"n_threads": n_threads, "memory_per_thread": memory_per_thread}
    if isinstance(spec, Top):
        return _plan_heads(query, gallery, spec, limits, chunk_rows)
    n_lists, dim = query.n_rows + gallery.n_rows, gallery.dim
    # In the inductive mode the graph is that of the gallery; queries are compared with it in a further search.
    n_items = gallery.n_rows if spec.gallery_alone else n_lists
    search = plan_search(n_items, dim, spec.n_listed, **limits, chunk_rows=chunk_rows, itemsize=gallery.itemsize)
    of_queries, n_tasks = Cost(), search.n_tasks
    if spec.gallery_alone:
        flop = 2 * query.n_rows * gallery.n_rows * dim
        of_queries = Cost(flop=flop, kept=list_bytes(query.n_rows, search.k))
        n_tasks += search.n_blocks * -(-query.n_rows // search.block_rows)
    lists = of_queries + search.cost
    compared = spec.compared_features(dim)
    stored = n_lists * compared * 4 if compared != dim else 0
    rows_at_once = min(search.block_rows, spec.most_block_rows)
    held = int(3 * rows_at_once * spec.kept_bytes(n_items)) + spec.held(n_items, gallery.n_rows).bytes_per_task
    rows = Cost(
        task_bytes=4 * n_items * search.k + n_items + 2 * PAIR_ROWS * dim * 4 + held,
        kept=int(n_lists * spec.kept_bytes(n_items)) + stored,
    )
    return StagePlan(
        search=search,
        n_tasks=n_tasks,
        row_tasks=spec.n_stages * -(-n_items // rows_at_once),
        lists=lists,
        cost=lists + rows,
        rows=spec.row_sizes(n_items),
        warnings=spec.warnings(n_items),
    )


def _plan_heads(
    query: SetShape, gallery: SetShape, spec: Top, limits: dict[str, Any], chunk_rows: int | None
) -> StagePlan:
    """Plan a re-ranking of the gallery rows next to each query alone."""
    m = min(spec.m, gallery.n_rows)
    n, dim, k = query.n_rows, gallery.dim, max(2, m + 1)
    rows, gallery_rows = choose_two_block_rows((n, gallery.n_rows), dim, k, chunk_rows=chunk_rows, **limits)
    n_blocks, n_gallery_blocks = -(-n // rows), -(-gallery.n_rows // gallery_rows)
    n_pairs, row_bytes = n * gallery.n_rows, dim * gallery.itemsize
    lists = Cost(
        flop=2 * n_pairs * dim,
        bytes_read=gallery.n_rows * n_blocks * row_bytes,
        task_bytes=block_bytes(rows, dim, k) + block_bytes(gallery_rows, dim, 2),
        kept=list_bytes(n, k),
        temporary=n_gallery_blocks * list_bytes(n, k - 1),
    )
    search = SearchPlan(n, k, rows, n_gallery_blocks, n_blocks * n_gallery_blocks, n_pairs, lists, both_ways=False)
    head = plan_search(m + 1, dim, spec.of.n_listed, **limits)
    heads = Cost(
        flop=n * head.cost.flop,
        bytes_read=n * m * row_bytes,
        task_bytes=HEAD_BYTES + head.cost.task_bytes + spec.graph_bytes(m),
        kept=n * (BYTES_PER_ENTRY * m + 8),
    )
    return StagePlan(
        search=search,
        n_tasks=search.n_tasks,
        row_tasks=-(-n // queries_of_a_part(n, limits["n_threads"])),
        lists=lists,
        cost=lists + heads,
        rows=spec.row_sizes(gallery.n_rows),
        warnings=spec.warnings(gallery.n_rows),
        head=head,
    )


# ---- expansions ------------------------------------------------------------------------------------------------------


def plan_expand(
    query: SetShape,
    gallery: SetShape,
    steps: Sequence[Step],
    *,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None = None,
) -> list[StagePlan]:
    """Plan every step; steps that leave features unchanged are omitted.

    The limits are those of `reid_dist.engine.plan.make_plan`; raises `PlanError` if a task exceeds them.
    """
    limits: dict[str, Any] = {"n_threads": n_threads, "memory_per_thread": memory_per_thread, "chunk_rows": chunk_rows}
    plans = []
    for step in steps:
        if step.changes_nothing:
            continue
        sides = zip((query, gallery), (step.method.expands_query, step.method.expands_gallery), strict=True)
        made = [shape for shape, expands in sides if expands]
        n_made = sum(shape.n_rows for shape in made)
        blocks = [feature_blocks(shape.n_rows, step.row_bytes(gallery.dim), n_threads) for shape in made]
        most_rows, chunk = max(each.block_rows for each in blocks), max(query.chunk_rows, gallery.chunk_rows)
        search: SearchPlan | None = None
        if isinstance(step, Expansion):
            search, lists, task_bytes = _plan_averages(query, gallery, step, n_made, most_rows, limits)
        elif isinstance(step, Convolution):
            search, lists, task_bytes = _plan_convolution(gallery.dim, step, n_made, most_rows, limits)
        elif isinstance(step, Treatment):
            lists, task_bytes = Cost(), step.row_bytes(gallery.dim) * most_rows
        else:
            lists, task_bytes = _plan_map(gallery, step, n_made, most_rows, chunk)
        # The blocks of new rows are there until the store is written.
        new = 4 * n_made * gallery.dim
        rows = Cost(task_bytes=task_bytes + 4 * gallery.dim * chunk, kept=new, temporary=new)
        cost = lists + rows
        if cost.task_bytes > memory_per_thread:
            raise PlanError(
                f"{step} needs {byte_size(cost.task_bytes)} for one task, and {byte_size(memory_per_thread)} are "
                "there; use fewer threads with more memory each"
            )
        plans.append(
            StagePlan(
                search=search,
                n_tasks=0 if search is None else search.n_tasks,
                row_tasks=sum(map(len, blocks)),
                lists=lists,
                # Lists and stores of every repetition stay.
                cost=reduce(add, [cost] * step.times),
                step=step,
            )
        )
    return plans


def _plan_averages(
    query: SetShape, gallery: SetShape, step: Expansion, n_items: int, block_rows: int, limits: dict[str, Any]
) -> tuple[SearchPlan, Cost, int]:
    """Plan the search of one repetition; return it, its cost, and the memory of a task that averages rows."""
    dim = gallery.dim
    if step.method.among_all or step.method.expands_gallery:
        search = plan_search(n_items, dim, step.n_others + 1, **limits)
    else:
        k, n_pairs = min(step.k, gallery.n_rows), query.n_rows * gallery.n_rows
        plan = make_plan(query, gallery, **limits, extra=NearestRows(k).memory)
        cost = Cost(flop=2 * n_pairs * dim, task_bytes=plan.task_bytes, kept=n_items * 16 * k)
        search = SearchPlan(
            n_items, k, plan.gallery_block, plan.n_gallery_blocks, plan.n_tasks, n_pairs, cost, both_ways=False
        )
    return search, search.cost, block_rows * (4 * dim * (step.n_others + 6) + _BYTES_PER_NEIGHBOUR * step.n_others)


def _plan_convolution(
    dim: int, step: Convolution, n_items: int, block_rows: int, limits: dict[str, Any]
) -> tuple[SearchPlan, Cost, int]:
    """Plan the searches of one round, one for each graph; return them as one, with sums, and the memory of a task."""
    searches = sorted((plan_search(n_items, dim, graph.k, **limits) for graph in step.graphs), key=lambda each: each.k)
    sums = Cost(kept=8 * n_items)
    lists = reduce(add, [*[sums] * len(searches), *(each.cost for each in searches)])
    search = replace(
        searches[-1],
        n_tasks=sum(each.n_tasks for each in searches),
        n_pairs=sum(each.n_pairs for each in searches),
    )
    # As often as an item lists others, it is listed by others on average.
    entries = (2 if step.symmetric else 1) * sum(graph.k for graph in step.graphs)
    gathered = 2 * min(GATHERED_BYTES, 4 * dim * block_rows * entries)
    return search, lists, block_rows * (12 * dim + _BYTES_PER_NEIGHBOUR * entries) + 8 * n_items + gathered


def _plan_map(gallery: SetShape, step: LearnedMap, n_made: int, block_rows: int, chunk: int) -> tuple[Cost, int]:
    """Plan as many groups as fit one task; how many cameras there are is known from labels alone.

    Returns the cost of statistics, and the memory of a task that maps rows.
    """
    dim, by_camera = gallery.dim, isinstance(step, Normalisation) and step.statistics == "per_camera"
    matrix = 8 * dim * dim if step.whitens else 0
    sums = (summed_together(dim, step.whitens) if by_camera else 1) * (matrix + 8 * dim)
    # Sums of some tasks wait to be merged; a solution holds a matrix, its factor, that one's inverse and the result.
    waiting = max((MERGED_AT_ONCE + 1) * sums, sums + 5 * matrix)
    statistics = Cost(
        flop=(gallery.n_rows + 2 * n_made) * dim * dim if step.whitens else 0,
        task_bytes=20 * dim * min(SUMMED_ROWS, gallery.n_rows) + 4 * dim * chunk + waiting,
        kept=sums,
    )
    return statistics, 24 * dim * block_rows + matrix
