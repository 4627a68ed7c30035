"""Projection of a re-ranking from shapes alone: tasks, arithmetic, task memory and workspace size."""

from __future__ import annotations

from dataclasses import dataclass

from reid_dist.engine.plan import SetShape
from reid_dist.stages.neighbours.plan import block_bytes, choose_block_rows
from reid_dist.stages.reranking.definition import KReciprocal

# Members of a row of weights, and of its mean over k2 items, per requested neighbour: measured on real and synthetic
# features, rounded up.  They only project the workspace size and cause no refusal.
_MEMBERS_PER_NEIGHBOUR = 1.6
_MEANS_PER_NEIGHBOUR = 4.5
_BYTES_PER_MEMBER = 12

# Feature rows in memory for the distances of single pairs, on either side.
_UNVERIFIED_ROWS = 8192


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """Blocks, tasks and memory of the stages of a re-ranking.

    Attributes
    ----------
    n_items
        Rows of the graph: queries and gallery, or the gallery alone in the inductive mode.
    k
        Length of a neighbour list, the item itself counted.
    block_rows, n_blocks, n_tasks
        Rows of a block; number of blocks; pairs of blocks, one task each.
    flop
        Floating-point operations of the products: two per pair and feature, each pair once.
    bytes_read
        Feature bytes read by all of these tasks.
    task_bytes
        Projected peak of one task of any stage, in bytes, the neighbour table of the process included.
    list_bytes
        Bytes of the neighbour lists, largest distances included.
    weight_bytes
        Bytes of the rows of weights, before and after the mean.
    workspace_bytes
        Largest workspace size, in bytes: the lists of block pairs are removed when the merged lists are finished.
    """

    n_items: int
    k: int
    block_rows: int
    n_blocks: int
    n_tasks: int
    flop: int
    bytes_read: int
    task_bytes: int
    list_bytes: int
    weight_bytes: int
    workspace_bytes: int

    @property
    def n_pairs(self) -> int:
        """Number of unordered pairs of items, those of an item with itself included."""
        return self.n_items * (self.n_items + 1) // 2


def plan_rerank(
    query: SetShape,
    gallery: SetShape,
    spec: KReciprocal,
    *,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None = None,
) -> RerankPlan:
    """Plan the stages of a re-ranking, which precede the tile loop.

    Parameters
    ----------
    query, gallery
        Shapes of the two sets.
    spec
        Parameters of the re-ranking.
    n_threads, memory_per_thread, chunk_rows
        As in `reid_dist.engine.plan.make_plan`.

    Raises
    ------
    PlanError
        If a task exceeds `memory_per_thread`.
    """
    alone = spec.mode == "inductive"
    # In the inductive mode the graph is that of the gallery; queries are compared with it in a further search.
    n_items = gallery.n_rows if alone else query.n_rows + gallery.n_rows
    dim, k = gallery.dim, max(2, spec.n_near, spec.n_half)
    rows = choose_block_rows(n_items, dim, k, n_threads, memory_per_thread, chunk_rows)
    n_blocks = -(-n_items // rows)
    n_tasks = n_blocks * (n_blocks + 1) // 2
    members = min(n_items, _MEMBERS_PER_NEIGHBOUR * spec.k1 + 1)
    means = min(n_items, _MEANS_PER_NEIGHBOUR * spec.k1 + 1) if spec.k2 > 1 else 0.0
    per_row = _BYTES_PER_MEMBER * (members + means) + 16
    n_lists = query.n_rows + gallery.n_rows
    lists = n_lists * (12 * k + 8)
    # A pair of different blocks gives lists for both blocks; a block with itself gives one.
    tiles = n_blocks * n_items * (12 * (k - 1) + 8)
    weighing = 4 * n_items * k + n_items + 2 * _UNVERIFIED_ROWS * dim * 4 + int(3 * rows * per_row)
    return RerankPlan(
        n_items=n_items,
        k=k,
        block_rows=rows,
        n_blocks=n_blocks,
        n_tasks=n_tasks + (n_blocks * -(-query.n_rows // rows) if alone else 0),
        flop=n_items * (n_items + 1) * dim + (2 * query.n_rows * gallery.n_rows * dim if alone else 0),
        bytes_read=n_items * dim * gallery.itemsize * (n_blocks + 1),
        task_bytes=max(block_bytes(rows, dim, k), weighing),
        list_bytes=lists,
        weight_bytes=int(n_lists * per_row),
        workspace_bytes=lists + max(tiles, int(n_lists * per_row)),
    )
