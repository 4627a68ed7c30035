"""Exact neighbour lists of all items among themselves, each pair of blocks computed once, kept in the workspace."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.blas import one_blas_thread
from reid_dist.distances import Distance
from reid_dist.kernels.canonical import pair_distances
from reid_dist.model import RowRange
from reid_dist.reductions import Seed, Surroundings, merge_surroundings, pair_rows, sweep_both_ways
from reid_dist.reranking.items import Items
from reid_dist.stores import Stage

__all__ = ["NeighbourLists", "Table", "merge_task", "tile_task"]

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class NeighbourLists:
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
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.items.n_items // self.block_rows)

    def rows(self, block: int) -> RowRange:
        """Rows of a block."""
        start = block * self.block_rows
        return RowRange(start, min(start + self.block_rows, self.items.n_items))

    def tile_part(self, first: int, second: int) -> str:
        """Name of what a pair of blocks gave."""
        return f"tile-{first:05d}-{second:05d}"

    def block_part(self, block: int) -> str:
        """Name of the finished lists of a block."""
        return f"lists-{block:05d}"

    @property
    def is_complete(self) -> bool:
        """Whether all lists are finished."""
        return all(self.stage.has(self.block_part(block)) for block in range(self.n_blocks))

    def farthest(self, rows: RowRange) -> Float64:
        """Largest canonical distance of each item in a range, shape (len(rows),), float64."""
        return np.concatenate(list(self._pieces(rows, "farthest")))

    def index(self, rows: RowRange) -> NDArray[np.int32]:
        """Lists of a range of items, shape (len(rows), k), int32; -1 where there are no more."""
        return np.concatenate(list(self._pieces(rows, "index")))

    def distances(self, rows: RowRange) -> Float64:
        """Their distances, float64; inf where there are no more."""
        return np.concatenate(list(self._pieces(rows, "distance")))

    def _pieces(self, rows: RowRange, name: str) -> Iterator[NDArray[np.generic]]:
        for block in range(rows.start // self.block_rows, -(-rows.stop // self.block_rows)):
            own = self.rows(block)
            cut = slice(max(rows.start - own.start, 0), rows.stop - own.start)
            yield self.stage.read(self.block_part(block), name)[name][cut]


def tile_task(lists: NeighbourLists, first: int, second: int, _own: object = None) -> None:
    """Compare two blocks and write down what each found among the other.

    Two different blocks take what each has found among itself: most of what the other has is farther than that.
    """
    seeds = None if first == second else (_seed(lists, first), _seed(lists, second))
    with one_blas_thread():
        near = lists.items.read(lists.rows(first))
        far = None if first == second else lists.items.read(lists.rows(second))
        found = sweep_both_ways(near, far, lists.distance, lists.tile_rows, lists.k - 1, seeds)
    arrays: dict[str, NDArray[np.generic]] = {}
    for side, each in zip(("first", "second"), found, strict=False):
        arrays |= {
            f"{side}_index": each.index.astype(np.int32),
            f"{side}_distance": each.distance,
            f"{side}_farthest": each.farthest,
        }
    lists.stage.write(lists.tile_part(first, second), arrays)


def _seed(lists: NeighbourLists, block: int) -> Seed:
    """What the items of a block found among themselves."""
    part = lists.stage.read(lists.tile_part(block, block), "first_distance", "first_farthest")
    distance = part["first_distance"]
    reach = distance[:, -1] if distance.shape[1] == lists.k - 1 else np.full(len(distance), np.inf)
    return Seed(reach, part["first_farthest"])


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
    width = lists.k - 1
    lists.stage.write(
        lists.block_part(block),
        {
            "index": np.column_stack([features.numbers, _filled(merged.index, width, -1)]).astype(np.int32),
            "distance": np.column_stack([own, _filled(merged.distance, width, np.inf)]),
            "farthest": np.maximum(merged.farthest, own),
        },
    )


def _filled(values: NDArray[np.generic], width: int, filling: float) -> NDArray[np.generic]:
    """As many columns as asked for."""
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=filling)


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
                cls._index = lists.index(RowRange(0, lists.items.n_items))
                cls._key = key
            return cls._index
