"""What a re-ranking will take, from shapes alone: tasks, arithmetic, memory, and what the workspace will hold."""

from __future__ import annotations

from dataclasses import dataclass

from reid_dist.engine.plan import SetShape
from reid_dist.stages.neighbours.plan import block_bytes, choose_block_rows
from reid_dist.stages.reranking.definition import KReciprocal

__all__ = ["RerankPlan", "plan_rerank"]

# Members of a row of weights, and of its mean over k2 items, per neighbour asked for: what real features and
# synthetic ones gave, rounded up.  They project the workspace; nothing is refused on their account.
_MEMBERS_PER_NEIGHBOUR = 1.6
_MEANS_PER_NEIGHBOUR = 4.5
_BYTES_PER_MEMBER = 12

# Rows of features held for the distances of single pairs, on either side.
_UNVERIFIED_ROWS = 8192


@dataclass(frozen=True, slots=True)
class RerankPlan:
    """How the stages of a re-ranking are cut, and what they take.

    Attributes
    ----------
    n_items
        Rows of the graph: queries and gallery, or the gallery alone where queries are put in one by one.
    k
        Length of the lists of neighbours, each item itself counted.
    block_rows, n_blocks, n_tasks
        Rows of a block, blocks, and pairs of blocks, each one task.
    flop
        Floating-point operations of the products: two per pair and feature, each pair once.
    bytes_read
        Feature bytes that all these tasks read.
    task_bytes
        Projected peak of one task of any stage, the table of neighbours that a process keeps included.
    list_bytes
        Lists of neighbours, largest distances included.
    weight_bytes
        Rows of weights, before and after the mean.
    workspace_bytes
        The most that the workspace holds: what pairs of blocks gave is removed when the lists are finished.
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
        """Pairs of items, each once."""
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
    """Plan the stages before the sweep.

    Parameters
    ----------
    query, gallery
        The two sets.
    spec
        The re-ranking.
    n_threads, memory_per_thread, chunk_rows
        As in `reid_dist.engine.plan.make_plan`.

    Raises
    ------
    PlanError
        If a task cannot fit.
    """
    alone = spec.mode == "inductive"
    # Where each query is put into the graph by itself, the graph is that of the gallery; queries meet it once more.
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
    # Every pair of different blocks gives lists for both, a block and itself one.
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
