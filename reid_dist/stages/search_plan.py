"""Costs of stages, and the plan of a neighbour search from shapes alone: blocks, tasks and memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reid_dist.core.formatting import byte_size
from reid_dist.errors import PlanError

TILE_ROWS = 1024
"""Rows and columns of a tile by default."""

MOST_SEEDS = 6
"""Largest number of block pairs whose lists seed the bounds of another pair: further ones tighten bounds little."""

_MOST_BLOCK_ROWS, _MOST_BLOCK_ROWS_ON_DEVICE = 40960, 131072
# Most blocks per square root of the number of threads.  Cost model, in units of one comparison of a pair of blocks: a
# block with itself, and the idle time at the end.  Tiles of a block whose products take as long as its lists.
_BLOCKS_PER_ROOT_ON_DEVICE = 2
_BLOCKS_PER_ROOT, _OWN, _WAITED, _TILES_OF_LISTS = 4.5, 0.6, 0.5, 2


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage takes, computed from shapes alone; `one + other` is that of one stage and then another.

    Attributes
    ----------
    flop
        Floating-point operations of its products.
    bytes_read
        Bytes of features that its tasks read.
    task_bytes
        Projected peak memory of one task, in bytes.
    kept
        Bytes that it leaves in the workspace.
    temporary
        Most bytes that are in the workspace besides, until it ends.
    """

    flop: int = 0
    bytes_read: int = 0
    task_bytes: int = 0
    kept: int = 0
    temporary: int = 0

    def __add__(self, after: Cost) -> Cost:
        kept = self.kept + after.kept
        return Cost(
            self.flop + after.flop,
            self.bytes_read + after.bytes_read,
            max(self.task_bytes, after.task_bytes),
            kept,
            max(self.workspace_bytes, self.kept + after.workspace_bytes) - kept,
        )

    @property
    def workspace_bytes(self) -> int:
        """Largest size of the workspace, in bytes."""
        return self.kept + self.temporary


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Blocks, tasks and memory of a neighbour search."""

    # Number of lists, and length of one.
    n_items: int
    k: int
    # Rows of a block, and number of blocks that each row is compared with.
    block_rows: int
    n_blocks: int
    # Pairs of blocks, one task each, and pairs of rows whose product is computed.
    n_tasks: int
    n_pairs: int
    # The lists are kept, those of pairs of blocks are temporary.
    cost: Cost
    # Whether items are compared among themselves, so that each pair is computed once for both of its items.
    both_ways: bool = True


def plan_search(
    n_items: int,
    dim: int,
    k: int,
    *,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None = None,
    itemsize: int = 4,
) -> SearchPlan:
    """Plan a search of items among themselves; raises `PlanError` if a task exceeds `memory_per_thread`."""
    k = max(2, k)
    rows = choose_block_rows(n_items, dim, k, n_threads, memory_per_thread, chunk_rows)
    n_blocks = -(-n_items // rows)
    n_pairs = n_items * (n_items + 1) // 2
    cost = Cost(
        flop=2 * n_pairs * dim,
        bytes_read=n_items * dim * itemsize * (n_blocks + 1),
        task_bytes=block_bytes(rows, dim, k),
        kept=list_bytes(n_items, k),
        # A pair of different blocks gives lists for both blocks; a block with itself gives one.
        temporary=n_blocks * list_bytes(n_items, k - 1),
    )
    return SearchPlan(n_items, k, rows, n_blocks, n_blocks * (n_blocks + 1) // 2, n_pairs, cost)


def list_bytes(n_items: int, k: int) -> int:
    """Bytes of lists of length `k` with the largest distance of each item."""
    return n_items * (12 * k + 8)


def rows_of_a_tile(chunk_rows: int | None) -> int:
    """Rows and columns of a tile: `chunk_rows`, or the default for None."""
    return TILE_ROWS if chunk_rows is None else chunk_rows


def block_bytes(block_rows: int, dim: int, k: int) -> int:
    """Projected peak memory of a task that compares two blocks, in bytes."""
    features = 2 * block_rows * dim * 8
    lists = 2 * block_rows * ((2 * k + 64) * 12 + 40 * k + 64)
    # Seed bounds of one block: as read, concatenated and sorted.  Those of the other block are freed by then.
    found = 3 * MOST_SEEDS * block_rows * k * 8
    return features + max(lists, found) + 16 * TILE_ROWS * TILE_ROWS + 8 * TILE_ROWS * dim


def choose_two_block_rows(
    sizes: tuple[int, int],
    dim: int,
    k: int,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None,
    *,
    on_device: bool = False,
) -> tuple[int, int]:
    """Rows of a block of items and of one of candidates, where only the items have lists.

    Every block of candidates costs a list of each item, however few rows it has.
    """
    items, candidates = (
        choose_block_rows(n, dim, length, n_threads, memory_per_thread // 2, chunk_rows, on_device=on_device)
        for n, length in zip(sizes, (k, 2), strict=True)
    )
    return items, candidates


def choose_block_rows(
    n_items: int,
    dim: int,
    k: int,
    n_threads: int,
    memory_per_thread: int,
    chunk_rows: int | None,
    *,
    on_device: bool = False,
) -> int:
    """Rows of a block: bounded by memory, and few enough to occupy all threads.

    They are more where a device compares them for all threads: these settle lists, once per pair of blocks.
    Raises `PlanError` if the smallest block exceeds `memory_per_thread`.
    """
    tile = rows_of_a_tile(chunk_rows)

    def relative_time(n_blocks: int) -> float:
        """Time of all threads by that of products."""
        rounds = math.ceil(n_blocks * (n_blocks - 1) / 2 / n_threads) + _OWN * n_blocks / n_threads + _WAITED
        return rounds / (n_blocks**2 / 2 / n_threads) * (1 + _TILES_OF_LISTS * tile * n_blocks / n_items)

    most = math.ceil((_BLOCKS_PER_ROOT_ON_DEVICE if on_device else _BLOCKS_PER_ROOT) * math.sqrt(n_threads))
    n_blocks = min(range(2, most + 1), key=relative_time)
    most_rows = _MOST_BLOCK_ROWS_ON_DEVICE if on_device else _MOST_BLOCK_ROWS
    rows = max(tile, min(most_rows, -(-n_items // n_blocks)))
    while block_bytes(rows, dim, k) > memory_per_thread and rows > 64:
        rows = max(64, rows // 2)
    needed = block_bytes(rows, dim, k)
    if needed > memory_per_thread:
        raise PlanError(
            f"a block of {rows} items x {dim} features with {k} neighbours each needs {byte_size(needed)} and one "
            f"task may take {byte_size(memory_per_thread)}; give workers more memory per thread"
        )
    return rows
