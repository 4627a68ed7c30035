"""Nearest and farthest items per block pair: within one set, each pair of blocks once, or for one side of two sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Distance, Screen, Values
from reid_dist.engine.reductions.base import Accumulator, FeatureBlock, pair_rows
from reid_dist.engine.reductions.tiles import Tile
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.lists import merge_lists
from reid_dist.kernels.rescoring import falling_values
from reid_dist.kernels.symmetric import Side, collect_both, collect_one
from reid_dist.kernels.topk import GROUPS_PER_NEIGHBOUR, Candidates, make_candidates, settle

Float64 = NDArray[np.float64]

_NO_LABELS = np.empty(0, np.int64), np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The nearest rows to each item of a block, and its largest distance, among some other items.

    Items of its own label are not among them, where items have labels (`FeatureBlock.label`).
    """

    # Rows of the set by (canonical distance, row), without the item itself, shape (n, k), int64; -1 for absent entries.
    index: NDArray[np.int64]
    # Canonical distances, shape (n, k), float64; inf for absent entries.
    distance: Float64
    # Largest canonical distance, shape (n,), float64; 0 without other items, NaN if it was not searched for.
    farthest: Float64


@dataclass(frozen=True, slots=True)
class Seed:
    """Bounds for the items of a block from other block pairs; pairs that cannot improve on them are skipped."""

    # A canonical distance within which each item has k others, shape (n,), float64; inf if unknown.
    reach: Float64
    # A canonical distance at which each item has another, shape (n,), float64; -inf if unknown.
    farthest: Float64


def make_side(
    distance: Distance,
    k: int,
    block: FeatureBlock,
    against: FeatureBlock,
    screening: tuple[Float64, Float64, Values],
    screen: Screen,
    *,
    farthest: bool,
    room: int | None = None,
) -> Side:
    """Side of a block without neighbours; `screening` is its centre, epsilon and bias, `room` as in its lists.

    `farthest` tells whether largest distances are searched for.
    """
    centre, epsilon, bias = screening
    rows, wanted = pair_rows(distance, block, against), min(k, len(against))
    labels = _NO_LABELS if block.label is None or against.label is None else (block.label, against.label)
    return Side(
        lists=make_candidates(wanted, rows, epsilon, centre, screen.slope, screen.dtype, room=room),
        farthest=np.full(len(block), -np.inf if farthest else np.nan),
        lower_bound=np.full(len(block), np.finfo(screen.dtype).max if farthest else np.nan, screen.dtype),
        bias=bias,
        label=read_only(labels[0]),
        other_label=read_only(labels[1]),
    )


@dataclass(frozen=True, slots=True)
class SurroundQueries:
    """Keep the k nearest gallery rows of every query, and its largest distance."""

    # Length of the lists.
    k: int
    # Registered distance.
    distance: Distance
    # Whether largest distances are searched for.
    farthest: bool = True

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _QuerySide:
        """Make an accumulator for a block pair."""
        return _QuerySide(self, query, gallery, screen)


class _QuerySide(Accumulator[Surroundings]):
    """Accumulator of `SurroundQueries`."""

    def __init__(self, reduction: SurroundQueries, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> None:
        self._query = query
        self._gallery = gallery
        screening = screen.centre, screen.epsilon, np.empty(0, screen.dtype)
        self._side = make_side(
            reduction.distance, reduction.k, query, gallery, screening, screen, farthest=reduction.farthest
        )

    def absorb(self, tile: Tile) -> None:
        """Add one tile."""
        collect_one(tile.values, tile.bias, tile.queries.start, tile.columns.start, self._side)

    def result(self) -> Surroundings:
        """Return all lists, decided by canonical distance, and the largest distances."""
        return settle_side(self._side, self._query, self._gallery)


@dataclass(frozen=True, slots=True)
class SurroundBoth:
    """Keep the k nearest items of each item of two blocks of one set in the other block, and its largest distance.

    A block as its own gallery is compared with itself, in the tiles of one triangle; an item is then not in its own
    list.
    """

    # Length of the lists.
    k: int
    # Registered distance.
    distance: Distance
    # Whether largest distances are searched for.
    farthest: bool = True
    # Bounds for the items of both blocks.  Items within `Seed.reach` are listed; those beyond may be missing.
    seeds: tuple[Seed, Seed] | None = None

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _BothSides:
        """Make an accumulator for a block pair."""
        return _BothSides(self, query, gallery, screen)


class _BothSides(Accumulator[list[Surroundings]]):
    """Accumulator of `SurroundBoth`."""

    def __init__(self, reduction: SurroundBoth, first: FeatureBlock, second: FeatureBlock, screen: Screen) -> None:
        self._first, self._second = first, second
        self._unseeded = reduction.seeds is None
        distance, k, farthest, mirrored = reduction.distance, reduction.k, reduction.farthest, screen.mirrored()
        screening = screen.centre, screen.epsilon, mirrored.row_bias
        self._near = self._far = make_side(distance, k, first, second, screening, screen, farthest=farthest)
        if second is not first:
            screening = mirrored.centre, mirrored.epsilon, mirrored.column_bias
            self._far = make_side(distance, k, second, first, screening, screen, farthest=farthest)
        for side, seed in zip((self._near, self._far), reduction.seeds or (), strict=False):
            apply_seed(side, seed)

    def absorb(self, tile: Tile) -> None:
        """Add one tile, to the lists of its rows and of its columns."""
        rows, columns, values = tile.queries, tile.columns, tile.values
        both = self._near is not self._far or rows != columns
        if self._unseeded and columns.start == 0:
            _begin(self._near, rows, columns, values - self._far.bias[columns.start : columns.stop])
        if self._unseeded and rows.start == 0 and both:
            _begin(self._far, columns, rows, (values - self._near.bias[rows.start : rows.stop, None]).T)
        collect_both(values, rows.start, columns.start, self._near, self._far, both)

    def result(self) -> list[Surroundings]:
        """Return the results of the first block, and of the second unless it is the same."""
        found = [settle_side(self._near, self._first, self._second)]
        return found if self._near is self._far else [*found, settle_side(self._far, self._second, self._first)]


def apply_seed(side: Side, seed: Seed) -> None:
    """Set initial thresholds for nearest and farthest items from the seed bounds."""
    lists = side.lists
    bounds = [(np.isfinite(seed.reach), seed.reach, 1.0, lists.level)]
    if searches_farthest(side):
        bounds.append((np.isfinite(seed.farthest), seed.farthest, -1.0, side.lower_bound))
        side.farthest[:] = seed.farthest
    for known, of, sign, into in bounds:
        item = np.flatnonzero(known)
        falling = falling_values(lists.rows, item, of[item], sign)
        edge = lists.centre[item] - lists.slope * falling - sign * lists.epsilon[item]
        into[item] = edge - sign * rounding(edge)


def searches_farthest(side: Side) -> bool:
    """Whether largest distances are searched for."""
    return not np.isnan(side.farthest).any()


def _begin(side: Side, items: RowRange, others: RowRange, values: Values) -> None:
    """Set thresholds for nearest and farthest items from the first values, so that not all of those are listed.

    If the largest values of n groups are above some level, at least n values are above it; with many groups, few of
    them have two such values.  One value more than `k` is used, as an item may be compared with itself.

    `values` are screening values of `items` and `others`, shape (len(items), len(others)), bias subtracted.
    """
    cut = slice(items.start, items.stop)
    band = 2.0 * side.lists.epsilon[cut]
    near = far = values
    limits = np.finfo(values.dtype)
    if len(side.label):
        # The first values may be few of those that are listed, or none.
        left_out = side.label[cut, None] == side.other_label[others.start : others.stop]
        near, far = np.where(left_out, limits.min, values), np.where(left_out, limits.max, values)
    wanted = side.lists.k + 1
    n_groups = GROUPS_PER_NEIGHBOUR * wanted
    size = values.shape[1] // n_groups
    if size > 1:
        largest = near[:, : size * n_groups].reshape(len(values), size, n_groups).max(axis=1)
        place = n_groups - wanted
        edge = np.partition(largest, place, axis=1)[:, place] - band
        side.lists.level[cut] = np.maximum(edge - rounding(edge), limits.min)
    if not searches_farthest(side):
        return
    edge = far.min(axis=1) + band
    side.lower_bound[cut] = np.minimum(edge + rounding(edge), limits.max)


def rounding(edge: Float64) -> Float64:
    """Upper bound on the error of rounding `edge` to the dtype of the tiles."""
    return np.asarray(np.abs(edge) * 2.0**-22 + 2.0**-125)


def settle_side(
    side: Side,
    block: FeatureBlock,
    against: FeatureBlock,
    write: Callable[[Candidates, NDArray[np.int64], Float64], None] = settle,
) -> Surroundings:
    """Decide the lists of a side by canonical distance, with `settle` or another function of its arguments."""
    column = np.full((len(block), side.lists.k), -1, np.int64)
    distance = np.full((len(block), side.lists.k), np.inf)
    write(side.lists, column, distance)
    return Surroundings(np.where(column < 0, -1, against.numbers[column]), distance, np.maximum(side.farthest, 0.0))


def merge_surroundings(one: Surroundings, other: Surroundings, k: int) -> Surroundings:
    """Merge results among different items; lists have length `k`."""
    index, distance = np.empty((len(one.index), k), np.int64), np.empty((len(one.index), k))
    merge_lists(one.index, one.distance, other.index, other.distance, index, distance)
    return Surroundings(index, distance, np.maximum(one.farthest, other.farthest))
