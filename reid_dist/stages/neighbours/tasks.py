"""Tasks of a neighbour search: comparison of two blocks, and merge of the lists of a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.surroundings import KeepNearest, Seed, Surroundings, merge_surroundings
from reid_dist.engine.screened_pairs import ScreenedPairs, add_screened, count_screened
from reid_dist.engine.tile_loop import run_symmetric_tiles, run_tiles
from reid_dist.kernels.canonical import pair_distances
from reid_dist.stages.neighbours.lists import Listed, NeighbourLists
from reid_dist.stages.neighbours.plan import MOST_SEEDS

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Search:
    """Search for lists in tiles of `tile_rows`; `candidate_rows` are those of a block of candidates.

    Among themselves, items are cut into the blocks of the lists, and a pair of blocks is compared once for both.
    `policy` decides which products are compared.
    """

    lists: NeighbourLists
    candidate_rows: int
    tile_rows: int
    policy: Policy

    @property
    def candidate_blocks(self) -> list[RowRange]:
        """Blocks of the candidates."""
        return list(cut_rows(self.lists.candidates.n_items, self.candidate_rows))

    def pair(self, block: int, other: int) -> tuple[int, int]:
        """The pair of blocks whose comparison gives the lists of a block in another one."""
        return (min(block, other), max(block, other)) if self.lists.is_symmetric else (block, other)

    def part(self, first: int, second: int) -> str:
        """Name of the part of a pair of blocks."""
        return f"tile-{first:05d}-{second:05d}"

    def side(self, block: int, other: int) -> str:
        """Beginning of the names of the arrays of a block within the part of a pair of blocks."""
        if not self.lists.is_symmetric:
            return ""
        return "first_" if block <= other else "second_"


def tile_task(search: Search, first: int, second: int, _before: object = None) -> ScreenedPairs:
    """Compare two blocks and write the nearest neighbours of each item in the other block; count the pairs.

    Two different blocks of items among themselves start from the seed bounds of each: most pairs exceed these bounds.
    """
    lists = search.lists
    if not lists.is_symmetric:
        with one_blas_thread(), count_screened() as screened:
            near, far = lists.items.read(lists.rows(first)), lists.candidates.read(search.candidate_blocks[second])
            tile = TileShape(search.tile_rows, search.tile_rows)
            reduction = KeepNearest(lists.k - 1, farthest=lists.has_farthest, need=Need.NEIGHBOURS)
            (found,) = run_tiles(near, far, lists.distance, tile, [reduction], search.policy)
        lists.stage.write(search.part(first, second), _arrays("", found))
        return screened
    seeds = None if first == second else (_seed(search, first), _seed(search, second))
    with one_blas_thread(), count_screened() as screened:
        near = lists.items.read(lists.rows(first))
        other = None if first == second else lists.items.read(lists.rows(second))
        sides = run_symmetric_tiles(
            near,
            other,
            lists.distance,
            search.tile_rows,
            lists.k - 1,
            seeds,
            farthest=lists.has_farthest,
            policy=search.policy,
        )
    arrays: dict[str, NDArray[np.generic]] = {}
    for prefix, each in zip(("first_", "second_"), sides, strict=False):
        arrays |= _arrays(prefix, each)
    lists.stage.write(search.part(first, second), arrays)
    return screened


def _arrays(prefix: str, found: Surroundings) -> dict[str, NDArray[np.generic]]:
    return {
        f"{prefix}index": found.index.astype(np.int32),
        f"{prefix}distance": found.distance,
        f"{prefix}farthest": found.farthest,
    }


def _seed(search: Search, block: int) -> Seed:
    """Seed bounds of a block: k-th nearest distances in itself and in other finished pairs of blocks.

    The finished pairs vary from run to run, and so do the lists of a tile.  The merged lists do not: an item farther
    than any k others is not among the k nearest.
    """
    lists = search.lists
    distances: list[Float64] = []
    farthest: list[Float64] = []
    for other in [block, *(other for other in range(lists.n_blocks) if other != block)]:
        part, side = search.part(*search.pair(block, other)), search.side(block, other)
        if len(distances) == MOST_SEEDS or (other != block and not lists.stage.has(part)):
            continue
        found = lists.stage.read(part, f"{side}distance", f"{side}farthest")
        distances.append(found[f"{side}distance"])
        farthest.append(found[f"{side}farthest"])
    place = lists.k - 2
    reach = np.partition(np.concatenate(distances, axis=1), place, axis=1)[:, place]
    return Seed(reach, np.max(farthest, axis=0))


def merge_task(
    search: Search, block: int, _tiles: object = None, counted: Sequence[ScreenedPairs] = ()
) -> ScreenedPairs:
    """Merge the neighbours of a block's items in all blocks, put each item first in its own list, write the lists.

    Returns the sum of `counted`.
    """
    lists = search.lists

    def found_in(other: int) -> Surroundings:
        names = [f"{search.side(block, other)}{name}" for name in ("index", "distance", "farthest")]
        part = lists.stage.read(search.part(*search.pair(block, other)), *names)
        index, distance, farthest = (part[name] for name in names)
        return Surroundings(index.astype(np.int64), distance, farthest)

    merged = merge_surroundings(map(found_in, range(len(search.candidate_blocks))))
    features = lists.items.read(lists.rows(block))
    # A query is no candidate: in its own list, its number follows those of the gallery.
    numbers = features.numbers if lists.is_symmetric else np.full(len(features), lists.candidates.n_items)
    found = own_first(features, numbers, merged, lists.distance)
    arrays = {"index": found.index, "distance": found.distance, "farthest": found.farthest}
    lists.stage.write(lists.block_part(block), arrays)
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
