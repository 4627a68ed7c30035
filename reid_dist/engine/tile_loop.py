"""The tile loop: each product is passed to every reduction; memory is reused from tile to tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reid_dist.engine.coarse_tiles import run_coarse_tiles, run_coarse_tiles_both_ways, run_coarse_tiles_within
from reid_dist.engine.distances import Distance
from reid_dist.engine.plain_tiles import run_plain_tiles
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import (
    CountNearer,
    FeatureBlock,
    KeepNearest,
    Reduction,
    Seed,
    SurroundBoth,
    Surroundings,
    SurroundQueries,
)


def run_tiles(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    reductions: Sequence[Reduction[Any]],
    *,
    triangle: bool = False,
) -> list[Any]:
    """Reduce all tiles of a block pair; return the partial result of each reduction, in order.

    `triangle` omits the tiles below the diagonal, for a block against itself in square tiles.
    """
    lists = [each for each in reductions if isinstance(each, KeepNearest | SurroundQueries)]
    counts = [each for each in reductions if isinstance(each, CountNearer)]
    found: dict[int, Any] = {}
    if len(lists) < 2 and len(counts) < 2 and len(lists) + len(counts) == len(reductions):
        one_list, one_count = lists[0] if lists else None, counts[0] if counts else None
        found = run_coarse_tiles(query, gallery, distance, tile, one_list, one_count)
    left = [each for each in reductions if id(each) not in found]
    if left:
        plain = run_plain_tiles(query, gallery, distance, tile, left, triangle=triangle)
        found |= {id(each): one for each, one in zip(left, plain, strict=True)}
    return [found[id(each)] for each in reductions]


def run_symmetric_tiles(
    first: FeatureBlock,
    second: FeatureBlock | None,
    distance: Distance,
    tile_rows: int,
    k: int,
    seeds: tuple[Seed, Seed] | None = None,
    *,
    farthest: bool = True,
) -> list[Surroundings]:
    """Find the nearest and farthest items of two blocks of one set, for both; or of one block, if the second is None.

    Tiles have `tile_rows` rows and columns; see `SurroundBoth` for the other parameters and the result.
    """
    coarse: list[Surroundings] | None = None
    if second is None:
        coarse = run_coarse_tiles_within(first, distance, tile_rows, k, farthest=farthest)
    elif seeds is not None:
        coarse = run_coarse_tiles_both_ways(first, second, distance, tile_rows, k, seeds, farthest=farthest)
    if coarse is not None:
        return coarse
    gallery, tile = first if second is None else second, TileShape(tile_rows, tile_rows)
    reduction = SurroundBoth(k, distance, farthest, seeds)
    (found,) = run_tiles(first, gallery, distance, tile, [reduction], triangle=second is None)
    return list(found)
