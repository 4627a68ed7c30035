"""Projection of an expansion from shapes alone: searches, arithmetic, task memory and workspace size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reid_dist.engine.plan import SetShape, make_plan
from reid_dist.stages.expansion.definition import Expansion
from reid_dist.stages.expansion.stage import averaged_rows
from reid_dist.stages.neighbours.plan import block_bytes, choose_block_rows

# Bytes of a neighbour in the tables from which rows are averaged: row number, weight, distance, and copies.
_BYTES_PER_NEIGHBOUR = 48


@dataclass(frozen=True, slots=True)
class ExpandPlan:
    """Blocks, tasks and memory of one expansion step.

    Attributes
    ----------
    step
        Expansion step.
    both_ways
        Whether items are compared among themselves, so that each pair is computed once for both of its items.
    n_items
        Number of rows with a neighbour list: queries, gallery rows, or both.
    k
        Length of a neighbour list.
    block_rows, n_tasks
        Rows of a block of the search; pairs of blocks, one task each.
    n_blocks
        Blocks that each row is compared with, one list each, if `both_ways`.
    n_pairs
        Number of pairs of rows whose product is computed.
    flop
        Floating-point operations of these products.
    average_tasks
        Number of averaging tasks.
    task_bytes
        Projected peak of one task of either kind, in bytes.
    workspace_bytes
        Largest workspace size of this step, in bytes: lists, or lists, averages and the new store.
    store_bytes
        Workspace size after the step, in bytes: features of the new store, and lists.
    """

    step: Expansion
    both_ways: bool
    n_items: int
    k: int
    block_rows: int
    n_blocks: int
    n_tasks: int
    n_pairs: int
    flop: int
    average_tasks: int
    task_bytes: int
    workspace_bytes: int
    store_bytes: int


def plan_expand(
    query: SetShape,
    gallery: SetShape,
    steps: Sequence[Expansion],
    *,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None = None,
) -> list[ExpandPlan]:
    """Plan every step once, whatever its number of repetitions; steps that leave features unchanged are omitted.

    Parameters
    ----------
    query, gallery
        Shapes of the two sets.
    steps
        Expansion steps, in order.
    n_threads, memory_per_thread, chunk_rows
        As in `reid_dist.engine.plan.make_plan`.

    Raises
    ------
    PlanError
        If a task exceeds `memory_per_thread`.
    """
    plans = []
    for step in steps:
        if not step.changes_nothing:
            plans.append(_plan_step(query, gallery, step, n_threads, memory_per_thread, chunk_rows))
    return plans


def _plan_step(
    query: SetShape, gallery: SetShape, step: Expansion, n_threads: int, memory_per_thread: int, chunk_rows: int | None
) -> ExpandPlan:
    method, dim = step.method, gallery.dim
    both_ways = method.among_all or method.expands_gallery
    n_query = query.n_rows if method.expands_query else 0
    n_gallery = gallery.n_rows if method.expands_gallery else 0
    n_items = n_query + n_gallery
    if both_ways:
        k = max(2, step.n_others + 1)
        block_rows = choose_block_rows(n_items, dim, k, n_threads, memory_per_thread, chunk_rows)
        n_blocks = -(-n_items // block_rows)
        n_tasks, n_pairs = n_blocks * (n_blocks + 1) // 2, n_items * (n_items + 1) // 2
        search, listed, pieces = block_bytes(block_rows, dim, k), 12 * k + 8, n_blocks * (12 * (k - 1) + 8)
    else:
        k = min(step.k, gallery.n_rows)
        plan = make_plan(
            query, gallery, n_threads=n_threads, memory_per_thread=memory_per_thread, chunk_rows=chunk_rows, k=k
        )
        block_rows, n_blocks, n_tasks = plan.gallery_block, plan.n_gallery_blocks, plan.n_tasks
        n_pairs, search, listed, pieces = query.n_rows * gallery.n_rows, plan.task_bytes, 16 * k, 0
    rows = [averaged_rows(n, dim, step, n_threads) for n in (n_query, n_gallery) if n]
    chunk = 4 * dim * max(query.chunk_rows, gallery.chunk_rows)
    averaging = max(rows) * (4 * dim * (step.n_others + 4) + _BYTES_PER_NEIGHBOUR * step.n_others) + chunk
    new = 4 * n_items * dim
    return ExpandPlan(
        step=step,
        both_ways=both_ways,
        n_items=n_items,
        k=k,
        block_rows=block_rows,
        n_blocks=n_blocks,
        n_tasks=n_tasks,
        n_pairs=n_pairs,
        flop=2 * n_pairs * dim,
        average_tasks=sum(-(-n // each) for n, each in zip(filter(None, (n_query, n_gallery)), rows, strict=True)),
        task_bytes=max(search, averaging),
        workspace_bytes=n_items * listed + max(n_items * pieces, 2 * new),
        store_bytes=n_items * listed + new,
    )
