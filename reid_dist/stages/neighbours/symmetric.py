"""Exact neighbour lists of all items among themselves, each pair of blocks computed once and kept in the workspace."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.reductions import Seed, Surroundings, merge_surroundings, pair_rows
from reid_dist.engine.tile_loop import run_symmetric_tiles
from reid_dist.kernels.canonical import pair_distances
from reid_dist.stages.neighbours.items import Items
from reid_dist.stages.neighbours.lists import BlockedLists, own_first
from reid_dist.stages.neighbours.plan import MOST_SEEDS
from reid_dist.stores import Stage

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class NeighbourLists(BlockedLists):
    """Lists of the k nearest items of each item, itself first, and its largest distance; cut into blocks of rows.

    Attributes
    ----------
    stage
        Stage of the workspace.
    items
        Rows of one feature set, or of queries and gallery.
    distance
        Distance between items.
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
    """Compare two blocks and write the nearest neighbours of each in the other.

    Two different blocks start from the seed bounds of each: most pairs exceed these bounds.
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
    """Seed bounds of a block: k-th nearest distances in itself and in other finished pairs of blocks.

    The finished pairs vary from run to run, and so do the lists of a tile.  The merged lists do not: an item farther
    than any k others is not among the k nearest.
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
    """Merge the neighbours of a block's items in all blocks, put each item first in its own list, write the lists."""
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


class Table:
    """Lists of all items as one array, read once per process: 4 bytes per entry."""

    _lock = threading.Lock()
    _key: tuple[str, int] | None = None
    _index: NDArray[np.int32] | None = None

    @classmethod
    def of(cls, lists: NeighbourLists) -> NDArray[np.int32]:
        """Return the lists of all items, shape (n_items, k), int32."""
        with cls._lock:
            key = (lists.stage.path, lists.k)
            if cls._index is None or cls._key != key:
                cls._index, cls._key = None, None
                cls._index = lists.index(RowRange(0, lists.n_items))
                cls._key = key
            return cls._index
