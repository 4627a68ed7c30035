"""Conversion of relevance to thresholds, and of counts to ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import (
    GroupMembers,
    RankedQueries,
    Relevance,
    RowRange,
    Targets,
    Thresholds,
)
from reid_dist.core.segments import (
    entry_numbers,
    entry_owners,
    owner_offsets,
    owners,
    run_offsets,
    segment_offsets,
    segment_running_sums,
)

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Mean positives per query from which sorting query by query is faster than sorting all at once.
_MANY = 64


def relevant_places(relevance: Relevance, rows: RowRange) -> tuple[Int64, Int64]:
    """Find the listed pairs of `Relevance.listed` that lie in a range of gallery rows.

    Returns positions in the list, ascending, and the query of each, both shape (n,), int64.
    """
    indptr, row = relevance.listed
    place = np.flatnonzero((row >= rows.start) & (row < rows.stop))
    return place, owners(place, indptr)


def make_thresholds(relevance: Relevance, distance: Float64) -> Thresholds:
    """Compute the thresholds of a block of queries from the distances of the pairs of `Relevance.listed`."""
    members = relevance.members
    items = make_targets(relevance, distance if members is None else distance[members.relevant])
    return Thresholds(items, items)


def group_targets(relevance: Relevance, distance: Float64, *, first_alone: bool) -> Targets:
    """Thresholds of groups with a positive, or of the first of each query, from the distances of all of their items."""
    members = _members(relevance)
    owner = entry_owners(members.indptr)
    # The items of one threshold are those of a group, or of all groups of a query; the nearest comes first.
    keys: list[NDArray[Any]] = [distance, owner] if first_alone else [distance, members.group, owner]
    order = np.lexsort(keys)
    opens = run_offsets(*(key[order] for key in keys[1:]))[:-1]
    # Positions of the nearest items, in the order of queries and gallery rows.
    rows = np.sort(order[opens])
    grouped = replace(
        relevance,
        relevant_indptr=np.searchsorted(rows, members.indptr),
        relevant_row=members.row[rows],
        hidden=members.hidden,
    )
    return make_targets(grouped, distance[rows])


def make_targets(relevance: Relevance, distance: Float64) -> Targets:
    """Sort the positives of each query by (distance, gallery row) and list their distinct distances.

    `distance` holds the canonical distances of ``relevance.relevant_row``.
    """
    owner = entry_owners(relevance.relevant_indptr)
    order = _by_distance(distance, owner, relevance.relevant_indptr)
    distance, row = distance[order], relevance.relevant_row[order]
    # Positives of one query at one distance share a threshold.
    start = run_offsets(distance, owner)
    return Targets(
        indptr=owner_offsets(owner[start[:-1]], relevance.n_query),
        distance=distance[start[:-1]],
        positive_start=start,
        positive_row=row,
        hidden=relevance.hidden,
    )


def _by_distance(distance: Float64, owner: Int64, indptr: Int64) -> Int64:
    """Order of the positives by (query, distance, gallery row); gallery rows ascend within a query."""
    if len(distance) < _MANY * (len(indptr) - 1):
        return np.lexsort((distance, owner))
    order = np.empty(len(distance), np.int64)
    for start, stop in pairwise(indptr.tolist()):
        own = distance[start:stop]
        found = np.argsort(own)
        if (own[found[1:]] == own[found[:-1]]).any():
            # Slower: equal distances stay in order of gallery rows.
            found = np.argsort(own, kind="stable")
        order[start:stop] = start + found
    return order


def place_starts(targets: Targets) -> Int64:
    """First place of every query, and the number of places at the end, shape (n_query + 1,), int64.

    A threshold has a place of nearer items, one before each of its positives, and one behind them: see ``APART`` of
    `reid_dist.kernels.deciding`.
    """
    return targets.positive_indptr + 2 * targets.indptr


def rank_groups(relevance: Relevance, targets: Targets, counts: Iterable[NDArray[np.integer]]) -> RankedQueries:
    """Compute ranks of groups as `rank` does those of items; `counts` count groups."""
    return rank(replace(relevance, n_kept=_members(relevance).n_kept), targets, counts)


def _members(relevance: Relevance) -> GroupMembers:
    if relevance.members is None:
        raise AssertionError("relevance was assigned without groups")
    return relevance.members


def rank(relevance: Relevance, targets: Targets, counts: Iterable[NDArray[np.integer]]) -> RankedQueries:
    """Compute ranks under the order (distance, gallery row) from the counts of the whole gallery.

    `counts` are those of its parts by place, shape (n_places,) each.
    ``r_j = 1 + (negatives nearer) + (negatives tied with it in a lower gallery row) + (positives before it)``.
    """
    first, start = place_starts(targets), targets.positive_start
    before = segment_offsets(sum(counts, np.zeros(first[-1], np.int64)))
    # First place of every threshold, and counts before its ties.
    opens = start + 2 * np.arange(len(start))
    up_to = before[opens[:-1] + 1]
    near, tied = up_to - np.repeat(before[first[:-1]], np.diff(targets.indptr)), before[opens[1:]] - up_to
    threshold, indptr = entry_owners(start), targets.positive_indptr
    preceding = before[np.arange(start[-1]) + 2 * threshold + 2] - up_to[threshold]
    return RankedQueries(
        indptr=indptr,
        rank=1 + near[threshold] + preceding + entry_numbers(indptr),
        tied=tied[threshold],
        tied_before=preceding,
        row=targets.positive_row,
        distance=targets.distance[threshold],
        n_kept=relevance.n_kept,
        n_junk=relevance.n_junk,
        reason=relevance.reason,
    )


def select(
    listed: RankedQueries, start: Int64, relevant: NDArray[np.bool_], negative: NDArray[np.bool_]
) -> RankedQueries:
    """Ranks of the `relevant` ones of some items, where others are negatives, and the rest are not there.

    `start` are the offsets of the items of each threshold, as of `Targets.positive_start`.
    """

    def before(flag: NDArray[np.bool_], indptr: Int64) -> Int64:
        """Number of true values before each place in its segment."""
        return segment_running_sums(flag, indptr) - flag

    tied = listed.tied + np.repeat(np.diff(segment_offsets(negative)[start]), np.diff(start))
    return replace(
        listed,
        indptr=segment_offsets(relevant)[listed.indptr],
        rank=(listed.rank - entry_numbers(listed.indptr) + before(relevant | negative, listed.indptr))[relevant],
        tied=tied[relevant],
        tied_before=(listed.tied_before + before(negative, start))[relevant],
        row=listed.row[relevant],
        distance=listed.distance[relevant],
    )


def append_unranked(ranked: RankedQueries, targets: Targets, n: int) -> RankedQueries:
    """Add to the ranks of the `n` nearest positives of each query the positives that were not counted.

    Their ranks are one more than the number of kept items: beyond n, of which each of them has as many before it.
    """
    counted = np.repeat(targets.among_first(n), np.diff(targets.positive_start))
    indptr = targets.positive_indptr
    rank = np.repeat(ranked.n_kept + 1, np.diff(indptr))
    tied, tied_before = np.zeros_like(rank), np.zeros_like(rank)
    rank[counted], tied[counted], tied_before[counted] = ranked.rank, ranked.tied, ranked.tied_before
    distance = np.repeat(targets.distance, np.diff(targets.positive_start))
    return replace(
        ranked,
        indptr=indptr,
        rank=rank,
        tied=tied,
        tied_before=tied_before,
        row=targets.positive_row,
        distance=distance,
    )
