"""Plan of an expansion from shapes alone: searches, arithmetic, task memory and workspace size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reid_dist.core.formatting import byte_size
from reid_dist.engine.outputs import NearestRows
from reid_dist.engine.plan import MERGED_AT_ONCE, SetShape, make_plan
from reid_dist.errors import PlanError
from reid_dist.stages.expansion.expansion_steps import Convolution, Expansion, LearnedMap, Normalisation, Step
from reid_dist.stages.neighbours.search_plan import SearchPlan, plan_search

# Bytes of a neighbour in the tables from which rows are averaged: row number, weight, distance, and copies.
_BYTES_PER_NEIGHBOUR = 48

GATHERED_BYTES = 128 << 20
"""Bytes of neighbour features that a task reads at once."""

_MOST_ROWS = 8192

SUMMED_ROWS = 8192
"""Gallery rows whose sums are made by one task; statistics depend on it, as sums in float64 do on their order."""

# Bytes of the sums of outer products that a task makes at once.
_SUMS_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class ExpandPlan:
    """Blocks, tasks and memory of one step."""

    step: Step
    # Whether items are compared among themselves, so that each pair is computed once for both of its items.
    both_ways: bool
    # Neighbour search of the step; None for a normalisation.
    search: SearchPlan | None
    # Floating-point operations of its products.
    flop: int
    # Number of tasks that make rows.
    average_tasks: int
    # Projected peak of one task of either kind, in bytes.
    task_bytes: int
    # Largest workspace size of this step, in bytes: lists, or lists, averages and the new store.
    workspace_bytes: int
    # Workspace size after the step, in bytes: features of the new store, and lists or statistics.
    store_bytes: int


def averaged_rows(n_rows: int, dim: int, step: Expansion, n_threads: int) -> int:
    """Rows per averaging task: bounded by the memory of neighbour features, and few enough to occupy all threads."""
    per_row = 4 * dim * (step.n_others + 2)
    return max(1, min(_MOST_ROWS, GATHERED_BYTES // per_row, -(-n_rows // n_threads)))


def mapped_block_rows(n_rows: int, dim: int, n_threads: int) -> int:
    """Rows per task of a normalisation: bounded by memory, and few enough to occupy all threads."""
    return max(1, min(_MOST_ROWS, GATHERED_BYTES // (24 * dim), -(-n_rows // n_threads)))


def convolved_rows(n_rows: int, dim: int, n_threads: int) -> int:
    """Rows per task of a convolution: bounded by the memory of sums, and few enough to occupy all threads."""
    return max(1, min(_MOST_ROWS, GATHERED_BYTES // (16 * dim), -(-n_rows // n_threads)))


def summed_together(dim: int, whitens: bool) -> int:
    """Groups whose sums are made by one task; each has a matrix of (dim, dim) where rows are whitened."""
    return max(1, _SUMS_BYTES // (8 * dim * (dim if whitens else 1)))


def plan_expand(
    query: SetShape,
    gallery: SetShape,
    steps: Sequence[Step],
    *,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None = None,
) -> list[ExpandPlan]:
    """Plan every step once, whatever its number of repetitions; steps that leave features unchanged are omitted.

    The limits are those of `reid_dist.engine.plan.make_plan`; raises `PlanError` if a task exceeds them.
    """
    plans = []
    for step in steps:
        if isinstance(step, Convolution):
            plan = _plan_convolution(query, gallery, step, n_threads, memory_per_thread, chunk_rows)
        elif not isinstance(step, Expansion):
            plan = _plan_map(query, gallery, step, n_threads, memory_per_thread)
        elif not step.changes_nothing:
            plan = _plan_step(query, gallery, step, n_threads, memory_per_thread, chunk_rows)
        else:
            continue
        # Lists and stores of every repetition stay.
        before = (step.times - 1) * plan.store_bytes
        plans.append(
            replace(plan, workspace_bytes=before + plan.workspace_bytes, store_bytes=before + plan.store_bytes)
        )
    return plans


def _refuse_task(step: Step, task_bytes: int, memory_per_thread: int) -> None:
    if task_bytes > memory_per_thread:
        raise PlanError(
            f"{step} needs {byte_size(task_bytes)} for one task, and {byte_size(memory_per_thread)} are there; use "
            "fewer threads with more memory each"
        )


def _plan_convolution(
    query: SetShape,
    gallery: SetShape,
    step: Convolution,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None,
) -> ExpandPlan:
    """Plan one round: a search for each graph, sums of weights, and sums of rows."""
    dim, n_items = gallery.dim, query.n_rows + gallery.n_rows
    searches = [
        plan_search(
            n_items, dim, graph.k, n_threads=n_threads, memory_per_thread=memory_per_thread, chunk_rows=chunk_rows
        )
        for graph in step.graphs
    ]
    search = replace(
        max(searches, key=lambda each: each.k),
        n_tasks=sum(each.n_tasks for each in searches),
        n_pairs=sum(each.n_pairs for each in searches),
        list_bytes=sum(each.list_bytes for each in searches),
    )
    blocks = [convolved_rows(shape.n_rows, dim, n_threads) for shape in (query, gallery)]
    # As often as an item lists others, it is listed by others on average.
    entries = (2 if step.symmetric else 1) * sum(graph.k for graph in step.graphs)
    gathered = 2 * min(GATHERED_BYTES, 4 * dim * max(blocks) * entries)
    chunk = 4 * dim * max(query.chunk_rows, gallery.chunk_rows)
    convolving = max(blocks) * (12 * dim + _BYTES_PER_NEIGHBOUR * entries) + 8 * n_items + gathered + chunk
    task_bytes = max(search.task_bytes, convolving)
    _refuse_task(step, task_bytes, memory_per_thread)
    new, kept = 4 * n_items * dim, search.list_bytes + 8 * n_items * len(searches)
    return ExpandPlan(
        step=step,
        both_ways=True,
        search=search,
        flop=2 * search.n_pairs * dim,
        average_tasks=sum(-(-shape.n_rows // rows) for shape, rows in zip((query, gallery), blocks, strict=True)),
        task_bytes=task_bytes,
        workspace_bytes=kept + max(search.tile_bytes, 2 * new),
        store_bytes=kept + new,
    )


def _plan_map(
    query: SetShape, gallery: SetShape, step: LearnedMap, n_threads: int, memory_per_thread: int
) -> ExpandPlan:
    """Plan for as many groups as fit one task; how many cameras there are is known from labels alone."""
    dim, by_camera = gallery.dim, isinstance(step, Normalisation) and step.statistics == "per_camera"
    whitens = not (isinstance(step, Normalisation) and step.operation == "centre")
    matrix = 8 * dim * dim if whitens else 0
    sums = (summed_together(dim, whitens) if by_camera else 1) * (matrix + 8 * dim)
    chunk = 4 * dim * max(query.chunk_rows, gallery.chunk_rows)
    # Sums of some tasks wait to be merged; a solution holds a matrix, its factor, that one's inverse and the result.
    summing = 20 * dim * min(SUMMED_ROWS, gallery.n_rows) + chunk + max((MERGED_AT_ONCE + 1) * sums, sums + 5 * matrix)
    blocks = [mapped_block_rows(shape.n_rows, dim, n_threads) for shape in (query, gallery)]
    mapping = 24 * dim * max(blocks) + chunk + matrix
    task_bytes = max(summing, mapping)
    _refuse_task(step, task_bytes, memory_per_thread)
    n_rows = query.n_rows + gallery.n_rows
    new = 4 * n_rows * dim
    return ExpandPlan(
        step=step,
        both_ways=False,
        search=None,
        flop=(gallery.n_rows + 2 * n_rows) * dim * dim if whitens else 0,
        average_tasks=sum(-(-shape.n_rows // rows) for shape, rows in zip((query, gallery), blocks, strict=True)),
        task_bytes=task_bytes,
        workspace_bytes=2 * new + sums,
        store_bytes=new + sums,
    )


def _plan_step(
    query: SetShape, gallery: SetShape, step: Expansion, n_threads: int, memory_per_thread: int, chunk_rows: int | None
) -> ExpandPlan:
    method, dim = step.method, gallery.dim
    both_ways = method.among_all or method.expands_gallery
    n_query = query.n_rows if method.expands_query else 0
    n_gallery = gallery.n_rows if method.expands_gallery else 0
    n_items = n_query + n_gallery
    if both_ways:
        search = plan_search(
            n_items,
            dim,
            step.n_others + 1,
            n_threads=n_threads,
            memory_per_thread=memory_per_thread,
            chunk_rows=chunk_rows,
        )
    else:
        k = min(step.k, gallery.n_rows)
        plan = make_plan(
            query,
            gallery,
            n_threads=n_threads,
            memory_per_thread=memory_per_thread,
            chunk_rows=chunk_rows,
            besides=NearestRows(k).memory,
        )
        search = SearchPlan(
            n_items=n_items,
            k=k,
            block_rows=plan.gallery_block,
            n_blocks=plan.n_gallery_blocks,
            n_tasks=plan.n_tasks,
            n_pairs=query.n_rows * gallery.n_rows,
            task_bytes=plan.task_bytes,
            list_bytes=n_items * 16 * k,
            tile_bytes=0,
        )
    rows = [averaged_rows(n, dim, step, n_threads) for n in (n_query, n_gallery) if n]
    chunk = 4 * dim * max(query.chunk_rows, gallery.chunk_rows)
    averaging = max(rows) * (4 * dim * (step.n_others + 6) + _BYTES_PER_NEIGHBOUR * step.n_others) + chunk
    new = 4 * n_items * dim
    return ExpandPlan(
        step=step,
        both_ways=both_ways,
        search=search,
        flop=2 * search.n_pairs * dim,
        average_tasks=sum(-(-n // each) for n, each in zip(filter(None, (n_query, n_gallery)), rows, strict=True)),
        task_bytes=max(search.task_bytes, averaging),
        workspace_bytes=search.list_bytes + max(search.tile_bytes, 2 * new),
        store_bytes=search.list_bytes + new,
    )
