"""Blocks of a neighbour search: their rows and the memory of one task."""

from __future__ import annotations

import math

from reid_dist.core.formatting import byte_size
from reid_dist.engine.plan import rounded_up
from reid_dist.errors import PlanError

TILE_ROWS = 1024
"""Rows and columns of a tile by default."""

MOST_SEEDS = 6
"""Largest number of block pairs whose lists seed the bounds of another pair: further ones tighten bounds little."""

_MOST_BLOCK_ROWS = 65536
# Blocks per square root of the number of threads: enough pairs of blocks to occupy all threads to the end.
_BLOCKS_PER_ROOT = 3


def rows_of_a_tile(chunk_rows: int | None) -> int:
    """Rows and columns of a tile: `chunk_rows`, or the default for None."""
    return TILE_ROWS if chunk_rows is None else chunk_rows


def block_bytes(block_rows: int, dim: int, k: int) -> int:
    """Projected peak memory of a task that compares two blocks, in bytes."""
    features = 2 * block_rows * dim * 8
    lists = 2 * block_rows * ((2 * k + 64) * 8 + 40 * k + 64)
    # Seed bounds of one block: as read, concatenated and sorted.  Those of the other block are freed by then.
    found = 3 * MOST_SEEDS * block_rows * k * 8
    return features + max(lists, found) + 16 * TILE_ROWS * TILE_ROWS + 8 * TILE_ROWS * dim


def choose_block_rows(
    n_items: int, dim: int, k: int, n_threads: int, memory_per_thread: int, chunk_rows: int | None
) -> int:
    """Rows of a block: bounded by memory, and few enough to occupy all threads.

    Raises
    ------
    PlanError
        If the smallest block exceeds `memory_per_thread`.
    """
    tile = rows_of_a_tile(chunk_rows)
    fewest = max(2, math.ceil(_BLOCKS_PER_ROOT * math.sqrt(n_threads)))
    # From `fewest` to twice that: the number whose pairs fill the threads best; fewer blocks are read less often.
    n_blocks = min(range(fewest, 2 * fewest), key=lambda n: rounded_up(n * (n + 1) // 2, n_threads) / (n * (n + 1)))
    rows = max(tile, min(_MOST_BLOCK_ROWS, -(-n_items // n_blocks)))
    while block_bytes(rows, dim, k) > memory_per_thread and rows > 64:
        rows = max(64, rows // 2)
    needed = block_bytes(rows, dim, k)
    if needed > memory_per_thread:
        raise PlanError(
            f"a block of {rows} items x {dim} features with {k} neighbours each needs {byte_size(needed)} and one "
            f"task may take {byte_size(memory_per_thread)}; give workers more memory per thread"
        )
    return rows
