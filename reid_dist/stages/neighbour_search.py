"""Neighbour lists, and the searches that find them as stages of a workspace.

Finished blocks are kept, and longer lists serve for shorter ones.  `find_neighbours` compares each pair of blocks of
items once for both; the lists of a pair of blocks are a part of the stage, a tile, until those of all items are merged
from them.  `find_query_neighbours` compares queries with a gallery in the same way, and `find_top_lists` does so in the
task graph of an evaluation, by cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint, plain
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.graph import run_job
from reid_dist.engine.jobs import SearchJob
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.plan import TileShape, make_plan
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.surroundings import KeepNearest, Seed, Surroundings, merge_surroundings
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.screened_pairs import ScreenedPairs, add_screened, count_screened
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.engine.tile_loop import run_symmetric_tiles, run_tiles
from reid_dist.kernels.canonical import pair_distances
from reid_dist.stages.items import Items, forget_blocks
from reid_dist.stages.parts import Blocks, Latest, Parts, PartStage, run
from reid_dist.stages.search_plan import (
    MOST_SEEDS,
    choose_block_rows,
    choose_two_block_rows,
    rows_of_a_tile,
)
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet
from reid_dist.stores.workspace import stage_name

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Rows of a block of lists that are found in the task graph of an evaluation.
_TOP_BLOCK_ROWS = 65536

_TILE = "tile-"


# ---- lists -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listed:
    """Lists of some items, the item itself first: two (n, k) arrays, and the largest distances, shape (n,)."""

    index: NDArray[np.signedinteger]
    distance: Float64
    farthest: Float64


@dataclass(frozen=True)
class NeighbourLists:
    """Lists of the `k` nearest candidates of each item.

    `candidates` are the items themselves, unless they are another set.  With `own_first`, each list begins with the
    item itself, which counts as one of `k`.  With `has_farthest`, the largest distance of each item is kept as well.
    """

    parts: Parts
    items: Items
    candidates: Items
    distance: Distance
    k: int
    own_first: bool = True
    has_farthest: bool = False

    @property
    def identity(self) -> list[Any]:
        """All that lists depend on but their length: the first entries of longer ones are the shorter ones."""
        return [self.items.identity, self.candidates.identity, self.distance.name]

    @property
    def n_items(self) -> int:
        """Number of lists."""
        return self.items.n_items

    def row_blocks(self, most_rows: int) -> Blocks:
        """Cut of rows that are made of the lists: as these, but with at most so many rows."""
        return Blocks(self.n_items, min(self.parts.blocks.block_rows, most_rows))

    def listed(self, rows: RowRange) -> Listed:
        """Lists of a range of items, with their largest distances."""
        return Listed(*self.parts.read(rows, "index", "distance", "farthest"))

    def farthest(self, rows: RowRange) -> Float64:
        """Largest canonical distance of each item in a range, shape (len(rows),), float64; only with `has_farthest`."""
        if not self.has_farthest:
            raise AssertionError("largest distances were not searched for")
        return self.parts.read(rows, "farthest")[0]

    def index(self, rows: RowRange) -> NDArray[np.signedinteger]:
        """Lists of a range of items, shape (len(rows), k), int32 or int64; -1 after the last entry."""
        return self.parts.read(rows, "index")[0]

    def distances(self, rows: RowRange) -> Float64:
        """Distances of the lists of a range of items, shape (len(rows), k), float64; inf after the last entry."""
        return self.parts.read(rows, "distance")[0]

    def others(self, rows: RowRange) -> tuple[Int64, Float64]:
        """Lists of a range of items without the item itself: int64 and float64, one row per item."""
        first = int(self.own_first)
        index, distance = self.parts.read(rows, "index", "distance")
        return index[:, first:].astype(np.int64), distance[:, first:]

    def last_kept(self, items: Int64, length: int) -> Float64:
        """Distance of the last entry in the lists of some items, ascending, for lists of `length`, the item counted.

        Shape (len(items),), float64: inf where a list is not full, -inf where it holds the item alone (`length` 1).
        """
        if length == 1 or not len(items):
            return np.full(len(items), -np.inf)
        last: Float64 = self.parts.read(items, "distance")[0][:, length - 1]
        return last


_TABLE: Latest[NDArray[np.int32]] = Latest()
forget_table = _TABLE.forget


def table_of(lists: NeighbourLists) -> NDArray[np.int32]:
    """Lists of all items, shape (n_items, k), int32, read once per process: 4 bytes per entry."""
    everything = RowRange(0, lists.n_items)
    key = lists.parts.stage.path, lists.k
    return _TABLE.get(key, lambda: lists.index(everything).astype(np.int32, copy=False))


# ---- searches --------------------------------------------------------------------------------------------------------


def find_neighbours(
    items: Items, distance: Distance, k: int, where: Resources, *, farthest: bool = True
) -> NeighbourLists:
    """Find the `k` nearest items of every item, itself first, and its largest distance; finished lists are reused.

    `k` counts the item itself; longer finished lists of the workspace are accepted.  Without `farthest`, largest
    distances are not searched for.
    """
    # A list of length 1 holds no neighbour; length 2 costs no more.
    k = max(2, k)
    rows = choose_block_rows(items.n_items, items.dim, k, *_limits(where), on_device=_on_device(items, items, where))
    blocks = SearchBlocks(items.n_items, rows, rows, rows_of_a_tile(where.chunk_rows))
    return _found(Search(blocks, items, items, distance, k, farthest, where.policy), where)


def find_query_neighbours(
    query: FeatureSet, gallery: FeatureSet, distance: Distance, k: int, where: Resources
) -> NeighbourLists:
    """Find the `k` nearest gallery items of every query, the query itself first, as `find_neighbours` does."""
    near, far, k = Items((query,)), Items((gallery,)), max(2, k)
    sizes = query.n_rows, gallery.n_rows
    rows = choose_two_block_rows(sizes, query.dim, k, *_limits(where), on_device=_on_device(near, far, where))
    blocks = SearchBlocks(query.n_rows, *rows, rows_of_a_tile(where.chunk_rows))
    return _found(QuerySearch(blocks, near, far, distance, k, True, where.policy), where)


def find_top_lists(query: FeatureSet, gallery: FeatureSet, k: int, where: Resources) -> NeighbourLists:
    """Find the `k` nearest gallery rows of every query by cosine distance, without the query itself.

    Finished lists of length k or more are reused.
    """
    blocks, sides = Blocks(query.n_rows, _TOP_BLOCK_ROWS), (Items((query,)), Items((gallery,)))
    return _found(TopSearch(blocks, *sides, DISTANCES.get("cosine"), min(k, gallery.n_rows)), where)


def _limits(where: Resources) -> tuple[int, int, int | None]:
    return where.n_threads, where.memory_per_thread, where.chunk_rows


def _on_device(items: Items, candidates: Items, where: Resources) -> bool:
    return where.policy.expects_device(items.n_items * candidates.n_items * items.dim)


@dataclass(frozen=True)
class ListStage(PartStage):
    """Lists of the `k` nearest candidates of items; `farthest` is whether their largest distances are kept too."""

    own_first: ClassVar[bool] = True

    items: Items
    candidates: Items
    distance: Distance
    k: int
    farthest: bool = False


def _found(stage: ListStage, where: Resources) -> NeighbourLists:
    """Finished lists of a kind of stage, of the length or longer, or new ones."""
    own = where.workspace.place(stage_name(stage.kind, stage.identity))
    wanted = plain(stage.identity)
    parts, k, farthest = None, stage.k, stage.farthest
    for kept, description in where.workspace.begun(stage.kind):
        found = description["of"]
        if kept.path == own or found["k"] < k or (farthest and not found["farthest"]):
            continue
        longer = Parts(kept, stage.blocks.adopted(description))
        if {**found, "k": k, "farthest": farthest} == wanted and not longer.missing(kept.done()):
            parts, k, farthest = longer, found["k"], found["farthest"]
            break
    if parts is None:
        parts = run(stage, where)
    return NeighbourLists(parts, stage.items, stage.candidates, stage.distance, k, stage.own_first, farthest)


@dataclass(frozen=True)
class TopSearch(ListStage):
    """Lists without the item itself, found by the task graph of an evaluation."""

    kind: ClassVar[str] = "toplists"
    own_first: ClassVar[bool] = False

    def fill(self, parts: Parts, missing: Sequence[int], done: frozenset[str], where: Resources) -> None:
        """Find all lists at once."""
        if not missing:
            return
        (query,), (gallery,) = self.items.sets, self.candidates.sets
        scorer = FeatureScorer(query, gallery, self.distance)
        plan = make_plan(
            *scorer.shapes,
            n_threads=where.n_threads,
            memory_per_thread=where.memory_per_thread,
            chunk_rows=where.chunk_rows,
            extra=NearestRows(self.k).memory,
            policy=where.policy,
        )
        job = SearchJob(query, gallery, scorer, plan, (NearestRows(self.k),), policy=where.policy)
        nearest = run_job(job, where).of(NearestRows)
        for block in missing:
            rows = parts.blocks.rows(block)
            here = slice(rows.start, rows.stop)
            parts.write(block, {"index": nearest.index[here], "distance": nearest.distance[here]})


# ---- pairs of blocks -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SearchBlocks(Blocks):
    """Cut of the lists of a search, with the rows of a block of candidates and those of a tile of the tile loop."""

    candidate_rows: int
    tile_rows: int


@dataclass(frozen=True)
class Search(ListStage):
    """Search of items among themselves: their blocks are the candidates' blocks.

    `policy` decides which products are compared.
    """

    kind: ClassVar[str] = "neighbours"
    progress: ClassVar[str] = "neighbours"
    is_symmetric: ClassVar[bool] = True

    blocks: SearchBlocks
    policy: Policy = field(default_factory=Policy.in_force, compare=False)

    @property
    def candidate_blocks(self) -> list[RowRange]:
        """Blocks of the candidates."""
        return list(cut_rows(self.candidates.n_items, self.blocks.candidate_rows))

    def pair(self, block: int, other: int) -> tuple[int, int]:
        """The pair of blocks whose comparison gives the lists of a block in another one."""
        return (min(block, other), max(block, other)) if self.is_symmetric else (block, other)

    def tile(self, first: int, second: int) -> str:
        """Name of the part of a pair of blocks."""
        return f"{_TILE}{first:05d}-{second:05d}"

    def side(self, block: int, other: int) -> str:
        """Beginning of the names of the arrays of a block within the part of a pair of blocks."""
        if not self.is_symmetric:
            return ""
        return "first_" if block <= other else "second_"

    def fill(self, parts: Parts, missing: Sequence[int], done: frozenset[str], where: Resources) -> None:
        """Compare the pairs of blocks that are needed, merge their lists, and remove all tiles."""
        # An interrupted run may have used other blocks; its finished tiles are reused.
        search = replace(self, blocks=self.blocks.adopted(vars(parts.blocks)))
        graph, at = TaskGraph(), fingerprint(parts.stage.path)[:12]
        tiles = {part for part in done if part.startswith(_TILE)}

        def tile(first: int, second: int) -> list[str]:
            """Add the task of a pair of blocks, after the tasks of each block with itself, unless it is finished."""
            key, part = f"neighbours-{at}-{first}-{second}", search.tile(first, second)
            if part in done:
                return []
            if key not in graph.tasks:
                tiles.add(part)
                seeded = self.is_symmetric and first != second
                before = [*tile(first, first), *tile(second, second)] if seeded else []
                graph.add(key, tile_task, search, parts, first, second, before, stage=self.progress)
            return [key]

        for block in missing:
            pairs = [search.pair(block, other) for other in range(len(search.candidate_blocks))]
            keys = [key for pair in pairs for key in tile(*pair)]
            # A pair of blocks is of both: the first of them counts it.
            counted = [key for pair in pairs if pair[0] == block for key in tile(*pair)]
            graph.finals.append(graph.add(f"lists-{at}-{block}", merge_task, search, parts, block, keys, counted))
        try:
            where.run(graph)
        finally:
            forget_blocks()
        parts.stage.remove(*sorted(tiles))


@dataclass(frozen=True)
class QuerySearch(Search):
    """Search of queries in a gallery."""

    kind: ClassVar[str] = "query_neighbours"
    is_symmetric: ClassVar[bool] = False


def tile_task(search: Search, parts: Parts, first: int, second: int, _before: object = None) -> ScreenedPairs:
    """Compare two blocks and write the nearest neighbours of each item in the other block; count the pairs.

    Two different blocks of items among themselves start from the seed bounds of each: most pairs exceed these bounds.
    """
    arrays: dict[str, NDArray[np.generic]] = {}
    seeds = None
    if search.is_symmetric and first != second:
        done = parts.stage.done()
        seeds = _seed(search, parts, first, done), _seed(search, parts, second, done)
    with one_blas_thread(), count_screened() as screened:
        near = search.items.read(search.blocks.rows(first))
        far = (
            near if search.is_symmetric and first == second else search.candidates.read(search.candidate_blocks[second])
        )
        n_others, distance, tile_rows = search.k - 1, search.distance, search.blocks.tile_rows
        if search.is_symmetric:
            other = None if far is near else far
            sides = run_symmetric_tiles(
                near, other, distance, tile_rows, n_others, seeds, farthest=search.farthest, policy=search.policy
            )
        else:
            reduction = KeepNearest(n_others, farthest=search.farthest, need=Need.NEIGHBOURS)
            sides = run_tiles(near, far, distance, TileShape(tile_rows, tile_rows), [reduction], search.policy)
    for side, found in zip(("first_", "second_") if search.is_symmetric else ("",), sides, strict=False):
        arrays[f"{side}index"] = found.index.astype(np.int32)
        arrays[f"{side}distance"], arrays[f"{side}farthest"] = found.distance, found.farthest
    parts.stage.write(search.tile(first, second), arrays)
    return screened


def _seed(search: Search, parts: Parts, block: int, done: frozenset[str]) -> Seed:
    """Seed bounds of a block: k-th nearest distances in itself and in other pairs of blocks that are `done`.

    The finished pairs vary from run to run, and so do the lists of a tile.  The merged lists do not: an item farther
    than any k others is not among the k nearest.
    """
    others = [other for other in range(len(search.blocks)) if other != block]
    finished = [other for other in others if search.tile(*search.pair(block, other)) in done]
    found = [
        _read(search, parts, block, other, "distance", "farthest") for other in [block, *finished[: MOST_SEEDS - 1]]
    ]
    distances, farthest = zip(*found, strict=True)
    place = search.k - 2
    reach = np.partition(np.concatenate(distances, axis=1), place, axis=1)[:, place]
    return Seed(reach, np.max(farthest, axis=0))


def _read(search: Search, parts: Parts, block: int, other: int, *names: str) -> list[NDArray[Any]]:
    """Arrays of a block's items in the part of a pair of blocks."""
    own = [f"{search.side(block, other)}{name}" for name in names]
    part = parts.stage.read(search.tile(*search.pair(block, other)), *own)
    return [part[name] for name in own]


def merge_task(
    search: Search, parts: Parts, block: int, _tiles: object = None, counted: Sequence[ScreenedPairs] = ()
) -> ScreenedPairs:
    """Merge the neighbours of a block's items in all blocks, put each item first in its own list, write the lists.

    Returns the sum of `counted`.
    """

    def found_in(other: int) -> Surroundings:
        index, distance, farthest = _read(search, parts, block, other, "index", "distance", "farthest")
        return Surroundings(index.astype(np.int64), distance, farthest)

    merged = merge_surroundings(map(found_in, range(len(search.candidate_blocks))))
    features = search.items.read(search.blocks.rows(block))
    # A query is no candidate: in its own list, its number follows those of the gallery.
    numbers = features.numbers if search.is_symmetric else np.full(len(features), search.candidates.n_items)
    found = own_first(features, numbers, merged, search.distance)
    parts.write(block, {"index": found.index, "distance": found.distance, "farthest": found.farthest})
    return add_screened(counted)


def own_first(features: FeatureBlock, numbers: NDArray[np.int64], found: Surroundings, distance: Distance) -> Listed:
    """Put each item, by its number, first in its own list."""
    place = np.arange(len(features))
    own = pair_distances(pair_rows(distance, features, features), place, place)
    return Listed(
        np.column_stack([numbers, found.index]).astype(np.int32),
        np.column_stack([own, found.distance]),
        np.maximum(found.farthest, own),
    )
