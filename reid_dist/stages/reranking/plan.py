"""Plan of a re-ranking from shapes alone: tasks, arithmetic, task memory and workspace size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reid_dist.engine.plan import SetShape
from reid_dist.stages.neighbours.items import PAIR_ROWS
from reid_dist.stages.neighbours.search_plan import SearchPlan, block_bytes, choose_two_block_rows, plan_search
from reid_dist.stages.reranking.rerankers import BYTES_PER_ENTRY, Reranking, RowSizes
from reid_dist.stages.reranking.top import GATHERED_BYTES, Top, queries_of_a_part


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """Blocks, tasks and memory of the stages of a re-ranking."""

    # Neighbour search of the graph: of queries and gallery, or of the gallery alone in the inductive mode; or of the
    # gallery rows next to each query, where these are re-ranked alone.
    search: SearchPlan
    # Pairs of blocks, one task each, those of queries with the gallery in the inductive mode included.
    n_tasks: int
    # Tasks for rows of the stages.
    row_tasks: int
    # Floating-point operations of the products: two per pair and feature, each pair once.
    flop: int
    # Feature bytes read by all of these tasks.
    bytes_read: int
    # Projected peak of one task of any stage, in bytes, the neighbour table of the process included.
    task_bytes: int
    # Bytes of the neighbour lists, largest distances included.
    list_bytes: int
    # Rows of the stages after the lists, in their order, and the bytes that are kept of all of them.
    rows: tuple[RowSizes, ...]
    row_bytes: int
    # Largest workspace size, in bytes: the lists of block pairs are removed when the merged lists are finished.
    workspace_bytes: int
    # What makes the re-ranking costly or pointless.
    warnings: tuple[str, ...]
    # Neighbour search among a query and its nearest gallery rows, one for each query, where these are re-ranked alone.
    head: SearchPlan | None = None

    @property
    def n_compared(self) -> int:
        """Length of the lists in which pairs are compared for both sides."""
        return self.search.k if self.head is None else self.head.k


def plan_rerank(
    query: SetShape,
    gallery: SetShape,
    spec: Reranking,
    *,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None = None,
) -> RerankPlan:
    """Plan the stages of a re-ranking, which precede the tile loop.

    The limits are those of `reid_dist.engine.plan.make_plan`; raises `PlanError` if a task exceeds them.
    """
    limits: dict[str, Any] = {"n_threads": n_threads, "memory_per_thread": memory_per_thread}
    if isinstance(spec, Top):
        return _plan_heads(query, gallery, spec, limits, chunk_rows)
    alone = spec.gallery_alone
    # In the inductive mode the graph is that of the gallery; queries are compared with it in a further search.
    n_lists = query.n_rows + gallery.n_rows
    n_items, dim = gallery.n_rows if alone else n_lists, gallery.dim
    search = plan_search(
        n_items,
        dim,
        spec.n_listed,
        **limits,
        chunk_rows=chunk_rows,
    )
    k, rows, n_blocks = search.k, search.block_rows, search.n_blocks
    sizes = spec.row_sizes(n_items)
    compared = spec.compared_features(dim)
    stored = n_lists * compared * 4 if compared != dim else 0
    lists, kept = n_lists * (12 * k + 8), int(n_lists * spec.kept_bytes(n_items)) + stored
    rows_at_once = min(rows, spec.most_block_rows)
    rows_held = int(3 * rows_at_once * spec.kept_bytes(n_items)) + spec.held(n_items, gallery.n_rows).bytes_per_task
    weighing = 4 * n_items * k + n_items + 2 * PAIR_ROWS * dim * 4 + rows_held
    return RerankPlan(
        search=search,
        n_tasks=search.n_tasks + (n_blocks * -(-query.n_rows // rows) if alone else 0),
        flop=2 * search.n_pairs * dim + (2 * query.n_rows * gallery.n_rows * dim if alone else 0),
        bytes_read=n_items * dim * gallery.itemsize * (n_blocks + 1),
        task_bytes=max(search.task_bytes, weighing),
        list_bytes=lists,
        rows=sizes,
        row_tasks=spec.n_stages * -(-n_items // rows_at_once),
        row_bytes=kept,
        workspace_bytes=lists + max(search.tile_bytes, kept),
        warnings=spec.warnings(n_items),
    )


def _plan_heads(
    query: SetShape, gallery: SetShape, spec: Top, limits: dict[str, Any], chunk_rows: int | None
) -> RerankPlan:
    """Plan a re-ranking of the gallery rows next to each query alone."""
    m = min(spec.m, gallery.n_rows)
    n, dim, k = query.n_rows, gallery.dim, max(2, m + 1)
    rows, gallery_rows = choose_two_block_rows((n, gallery.n_rows), dim, k, chunk_rows=chunk_rows, **limits)
    n_blocks, n_gallery_blocks = -(-n // rows), -(-gallery.n_rows // gallery_rows)
    search = SearchPlan(
        n_items=n,
        k=k,
        block_rows=rows,
        n_blocks=n_gallery_blocks,
        n_tasks=n_blocks * n_gallery_blocks,
        n_pairs=n * gallery.n_rows,
        task_bytes=block_bytes(rows, dim, k) + block_bytes(gallery_rows, dim, 2),
        list_bytes=n * (12 * k + 8),
        tile_bytes=n_gallery_blocks * n * (12 * (k - 1) + 8),
    )
    head = plan_search(m + 1, dim, spec.of.n_listed, chunk_rows=None, **limits)
    sizes = spec.row_sizes(gallery.n_rows)
    kept = n * (BYTES_PER_ENTRY * m + 8)
    return RerankPlan(
        search=search,
        n_tasks=search.n_tasks,
        row_tasks=-(-n // queries_of_a_part(n, limits["n_threads"])),
        flop=2 * (search.n_pairs + n * head.n_pairs) * dim,
        bytes_read=(gallery.n_rows * n_blocks + n * m) * dim * gallery.itemsize,
        task_bytes=max(search.task_bytes, GATHERED_BYTES + head.task_bytes + spec.graph_bytes(m)),
        list_bytes=search.list_bytes,
        rows=sizes,
        row_bytes=kept,
        workspace_bytes=search.list_bytes + max(search.tile_bytes, kept),
        warnings=spec.warnings(gallery.n_rows),
        head=head,
    )
