"""Plan of a re-ranking from shapes alone: tasks, arithmetic, task memory and workspace size."""

from __future__ import annotations

from dataclasses import dataclass

from reid_dist.engine.plan import SetShape
from reid_dist.stages.neighbours.items import UNVERIFIED_ROWS
from reid_dist.stages.neighbours.plan import SearchPlan, plan_search
from reid_dist.stages.reranking.definition import Reranking, RowSizes
from reid_dist.stages.reranking.weights import BYTES_PER_ENTRY


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """Blocks, tasks and memory of the stages of a re-ranking."""

    # Neighbour search of the graph: of queries and gallery, or of the gallery alone in the inductive mode.
    search: SearchPlan
    # Pairs of blocks, one task each, those of queries with the gallery in the inductive mode included.
    n_tasks: int
    # Floating-point operations of the products: two per pair and feature, each pair once.
    flop: int
    # Feature bytes read by all of these tasks.
    bytes_read: int
    # Projected peak of one task of any stage, in bytes, the neighbour table of the process included.
    task_bytes: int
    # Bytes of the neighbour lists, largest distances included.
    list_bytes: int
    # Rows of the stages after the lists, in their order, and the bytes of all of them.
    rows: tuple[RowSizes, ...]
    row_bytes: int
    # Largest workspace size, in bytes: the lists of block pairs are removed when the merged lists are finished.
    workspace_bytes: int
    # What makes the re-ranking costly or pointless.
    warnings: tuple[str, ...]


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
    alone = spec.gallery_alone
    # In the inductive mode the graph is that of the gallery; queries are compared with it in a further search.
    n_lists = query.n_rows + gallery.n_rows
    n_items, dim = gallery.n_rows if alone else n_lists, gallery.dim
    search = plan_search(
        n_items,
        dim,
        spec.n_listed,
        n_threads=n_threads,
        memory_per_thread=memory_per_thread,
        chunk_rows=chunk_rows,
    )
    k, rows, n_blocks = search.k, search.block_rows, search.n_blocks
    sizes = spec.row_sizes(n_items)
    per_row = sum(BYTES_PER_ENTRY * each.expected + 8 for each in sizes)
    lists, kept = n_lists * (12 * k + 8), int(n_lists * per_row)
    rows_at_once = min(rows, spec.most_block_rows)
    weighing = 4 * n_items * k + n_items + 2 * UNVERIFIED_ROWS * dim * 4 + int(3 * rows_at_once * per_row)
    return RerankPlan(
        search=search,
        n_tasks=search.n_tasks + (n_blocks * -(-query.n_rows // rows) if alone else 0),
        flop=2 * search.n_pairs * dim + (2 * query.n_rows * gallery.n_rows * dim if alone else 0),
        bytes_read=n_items * dim * gallery.itemsize * (n_blocks + 1),
        task_bytes=max(search.task_bytes, weighing),
        list_bytes=lists,
        rows=sizes,
        row_bytes=kept,
        workspace_bytes=lists + max(search.tile_bytes, kept),
        warnings=spec.warnings(n_items),
    )


def bytes_per_gallery_row(spec: Reranking, n_items: int) -> int:
    """Bytes of a gallery row in the tile loop: its entries, as read and as joined."""
    return int(2 * BYTES_PER_ENTRY * spec.row_sizes(n_items)[-1].expected)


def bytes_per_query(spec: Reranking, n_gallery: int) -> int:
    """Bytes of the known pairs of a query in the tile loop."""
    return 64 * spec.known_pairs(n_gallery)
