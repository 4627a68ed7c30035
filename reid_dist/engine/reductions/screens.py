"""Screening under a re-ranked distance: a plain tile, in which the few pairs whose distances are known are put right.

The re-ranked distance of most pairs is ``(1 - weight) + weight * (d / scale)``, a rising function of the plain distance
``d`` of each query's own.  A threshold is therefore as good as one on ``d``, and the tile of plain screening values
serves.  The value of a known pair is written as that of the plain distance to which it corresponds, which may well be
negative.  Whatever comes into a band is decided by the re-ranked distances themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Distance, Mirrored, Screen, Values
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.kernels.canonical import PairRows
from reid_dist.kernels.rescoring import falling_values, put_values

__all__ = ["make_screen", "screen_pairs"]

Float64 = NDArray[np.float64]

# Share of queries up to which those that need a product are gathered for it.
_MOST_GATHERED = 0.75


def make_screen(distance: Distance, query: FeatureBlock, gallery: FeatureBlock) -> Screen:
    """Screen a block of queries against a gallery block, in float32 where that is enough."""
    return screen_pairs(distance, pair_rows(distance, query, gallery), np.float32)


def screen_pairs(distance: Distance, pairs: PairRows, dtype: DTypeLike, *, in_parts: bool = False) -> Screen:
    """Screen pairs by products in a type; under a distance that is not rescored, also in parts."""
    if pairs.rescoring.active and pairs.rescoring.weight == 0.0:
        return _UnweightedScreen(pairs)
    screen = distance.screen(pairs.query, pairs.gallery, pairs.query_norm, pairs.gallery_norm, dtype, in_parts=in_parts)
    return _RescoredScreen(screen, pairs) if pairs.rescoring.active else screen


class _RescoredScreen(Screen):
    """The screen of the plain distance, with thresholds and known pairs translated."""

    def __init__(self, plain: Screen, pairs: PairRows) -> None:
        super().__init__(pairs.query, pairs.gallery, pairs.query_norm, pairs.gallery_norm, plain.dtype)
        self._plain = plain
        self._pairs = pairs
        self.centre, self.slope = plain.centre, plain.slope
        first, last = pairs.rescoring.indptr[0], pairs.rescoring.indptr[-1]
        counts = np.diff(pairs.rescoring.indptr)
        owner = np.repeat(np.arange(len(counts)), counts)
        falling = falling_values(pairs, owner, pairs.rescoring.value[first:last], 0.0)
        self._known = self.centre[owner] - self.slope * falling
        self._column = pairs.rescoring.column[first:last] - pairs.rescoring.first_column
        self._indptr = pairs.rescoring.indptr - first
        # A known value is rounded once with its bias on and once with it off, where the bias is the largest of all.
        largest = np.zeros(len(counts))
        np.maximum.at(largest, owner, np.abs(self._known))
        bias = float(plain.largest_bias)
        self._seen = np.ones(len(counts), np.bool_)
        self.epsilon = plain.epsilon + 2.5 * np.finfo(self.dtype).eps * (largest + bias)

    def mirrored(self) -> Mirrored:
        """Not to be had: a re-ranked distance is not symmetric."""
        raise AssertionError("re-ranked distances are not screened both ways")

    def gallery_tile(self, start: int, stop: int, out: Values) -> tuple[Values, Values]:
        """As the plain screen."""
        return self._plain.gallery_tile(start, stop, out)

    def spare(self, floor: Values) -> None:
        """Leave out the products of queries for which the known pairs are all that counts.

        All others are at a Jaccard distance of 1 and a plain distance of at least 0, where the screening value is the
        centre.  Positives that share neighbours with the query, most of them under a good model, are nearer than that.
        """
        self._seen = floor <= self.centre + 2.0 * self.epsilon

    def multiply(self, queries: RowRange, matrix: Values, out: Values) -> None:
        """As the plain screen, for queries that look at more than known pairs; nothing is near to the others."""
        seen = np.flatnonzero(self._seen[queries.start : queries.stop])
        if len(seen) > _MOST_GATHERED * len(queries):
            self._plain.multiply(queries, matrix, out)
            return
        out[:] = -np.inf
        if len(seen):
            out[seen] = self._plain.query_rows(queries)[seen] @ matrix.T

    def correct(self, queries: RowRange, column_start: int, bias: Values, values: Values) -> None:
        """Write the known pairs."""
        indptr = self._indptr[queries.start : queries.stop + 1]
        put_values(indptr, self._column, self._known, column_start, bias, values)

    def edges(self, query: NDArray[np.int64], distance: Float64, squared: bool) -> tuple[Values, Values]:
        """Translate distances into plain ones, with what rounding may have done to them, and go on from there."""
        lower, _ = self._band(query, falling_values(self._pairs, query, distance, 1.0))
        _, upper = self._band(query, falling_values(self._pairs, query, distance, -1.0))
        return lower, upper


class _UnweightedScreen(Screen):
    """Where distances weigh nothing: 1 for all pairs but those that are known, and no product at all."""

    slope = 1.0
    exact = True

    def __init__(self, pairs: PairRows) -> None:
        super().__init__(pairs.query, pairs.gallery, pairs.query_norm, pairs.gallery_norm, np.float64)
        self._rescoring = pairs.rescoring
        self.centre = np.zeros(len(pairs.query))
        self.epsilon = np.zeros(len(pairs.query))

    def mirrored(self) -> Mirrored:
        """Not to be had: a re-ranked distance is not symmetric."""
        raise AssertionError("re-ranked distances are not screened both ways")

    def gallery_tile(self, start: int, stop: int, out: Values) -> tuple[Values, Values]:
        """Nothing to prepare; there is no bias."""
        return out, np.zeros(stop - start)

    def multiply(self, queries: RowRange, matrix: Values, out: Values) -> None:
        """Write the distance of all pairs that share nothing."""
        out[:] = -1.0

    def correct(self, queries: RowRange, column_start: int, bias: Values, values: Values) -> None:
        """Write the known pairs."""
        rescoring = self._rescoring
        indptr = rescoring.indptr[queries.start : queries.stop + 1]
        first = column_start + rescoring.first_column
        put_values(indptr, rescoring.column, -rescoring.value, first, bias, values)

    def edges(self, query: NDArray[np.int64], distance: Float64, squared: bool) -> tuple[Values, Values]:
        """Both edges are the value itself."""
        return -distance, -distance
