"""Nearest and farthest items per block pair: within one set, each pair of blocks once, or for one side of two sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.distances import Distance, Screen, Values
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.kernels.lists import merge_lists
from reid_dist.kernels.rescoring import falling_values
from reid_dist.kernels.symmetric import Side, collect_both, collect_one
from reid_dist.kernels.topk import make_candidates, settle

Float64 = NDArray[np.float64]

_GROUPS_PER_NEIGHBOUR = 3


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The nearest rows to each item of a block, and its largest distance, among some other items.

    Attributes
    ----------
    index
        Rows of the set by (canonical distance, row), without the item itself, shape (n, k), int64; -1 for absent
        entries.
    distance
        Canonical distances, shape (n, k), float64; inf for absent entries.
    farthest
        Largest canonical distance, shape (n,), float64; 0 without other items.
    """

    index: NDArray[np.int64]
    distance: Float64
    farthest: Float64


@dataclass(frozen=True, slots=True)
class Seed:
    """Bounds for the items of a block from other block pairs; pairs that cannot improve on them are skipped.

    Attributes
    ----------
    reach
        A canonical distance within which each item has k others, shape (n,), float64; inf if unknown.
    farthest
        A canonical distance at which each item has another, shape (n,), float64; -inf if unknown.
    """

    reach: Float64
    farthest: Float64


def run_symmetric_tiles(
    first: FeatureBlock,
    second: FeatureBlock | None,
    distance: Distance,
    tile_rows: int,
    k: int,
    seeds: tuple[Seed, Seed] | None = None,
) -> list[Surroundings]:
    """Reduce all tiles of two blocks, for the items of both.

    Parameters
    ----------
    first, second
        Blocks of the same set, the first of lower rows; None as second compares the first with itself.
    distance
        Registered distance.
    tile_rows
        Rows and columns of a tile.
    k
        Neighbours per item.
    seeds
        Bounds for the items of both blocks.  Items within `Seed.reach` are listed; those beyond may be missing.

    Returns
    -------
    Results of the first block, and of the second unless it is None.
    """
    other = first if second is None else second
    screen = distance.screen(first.features, other.features, first.norm, other.norm)
    near, far = _sides(screen, first, second, distance, k)
    if seeds is not None:
        for side, seed in zip((near, far), seeds, strict=True):
            _sow(side, seed)
    height, width = min(tile_rows, len(first)), min(tile_rows, len(other))
    prepared = np.empty((width, first.features.shape[1]), screen.dtype)
    scratch = np.empty(height * width, screen.dtype)
    for columns in cut_rows(len(other), width):
        matrix, _ = screen.gallery_tile(columns.start, columns.stop, prepared[: len(columns)])
        for rows in cut_rows(columns.stop if second is None else len(first), height):
            values = scratch[: len(rows) * len(columns)].reshape(len(rows), len(columns))
            screen.multiply(rows, matrix, values)
            both = second is not None or rows != columns
            if seeds is None and columns.start == 0:
                _begin(near, rows, values - far.bias[columns.start : columns.stop])
            if seeds is None and rows.start == 0 and both:
                _begin(far, columns, (values - near.bias[rows.start : rows.stop, None]).T)
            collect_both(values, rows.start, columns.start, near, far, both)
    if second is None:
        return [_settled(near, first, first)]
    return [_settled(near, first, second), _settled(far, second, first)]


def run_directed_tiles(
    query: FeatureBlock, gallery: FeatureBlock, distance: Distance, tile_rows: int, k: int
) -> Surroundings:
    """Reduce all tiles of two blocks of different sets, for the items of the first only.

    Parameters
    ----------
    query, gallery
        Blocks of n_query and n_gallery rows.
    distance, tile_rows, k
        As in `run_symmetric_tiles`.
    """
    screen = distance.screen(query.features, gallery.features, query.norm, gallery.norm)
    wanted = min(k, len(gallery))
    side = Side(
        k=wanted,
        lists=make_candidates(len(query), wanted, screen.dtype),
        farthest=np.full(len(query), -np.inf),
        lower_bound=np.full(len(query), np.finfo(screen.dtype).max, screen.dtype),
        epsilon=screen.epsilon,
        centre=screen.centre,
        slope=screen.slope,
        bias=np.empty(0, screen.dtype),
        rows=pair_rows(distance, query, gallery),
    )
    height, width = min(tile_rows, len(query)), min(tile_rows, len(gallery))
    prepared = np.empty((width, gallery.features.shape[1]), screen.dtype)
    scratch = np.empty(height * width, screen.dtype)
    for columns in cut_rows(len(gallery), width):
        matrix, bias = screen.gallery_tile(columns.start, columns.stop, prepared[: len(columns)])
        for rows in cut_rows(len(query), height):
            values = scratch[: len(rows) * len(columns)].reshape(len(rows), len(columns))
            screen.multiply(rows, matrix, values)
            collect_one(values, bias, rows.start, columns.start, side)
    return _settled(side, query, gallery)


def _sides(
    screen: Screen, first: FeatureBlock, second: FeatureBlock | None, distance: Distance, k: int
) -> tuple[Side, Side]:
    """Create the empty accumulators of both blocks."""
    other = first if second is None else second
    mirrored = screen.mirrored()

    def side(block: FeatureBlock, against: FeatureBlock, centre: Float64, epsilon: Float64, bias: Values) -> Side:
        wanted = min(k, len(against))
        return Side(
            k=wanted,
            lists=make_candidates(len(block), wanted, screen.dtype),
            farthest=np.full(len(block), -np.inf),
            lower_bound=np.full(len(block), np.finfo(screen.dtype).max, screen.dtype),
            epsilon=epsilon,
            centre=centre,
            slope=screen.slope,
            bias=bias,
            rows=pair_rows(distance, block, against),
        )

    near = side(first, other, screen.centre, screen.epsilon, mirrored.row_bias)
    if second is None:
        return near, near
    return near, side(second, first, mirrored.centre, mirrored.epsilon, mirrored.column_bias)


def _sow(side: Side, seed: Seed) -> None:
    """Set initial thresholds for nearest and farthest items from the seed bounds."""
    for known, of, sign, into in (
        (np.isfinite(seed.reach), seed.reach, 1.0, side.lists.level),
        (np.isfinite(seed.farthest), seed.farthest, -1.0, side.lower_bound),
    ):
        item = np.flatnonzero(known)
        falling = falling_values(side.rows, item, of[item], sign)
        edge = side.centre[item] - side.slope * falling - sign * side.epsilon[item]
        into[item] = edge - sign * _rounding(edge)
    side.farthest[:] = seed.farthest


def _begin(side: Side, items: RowRange, values: Values) -> None:
    """Set thresholds for nearest and farthest items from the first values, so that not all of those are listed.

    If the largest values of n groups are above some level, at least n values are above it; with many groups, few of
    them have two such values.  One value more than `k` is used, as an item may be compared with itself.

    Parameters
    ----------
    side
        Accumulator of the items.
    items
        Positions of the items in their block.
    values
        Screening values, shape (len(items), n), bias subtracted.
    """
    cut = slice(items.start, items.stop)
    band = 2.0 * side.epsilon[cut]
    wanted = side.k + 1
    n_groups = _GROUPS_PER_NEIGHBOUR * wanted
    size = values.shape[1] // n_groups
    if size > 1:
        largest = values[:, : size * n_groups].reshape(len(values), size, n_groups).max(axis=1)
        place = n_groups - wanted
        edge = np.partition(largest, place, axis=1)[:, place] - band
        side.lists.level[cut] = edge - _rounding(edge)
    edge = values.min(axis=1) + band
    side.lower_bound[cut] = edge + _rounding(edge)


def _rounding(edge: Float64) -> Float64:
    """Upper bound on the error of rounding `edge` to the dtype of the tiles."""
    return np.asarray(np.abs(edge) * 2.0**-22 + 2.0**-125)


def _settled(side: Side, block: FeatureBlock, against: FeatureBlock) -> Surroundings:
    column = np.full((len(block), side.k), -1, np.int64)
    distance = np.full((len(block), side.k), np.inf)
    settle(side.k, side.epsilon, side.rows, side.lists, column, distance)
    return Surroundings(np.where(column < 0, -1, against.numbers[column]), distance, np.maximum(side.farthest, 0.0))


def merge_surroundings(one: Surroundings, other: Surroundings, k: int) -> Surroundings:
    """Merge results among different items; lists have length `k`."""
    index, distance = np.empty((len(one.index), k), np.int64), np.empty((len(one.index), k))
    merge_lists(one.index, one.distance, other.index, other.distance, index, distance)
    return Surroundings(index, distance, np.maximum(one.farthest, other.farthest))
