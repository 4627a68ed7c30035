r"""The highest and the lowest value that a rank metric can have over all orders of tied items.

Items of one query at one distance are a *tie group*: ``m`` positives and ``e`` negatives in any order.  A metric that
never rises when a positive moves down is highest with the positives of every group first and lowest with them last
(`RankedQueries.settled`).

``mAP_found@k`` is no such metric, for its denominator counts the positives among the first ``k``.  Only the group that
the cut goes through can change that number: a group before the cut adds the most with its positives first and the least
with them last, a group behind it adds nothing.  Let ``s`` items come before the group at the cut, ``j_0`` of them
positive, and let ``a`` of its ``m`` positives be among the first ``k``,

    max(0, k - s - e) <= a <= min(m, k - s).

Given ``a``, its sum of ``j / r_j`` is highest with the ``a`` positives right behind place ``s`` and lowest with them
right before place ``k``.  With the harmonic numbers ``H`` these sums are ``a + (j_0 - s) (H(s + a) - H(s))`` and
``a + (j_0 - k + a) (H(k) - H(k - a))``.  All ``a`` are tried.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries, TieRule
from reid_dist.core.segments import entry_owners, run_offsets
from reid_dist.metrics.metric import Metric

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
RULES: Final[tuple[TieRule, TieRule]] = ("optimistic", "pessimistic")


def extreme_ranks(metric: Metric, ranked: RankedQueries, rule: TieRule) -> RankedQueries:
    """Order tied items so that a rank metric is highest, or lowest, for every query."""
    settled = ranked.settled(rule)
    return _settle_the_cut(ranked, settled, metric.parameter, rule) if metric.family.per_found else settled


def _settle_the_cut(ranked: RankedQueries, settled: RankedQueries, k: int, rule: TieRule) -> RankedQueries:
    """Change the order in the groups that the cut at `k` goes through; see the module."""
    groups = _groups_at(ranked, k)
    if not len(groups):
        return settled
    rank = settled.rank.copy()
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, k + 1))])
    # Ranks in groups before the cut are settled already; those behind it, and those of the group, have no part in it.
    before = np.where(settled.rank <= k, settled.number / settled.rank, 0.0)
    for start, stop, query, first, last in groups.tolist():
        n_before = start - int(ranked.indptr[query])
        least, sums = _added(n_before, first - 1, stop - start, last, k, harmonic, rule)
        counts = np.arange(least, least + len(sums))
        total = before[ranked.indptr[query] : start].sum() + sums
        value = np.where(n_before + counts > 0, total / np.maximum(n_before + counts, 1), 0.0)
        a = int(counts[value.argmax() if rule == "optimistic" else value.argmin()])
        near = first if rule == "optimistic" else k - a + 1
        rank[start : start + a] = np.arange(near, near + a)
        n_behind = stop - start - a
        rank[start + a : stop] = np.arange(last - n_behind + 1, last + 1)
    return replace(settled, rank=rank)


def _groups_at(ranked: RankedQueries, k: int) -> Int64:
    """Tie groups with positives, and with negatives, that have places up to `k` and behind it.

    Shape (n, 5): first and last (exclusive) positive in the flat array, query, first and last place of the group.
    """
    owner = entry_owners(ranked.indptr)
    groups = run_offsets(owner, ranked.distance)
    start, stop = groups[:-1], groups[1:]
    # Every positive of a group has all negatives of the group beside it.
    first = ranked.rank[start] - ranked.tied_before[start]
    last = first + (stop - start) + ranked.tied[start] - 1
    cut = (first <= k) & (last > k) & (ranked.tied[start] > 0)
    return np.stack([start, stop, owner[start], first, last], axis=1)[cut]


def _added(n_before: int, s: int, m: int, last: int, k: int, harmonic: Float64, rule: TieRule) -> tuple[int, Float64]:
    """Sum of j / r_j in the group, up to the cut, for every number of positives there; and the least such number."""
    n_negative = last - s - m
    least = max(0, k - s - n_negative)
    a = np.arange(least, min(m, k - s) + 1)
    if rule == "optimistic":
        return least, a + (n_before - s) * (harmonic[s + a] - harmonic[s])
    return least, a + (n_before - k + a) * (harmonic[k] - harmonic[k - a])
