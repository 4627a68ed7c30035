"""The tile loop: each product is passed to every reduction; memory is reused from tile to tile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.distances import Distance
from reid_dist.engine.distances.devices import DeviceLostError
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import UNFORCED, Policy
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.reductions.costs import ListWork, Need, Precision
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.surroundings import Listing, Seed, Surroundings, listed_in
from reid_dist.engine.reductions.tile_products import BlockPair, TileView
from reid_dist.kernels.canonical import read_only

_LOG: Final = logging.getLogger("reid_dist")

T = TypeVar("T")


def run_tiles(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    reductions: Sequence[Reduction[Any]],
    policy: Policy = UNFORCED,
) -> list[Any]:
    """Reduce all tiles of a block pair; return the partial result of each reduction, in order.

    Queries of one first precision share tiles.  It is the widest that a reduction prefers for the query.  Raises
    `InputError` if the policy forces products of integers that this process lacks.
    """
    needs = [reduction.need for reduction in reductions]
    return _until_computed(lambda: _run(BlockPair(query, gallery, distance, tile, policy, needs), reductions))


def _until_computed(compute: Callable[[], T]) -> T:
    """Compute a block pair again, elsewhere, if the device that it was computed on is lost."""
    while True:
        try:
            return compute()
        except DeviceLostError as error:
            _LOG.warning("%s cannot be used any more; its pairs are computed on the CPU", error)


def _run(pair: BlockPair, reductions: Sequence[Reduction[Any]]) -> list[Any]:
    begun = [reduction.start(pair) for reduction in reductions]
    first = _first_precisions(pair, begun)
    tiles = [
        TileView(pair, queries[rows.start : rows.stop], Precision(kind))
        for kind in np.unique(first[first > Precision.NOTHING])
        for queries in [np.flatnonzero(first == kind)]
        for rows in cut_rows(len(queries), pair.query_rows)
    ]
    for columns in cut_rows(len(pair.gallery), pair.gallery_rows):
        for tile in tiles:
            tile.columns = columns
            for reduction in begun:
                reduction.absorb(tile)
    return [reduction.result() for reduction in begun]


def _first_precisions(pair: BlockPair, reductions: Sequence[Reduction[Any]]) -> NDArray[np.uint8]:
    """First precision of every query for all reductions, shape (n_query,).

    It is the widest that one of them prefers, or a wider one, where it does not serve the need of another.
    """
    own = [reduction.precisions for reduction in reductions]
    first: NDArray[np.uint8] = np.maximum.reduce(own)
    for reduction, each in zip(reductions, own, strict=True):
        served = [pair.costs.serving(kind, reduction.need) for kind in Precision]
        raised = np.maximum(served, [*Precision]).astype(np.uint8)
        first = np.where(each > Precision.NOTHING, raised[first], first)
    return first


def run_symmetric_tiles(
    first: FeatureBlock,
    second: FeatureBlock | None,
    distance: Distance,
    tile_rows: int,
    k: int,
    seeds: tuple[Seed, Seed] | None = None,
    *,
    farthest: bool = True,
    policy: Policy = UNFORCED,
) -> list[Surroundings]:
    """Find the nearest and farthest items of two blocks of one set, for both; or of one block, if the second is None.

    Tiles have `tile_rows` rows and columns.  An item is not in its own list.  `seeds` are bounds for the items of both
    blocks: items within `Seed.reach` are listed; those beyond may be missing.  Errors are those of
    `run_tiles`.
    """
    tile, other = TileShape(tile_rows, tile_rows), first if second is None else second
    make_pair = partial(BlockPair, first, other, distance, tile, policy, [Need.NEIGHBOURS])
    return _until_computed(lambda: _run_symmetric(make_pair(), k, seeds, is_same=second is None, farthest=farthest))


def _run_symmetric(
    pair: BlockPair, k: int, seeds: tuple[Seed, Seed] | None, *, is_same: bool, farthest: bool
) -> list[Surroundings]:
    first, second, policy = pair.query, None if is_same else pair.gallery, pair.policy
    tiles = [
        TileView(pair, np.arange(cut.start, cut.stop), listed_in(pair, k, 0.5 if second is None else 1.0))
        for cut in cut_rows(len(first), pair.query_rows)
    ]
    of_rows, of_columns = seeds or (Seed(), Seed())
    near = far = Listing(pair, k, of_rows, farthest=farthest)
    if second is not None:
        far = Listing(pair, k, of_columns, farthest=farthest, of_columns=True)
    work = ListWork(pair.costs, 0 if seeds is not None else k * len(first), policy)

    def add(tile: TileView, columns: RowRange) -> None:
        tile.columns = columns
        backend, pairs = tile.read(tile.precision, Need.NEIGHBOURS)
        leave(tile, backend.nearest_both_ways(pairs, near.side, far.side))

    def leave(tile: TileView, n_refined: int) -> None:
        if work.exceeds(tile.precision, n_refined, tile.size):
            tile.leave(tile.precision, Need.NEIGHBOURS)
            for each in tiles:
                each.precision = tile.precision

    if second is not None:
        for columns in cut_rows(len(second), pair.gallery_rows):
            for tile in tiles:
                add(tile, columns)
        return [near.result(), far.result()]
    # Tiles on the diagonal come first: they bound the lists of all items.
    within = near.side
    if not len(within.label):
        # An item is not in its own list.
        own = read_only(np.arange(len(first)))
        within = within._replace(label=own, other_label=own)
    cuts = [RowRange(int(tile.queries[0]), int(tile.queries[-1]) + 1) for tile in tiles]
    for tile, cut in zip(tiles, cuts, strict=True):
        tile.columns = cut
        backend, pairs = tile.read(tile.precision, Need.NEIGHBOURS)
        leave(tile, backend.nearest(pairs, within))
    for later, columns in enumerate(cuts):
        for tile in tiles[:later]:
            add(tile, columns)
    return [near.result()]
