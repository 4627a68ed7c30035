"""Exact neighbour lists of all items among themselves, each pair of blocks computed once, kept in the workspace."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.reductions import Seed, Surroundings, merge_surroundings, pair_rows, run_symmetric_tiles
from reid_dist.kernels.canonical import pair_distances
from reid_dist.stages.reranking.items import Items
from reid_dist.stages.reranking.lists import BlockedLists
from reid_dist.stores import Stage

__all__ = ["MOST_SEEDS", "NeighbourLists", "Table", "merge_task", "own_first", "tile_task"]

# Pairs of blocks from which a block takes what it has found: each is read, and after some one more says little.
MOST_SEEDS = 6

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class NeighbourLists(BlockedLists):
    """Lists of the k nearest items of each item, itself first, and how far its farthest is; cut into blocks of rows.

    Attributes
    ----------
    stage
        Where they are.
    items
        Of what.
    distance
        By what distance.
    k
        Length of a list, the item itself counted.
    block_rows
        Rows of a block.
    tile_rows
        Rows and columns of a tile.
    """

    stage: Stage
    items: Items
    distance: Distance
    k: int
    block_rows: int
    tile_rows: int

    @property
    def n_items(self) -> int:
        """Rows that have a list."""
        return self.items.n_items


def tile_task(lists: NeighbourLists, first: int, second: int, _own: object = None) -> None:
    """Compare two blocks and write down what each found among the other.

    Two different blocks start from what each has found: most of what the other has is farther than that.
    """
    seeds = None if first == second else (_seed(lists, first), _seed(lists, second))
    with one_blas_thread():
        near = lists.items.read(lists.rows(first))
        far = None if first == second else lists.items.read(lists.rows(second))
        found = run_symmetric_tiles(near, far, lists.distance, lists.tile_rows, lists.k - 1, seeds)
    arrays: dict[str, NDArray[np.generic]] = {}
    for side, each in zip(("first", "second"), found, strict=False):
        arrays |= {
            f"{side}_index": each.index.astype(np.int32),
            f"{side}_distance": each.distance,
            f"{side}_farthest": each.farthest,
        }
    lists.stage.write(lists.tile_part(first, second), arrays)


def _seed(lists: NeighbourLists, block: int) -> Seed:
    """What the items of a block have found so far: among themselves, and in other pairs of blocks that are done.

    Which ones are done is a matter of luck, and so is what a tile then lists.  What all tiles list together is not: an
    item that is farther than k others is none of the k nearest, whoever those others are.
    """
    distances: list[Float64] = []
    farthest: list[Float64] = []
    for other in [block, *(other for other in range(lists.n_blocks) if other != block)]:
        part = lists.tile_part(min(block, other), max(block, other))
        if len(distances) == MOST_SEEDS or (other != block and not lists.stage.has(part)):
            continue
        side = "first" if block <= other else "second"
        found = lists.stage.read(part, f"{side}_distance", f"{side}_farthest")
        distances.append(found[f"{side}_distance"])
        farthest.append(found[f"{side}_farthest"])
    nearest, place = np.concatenate(distances, axis=1), lists.k - 2
    known = nearest.shape[1] > place
    reach = np.partition(nearest, place, axis=1)[:, place] if known else np.full(len(nearest), np.inf)
    return Seed(reach, np.max(farthest, axis=0))


def merge_task(lists: NeighbourLists, block: int, _tiles: object = None) -> None:
    """Merge what all blocks found for the items of one, put each item first in its own list, and write that down."""
    rows = lists.rows(block)
    merged: Surroundings | None = None
    for other in range(lists.n_blocks):
        side = "first" if block <= other else "second"
        names = [f"{side}_{name}" for name in ("index", "distance", "farthest")]
        part = lists.stage.read(lists.tile_part(min(block, other), max(block, other)), *names)
        index, distance, farthest = (part[name] for name in names)
        found = Surroundings(index.astype(np.int64), distance, farthest)
        merged = found if merged is None else merge_surroundings(merged, found, lists.k - 1)
    if merged is None:
        raise AssertionError("there is at least one block")
    features = lists.items.read(rows)
    place = np.arange(len(rows))
    own = pair_distances(pair_rows(lists.distance, features, features), place, place)
    lists.stage.write(lists.block_part(block), own_first(features.numbers, own, merged, lists.k))


def own_first(numbers: Int64, own: Float64, others: Surroundings, k: int) -> dict[str, NDArray[np.generic]]:
    """Finished lists of some items: each itself, by its number and its own distance, then what was found of others."""
    missing = ((0, 0), (0, k - 1 - others.index.shape[1]))
    index = np.pad(others.index, missing, constant_values=-1)
    distance = np.pad(others.distance, missing, constant_values=np.inf)
    return {
        "index": np.column_stack([numbers, index]).astype(np.int32),
        "distance": np.column_stack([own, distance]),
        "farthest": np.maximum(others.farthest, own),
    }


class Table:
    """The lists of all items as one array, read once per process: 4 bytes an entry, small enough for every worker."""

    _lock = threading.Lock()
    _key: tuple[str, int] | None = None
    _index: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, lists: NeighbourLists) -> NDArray[np.int32]:
        """Return them, shape (n_items, k), int32."""
        with cls._lock:
            key = (lists.stage.path, lists.k)
            if cls._index is None or cls._key != key:
                cls._index, cls._key = None, None
                cls._index = lists.index(RowRange(0, lists.n_items))
                cls._key = key
            return cls._index
