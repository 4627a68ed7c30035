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
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.errors import InputError
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.screening import band_edges, centred_squared_norms, scale_rows, subtract_centre

Rows = NDArray[np.floating]
Values = NDArray[np.floating]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_ROUNDOFF = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}
_TINY = {np.dtype(np.float32): 2.0**-126, np.dtype(np.float64): 2.0**-1022}

# Beyond this norm, squares and their sums may exceed the range of float32.
_LARGEST_NORM = 1e18


def _gamma(roundings: int, roundoff: float) -> float:
    """Bound the relative error of a product of `roundings` factors ``1 + delta`` (Higham, lemma 3.1)."""
    return roundings * roundoff / (1.0 - roundings * roundoff)


def consecutive(rows: Int64) -> slice | Int64:
    """Ascending places, as a slice if they are consecutive: a view instead of a copy."""
    is_slice = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1
    return slice(int(rows[0]), int(rows[-1]) + 1) if is_slice else rows


class Mirrored(NamedTuple):
    """Screening of the transposed product of two blocks, with gallery rows as queries and queries as columns."""

    # As in `Screen`, for the gallery rows.
    centre: Float64
    epsilon: Float64
    # Biases of the gallery rows as columns, shape (n_gallery,), and of the queries as columns, shape (n_query,), in the
    # dtype of the tiles.
    column_bias: Values
    row_bias: Values


class Affine(NamedTuple):
    """Rows as they are stored, and how they are prepared: ``(rows - centre) * factor``."""

    # Shape (n, dim), float32.
    rows: Rows
    # Shape (dim,), float32, and (n,), float64; None for rows that are not centred, or not scaled.
    centre: Rows | None = None
    factor: Float64 | None = None


class Screen(ABC):
    """Screening of a block of queries against a block of gallery rows.

    Rows are as stored, float32, C order, shapes (n_query, dim) and (n_gallery, dim), with their canonical squared
    norms. `dtype` of the products is float32, or float64 where too many pairs lie inside the float32 bands.
    """

    # Screening value of distance 0, shape (n_query,), float64.
    centre: Float64
    # Decrease of the screening value per unit of distance (of squared distance, for Euclidean).
    slope: float
    # Bound on the error, canonical distances included, shape (n_query,), float64.
    epsilon: Float64
    # Bound on the bias of a column.
    largest_bias: float = 0.0
    # Whether screening values are exact canonical distances, negated, so that bands hold only ties.
    exact: bool = False
    _prepared: Values | None = None

    def __init__(
        self,
        query: Rows,
        gallery: Rows,
        query_norm: Float64,
        gallery_norm: Float64,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.dtype = np.dtype(dtype)
        self._query, self._gallery = query, gallery
        self._query_norm, self._gallery_norm = query_norm, gallery_norm
        self._set_bounds()

    def _set_bounds(self) -> None:
        """Set centre, error bound and largest bias."""
        return

    @property
    def shape(self) -> tuple[int, int, int]:
        """Queries, gallery rows and elements per row."""
        return len(self._query), *self._gallery.shape

    def mirrored(self) -> Mirrored:
        """Return the screening of the transposed products, with gallery rows as queries and queries as columns."""
        raise AssertionError("distances that may be asymmetric are not screened both ways")

    @abstractmethod
    def gallery_tile(self, rows: slice | Int64, out: Values) -> tuple[Values, Values]:
        """Prepare some gallery rows in `out`, shape (n, dim); return it and the bias, shape (n,)."""

    def affine(self, rows: slice | Int64, *, of_gallery: bool) -> Affine:
        """How some rows of either side are prepared, for products that are computed elsewhere."""
        raise AssertionError("a screen that does not multiply prepares no rows")

    def bias(self, rows: slice | Int64) -> Values:
        """Bias of some gallery rows, shape (n,), in the dtype of the products."""
        raise AssertionError("a screen that does not multiply prepares no rows")

    @property
    def _n_roundings(self) -> int:
        """Maximal roundings of a term of a product, plus four for second-order terms."""
        return int(self._query.shape[1]) + 8

    def query_rows(self, queries: Int64) -> Values:
        """Prepared rows of some queries, by ascending places, shape (n, dim), in the dtype of the products.

        In float32 the whole block is prepared at once.  In float64, which few tiles need, it would take twice as much
        memory: the rows of one tile are prepared, and are overwritten by those of the next tile.
        """
        n, place = len(queries), consecutive(queries)
        if self.dtype == np.float32:
            if self._prepared is None:
                self._prepared = np.empty(self._query.shape, self.dtype)
                self.prepare_queries(slice(None), self._prepared)
            return self._prepared[place]
        if self._prepared is None or len(self._prepared) < n:
            self._prepared = np.empty((n, self._query.shape[1]), self.dtype)
        self.prepare_queries(place, self._prepared[:n])
        return self._prepared[:n]

    def prepare_queries(self, queries: slice | Int64, out: Values) -> None:
        """Write the prepared rows of some queries to `out`, shape (n, dim), in the dtype of the products."""
        raise AssertionError("a screen that does not multiply prepares no queries")

    def multiply(self, queries: Int64, matrix: Values, out: Values) -> None:
        """Write the screening values of some queries against a prepared tile to `out`, bias not yet subtracted."""
        # Padding inside a BLAS kernel can raise the flag of invalid operations; features are finite.
        with np.errstate(invalid="ignore"):
            np.dot(self.query_rows(queries), matrix.T, out=out)

    def needs_product(self, lower_bound: Values) -> NDArray[np.bool_]:
        """Whether other pairs than known ones may be above a lower bound of each query, shape (n_query,)."""
        return np.ones(len(lower_bound), np.bool_)

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
        if self.exact:
            value = np.negative(distance).astype(self.dtype)
            return value, value
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

    slope = 1.0

    def _set_bounds(self) -> None:
        n_query, dim = self._query.shape
        self.centre = np.ones(n_query)
        error = _gamma(self._n_roundings, _ROUNDOFF[self.dtype]) + _gamma(2 * dim + 32, 2.0**-53)
        self.epsilon = np.full(n_query, error + (2 * dim + 4) * _TINY[self.dtype])

    def prepare_queries(self, queries: slice | Int64, out: Values) -> None:
        """Scale some queries."""
        scale_rows(read_only(self._query[queries]), self._inverse_length(self._query_norm[queries]), out)

    @staticmethod
    def _inverse_length(squared_norm: Float64) -> Float64:
        with np.errstate(divide="ignore"):
            return np.where(squared_norm > 0, 1.0 / np.sqrt(squared_norm), 0.0)

    def mirrored(self) -> Mirrored:
        """Return the screening of the transposed product; it is the same for all rows."""
        n_query, n_gallery = len(self._query), len(self._gallery)
        epsilon = np.full(n_gallery, self.epsilon[0] if n_query else 0.0)
        return Mirrored(np.ones(n_gallery), epsilon, np.zeros(n_gallery, self.dtype), np.zeros(n_query, self.dtype))

    def gallery_tile(self, rows: slice | Int64, out: Values) -> tuple[Values, Values]:
        """Scale gallery rows; the bias is 0."""
        scale_rows(read_only(self._gallery[rows]), self._inverse_length(self._gallery_norm[rows]), out)
        return out, self.bias(rows)

    def affine(self, rows: slice | Int64, *, of_gallery: bool) -> Affine:
        """Scaled rows."""
        own, norm = (self._gallery, self._gallery_norm) if of_gallery else (self._query, self._query_norm)
        return Affine(own[rows], factor=self._inverse_length(norm[rows]))

    def bias(self, rows: slice | Int64) -> Values:
        """None."""
        return np.zeros(len(self._gallery_norm[rows]), self.dtype)


class CentredScreen(Screen):
    """Rows less the mean of the gallery block; a screening value is ``(|x - m|^2 - d^2) / 2``.

    Raises `InputError` for rows whose norms are so large that squares exceed the range of float32.
    """

    slope = 0.5
    _SAMPLE: ClassVar[int] = 256

    def _set_bounds(self) -> None:
        longest = float(np.sqrt(max(self._query_norm.max(initial=0.0), self._gallery_norm.max(initial=0.0))))
        if longest > _LARGEST_NORM:
            raise InputError(
                f"Euclidean distances would overflow: the longest row has norm {longest:.3g}, the limit is "
                f"{_LARGEST_NORM:.0e}; scale the features, or use cosine"
            )
        # Any centre is correct; the mean of a sample is near enough to that of the block.
        step = max(1, len(self._gallery) // self._SAMPLE)
        self._centre = self._gallery[::step].mean(axis=0, dtype=np.float64).astype(np.float32)
        length_sq = centred_squared_norms(self._query, self._centre)
        self._half = centred_squared_norms(self._gallery, self._centre) / 2.0
        self.centre = length_sq / 2.0
        # Of the rows of either side as columns.
        self.largest_bias = float(max(self._half.max(initial=0.0), self.centre.max(initial=0.0)))
        self.epsilon = self._bound(self.centre, self._half, self._query.shape[1])

    def prepare_queries(self, queries: slice | Int64, out: Values) -> None:
        """Centre some queries."""
        subtract_centre(read_only(self._query[queries]), self._centre, out)

    def _bound(self, half: Float64, others: Float64, dim: int) -> Float64:
        """Error bound per row of half squared norms `half`, shape (n,), against rows of half squared norms `others`."""
        length = np.sqrt(2.0 * half)
        largest = float(others.max(initial=0.0))
        reach = np.sqrt(2.0 * largest)
        roundoff = _ROUNDOFF[self.dtype]
        product = _gamma(self._n_roundings, roundoff) * length * reach
        rounded = 1.01 * roundoff * (2.0 * largest + length * reach)
        canonical = _gamma(2 * dim + 32, 2.0**-53) * (length + reach) ** 2
        # Elements below the normal range are rounded absolutely, not relatively: at most 2^-150 each in float32.
        rounded_elements = np.sqrt(dim) * 2.0**-24 * _TINY[self.dtype] * (length + reach)
        bound: Float64 = product + rounded + canonical + rounded_elements + (2 * dim + 8) * _TINY[self.dtype]
        return bound

    def mirrored(self) -> Mirrored:
        """Return the screening of the transposed product, with the same centre."""
        epsilon = self._bound(self._half, self.centre, self._query.shape[1])
        return Mirrored(self._half, epsilon, self._half.astype(self.dtype), self.centre.astype(self.dtype))

    def gallery_tile(self, rows: slice | Int64, out: Values) -> tuple[Values, Values]:
        """Centre gallery rows; the bias is half their squared norms."""
        subtract_centre(read_only(self._gallery[rows]), self._centre, out)
        return out, self.bias(rows)

    def affine(self, rows: slice | Int64, *, of_gallery: bool) -> Affine:
        """Centred rows."""
        return Affine((self._gallery if of_gallery else self._query)[rows], centre=self._centre)

    def bias(self, rows: slice | Int64) -> Values:
        """Half the squared norms of the centred rows."""
        return self._half[rows].astype(self.dtype)


class GivenScreen(Screen):
    """Precomputed distances: a screening value is the negated distance, exactly.

    Query "rows" hold distances to a range of gallery rows; a gallery "row" holds its position in that range; both are
    `reid_dist.kernels.canonical.bytes_of_given`.
    """

    slope = 1.0
    exact = True

    def _set_bounds(self) -> None:
        # Distances are float64 for every requested dtype.
        self.dtype = np.dtype(np.float64)
        self._distances, self._places = self._query.view(np.float64), self._gallery.view(np.float64)
        self.centre = np.zeros(len(self._query))
        self.epsilon = np.zeros(len(self._query))

    def gallery_tile(self, rows: slice | Int64, out: Values) -> tuple[Values, Values]:
        """Copy the positions of the rows; the bias is 0."""
        out[:, :1] = self._places[rows]
        return out, np.zeros(len(out), self.dtype)

    def multiply(self, queries: Int64, matrix: Values, out: Values) -> None:
        """Write the negated distances of the pairs."""
        np.negative(self._distances[queries[:, None], matrix[:, 0].astype(np.int64)], out=out)
