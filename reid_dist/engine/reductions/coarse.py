"""Nearest and farthest items from products of eight-bit integers, for both of two blocks of one set, or for queries.

The lists are those of `reid_dist.engine.reductions.surroundings`, entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Distance, Mirrored
from reid_dist.engine.distances.quantised import QuantisedProducts
from reid_dist.engine.reductions.base import FeatureBlock, HiddenColumns
from reid_dist.engine.reductions.surroundings import Seed, Surroundings, apply_seed, make_side, rounding, settle_side
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.coarse import Factors, UpperEnds, fine_error, largest_factors, make_upper_ends
from reid_dist.kernels.coarse_lists import CoarseSide, collect_coarse, collect_coarse_rows, settle_coarse
from reid_dist.kernels.symmetric import Side

# Pairs of which products of eight-bit integers save the time of one fine value, for long rows, and elements that take
# as long as the rest of a fine value.
_PAIRS_PER_VALUE, _ELEMENTS_PER_VALUE = 24.0, 100.0
# Fine values beyond these: per list entry of items without a bound from other pairs, as share of those that all pairs
# save, and in any case.
_MOST_PER_NEIGHBOUR, _MOST_SHARE, _MOST_WORK = 12, 0.25, 1 << 16


class _Work:
    """Work on lists of rows with `dim` elements, as a number of fine values, against what `n_pairs` save.

    `n_begun` is the number of entries of the lists that begin without bounds.
    """

    def __init__(self, n_pairs: float, dim: int, n_begun: int) -> None:
        self._saved = dim / ((dim + _ELEMENTS_PER_VALUE) * _PAIRS_PER_VALUE)
        self._left = _MOST_WORK + _MOST_PER_NEIGHBOUR * n_begun + _MOST_SHARE * self._saved * n_pairs

    def add(self, n_fine: int, n_pairs: int) -> None:
        """Add fine values that were computed, and pairs that were compared."""
        self._left += self._saved * n_pairs - n_fine

    @property
    def is_exceeded(self) -> bool:
        """Whether products of float32 are faster."""
        return self._left < 0


class CoarseSurroundings:
    """The k nearest items of each item of two blocks in the other block, and its largest distance with `farthest`.

    `seeds` are bounds for the items of both blocks, as in `SurroundBoth`.  Both may be the same block, for tiles whose
    columns are later items than their rows.
    """

    def __init__(
        self,
        first: FeatureBlock,
        second: FeatureBlock,
        distance: Distance,
        k: int,
        seeds: tuple[Seed, Seed],
        products: QuantisedProducts,
        *,
        farthest: bool,
    ) -> None:
        self._first, self._second = first, second
        same = second is first
        self._products = products
        self._columns = products.queries if same else products.columns(RowRange(0, len(second)))
        plain, mirrored = products.plain, products.plain.mirrored()
        slack = slack_of(mirrored)
        near = plain.centre, plain.epsilon + slack, mirrored.row_bias
        far = mirrored.centre, mirrored.epsilon + slack, mirrored.column_bias
        own, other = products.queries.factors, self._columns.factors
        side = make_side(distance, k, first, second, near, plain, farthest=farthest, room=_room(k))
        self._near = self._far = _coarse_side(side, seeds[0], own, other)
        if not same:
            side = make_side(distance, k, second, first, far, plain, farthest=farthest, room=_room(k))
            self._far = _coarse_side(side, seeds[1], other, own)
        # Of one block, no item has a bound; of two, all have.
        n_pairs, n_begun = (len(first) ** 2 / 2, k * len(first)) if same else (len(first) * len(second), 0)
        self._work = _Work(n_pairs, first.features.shape[1], n_begun)

    @property
    def is_crowded(self) -> bool:
        """Whether so many pairs passed so far that products of float32 are faster."""
        return self._work.is_exceeded

    def absorb(self, rows: RowRange, columns: RowRange) -> None:
        """Add one tile, to the lists of its rows and of its columns; tiles with the same columns follow each other."""
        tile = self._products.tile(rows, self._columns, columns)
        self._work.add(collect_coarse(tile, rows.start, columns.start, self._near, self._far), tile.size)

    def begin(self, tiles: Sequence[RowRange]) -> int:
        """Compare the items of each tile of one block with each other, first of all: this bounds their lists.

        Ends early where products of float32 are faster; returns the number of pairs that were compared.
        """
        near = self._near
        if not len(near.side.label):
            # An item is not in its own list.
            own = read_only(np.arange(len(near.side.farthest)))
            near = near._replace(side=near.side._replace(label=own, other_label=own))
        n_pairs = 0
        for items in tiles:
            n_pairs += len(items) ** 2
            tile, bias = self._products.tile(items, self._columns, items), near.side.bias[items.start : items.stop]
            places, kind = np.arange(items.start, items.stop), np.zeros(len(items), np.int64)
            unknown = make_upper_ends(*tile.shape)
            self._work.add(collect_coarse_rows(tile, bias[None], kind, places, items.start, near, unknown), tile.size)
            if self.is_crowded:
                break
        return n_pairs

    def result(self) -> list[Surroundings]:
        """Return the results of the first block, and of the second unless it is the same, by canonical distance."""
        sides = [(self._near, self._first, self._second)]
        if self._far is not self._near:
            sides.append((self._far, self._second, self._first))
        return [settle_side(coarse.side, block, against, settle_coarse) for coarse, block, against in sides]


class CoarseQueries:
    """The k nearest gallery rows of every query, and its largest distance with `farthest`.

    `seed` holds bounds for the queries from other gallery rows.  Gallery rows that are `hidden` from a query are not in
    its list; for largest distances, none are.
    """

    def __init__(
        self,
        query: FeatureBlock,
        gallery: FeatureBlock,
        distance: Distance,
        k: int,
        seed: Seed,
        products: QuantisedProducts,
        *,
        farthest: bool = False,
        hidden: HiddenColumns | None = None,
    ) -> None:
        self._query, self._gallery, self._hidden = query, gallery, hidden
        plain, mirrored = products.plain, products.plain.mirrored()
        screening = plain.centre, plain.epsilon + slack_of(mirrored), mirrored.row_bias
        self._bias, own = mirrored.column_bias, products.queries.factors
        side = make_side(distance, k, query, gallery, screening, plain, farthest=farthest, room=_room(k))
        self._base, self._largest = side.lists.epsilon.copy(), np.full(own.fine.shape[1], -1.0, np.float32)
        apply_seed(side, seed)
        self._side = CoarseSide(side, own, own)
        self._column_start, self._biases, self._bias_of = 0, self._bias[None], np.zeros(len(query), np.int64)
        self._work = _Work(len(query) * len(gallery), query.features.shape[1], k * len(query))

    @property
    def is_crowded(self) -> bool:
        """Whether so many pairs passed so far that products of float32 are faster."""
        return self._work.is_exceeded

    def open(self, columns: RowRange, factors: Factors) -> None:
        """Begin the tiles of some gallery rows, of which `factors` are given; they ascend from call to call."""
        largest = np.maximum(largest_factors(factors), self._largest)
        if (largest > self._largest).any():
            self._largest = largest
            widen(self._side.side, self._base + fine_error(self._side.own, largest))
        self._side = self._side._replace(other=factors, first_other=columns.start)
        self._column_start, self._biases = columns.start, self._bias[None, columns.start : columns.stop]
        if self._hidden is not None:
            every = RowRange(0, len(self._query))
            self._biases, self._bias_of = self._hidden.bias(self._biases[0], columns, every)

    @property
    def biases(self) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
        """Biases of the gallery rows, ``inf`` for hidden ones, shape (kinds, n), and the kind of each query."""
        return self._biases, self._bias_of

    def absorb(self, tile: NDArray[np.int32], queries: NDArray[np.int64], ends: UpperEnds) -> None:
        """Add the products of some queries and the gallery rows; `ends` are those of the tile with these biases."""
        kinds = self._bias_of[queries]
        work = collect_coarse_rows(tile, self._biases, kinds, queries, self._column_start, self._side, ends)
        self._work.add(work, tile.size)

    def result(self) -> Surroundings:
        """Return all lists, decided by canonical distance."""
        return settle_side(self._side.side, self._query, self._gallery, settle_coarse)


def _room(k: int) -> int:
    """Entries of a list beyond k, of which canonical distances decide when they are nearly all within a band."""
    return max(64, k // 2)


def slack_of(mirrored: Mirrored) -> float:
    """Error of the difference of an end and a bias, beyond that of a float32 value, and of underflow."""
    biases = mirrored.row_bias, mirrored.column_bias
    return 2.0**-120 + 2.0**-22 * max(float(np.abs(bias).max(initial=0.0)) for bias in biases)


def _coarse_side(side: Side, seed: Seed, own: Factors, other: Factors) -> CoarseSide:
    """Coarse side of an empty one, with thresholds from seed bounds."""
    widen(side, side.lists.epsilon + fine_error(own, largest_factors(other)))
    apply_seed(side, seed)
    return CoarseSide(side, own, other)


def widen(side: Side, epsilon: NDArray[np.float64]) -> None:
    """Widen bands to at least the half widths `epsilon`, shape (n,).

    Thresholds, which were set for the bands before, move with them.
    """
    lists, limits = side.lists, np.finfo(side.lists.level.dtype)
    wider = np.maximum(epsilon, lists.epsilon)
    grown = wider - lists.epsilon
    lists.epsilon[:] = wider
    for into, sign in ((lists.level, -1.0), (side.lower_bound, 1.0)):
        finite = np.flatnonzero((grown > 0) & np.isfinite(into))
        edge = into[finite] + sign * grown[finite]
        into[finite] = np.clip(edge + sign * rounding(edge), limits.min, limits.max)
