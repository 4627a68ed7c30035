"""Screening under a re-ranked distance: a plain tile, in which the few pairs of known distance are overwritten.

The re-ranked distance of most pairs is ``(1 - weight) * apart + weight * (d / scale)``, for each query an increasing
function of the plain distance ``d``.  A threshold is therefore equivalent to one on ``d``, and applies to the tile of
plain screening values.  A known pair is assigned the screening value of the corresponding plain distance, which may be
negative.  Where graph distances are given instead, for very many pairs, a pair is nearer by
``(1 - weight) / weight * (apart - graph) * scale`` than by its plain distance, and this is added to its screening
value.  Pairs inside a band are decided by the re-ranked distances themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.engine.distances import Distance, Screen, Values
from reid_dist.engine.distances.screening import ExactScreen
from reid_dist.kernels.canonical import LOWEST, PairRows
from reid_dist.kernels.rescoring import falling_values, known_values, put_values

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_NO_LIMIT = np.empty(0)


def screen_pairs(distance: Distance, pairs: PairRows, dtype: DTypeLike) -> Screen:
    """Create the screen of a block pair with products of a dtype."""
    if pairs.rescoring.active and pairs.rescoring.weight == 0.0:
        return _UnweightedScreen(pairs)
    screen = distance.screen(pairs, dtype)
    return RescoredScreen(screen, pairs) if pairs.rescoring.active else screen


class RescoredScreen(Screen):
    """Screen of the plain distance, with thresholds and known pairs converted to it.

    Attributes
    ----------
    known
        Screening values of the known pairs of all queries, shape (n,), float64.
    first_column
        Column of the first gallery row of the block, as those of known pairs are counted.
    """

    def __init__(self, plain: Screen, pairs: PairRows) -> None:
        rescoring = pairs.rescoring
        self._pairs = pairs
        self.known, largest = known_values(pairs, plain.centre, plain.slope)
        first = rescoring.indptr[0]
        self._column, self.first_column = rescoring.column[first : rescoring.indptr[-1]], rescoring.first_column
        self._indptr = rescoring.indptr - first
        # Of values that are added to those of a tile.
        self._limit = _NO_LIMIT
        # A known value is rounded once with the bias added and once with it subtracted; the largest bias is assumed.
        if rescoring.mixed:
            # A sum with a cosine similarity, which is below 2, is rounded once; none exceeds the limit.
            self._limit = plain.centre - plain.slope * LOWEST * rescoring.scale
            largest = np.minimum(largest, np.abs(self._limit)) + 2.0
        epsilon = plain.epsilon + 2.5 * np.finfo(plain.dtype).eps * (largest + plain.largest_bias)
        near = plain.near._replace(epsilon=epsilon)
        super().__init__(near, plain.far, plain.slope, plain.dtype, plain.largest_bias)

    def needs_product(self, lower_bound: Values) -> NDArray[np.bool_]:
        """Whether other pairs than known ones may be above a lower bound of each query, shape (n_query,).

        All other pairs are at the graph distance `apart` and a plain distance of at least 0, where the screening value
        is the centre.  Positives that share neighbours with the query, most of them under a good model, are nearer.
        """
        if self._pairs.rescoring.mixed:
            return np.ones(len(self.centre), np.bool_)
        found: NDArray[np.bool_] = lower_bound <= self.centre + 2.0 * self.epsilon
        return found

    @property
    def known_pairs(self) -> tuple[Int64, Int64, Float64]:
        """Offsets by query, columns from `first_column` on, and screening values of the known pairs."""
        return self._indptr, self._column, self.known

    def correct(self, queries: Int64, column_start: int, bias: Values, values: Values) -> None:
        """Write the known pairs, or add what they are nearer by."""
        first = column_start + self.first_column
        put_values(queries, *self.known_pairs, first, bias, self._limit, values)

    def edges(self, query: Int64, distance: Float64, squared: bool) -> tuple[Values, Values]:
        """Convert distances to plain ones, widened by a bound on rounding errors, and return the edges of those."""
        lower, _ = self._band(query, falling_values(self._pairs, query, distance, 1.0))
        _, upper = self._band(query, falling_values(self._pairs, query, distance, -1.0))
        return lower, upper


class _UnweightedScreen(ExactScreen):
    """Screen for distances of weight 0: one value for all pairs except known ones, without products."""

    def multiply(self, queries: Int64, matrix: Values, out: Values) -> None:
        """Write the distance of pairs without shared neighbours."""
        out[:] = -self.pairs.rescoring.apart

    def correct(self, queries: Int64, column_start: int, bias: Values, values: Values) -> None:
        """Write the known pairs."""
        rescoring = self.pairs.rescoring
        first = column_start + rescoring.first_column
        put_values(queries, rescoring.indptr, rescoring.column, -rescoring.value, first, bias, _NO_LIMIT, values)
