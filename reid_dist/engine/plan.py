"""Planning: arithmetic on integers that says, before any work, what a job is made of and whether it fits.

A *tile* is what one matrix product computes; a *task* takes one block of query rows against one block of gallery rows
and runs over its tiles in memory that it reuses.  Gallery blocks are whole chunks of the store, so that no chunk is
read by two tasks of one block of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

from reid_dist.core.formatting import byte_size
from reid_dist.errors import InputError, PlanError

__all__ = [
    "DEFAULT_MEMORY",
    "DEFAULT_TILE",
    "MERGED_AT_ONCE",
    "Besides",
    "Plan",
    "SetShape",
    "TileShape",
    "make_plan",
    "rounded_up",
]

# Rows of a tile.  512 x 2048 values of float32 stay in the outer cache, and the product runs at full speed.
DEFAULT_TILE_QUERY = 512
DEFAULT_TILE_GALLERY = 2048

# Bytes per thread that a plan may fill when nobody says otherwise.
DEFAULT_MEMORY = 2 * 2**30

# Partial results that one merge takes: small enough to start early, large enough to keep the tree flat.
MERGED_AT_ONCE = 8

# A task should take this much arithmetic: some tenths of a second, against about a millisecond of scheduling.
_TASK_FLOP = 3.0e10
# A scheduler takes up to a millisecond for a task, whatever it does, and large clusters would wait for it.
_MOST_TASKS = 10_000
_MOST_QUERY_ROWS = 8192
_MOST_GALLERY_ROWS = 65536
_TASKS_PER_THREAD = 8
# Time that threads may wait for the last tasks, as a share of all.
_MOST_UNEVEN = 1.05
# Pairs that a task may hold something for, where it does: no less is read for more of them.
_MOST_HELD_PAIRS = 2**24

# What a task takes on its way to the scheduler: its key, its rows and the keys that it waits for.
_BYTES_PER_TASK = 80

# Counts around thresholds over all pairs: 16 bytes each, in those that wait to be merged and twice in the result; at
# most so many in a partial result, and in those of all blocks of queries together.
_BYTES_PER_COUNT = 16 * (2 * MERGED_AT_ONCE + 4)
_MOST_COUNTS = 2**18
_FEWEST_COUNTS = 2**12
_ALL_COUNTS = 2**22
# Tables of what lies at a key; few of their pages are touched.
_KEY_TABLES = 8 * 2**20
# Keys that a histogram of distances holds, at most as a rule.
_HISTOGRAM_KEYS = 2**15


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows of query and of gallery in one tile."""

    query: int
    gallery: int

    def __post_init__(self) -> None:
        if self.query < 1 or self.gallery < 1:
            raise InputError(f"chunk_rows must be at least 1, found {min(self.query, self.gallery)}")


DEFAULT_TILE = TileShape(DEFAULT_TILE_QUERY, DEFAULT_TILE_GALLERY)


@dataclass(frozen=True, slots=True)
class SetShape:
    """What a plan must know of a feature set: rows, features per row, bytes per feature, rows per stored chunk."""

    n_rows: int
    dim: int
    itemsize: int
    chunk_rows: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How a job is cut.

    Attributes
    ----------
    query, gallery
        The two sets.
    tile
        Rows of a tile.
    query_block, gallery_block
        Rows of the blocks that one task takes.
    n_threads
        Threads that the job is planned for.
    task_bytes
        Projected peak of one task, with the partial results that wait for it, in bytes.
    result_bytes
        What the whole answer takes in the process that asked for it, while it is put together, in bytes.
    bracket_counts
        Counts that a partial result may hold where thresholds over all pairs are searched for; 0 where they are not.
    """

    query: SetShape
    gallery: SetShape
    tile: TileShape
    query_block: int
    gallery_block: int
    n_threads: int
    task_bytes: int
    result_bytes: int
    bracket_counts: int = 0

    @property
    def n_query_blocks(self) -> int:
        """Blocks of queries."""
        return -(-self.query.n_rows // self.query_block)

    @property
    def n_gallery_blocks(self) -> int:
        """Blocks of gallery rows."""
        return -(-self.gallery.n_rows // self.gallery_block)

    @property
    def n_tasks(self) -> int:
        """Block pairs, each one task of the sweep."""
        return self.n_query_blocks * self.n_gallery_blocks

    @property
    def n_tiles(self) -> int:
        """Matrix products."""
        per_query = -(-min(self.query_block, self.query.n_rows) // self.tile.query)
        per_gallery = -(-min(self.gallery_block, self.gallery.n_rows) // self.tile.gallery)
        return self.n_tasks * per_query * per_gallery

    @property
    def merged(self) -> tuple[int, ...]:
        """Partial results of a block of queries that are merged, level by level of the tree."""
        levels = [self.n_gallery_blocks]
        while (left := -(-levels[-1] // MERGED_AT_ONCE)) > 1:
            levels.append(left)
        return tuple(levels)

    @property
    def n_graph_tasks(self) -> int:
        """Tasks of the whole graph: who is relevant, distances of relevant pairs, the sweep, merges and answers."""
        # Each level is what the merges of the one before it have left, and the last merge leaves one.
        merges = sum(self.merged[1:]) + 1
        pairs = -(-2 * self.n_threads // self.n_query_blocks)
        per_block = -(-self.n_gallery_blocks // -(-self.n_gallery_blocks // pairs))
        return self.n_query_blocks * (3 + per_block + self.n_gallery_blocks + merges)

    @property
    def graph_bytes(self) -> int:
        """About what the graph takes when it is sent to a scheduler."""
        return self.n_graph_tasks * _BYTES_PER_TASK

    def bytes_read_by(self, n_workers: int) -> int:
        """Feature bytes that a worker reads at the most, if tasks are shared out evenly among so many."""
        return self.bytes_read * -(-self.n_tasks // n_workers) // self.n_tasks

    @property
    def flop(self) -> int:
        """Floating-point operations of the products: two per pair and feature."""
        return 2 * self.query.n_rows * self.gallery.n_rows * self.query.dim

    @property
    def bytes_read(self) -> int:
        """Feature bytes that all tasks read: one pass of the sweep, and at most one more for relevant pairs."""
        gallery = self.gallery.n_rows * self.gallery.dim * self.gallery.itemsize * self.n_query_blocks
        query = self.query.n_rows * self.query.dim * self.query.itemsize * self.n_gallery_blocks
        return 2 * (gallery + query)


@dataclass(frozen=True, slots=True)
class Besides:
    """What a job holds besides features, tiles, thresholds and lists.

    Attributes
    ----------
    bytes_per_query, bytes_per_gallery_row, bytes_per_pair
        In a task, for every row of its blocks, and for every pair of them.
    values_per_query
        Further float64 values of every query in the answer.
    pairs
        Whether thresholds over all pairs are searched for.
    """

    bytes_per_query: int = 0
    bytes_per_gallery_row: int = 0
    bytes_per_pair: int = 0
    values_per_query: int = 0
    pairs: bool = False

    def __add__(self, other: Besides) -> Besides:
        """Both."""
        return Besides(
            self.bytes_per_query + other.bytes_per_query,
            self.bytes_per_gallery_row + other.bytes_per_gallery_row,
            self.bytes_per_pair + other.bytes_per_pair,
            self.values_per_query + other.values_per_query,
            self.pairs or other.pairs,
        )


NOTHING_BESIDES = Besides()


def _evened_out(n_query: int, query_block: int, n_gallery_blocks: int, n_threads: int, tile_rows: int) -> int:
    """Rows of a block of queries, fewer where a few tasks would leave threads without work in the end.

    Gallery blocks are chunks of the store, and there may be three of them for two threads.
    """
    fewest = -(-n_query // query_block)
    for n_blocks in range(fewest, fewest + n_threads):
        rows = -(-n_query // n_blocks)
        n_tasks = n_blocks * n_gallery_blocks
        if n_blocks > fewest and (rows < tile_rows or n_tasks > _MOST_TASKS):
            break
        if rounded_up(n_tasks, n_threads) <= _MOST_UNEVEN * n_tasks:
            return query_block if n_blocks == fewest else rows
    return query_block


def rounded_up(n_tasks: int, n_threads: int) -> int:
    """Tasks that threads would have time for until the last one is done, if all take the same time."""
    return -(-n_tasks // n_threads) * n_threads


def _task_bytes(
    query: SetShape, gallery: SetShape, tile: TileShape, query_rows: int, gallery_rows: int, per_query: float, k: int
) -> int:
    """Projected peak of one task: blocks as read and prepared, the tile, thresholds and counts, neighbour lists."""
    dim = query.dim
    # A chunk is decoded beside the block it goes to, and float16 is widened beside what was read.
    widening = (4 if gallery.itemsize == 4 else 6) * dim
    blocks = query_rows * dim * 8 + gallery_rows * widening + min(gallery.chunk_rows, gallery_rows) * dim * 4
    tile_query, tile_gallery = min(tile.query, query_rows), min(tile.gallery, gallery_rows)
    # Values in float32; for a crowded tile once more in float64, with both sides prepared in float64.  In parts, twice
    # more in float32, with both sides prepared once more.
    values = tile_query * tile_gallery * 12 + tile_gallery * dim * 12 + tile_query * dim * 8
    values += tile_query * tile_gallery * 8 + (tile_gallery + query_rows) * dim * 4
    # Per relevant pair: relevance and targets (56 bytes), edges and counts (20), edges in float64 for crowded bands
    # (16), what sorting them takes, and the counts of the blocks that wait to be merged.
    thresholds = int(query_rows * per_query * (156 + 8 * MERGED_AT_ONCE)) + query_rows * 64
    # Candidates while tiles go by, then lists of 16 bytes an entry: those that wait, and twice those that are sorted.
    neighbours = query_rows * ((2 * k + 64) * 12 + k * 16 * (2 * MERGED_AT_ONCE + 4)) if k else 0
    return blocks + values + thresholds + neighbours


def make_plan(
    query: SetShape,
    gallery: SetShape,
    *,
    n_threads: int,
    memory_per_thread: int = DEFAULT_MEMORY,
    chunk_rows: int | None = None,
    relevant_per_query: float = 0.0,
    k: int = 0,
    besides: Besides = NOTHING_BESIDES,
) -> Plan:
    """Cut a job into tasks.

    Parameters
    ----------
    query, gallery
        The two sets.
    n_threads
        Threads of all workers together.
    memory_per_thread
        Bytes that one task may fill.
    chunk_rows
        Rows of a tile on both sides, or None for a choice that runs fast.
    relevant_per_query
        The largest mean number of gallery items with the query's pid, over blocks of queries.
    k
        Neighbours kept per query.
    besides
        What it holds besides.

    Raises
    ------
    InputError
        If `chunk_rows` is not positive or the dimensions differ.
    PlanError
        If no way of cutting fits; says what would.
    """
    if query.dim != gallery.dim:
        raise InputError(
            f"query features have {query.dim} dimensions, gallery features {gallery.dim}; both must come from one model"
        )
    tile = DEFAULT_TILE if chunk_rows is None else TileShape(chunk_rows, chunk_rows)
    query_block = min(query.n_rows, _MOST_QUERY_ROWS)
    # Smaller gallery blocks would not make this any less.
    pairs = besides.pairs
    fitting = memory_per_thread // (2 * max(1, besides.bytes_per_query))
    if fitting < query_block:
        query_block = max(1, fitting // tile.query * tile.query or fitting)
    # Enough tasks to keep all threads busy to the end, but none too small to be worth scheduling.
    flop = max(_TASK_FLOP, 2.0 * query.n_rows * gallery.n_rows * query.dim / _MOST_TASKS)
    wanted = flop / (2.0 * query_block * query.dim)
    balanced = gallery.n_rows * -(-query.n_rows // query_block) / (_TASKS_PER_THREAD * n_threads)
    rows = max(1, min(int(wanted), int(balanced), _MOST_GALLERY_ROWS))
    if besides.bytes_per_pair:
        rows = max(1, min(rows, _MOST_HELD_PAIRS // query_block))
    chunk = min(gallery.chunk_rows, gallery.n_rows)
    if gallery.chunk_rows < gallery.n_rows:
        gallery_block = max(1, round(rows / chunk)) * chunk
    else:
        step = min(tile.gallery, gallery.n_rows)
        gallery_block = min(max(1, round(rows / step)) * step, gallery.n_rows)
    smallest = chunk if gallery.chunk_rows < gallery.n_rows else 1
    # An eighth of the memory at most: a search with less takes more passes, and finds the same.
    counts = max(_FEWEST_COUNTS, min(_MOST_COUNTS, memory_per_thread // (8 * _BYTES_PER_COUNT))) if pairs else 0

    def projected(query_rows: int, gallery_rows: int) -> int:
        task = _task_bytes(query, gallery, tile, query_rows, gallery_rows, relevant_per_query, k)
        searching = _KEY_TABLES + min(counts, query_rows * gallery_rows) * _BYTES_PER_COUNT if pairs else 0
        rows = query_rows * besides.bytes_per_query + gallery_rows * besides.bytes_per_gallery_row
        return task + rows + query_rows * gallery_rows * besides.bytes_per_pair + searching

    while projected(query_block, gallery_block) > memory_per_thread:
        if gallery_block >= 2 * smallest:
            gallery_block = max(smallest, gallery_block // 2 // smallest * smallest)
        elif query_block > 1:
            query_block = max(1, query_block // 2)
        else:
            raise PlanError(
                f"one task needs {byte_size(projected(query_block, gallery_block))} and may take "
                f"{byte_size(memory_per_thread)}: tiles of {tile.query} x {tile.gallery} rows over gallery chunks "
                f"of {chunk} rows x {gallery.dim} features; give workers more memory per thread, choose a smaller "
                "chunk_rows, or ingest the gallery again with a smaller --chunk-rows"
            )
    query_block = _evened_out(query.n_rows, query_block, -(-gallery.n_rows // gallery_block), n_threads, tile.query)
    # Rank, ties, row and distance of every positive, and the lists; once in blocks and once as a whole.
    result = 2 * query.n_rows * (int(32 * relevant_per_query) + 40 + 16 * k + 8 * besides.values_per_query)
    task = projected(query_block, gallery_block)
    if pairs:
        n_blocks = -(-query.n_rows // query_block)
        counts = max(_FEWEST_COUNTS, min(counts, _ALL_COUNTS // n_blocks))
        result += 32 * min(n_blocks * (counts + _HISTOGRAM_KEYS), query.n_rows * gallery.n_rows)
    return Plan(query, gallery, tile, query_block, gallery_block, n_threads, task, result, counts)
