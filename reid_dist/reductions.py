"""What is computed from tiles: partial results of gallery blocks that merge with one associative operation.

A reduction is a frozen value.  ``start`` gives an accumulator for one block of queries against one gallery block, the
sweep feeds it tiles, ``result`` takes the partial out, and ``combine`` merges partials of different gallery blocks in
any order and grouping.  The sweep does not know which reductions it feeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.distances import Distance, Screen
from reid_dist.errors import DamagedStoreError
from reid_dist.kernels.canonical import PairRows, pair_distances
from reid_dist.kernels.counting import Bands, RankCounts, count_tile
from reid_dist.kernels.topk import collect_tile, make_candidates, settle
from reid_dist.model import Judgement, Neighbours, RankedQueries, RowRange, Targets
from reid_dist.segments import segment_running_sums

__all__ = [
    "Accumulator",
    "CountNearer",
    "FeatureBlock",
    "KeepNearest",
    "Reduction",
    "Tile",
    "make_targets",
    "pair_rows",
    "rank",
    "relevant_places",
]

Int64 = NDArray[np.int64]

# Above this share of a tile decided pair by pair, a float64 product of the tile is cheaper.
CROWDED = 0.02


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """Consecutive feature rows in memory.

    Attributes
    ----------
    rows
        Which rows of their set they are.
    features
        Shape (len(rows), dim), float32, C order.
    norm
        Canonical squared norms, shape (len(rows),), float64.
    """

    rows: RowRange
    features: NDArray[np.float32]
    norm: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tile:
    """Screening values of some queries against some gallery rows.

    Attributes
    ----------
    values
        Shape (n_query, n_column), float32; larger is nearer, once the bias is taken off.
    bias
        Shape (n_column,).
    query_start
        Position of the first query in the block of queries.
    column_start
        Position of the first column in the gallery block.
    """

    values: NDArray[np.floating]
    bias: NDArray[np.floating]
    query_start: int
    column_start: int


P = TypeVar("P")
R_co = TypeVar("R_co", covariant=True)


class Accumulator(Protocol[R_co]):
    """Takes the tiles of one block pair."""

    def absorb(self, tile: Tile) -> None:
        """Take one tile; tiles of one query come in ascending order of columns."""

    def result(self) -> R_co:
        """Partial result of the block pair."""


class Reduction(Protocol[P]):
    """A way to reduce tiles to something small."""

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> Accumulator[P]:
        """Make an accumulator for a block pair."""

    def combine(self, partials: Sequence[P]) -> P:
        """Merge partials of different gallery blocks; associative and commutative."""


def pair_rows(distance: Distance, query: FeatureBlock, gallery: FeatureBlock) -> PairRows:
    """Both blocks as the kernels take them."""
    return PairRows(distance.kind, query.features, gallery.features, query.norm, gallery.norm)


def relevant_places(judgement: Judgement, rows: RowRange) -> tuple[Int64, Int64]:
    """Find the positives that lie in a range of gallery rows.

    Returns
    -------
    Places in ``judgement.relevant_row``, ascending, and the query of each, both int64.
    """
    relevant = judgement.relevant_row
    place = np.flatnonzero((relevant >= rows.start) & (relevant < rows.stop))
    return place, np.searchsorted(judgement.relevant_indptr, place, "right") - 1


def make_targets(judgement: Judgement, parts: Sequence[tuple[Int64, NDArray[np.float64]]]) -> Targets:
    """Sort the positives of each query by (distance, gallery row) and list their distinct distances.

    Parameters
    ----------
    judgement
        Of the block of queries.
    parts
        Places in ``judgement.relevant_row`` and their canonical distances; all of them, in any order.
    """
    distance = np.full(len(judgement.relevant_row), np.nan)
    for place, values in parts:
        distance[place] = values
    n_query = judgement.n_query
    owner = np.repeat(np.arange(n_query), np.diff(judgement.relevant_indptr))
    order = np.lexsort((judgement.relevant_row, distance, owner))
    distance, row, owner = distance[order], judgement.relevant_row[order], owner[order]
    opens = np.ones(len(row), bool)
    opens[1:] = (distance[1:] != distance[:-1]) | (owner[1:] != owner[:-1])
    start = np.flatnonzero(opens)
    indptr = np.zeros(n_query + 1, np.int64)
    np.cumsum(np.bincount(owner[start], minlength=n_query), out=indptr[1:])
    return Targets(
        indptr=indptr,
        distance=distance[start],
        positive_start=np.append(start, len(row)),
        positive_row=row,
        hidden_indptr=judgement.hidden_indptr,
        hidden_row=judgement.hidden_row,
    )


@dataclass(frozen=True, slots=True)
class CountNearer:
    """Count, for every target, the negatives that lie nearer, at its distance, and there but before it.

    Attributes
    ----------
    targets
        Of the block of queries.
    junk_row
        Which gallery rows (of the whole gallery) are junk for every query, shape (n_gallery,), bool.
    distance
        The distance.
    """

    targets: Targets
    junk_row: NDArray[np.bool_]
    distance: Distance

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _Counting:
        """Make an accumulator for a block pair."""
        return _Counting(self, query, gallery, screen)

    def combine(self, partials: Sequence[RankCounts]) -> RankCounts:
        """Add counts."""
        total = RankCounts(*(array.copy() for array in partials[0]))
        for partial in partials[1:]:
            for into, array in zip(total, partial, strict=True):
                into += array
        return total


class _Counting:
    """Accumulator of `CountNearer`."""

    def __init__(self, reduction: CountNearer, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> None:
        self._reduction = reduction
        self._query = query
        self._gallery = gallery
        targets = reduction.targets
        self._owner = np.repeat(np.arange(len(targets.indptr) - 1), np.diff(targets.indptr))
        self._bands = self._make_bands(screen)
        self._counts = self._zeros()
        self._scratch = self._zeros()
        self._hidden = reduction.junk_row[gallery.rows.start : gallery.rows.stop]
        self._check_thresholds()

    def _check_thresholds(self) -> None:
        """Compute the distances of this block's positives again, from rows that were verified when they were read.

        Thresholds come from rows that were fetched one by one and not verified.

        Raises
        ------
        DamagedStoreError
            If one of them differs.
        """
        targets, rows = self._reduction.targets, self._gallery.rows
        place = np.flatnonzero((targets.positive_row >= rows.start) & (targets.positive_row < rows.stop))
        threshold = np.searchsorted(targets.positive_start, place, "right") - 1
        pairs = pair_rows(self._reduction.distance, self._query, self._gallery)
        again = pair_distances(pairs, self._owner[threshold], targets.positive_row[place] - rows.start)
        wrong = np.flatnonzero(again != targets.distance[threshold])
        if len(wrong):
            raise DamagedStoreError(
                f"gallery row {targets.positive_row[place[wrong[0]]]} was read with other features than before; the "
                "store changed, or its storage is not reliable: run `reid-dist check` on it"
            )

    def _make_bands(self, screen: Screen, queries: RowRange | None = None) -> Bands:
        """Thresholds in screening values; with `queries`, for a screen of these queries of the block alone."""
        targets = self._reduction.targets
        first, last = (0, len(targets.indptr) - 1) if queries is None else (queries.start, queries.stop)
        cut = slice(targets.indptr[first], targets.indptr[last])
        squared = self._reduction.distance.squared
        lower, upper = screen.edges(self._owner[cut] - first, targets.distance[cut], squared)
        return Bands(
            indptr=targets.indptr[first : last + 1] - targets.indptr[first],
            lower=lower,
            upper=upper,
            distance=targets.distance[cut],
            positive_start=targets.positive_start[targets.indptr[first] : targets.indptr[last] + 1],
            positive_row=targets.positive_row,
            hidden_indptr=targets.hidden_indptr[first : last + 1],
            hidden_row=targets.hidden_row,
        )

    def _zeros(self) -> RankCounts:
        targets = self._reduction.targets
        n_threshold, n_positive = len(targets.distance), len(targets.positive_row)
        return RankCounts(
            np.zeros(n_threshold, np.int64), np.zeros(n_threshold, np.int64), np.zeros(n_positive, np.int64)
        )

    def absorb(self, tile: Tile) -> None:
        """Count one tile; one whose bands are too crowded is screened again in float64."""
        n_query, n_column = tile.values.shape
        columns = slice(tile.column_start, tile.column_start + n_column)
        bias = np.where(self._hidden[columns], np.inf, tile.bias).astype(tile.bias.dtype)
        rows = self._pair_rows(self._query.features, self._query.norm, columns)
        limit = int(CROWDED * tile.values.size) + 64
        # Counts of a tile that is given up half-way must not stay: they are taken apart, then added.
        indptr = self._reduction.targets.indptr
        first, last = indptr[tile.query_start], indptr[tile.query_start + n_query]
        start = self._reduction.targets.positive_start
        thresholds, positives = slice(first, last), slice(start[first], start[last])
        cuts = (thresholds, thresholds, positives)
        for array, cut in zip(self._scratch, cuts, strict=True):
            array[cut] = 0
        first_row = self._gallery.rows.start + tile.column_start
        decided = count_tile(tile.values, bias, tile.query_start, first_row, self._bands, rows, self._scratch, limit)
        if decided < 0:
            self._count_wide(tile, columns, cuts)
        for into, array, cut in zip(self._counts, self._scratch, cuts, strict=True):
            into[cut] += array[cut]

    def _pair_rows(self, query: NDArray[np.float32], norm: NDArray[np.float64], columns: slice) -> PairRows:
        return PairRows(
            self._reduction.distance.kind, query, self._gallery.features[columns], norm, self._gallery.norm[columns]
        )

    def _count_wide(self, tile: Tile, columns: slice, cuts: tuple[slice, slice, slice]) -> None:
        """Count a tile by a product in float64, whose bands are some 2^29 times narrower."""
        n_query, n_column = tile.values.shape
        queries = RowRange(tile.query_start, tile.query_start + n_query)
        features = self._query.features[queries.start : queries.stop]
        norm = self._query.norm[queries.start : queries.stop]
        rows = self._pair_rows(features, norm, columns)
        screen = self._reduction.distance.screen(features, rows.gallery, norm, rows.gallery_norm, np.float64)
        wide: NDArray[np.floating] = np.empty(rows.gallery.shape, np.float64)
        matrix, bias = screen.gallery_tile(0, n_column, wide)
        hidden = np.where(self._hidden[columns], np.inf, bias)
        # `before` is indexed by positive over the whole block, `near` and `tied` from the first threshold of the tile.
        for array, cut in zip(self._scratch, cuts, strict=True):
            array[cut] = 0
        counts = RankCounts(self._scratch.near[cuts[0]], self._scratch.tied[cuts[1]], self._scratch.before)
        first_row = self._gallery.rows.start + tile.column_start
        bands = self._make_bands(screen, queries)
        count_tile(screen.query @ matrix.T, hidden, 0, first_row, bands, rows, counts, tile.values.size)

    def result(self) -> RankCounts:
        """Return the counts of the block pair."""
        return self._counts


def rank(judgement: Judgement, targets: Targets, counts: RankCounts) -> RankedQueries:
    """Turn the counts of the whole gallery into ranks under the order (distance, gallery row).

    ``r_j = 1 + (negatives nearer) + (negatives tied with it in a lower gallery row) + (positives before it)``.
    """
    indptr = targets.positive_indptr
    size = np.diff(targets.positive_start)
    near = np.repeat(counts.near, size)
    preceding = segment_running_sums(counts.before, targets.positive_start)
    position = np.arange(len(targets.positive_row)) - np.repeat(indptr[:-1], np.diff(indptr))
    return RankedQueries(
        indptr=indptr,
        rank=1 + near + preceding + position,
        tied=np.repeat(counts.tied, size),
        row=targets.positive_row,
        distance=np.repeat(targets.distance, size),
        n_kept=judgement.n_kept,
        n_junk=judgement.n_junk,
        reason=judgement.reason,
    )


@dataclass(frozen=True, slots=True)
class KeepNearest:
    """Keep the k nearest gallery rows of every query by (distance, gallery row).

    Attributes
    ----------
    k
        How many.
    own_first
        Whether query row i *is* gallery row i and comes first in its own list whatever else is at its distance.
    distance
        The distance.
    """

    k: int
    own_first: bool
    distance: Distance

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _Nearest:
        """Make an accumulator for a block pair."""
        return _Nearest(self, query, gallery, screen)

    def combine(self, partials: Sequence[Neighbours]) -> Neighbours:
        """Merge lists."""
        index = np.concatenate([partial.index for partial in partials], axis=1)
        distance = np.concatenate([partial.distance for partial in partials], axis=1)
        # Absent places are at infinite distance; among equal distances the lower row wins, absent ones (-1) last.
        order = np.lexsort((np.where(index < 0, np.iinfo(np.int64).max, index), distance), axis=-1)[:, : self.k]
        return Neighbours(np.take_along_axis(index, order, 1), np.take_along_axis(distance, order, 1))

    def finish(self, merged: Neighbours, rows: RowRange, own: NDArray[np.float64] | None) -> Neighbours:
        """Put each query itself in front of its list, where that is asked for.

        Parameters
        ----------
        merged
            Lists of all gallery blocks, without the queries themselves.
        rows
            Which rows the queries are.
        own
            Canonical distance of every query to itself, shape (len(rows),), when `own_first`.
        """
        if not self.own_first or own is None:
            return merged
        index = np.concatenate([np.arange(rows.start, rows.stop)[:, None], merged.index[:, :-1]], axis=1)
        distance = np.concatenate([own[:, None], merged.distance[:, :-1]], axis=1)
        return Neighbours(index, distance)


class _Nearest:
    """Accumulator of `KeepNearest`."""

    def __init__(self, reduction: KeepNearest, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> None:
        self._reduction = reduction
        self._query = query
        self._gallery = gallery
        self._screen = screen
        self._rows = pair_rows(reduction.distance, query, gallery)
        self._k = min(reduction.k, len(gallery.rows))
        self._lists = make_candidates(len(query.rows), self._k)
        rows = query.rows
        self._own = np.arange(rows.start, rows.stop) if reduction.own_first else np.full(len(rows), -1, np.int64)

    def absorb(self, tile: Tile) -> None:
        """Collect from one tile."""
        collect_tile(
            tile.values,
            tile.bias,
            tile.query_start,
            self._gallery.rows.start + tile.column_start,
            self._own,
            self._k,
            self._screen.epsilon,
            self._screen.centre,
            self._screen.slope,
            self._rows,
            self._gallery.rows.start,
            self._lists,
        )

    def result(self) -> Neighbours:
        """Settle all lists by canonical distance."""
        shape = (len(self._query.rows), self._reduction.k)
        index = np.full(shape, -1, np.int64)
        distance = np.full(shape, np.inf)
        settle(self._k, self._screen.epsilon, self._rows, self._gallery.rows.start, self._lists, index, distance)
        return Neighbours(index, distance)
