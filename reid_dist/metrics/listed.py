"""Metrics when only the nearest items of each query were kept: exact where a list is long enough, bounds elsewhere.

A list gives the ranks of the positives in it.  Let ``L`` be the number of items in it once junk is removed, ``h`` the
number of positives among them, of ``n`` in all, and ``M`` the number of items in the whole ranking.  The other
``n - h`` positives have ranks from ``L + 1`` to ``M`` and nothing more is known, so that

* at best they come right after the list, at ``L + 1, ..., L + n - h``;
* at worst they come last, at ``M - (n - h) + 1, ..., M``;
* every other ranking that begins with the list lies between these two, positive by positive.

A metric that never rises when a positive moves down therefore lies between its values on the two, and both values are
taken by a ranking that fits the list.  Comparing the two needs no tolerance: quotients and sums that are rounded keep
the order of what they round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, RankedQueries, Relevance, RowRange, cut_rows
from reid_dist.core.segments import entry_keys, entry_owners, range_entries
from reid_dist.core.sorted_values import places_among
from reid_dist.errors import InputError
from reid_dist.metrics.metric import METRICS, RANKS, Metric, parse_metric

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

# Lists are read in blocks of queries of about this many entries, so that a memory map need not fit in memory.
_ENTRIES_AT_ONCE = 1 << 21


@dataclass(frozen=True, slots=True)
class ListedRanks:
    """Ranks of the positives, as far as lists determine them.

    `best` and `worst` hold all positives, those outside the list as near and as far as they can be, in order of gallery
    row and at the distance NaN; the ties of lists are unknown and 0.  `n_listed` counts the items of each list that are
    not junk, `n_found` the positives among them, (n_query,) int64.
    """

    best: RankedQueries
    worst: RankedQueries
    n_listed: Int64
    n_found: Int64

    @property
    def known(self) -> Bool:
        """Queries of which every rank is known, shape (n_query,), bool."""
        n_outside = self.best.n_relevant - self.n_found
        decided: Bool = (n_outside == 0) | (self.best.n_kept - self.n_listed == n_outside)
        return decided


@dataclass(frozen=True, slots=True)
class MetricBounds:
    """Lowest and highest value of a metric for each query, (n_query,) float64; NaN without positives."""

    lower: Float64
    upper: Float64

    @property
    def exact(self) -> bool:
        """Whether the value of every query is known."""
        return bool(np.array_equal(self.lower, self.upper, equal_nan=True))


@dataclass(frozen=True, slots=True)
class ListedMetrics:
    """Metrics by name: values (n_query,) with the bits of the whole ranking, and bounds of the undecided ones."""

    exact: dict[str, Float64]
    bounded: dict[str, MetricBounds]


def rank_lists(
    relevance: Relevance, mask: GalleryMask, index: NDArray[np.integer], distance: NDArray[np.floating] | None = None
) -> ListedRanks:
    """Rank the positives of each query by its list.

    Lists are (n_query, k), integer, nearest first, junk included, with -1 behind the last row of a gallery of fewer
    than ``k``; `distance` has the same shape.  Their order is kept between equal distances too.
    """
    n_query, n_gallery = relevance.n_query, len(mask.junk_row)
    _check_arrays(index, distance, n_query, n_gallery)
    rows_at_once = max(1, _ENTRIES_AT_ONCE // index.shape[1])
    blocks = []
    for rows in cut_rows(n_query, rows_at_once) if n_query else (RowRange(0, 0),):
        cut = slice(rows.start, rows.stop)
        some = np.asarray(index[cut])
        near = np.full(some.shape, np.nan) if distance is None else np.asarray(distance[cut], dtype=np.float64)
        _check_rows(some, n_gallery, rows.start)
        some = some.astype(np.int64, copy=False)
        if distance is not None:
            _check_order(near, some >= 0, rows.start)
        blocks.append(_rank_block(relevance, rows, mask, some, near))
    return ListedRanks(
        RankedQueries.concatenate([block.best for block in blocks]),
        RankedQueries.concatenate([block.worst for block in blocks]),
        np.concatenate([block.n_listed for block in blocks]),
        np.concatenate([block.n_found for block in blocks]),
    )


def metric_bounds(metric: Metric | str, listed: ListedRanks) -> MetricBounds:
    """Return the lowest and the highest value of a metric for each query; equal where the list decides it.

    For AP, with A = (1/n) sum over the positives found of j / r_j, that is A + (1/n) sum_{j > h} j / (M - n + j) and
    A + (1/n) sum_{j > h} j / (L + j - h); for INP the upper one is n / (L + n - h).
    """
    parsed = parse_metric(metric) if isinstance(metric, str) else metric
    if parsed.family.needs != RANKS:
        raise InputError(
            f"metric {parsed.name!r} is not available for top-k lists: the ranks of the positives do not determine it; "
            "evaluate the feature stores, or a distance block of whole gallery rows"
        )
    if parsed.family.per_found:
        _check_first(parsed, listed)
        # Positives outside a list that reaches k have ranks above k, whatever these are.
        values = parsed.values(listed.best)
        return MetricBounds(values, values)
    if not parsed.family.never_rises:
        bounded = sorted({family.stem for family in METRICS if family.never_rises})
        raise InputError(
            f"metric {parsed.name!r} is not available for top-k lists: it may rise when a positive moves "
            f"down; use another one ({', '.join(bounded)}), or evaluate the feature stores"
        )
    return MetricBounds(parsed.values(listed.worst), parsed.values(listed.best))


def split_metrics(metrics: Iterable[Metric | str], listed: ListedRanks) -> ListedMetrics:
    """Return the metrics that the lists determine for every valid query, and bounds of the others."""
    split = ListedMetrics({}, {})
    for each in metrics:
        metric = parse_metric(each) if isinstance(each, str) else each
        bounds = metric_bounds(metric, listed)
        if bounds.exact:
            split.exact[metric.name] = bounds.upper
        else:
            split.bounded[metric.name] = bounds
    return split


def _check_arrays(
    index: NDArray[np.integer], distance: NDArray[np.floating] | None, n_query: int, n_gallery: int
) -> None:
    """Refuse lists of the wrong shape or kind."""
    if not n_gallery:
        raise InputError("top-k lists of a gallery without rows cannot be ranked; give the gallery that was searched")
    if index.ndim != 2 or index.dtype.kind not in "iu" or index.shape[1] == 0:
        raise InputError(
            f"top-k lists must be whole numbers of shape (n_query, k) with k of at least 1, found {index.dtype} "
            f"{index.shape}"
        )
    if len(index) != n_query:
        raise InputError(f"there are {len(index)} top-k lists for {n_query} queries; give one list per query row")
    if distance is not None and (distance.dtype.kind not in "iuf" or distance.shape != index.shape):
        raise InputError(
            f"the distances of top-k lists must be numbers of shape {index.shape} as the lists, found {distance.dtype} "
            f"{distance.shape}"
        )


def _check_rows(index: NDArray[np.integer], n_gallery: int, first_query: int) -> None:
    """Refuse lists that are not the first rows of a ranking of the gallery."""

    def first(wrong: Bool) -> tuple[int, int]:
        row, place = np.argwhere(wrong)[0]
        return int(row), int(place)

    outside = (index >= n_gallery) | (index < -1)
    if outside.any():
        row, place = first(outside)
        raise InputError(
            f"the list of query {first_query + row} holds {index[row, place]} at place {place + 1}; gallery rows run "
            f"from 0 to {n_gallery - 1}, and only -1 denotes none"
        )
    present = index >= 0
    gap = present[:, 1:] & ~present[:, :-1]
    if gap.any():
        row, place = first(gap)
        raise InputError(
            f"the list of query {first_query + row} holds -1 at place {place + 1} before row {index[row, place + 1]}; "
            "-1 may only follow the last row of the gallery"
        )
    length = present.sum(axis=1)
    short = (length < index.shape[1]) & (length != n_gallery)
    if short.any():
        row = int(np.flatnonzero(short)[0])
        raise InputError(
            f"the list of query {first_query + row} ends after {length[row]} of {n_gallery} gallery rows; -1 means "
            "that the gallery has no more, so search it exhaustively, or cut all lists to the shortest"
        )
    # An unsigned type has no -1, and sorts as well.
    ordered = np.sort(index, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row, place = first(twice)
        raise InputError(
            f"the list of query {first_query + row} holds gallery row {ordered[row, place]} more than once; every row "
            "has one place in a ranking"
        )


def _check_order(distance: Float64, present: Bool, first_query: int) -> None:
    """Refuse distances that do not ascend."""
    missing = np.isnan(distance) & present
    if missing.any():
        row, place = np.argwhere(missing)[0]
        raise InputError(
            f"the list of query {first_query + row} has the distance NaN at place {place + 1}; features or distances "
            "are damaged, compute them again"
        )
    falls = (distance[:, 1:] < distance[:, :-1]) & present[:, 1:]
    if falls.any():
        row, place = np.argwhere(falls)[0]
        raise InputError(
            f"the list of query {first_query + row} has the distance {distance[row, place + 1]} after "
            f"{distance[row, place]}; lists must be nearest first (of similarities, give the negative)"
        )


def _rank_block(
    relevance: Relevance, rows: RowRange, mask: GalleryMask, index: Int64, distance: Float64
) -> ListedRanks:
    """Rank the positives of the queries `rows`, given their lists."""
    indptr, relevant_row = _cut(relevance.relevant_indptr, relevance.relevant_row, rows)
    n_relevant = np.diff(indptr)
    n_gallery = len(mask.junk_row)
    place = _places(indptr, relevant_row, index, n_gallery)
    relevant = place >= 0
    hidden = relevance.hidden
    # An index of -1 reads the last row, and what it reads there does not matter.
    junk = mask.junk_row[index] | (_places(*_cut(hidden.indptr, hidden.row, rows), index, n_gallery) >= 0)
    if mask.label is not None and hidden.label is not None:
        junk |= mask.label[index] == hidden.label[rows.start : rows.stop, None]
    kept = (index >= 0) & (relevant | ~junk)
    n_listed, n_found = kept.sum(axis=1), relevant.sum(axis=1)
    n_kept = relevance.n_kept[rows.start : rows.stop]

    # Where the found positives of each query go: before those that were not found.
    at = range_entries(indptr[:-1], n_found)[1]
    outside = np.ones(len(relevant_row), bool)
    outside[at] = False
    unlisted = np.ones(len(relevant_row), bool)
    unlisted[place[relevant]] = False

    row = np.empty(len(relevant_row), np.int64)
    row[at], row[outside] = index[relevant], relevant_row[unlisted]
    nearness = np.full(len(relevant_row), np.nan)
    nearness[at] = distance[relevant]
    best = np.empty(len(relevant_row), np.int64)
    best[at] = np.cumsum(kept, axis=1)[relevant]
    worst = best.copy()
    of = entry_owners(indptr)[outside]
    number = np.flatnonzero(outside) - indptr[of] + 1  # j of the positives outside the list, from h + 1 to n
    best[outside] = n_listed[of] + number - n_found[of]
    worst[outside] = n_kept[of] - n_relevant[of] + number

    ranked = RankedQueries(
        indptr=indptr,
        rank=best,
        tied=np.zeros(len(row), np.int64),
        tied_before=np.zeros(len(row), np.int64),
        row=row,
        distance=nearness,
        n_kept=n_kept,
        n_junk=relevance.n_junk[rows.start : rows.stop],
        reason=relevance.reason[rows.start : rows.stop],
    )
    return ListedRanks(ranked, replace(ranked, rank=worst), n_listed.astype(np.int64), n_found.astype(np.int64))


def _cut(indptr: Int64, values: Int64, rows: RowRange) -> tuple[Int64, Int64]:
    """The values of some queries, and where each one's begin."""
    start, stop = indptr[rows.start], indptr[rows.stop]
    return indptr[rows.start : rows.stop + 1] - start, values[start:stop]


def _places(indptr: Int64, values: Int64, index: Int64, n_gallery: int) -> Int64:
    """Place of each listed row among the values of its query, -1 where it is none of them; the shape of `index`."""
    wanted = np.arange(len(index))[:, None] * n_gallery + index
    # Rows ascend within a query, hence their keys ascend.
    return np.where(index >= 0, places_among(entry_keys(indptr, values, n_gallery), wanted), -1)


def _check_first(metric: Metric, listed: ListedRanks) -> None:
    """Refuse a metric of the first k where lists end before k and leave positives out."""
    undecided = ~listed.known & (listed.n_listed < metric.parameter)
    if undecided.any():
        query = int(np.flatnonzero(undecided)[0])
        reach = int(listed.n_listed[undecided].min())
        other = f"{metric.name.partition('@')[0]}@{reach} or " if reach else ""
        raise InputError(
            f"metric {metric.name!r} needs longer lists: {int(undecided.sum())} end too early; keep longer ones, or "
            f"use {other}mAP@{metric.parameter}",
            details=(
                f"the list of query {query} holds {int(listed.n_listed[query])} items that are not junk",
                "the metric has no bounds in lists that are cut: it may rise when a positive moves down",
            ),
        )
