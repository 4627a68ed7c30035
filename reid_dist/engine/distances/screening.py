r"""Screening that agrees with the canonical distances outside a proven band.

A tile is a plain matrix product ``P = A B^T`` of prepared rows.  A value of it, less a bias per column, is a *screening
value* that grows as the distance falls and corresponds to a canonical distance ``d`` by ``centre - slope * d`` (``d``
squared for Euclidean).  ``epsilon`` bounds its deviation from that correspondence for every BLAS, blocking and order of
summation, with or without fused operations and flushing to zero.

With unit roundoff ``u`` (2^-24 for float32) and dimension ``d``, a computed inner product of computed rows carries at
most ``d`` roundings of products and sums and at most two per element of either row.  By Higham (*Accuracy and Stability
of Numerical Algorithms*, 2nd ed., lemma 3.1 and section 3.1) each term is then off by a factor in ``1 +- gamma_{d+4}``,
``gamma_n = n u / (1 - n u)``, for every order of summation.  With Cauchy-Schwarz, and four roundings to spare for the
second-order terms, the error is at most ``gamma_{d+8} |x| |y|``.  Bounds of the kind ``8 sqrt(d) u`` hold with high
probability for random rows and fail for constant or few-valued ones; they are not used.

*Unit rows* (cosine).  ``A`` and ``B`` hold rows scaled to length 1, so ``epsilon = gamma_{d+8}``, and the value is the
similarity ``1 - d``.

*Centred rows* (Euclidean).  A common centre ``m`` is subtracted from all rows (the mean of the gallery block: any
centre is correct, and one near the rows makes norms and therefore bands small).  With ``h = |y - m|^2 / 2`` as bias,
``v = (x - m)(y - m) - h`` and ``d^2 = |x - m|^2 - 2 v``.  Rounding ``h`` and ``v`` adds ``u (h + |v|)``.

Canonical distances are float64 sums with errors of their own, some 2^29 times smaller; they are added as well.
Products that fall below the range of normal numbers are covered by an absolute term.

*Re-ranked distances* are screened by a plain tile, in which the few pairs of known distance are overwritten.
The re-ranked distance of most pairs is ``(1 - weight) * apart + weight * (d / scale)``, for each query an increasing
function of the plain distance ``d``.  A threshold is therefore equivalent to one on ``d``, and applies to the tile of
plain screening values.  A known pair is assigned the screening value of the corresponding plain distance, which may be
negative.  Where graph distances are given instead, for very many pairs, a pair is nearer by
``(1 - weight) / weight * (apart - graph) * scale`` than by its plain distance, and this is added to its screening
value.  Pairs inside a band are decided by the re-ranked distances themselves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.model import RowRange
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import LOWEST, SQEUCLIDEAN, PairRows, pair_distances, read_only
from reid_dist.kernels.rescoring import falling_values, known_values, put_values
from reid_dist.kernels.screen_rows import band_edges, prepare_rows

Rows = NDArray[np.floating]
Values = NDArray[np.floating]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_ROUNDOFF = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}
_TINY = {np.dtype(np.float32): 2.0**-126, np.dtype(np.float64): 2.0**-1022}

# Beyond this norm, squares and their sums may exceed the range of float32.
_LARGEST_NORM = 1e18
# Gallery rows whose mean is the centre of all rows.
_SAMPLE = 256
_NO_LIMIT = np.empty(0)


def _gamma(roundings: int, roundoff: float) -> float:
    """Bound the relative error of a product of `roundings` factors ``1 + delta`` (Higham, lemma 3.1)."""
    return roundings * roundoff / (1.0 - roundings * roundoff)


def consecutive(rows: Int64) -> slice | Int64:
    """Ascending places, as a slice if they are consecutive: a view instead of a copy."""
    is_slice = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1
    return slice(int(rows[0]), int(rows[-1]) + 1) if is_slice else rows


class ScreenedRows(NamedTuple):
    """The rows of one side of a block pair, how they are prepared, and what is known of their screening values.

    The prepared row is ``(row - origin) * factor``.
    """

    # As they are stored, shape (n, dim), float32, C order.
    rows: Rows
    # Screening value of distance 0 of each row, and a bound on the error of its values, canonical distances included;
    # shape (n,), float64.
    centre: Float64
    epsilon: Float64
    # What is subtracted from the products of each row as a column, shape (n,), in the dtype of the products.
    bias: Values
    # Shape (dim,), float32, and (n,), float64; None for rows that are not centred, or not scaled.
    origin: Rows | None = None
    factor: Float64 | None = None

    def prepare(self, rows: slice | Int64, out: Values) -> None:
        """Write some prepared rows to `out`, shape (m, dim), in the dtype of the products."""
        some, dim = read_only(self.rows[rows]), self.rows.shape[1]
        origin = np.zeros(dim) if self.origin is None else self.origin.astype(np.float64)
        prepare_rows(some, origin, np.ones(len(some)) if self.factor is None else self.factor[rows], out)


class Screen:
    """Screening of a block of queries against a block of gallery rows.

    Attributes
    ----------
    near, far
        Both sides.  Values against the columns of the other side have the centre and the error bound of a row of either
        side, unless they are asymmetric: then there is none but that of the queries.
    centre, epsilon
        Those of the queries.
    slope
        Decrease of the screening value per unit of distance (of squared distance, for Euclidean).
    dtype
        That of the products: float32, or float64 where too many pairs lie inside the float32 bands.
    largest_bias
        Bound on the bias of a row of either side, before it is rounded to that type.
    """

    # Whether screening values are exact canonical distances, negated, so that bands hold only ties.
    exact: bool = False

    def __init__(
        self, near: ScreenedRows, far: ScreenedRows, slope: float, dtype: DTypeLike, largest_bias: float = 0.0
    ) -> None:
        self.near, self.far, self.slope, self.dtype = near, far, slope, np.dtype(dtype)
        self.centre, self.epsilon, self.largest_bias = near.centre, near.epsilon, largest_bias
        self._prepared: Values | None = None
        # Prepared gallery rows of the latest columns, and room for them.
        self._room = np.empty((0, self.shape[2]), self.dtype)
        self._columns, self._tile = RowRange(0, 0), (self._room, self._room[:0, 0])

    @property
    def shape(self) -> tuple[int, int, int]:
        """Queries, gallery rows and elements per row."""
        return len(self.near.rows), *self.far.rows.shape

    def gallery_tile(self, rows: slice | Int64, out: Values) -> tuple[Values, Values]:
        """Prepare some gallery rows in `out`, shape (n, dim); return it and the bias, shape (n,)."""
        self.far.prepare(rows, out)
        return out, self.far.bias[rows]

    def gallery_columns(self, columns: RowRange) -> tuple[Values, Values]:
        """Prepared rows and bias of a range of gallery rows, which products share; others overwrite them."""
        if columns != self._columns:
            if len(self._room) < len(columns):
                self._room = np.empty((len(columns), self.shape[2]), self.dtype)
            here = slice(columns.start, columns.stop)
            self._columns, self._tile = columns, self.gallery_tile(here, self._room[: len(columns)])
        return self._tile

    def query_rows(self, queries: Int64) -> Values:
        """Prepared rows of some queries, by ascending places, shape (n, dim), in the dtype of the products.

        In float32 the whole block is prepared at once.  In float64, which few tiles need, it would take twice as much
        memory: the rows of one tile are prepared, and are overwritten by those of the next tile.
        """
        n, place = len(queries), consecutive(queries)
        if self.dtype == np.float32:
            if self._prepared is None:
                self._prepared = np.empty(self.near.rows.shape, self.dtype)
                self.near.prepare(slice(None), self._prepared)
            return self._prepared[place]
        if self._prepared is None or len(self._prepared) < n:
            self._prepared = np.empty((n, self.near.rows.shape[1]), self.dtype)
        self.near.prepare(place, self._prepared[:n])
        return self._prepared[:n]

    def multiply(self, queries: Int64, matrix: Values, out: Values) -> None:
        """Write the screening values of some queries against a prepared tile to `out`, bias not yet subtracted."""
        # Padding inside a BLAS kernel can raise the flag of invalid operations; features are finite.
        with np.errstate(invalid="ignore"):
            np.dot(self.query_rows(queries), matrix.T, out=out)

    def correct(self, queries: Int64, column_start: int, bias: Values, values: Values) -> None:
        """Overwrite screening values of pairs with separately known distances; none here.

        `values` is the output of `multiply`, bias not yet subtracted; its first column is `column_start` of the gallery
        block.
        """
        return

    def edges(self, query: Int64, distance: Float64, squared: bool) -> tuple[Values, Values]:
        """Lower and upper edges of the bands of some distances, rounded outward to the type of the tiles.

        `query` holds the position in the block of the query of each distance, shape (n,).  `squared` is whether the
        screening value falls with the square of the distance.
        """
        return self._band(query, distance * distance if squared else distance)

    def _band(self, query: Int64, falling: Float64) -> tuple[Values, Values]:
        """Edges around the screening values of `falling`: distances, or squared distances."""
        limits = np.finfo(self.dtype)
        lower, upper = (np.empty(len(query), self.dtype) for _ in range(2))
        step, tiny = float(limits.eps), float(limits.smallest_subnormal)
        band_edges(query, falling, self.centre, self.epsilon, self.slope, step, tiny, lower, upper)
        return lower, upper


class UnitScreen(Screen):
    """Rows scaled to length 1; a screening value is a cosine similarity.  Zero rows stay zero, at similarity 0."""

    def __init__(self, pairs: PairRows, dtype: DTypeLike = np.float32) -> None:
        kind, dim = np.dtype(dtype), pairs.gallery.shape[1]
        error = _gamma(dim + 8, _ROUNDOFF[kind]) + _gamma(2 * dim + 32, 2.0**-53) + (2 * dim + 4) * _TINY[kind]

        def side(rows: Rows, norm: Float64) -> ScreenedRows:
            n = len(rows)
            with np.errstate(divide="ignore"):
                factor = np.where(norm > 0, 1.0 / np.sqrt(norm), 0.0)
            return ScreenedRows(rows, np.ones(n), np.full(n, error), np.zeros(n, kind), factor=factor)

        super().__init__(side(pairs.query, pairs.query_norm), side(pairs.gallery, pairs.gallery_norm), 1.0, kind)


class CentredScreen(Screen):
    """Rows less the mean of the gallery block; a screening value is ``(|x - m|^2 - d^2) / 2``.

    Raises `InputError` for rows whose norms are so large that squares exceed the range of float32.
    """

    def __init__(self, pairs: PairRows, dtype: DTypeLike = np.float32) -> None:
        query, gallery = pairs.query, pairs.gallery
        longest = float(np.sqrt(max(pairs.query_norm.max(initial=0.0), pairs.gallery_norm.max(initial=0.0))))
        if longest > _LARGEST_NORM:
            raise InputError(
                f"Euclidean distances would overflow: the longest row has norm {longest:.3g}, the limit is "
                f"{_LARGEST_NORM:.0e}; scale the features, or use cosine"
            )
        # Any centre is correct; the mean of a sample is near enough to that of the block.
        origin = gallery[:: max(1, len(gallery) // _SAMPLE)].mean(axis=0, dtype=np.float64).astype(np.float32)
        # Half the squared norms of centred rows: the bias of a row as a column, and the value of distance 0 from it.
        near, far = (_squared_distances(rows, origin) / 2.0 for rows in (query, gallery))

        def side(rows: Rows, half: Float64, others: Float64) -> ScreenedRows:
            error = _centred_error(half, others, len(origin), np.dtype(dtype))
            return ScreenedRows(rows, half, error, half.astype(dtype), origin)

        largest = float(max(near.max(initial=0.0), far.max(initial=0.0)))
        super().__init__(side(query, near, far), side(gallery, far, near), 0.5, dtype, largest)


def _squared_distances(rows: Rows, origin: Rows) -> Float64:
    """Squared distances of rows from a point, shape (n,), float64."""
    one, every = read_only(origin[None]), np.arange(len(rows))
    pairs = PairRows(SQEUCLIDEAN, read_only(rows), one, np.empty(len(rows)), np.empty(1))
    return pair_distances(pairs, every, np.zeros_like(every))


def _centred_error(half: Float64, others: Float64, dim: int, dtype: np.dtype[Any]) -> Float64:
    """Error bound per row of half squared norms `half`, shape (n,), against rows of half squared norms `others`."""
    length = np.sqrt(2.0 * half)
    largest = float(others.max(initial=0.0))
    reach = np.sqrt(2.0 * largest)
    roundoff, tiny = _ROUNDOFF[dtype], _TINY[dtype]
    product = _gamma(dim + 8, roundoff) * length * reach
    rounded = 1.01 * roundoff * (2.0 * largest + length * reach)
    canonical = _gamma(2 * dim + 32, 2.0**-53) * (length + reach) ** 2
    # Elements below the normal range are rounded absolutely, not relatively: at most 2^-150 each in float32.
    rounded_elements = np.sqrt(dim) * 2.0**-24 * tiny * (length + reach)
    bound: Float64 = product + rounded + canonical + rounded_elements + (2 * dim + 8) * tiny
    return bound


class ExactScreen(Screen):
    """Screening values that are negated canonical distances, in float64; base class."""

    exact = True

    def __init__(self, pairs: PairRows, _: DTypeLike = np.float64) -> None:
        self.pairs = pairs
        sides = pairs.query, pairs.gallery
        near, far = (ScreenedRows(rows, *(np.zeros(len(rows)) for _ in range(3))) for rows in sides)
        super().__init__(near, far, 1.0, np.float64)

    def gallery_tile(self, rows: slice | Int64, out: Values) -> tuple[Values, Values]:
        """Return `out` unprepared; the bias is 0."""
        return out, self.far.bias[rows]

    def edges(self, query: Int64, distance: Float64, squared: bool) -> tuple[Values, Values]:
        """Return the screening values of the distances."""
        value = np.negative(distance)
        return value, value


class GivenScreen(ExactScreen):
    """Precomputed distances.

    Query "rows" hold distances to a range of gallery rows; a gallery "row" holds its position in that range; both are
    `reid_dist.kernels.canonical.bytes_of_given`.
    """

    def gallery_tile(self, rows: slice | Int64, out: Values) -> tuple[Values, Values]:
        """Copy the positions of the rows; the bias is 0."""
        out[:, :1] = self.pairs.gallery.view(np.float64)[rows]
        return out, self.far.bias[rows]

    def multiply(self, queries: Int64, matrix: Values, out: Values) -> None:
        """Write the negated distances of the pairs."""
        distances = self.pairs.query.view(np.float64)
        np.negative(distances[queries[:, None], matrix[:, 0].astype(np.int64)], out=out)


class RescoredScreen(Screen):
    """Screen of the plain distance, with thresholds and known pairs converted to it; see above.

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


class UnweightedScreen(ExactScreen):
    """Screen for distances of weight 0: one value for all pairs except known ones, without products."""

    def multiply(self, queries: Int64, matrix: Values, out: Values) -> None:
        """Write the distance of pairs without shared neighbours."""
        out[:] = -self.pairs.rescoring.apart

    def correct(self, queries: Int64, column_start: int, bias: Values, values: Values) -> None:
        """Write the known pairs."""
        rescoring = self.pairs.rescoring
        first = column_start + rescoring.first_column
        put_values(queries, rescoring.indptr, rescoring.column, -rescoring.value, first, bias, _NO_LIMIT, values)
