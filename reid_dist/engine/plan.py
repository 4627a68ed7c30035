"""Planning: the tasks of a job and their projected memory, computed from integers before any work.

A *tile* is the result of one matrix product; a *task* compares one block of query rows with one block of gallery rows,
tile by tile, in reused memory.  Gallery blocks consist of whole chunks of the store, so that no chunk is read by two
tasks of one block of queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from reid_dist.core.formatting import byte_size
from reid_dist.core.model import even_rows
from reid_dist.engine.policy import Policy
from reid_dist.errors import InputError, PlanError

# Rows of a tile, at most.  Its float32 values fit into the last-level cache, and the product, which rearranges the rows
# of one side once per tile, needs this many of the other: 512 x 2048 rows take a tenth more time.
DEFAULT_TILE_GALLERY = 1536

# Default memory limit of a plan, in bytes per thread.
DEFAULT_MEMORY = 2 * 2**30

# Partial results per merge: few enough to start early, enough for a flat tree.
MERGED_AT_ONCE = 8

# A scheduler takes up to a millisecond per task of any size, and would limit large clusters.
_MOST_TASKS = 10_000


@dataclass(frozen=True, slots=True)
class _Work:
    """What a task is at most."""

    # Target operations: some tenths of a second, against about a millisecond of scheduling.
    task_flop: float
    most_query_rows: int
    most_gallery_rows: int
    # Enough that threads end nearly together; each task prepares its queries again.
    tasks_per_thread: int


_ON_CPU = _Work(3.0e10, 8192, 65536, 4)
# Threads read and decide; the device computes for all of them.
_ON_DEVICE = _Work(1.0e12, 65536, 262144, 1)

# Queries whose products with a gallery row take as long as its preparation for a block: more if these are products of
# integers, fewer in float32.
_PREPARATION = 400
# Blocks are divided further where the last task then ends earlier by 2%: each has a cost of its own.
_LEAST_GAIN = 1.02
# Rows of gallery blocks that need not be whole chunks are multiples of this.
_ROWS_STEP = 32
# Maximal pairs of a task that holds values per pair; larger tasks would not read less.
_MOST_HELD_PAIRS = 2**23

# Bytes of a task sent to the scheduler: its key, its rows and the keys of its dependencies.
_BYTES_PER_TASK = 80

# Counts around thresholds over all pairs: 16 bytes each, in partial results that wait to be merged and twice in the
# result; with limits for a partial result, and for those of all blocks of queries together.
_BYTES_PER_COUNT = 16 * (2 * MERGED_AT_ONCE + 4)
_MOST_COUNTS = 2**20
_FEWEST_COUNTS = 2**12
_ALL_COUNTS = 2**22
# Bytes of the lookup tables by key, which threads share.
_KEY_TABLES = 16 * 2**20
# Bytes of relevance and thresholds per relevant pair.
_BYTES_PER_WAITING = 56
# Pairs inside bands that a reduction decides together, and the bytes that they and their distances take.
OPEN_PAIRS = 2**16
OPEN_BYTES = 40 * OPEN_PAIRS
# Typical maximal number of keys in a histogram of distances.
_HISTOGRAM_KEYS = 2**15


@dataclass(frozen=True, slots=True)
class TileShape:
    """Rows of query and of gallery in one tile."""

    query: int
    gallery: int

    def __post_init__(self) -> None:
        if self.query < 1 or self.gallery < 1:
            raise InputError(f"chunk_rows must be at least 1, found {min(self.query, self.gallery)}")


DEFAULT_TILE = TileShape(1024, DEFAULT_TILE_GALLERY)


@dataclass(frozen=True, slots=True)
class SetShape:
    """Shape of a feature set: rows, features per row, bytes per feature, rows per stored chunk."""

    n_rows: int
    dim: int
    itemsize: int
    chunk_rows: int


def with_rows(shape: SetShape, n_rows: int) -> SetShape:
    """Shape of some rows of a set."""
    return replace(shape, n_rows=n_rows, chunk_rows=min(shape.chunk_rows, n_rows))


@dataclass(frozen=True, slots=True)
class Plan:
    """Division of a job into tasks and tiles."""

    # Shapes of the two sets.
    query: SetShape
    gallery: SetShape
    # Query and gallery rows of a tile.
    tile: TileShape
    # Query and gallery rows of a task.
    query_block: int
    gallery_block: int
    # Threads of all workers together.
    n_threads: int
    # Projected peak memory of one task, including partial results that wait to be merged, in bytes.
    task_bytes: int
    # Peak memory of the whole result in the calling process, while it is concatenated, in bytes.
    result_bytes: int
    # Maximal counts in a partial result of the search for thresholds over all pairs; 0 without such a search.
    bracket_counts: int = 0
    # Whether outputs are prepared from summaries of all blocks of queries, before the first tile.
    prepares: bool = False

    @property
    def n_query_blocks(self) -> int:
        """Number of blocks of queries."""
        return -(-self.query.n_rows // self.query_block)

    @property
    def n_gallery_blocks(self) -> int:
        """Number of blocks of gallery rows."""
        return -(-self.gallery.n_rows // self.gallery_block)

    @property
    def n_tasks(self) -> int:
        """Number of block pairs, each of which is one tile task."""
        return self.n_query_blocks * self.n_gallery_blocks

    @property
    def n_tiles(self) -> int:
        """Number of tiles, each of which is one matrix product."""
        per_query = -(-min(self.query_block, self.query.n_rows) // self.tile.query)
        per_gallery = -(-min(self.gallery_block, self.gallery.n_rows) // self.tile.gallery)
        return self.n_tasks * per_query * per_gallery

    @property
    def merged(self) -> tuple[int, ...]:
        """Number of partial results of a block of queries that are merged, per level of the tree."""
        levels = [self.n_gallery_blocks]
        while (left := -(-levels[-1] // MERGED_AT_ONCE)) > 1:
            levels.append(left)
        return tuple(levels)

    @property
    def pair_rows(self) -> int:
        """Gallery rows of a task of relevant pairs: they are few, and tasks are enough for all threads."""
        tasks = -(-2 * self.n_threads // self.n_query_blocks)
        return -(-self.n_gallery_blocks // tasks) * self.gallery_block

    @property
    def n_graph_tasks(self) -> int:
        """Number of tasks of the whole graph: relevance, relevant pairs, thresholds, tiles, merges and so on."""
        # Each level counts the results of the merges of the level before; the last merge has one result.
        merges = sum(self.merged[1:]) + 1
        per_block = -(-self.gallery.n_rows // self.pair_rows)
        summaries = self.n_query_blocks + 1 if self.prepares else 0
        return self.n_query_blocks * (3 + per_block + self.n_gallery_blocks + merges) + summaries

    @property
    def graph_bytes(self) -> int:
        """Approximate bytes of the graph when it is sent to a scheduler."""
        return self.n_graph_tasks * _BYTES_PER_TASK

    def bytes_read_by(self, n_workers: int) -> int:
        """Maximal feature bytes that one of `n_workers` workers reads, with evenly distributed tasks."""
        return self.bytes_read * -(-self.n_tasks // n_workers) // self.n_tasks

    @property
    def flop(self) -> int:
        """Floating-point operations of all products of a pass: two per pair and feature."""
        return 2 * self.query.n_rows * self.gallery.n_rows * self.query.dim

    @property
    def bytes_read(self) -> int:
        """Feature bytes that all tasks read: one pass over the tiles, and at most one more for relevant pairs."""
        gallery = self.gallery.n_rows * self.gallery.dim * self.gallery.itemsize * self.n_query_blocks
        query = self.query.n_rows * self.query.dim * self.query.itemsize * self.n_gallery_blocks
        return 2 * (gallery + query)


@dataclass(frozen=True, slots=True)
class ExtraMemory:
    """Memory of a job in addition to features, tiles and thresholds."""

    # Additional bytes of a task per query row, per gallery row and per pair of its blocks.
    bytes_per_query: int = 0
    bytes_per_gallery_row: int = 0
    bytes_per_pair: int = 0
    # Additional float64 values per query in the result.
    values_per_query: int = 0
    # Whether thresholds over all pairs are searched for.
    pairs: bool = False
    # Whether partial results take long to merge, so that fewer of them are preferred to evenly loaded threads.
    merges_slowly: bool = False
    # Additional bytes of a task of any blocks.
    bytes_per_task: int = 0
    # Whether outputs are prepared from summaries of all blocks of queries.
    prepares: bool = False

    def __add__(self, other: ExtraMemory) -> ExtraMemory:
        """Return the sum of both requirements: bytes and values add up, and flags are shared."""
        shared = "pairs", "merges_slowly", "prepares"
        both = {each.name: (getattr(self, each.name), getattr(other, each.name)) for each in fields(self)}
        return ExtraMemory(**{name: max(values) if name in shared else sum(values) for name, values in both.items()})


NO_EXTRA_MEMORY = ExtraMemory()


def _even_blocks(
    query: SetShape, gallery: SetShape, query_block: int, gallery_block: int, tile: TileShape, n_threads: int, unit: int
) -> tuple[int, int]:
    """Rows of a block of queries and of a gallery block, at most those given, for the earliest end of the last task.

    Each further block of queries, of at least the rows of a tile, prepares every gallery row once more.  Gallery blocks
    that fill all threads have a multiple of `unit` rows, and at least half the rows of a tile.
    """
    best, found = math.inf, (query_block, gallery_block)
    fewest, fewest_of_gallery = -(-query.n_rows // query_block), -(-gallery.n_rows // gallery_block)
    for n_blocks in range(fewest, fewest + n_threads):
        rows = -(-query.n_rows // n_blocks)
        if n_blocks > fewest and (rows < tile.query or n_blocks * fewest_of_gallery > _MOST_TASKS):
            break
        filling = _rounded_up(-(-gallery.n_rows // _filling(fewest_of_gallery, n_blocks, n_threads)), unit)
        for block in (gallery_block, min(gallery_block, filling)):
            if block < gallery_block and 2 * block < tile.gallery:
                continue
            longest = _longest(gallery.n_rows, block, n_blocks, n_threads) * (rows + _PREPARATION)
            if longest < best / _LEAST_GAIN:
                best, found = longest, (rows, block)
    return found


def _filling(n_gallery_blocks: int, n_query_blocks: int, n_threads: int) -> int:
    """Number of gallery blocks, at least as many as given, with which tasks fill all threads."""
    return _rounded_up(n_gallery_blocks, n_threads // math.gcd(n_threads, n_query_blocks))


def _longest(n_gallery: int, gallery_block: int, n_query_blocks: int, n_threads: int) -> int:
    """Gallery rows that the thread with the most rows compares with blocks of queries; the last block is shorter."""
    n_long, rest = divmod(n_gallery, gallery_block)
    rounds, last = divmod(n_query_blocks * n_long, n_threads)
    n_short = n_query_blocks if rest else 0
    if last:
        # Threads without a task of the last round take short ones.
        n_short = max(0, n_short - (n_threads - last) * (gallery_block // max(1, rest)))
        rounds += 1
    return rounds * gallery_block + -(-n_short // n_threads) * rest


def _rounded_up(number: int, step: int) -> int:
    """Smallest multiple of `step` not below a number."""
    return -(-number // step) * step


def _longest_tile(n_rows: int, block_rows: int, most: int) -> int:
    """Rows of the longest tile of all blocks; the last block is shorter than the others, its tiles may be longer."""
    block_rows = min(block_rows, n_rows)
    return max(even_rows(rows, most) for rows in (block_rows, n_rows % max(1, block_rows)))


def make_plan(
    query: SetShape,
    gallery: SetShape,
    *,
    n_threads: int,
    memory_per_thread: int = DEFAULT_MEMORY,
    chunk_rows: int | None = None,
    relevant_per_query: float = 0.0,
    extra: ExtraMemory = NO_EXTRA_MEMORY,
    policy: Policy | None = None,
) -> Plan:
    """Divide a job into tasks.

    `memory_per_thread` limits one task, in bytes; `chunk_rows` are the rows of a tile on both sides, None for the
    default shape; `relevant_per_query` is the largest mean number of gallery items with the query's pid, over blocks of
    queries; `extra` is the memory of outputs other than ranks; `policy` is the job's, None for the one in force.

    Raises `InputError` if `chunk_rows` is not positive, and `PlanError` if no division fits into memory; the message
    names limits that would.
    """
    tile = DEFAULT_TILE if chunk_rows is None else TileShape(chunk_rows, chunk_rows)
    chosen = policy or Policy.in_force()
    work = _ON_DEVICE if chosen.expects_device(query.n_rows * gallery.n_rows * query.dim) else _ON_CPU
    query_block = min(query.n_rows, work.most_query_rows)
    # This memory does not decrease with smaller gallery blocks.
    pairs = extra.pairs
    fitting = memory_per_thread // (2 * max(1, extra.bytes_per_query))
    if fitting < query_block:
        query_block = max(1, fitting // tile.query * tile.query or fitting)
    # Enough tasks to keep all threads busy to the end, each large enough to outweigh its scheduling.
    flop = max(work.task_flop, 2.0 * query.n_rows * gallery.n_rows * query.dim / _MOST_TASKS)
    wanted = flop / (2.0 * query_block * query.dim)
    balanced = gallery.n_rows * -(-query.n_rows // query_block) / (work.tasks_per_thread * n_threads)
    rows = max(1, min(int(wanted), int(balanced), work.most_gallery_rows))
    if extra.bytes_per_pair:
        rows = max(1, min(rows, _MOST_HELD_PAIRS // query_block))
    chunk, is_chunked = min(gallery.chunk_rows, gallery.n_rows), gallery.chunk_rows < gallery.n_rows
    step = chunk if is_chunked else min(tile.gallery, gallery.n_rows)
    # Rounded up, few blocks are merged at once.
    steps = -(-rows // step) if extra.merges_slowly and not is_chunked else round(rows / step)
    gallery_block = max(1, steps) * step
    if not is_chunked:
        gallery_block = min(gallery_block, gallery.n_rows)
    smallest = chunk if is_chunked else 1
    # At most an eighth of the memory: a search with fewer counts takes more passes, with the same result.
    counts = max(_FEWEST_COUNTS, min(_MOST_COUNTS, memory_per_thread // (8 * _BYTES_PER_COUNT))) if pairs else 0

    integers, dim = chosen.may_use_integers, query.dim

    def projected(query_rows: int, gallery_rows: int) -> int:
        """Peak bytes of a task: blocks as read and prepared, the tile, thresholds and counts, and what outputs add."""
        # A decoded chunk exists in addition to its block, and float16 values in addition to their widened copy.
        widening = (4 if gallery.itemsize == 4 else 6) * dim
        blocks = query_rows * dim * 8 + gallery_rows * widening + min(gallery.chunk_rows, gallery_rows) * dim * 4
        tile_query = _longest_tile(query.n_rows, query_rows, tile.query)
        tile_gallery = _longest_tile(gallery.n_rows, gallery_rows, tile.gallery)
        # Products of a tile: in float32, of integers, and in float64 for crowded bands; prepared rows of both sides in
        # float32 and float64, and copies of queries that share products.
        values = tile_query * tile_gallery * 16 + tile_gallery * dim * 12 + tile_query * dim * 12
        if integers:
            # Both sides and their residuals in eight bits, the sides once more unsigned or transposed, and the queries
            # of a tile as well.
            values += (query_rows + tile_gallery) * dim * 3 + tile_query * dim
        # Open pairs of ranks.
        values += OPEN_BYTES + tile_gallery * 40
        # Per relevant pair: relevance and targets (56 bytes), edges and counts (20), edges in float64 for crowded bands
        # (16), sorting buffers, and the counts of the blocks that wait to be merged.
        thresholds = int(query_rows * relevant_per_query * (156 + 8 * MERGED_AT_ONCE)) + query_rows * 64
        held = query_rows * extra.bytes_per_query + gallery_rows * extra.bytes_per_gallery_row
        held += query_rows * gallery_rows * extra.bytes_per_pair + extra.bytes_per_task
        if pairs:
            held += _KEY_TABLES + OPEN_BYTES + min(counts, query_rows * gallery_rows) * _BYTES_PER_COUNT
        return blocks + values + thresholds + held

    while projected(query_block, gallery_block) > memory_per_thread:
        if gallery_block >= 2 * smallest:
            gallery_block = max(smallest, gallery_block // 2 // smallest * smallest)
        elif query_block > 1:
            query_block = max(1, query_block // 2)
        else:
            raise PlanError(
                f"one task needs {byte_size(projected(query_block, gallery_block))} and may take "
                f"{byte_size(memory_per_thread)}; give workers more memory per thread, or choose a smaller chunk_rows",
                details=(
                    f"tiles of {tile.query} x {tile.gallery} rows, gallery chunks of {chunk} rows x {gallery.dim} "
                    "features",
                    "smaller chunks of the gallery: ingest it again with a smaller --chunk-rows",
                ),
            )
    unit = gallery_block if extra.merges_slowly else chunk if is_chunked else _ROWS_STEP
    query_block, gallery_block = _even_blocks(query, gallery, query_block, gallery_block, tile, n_threads, unit)
    # Rank, ties, row and distance of every positive, and further values; once in blocks and once concatenated.
    result = 2 * query.n_rows * (int(32 * relevant_per_query) + 40 + 8 * extra.values_per_query)
    if extra.prepares:
        # Relevance and thresholds of all queries wait for the outputs.
        result += int(query.n_rows * relevant_per_query * _BYTES_PER_WAITING)
    task = projected(query_block, gallery_block)
    if pairs:
        n_blocks = -(-query.n_rows // query_block)
        counts = max(_FEWEST_COUNTS, min(counts, _ALL_COUNTS // n_blocks))
        result += 32 * min(n_blocks * (counts + _HISTOGRAM_KEYS), query.n_rows * gallery.n_rows)
    blocks = query_block, gallery_block
    return Plan(query, gallery, tile, *blocks, n_threads, task, result, counts, extra.prepares)
