"""Likely errors of a data set, found in the lists of a run: labels to check, duplicates, identities with two labels.

The *score* of a row, a query or a gallery row with relevant pairs, is ``log(own / other)``: `own` is the median
distance of its relevant pairs, `other` that of the nearest row of another identity that the lists hold.  A wrong label
makes `own` larger and `other` smaller than those of other rows, whatever the model separates.  The score of an identity
under another one is the mean of the same over its queries, with the nearest item of that other identity in the list of
each, or the end of the list; its score is the largest of these.

*Evidence* is how far a score lies above the median of all scores, in units of their spread: the larger one of those
that the 75% and, for rows, the 97.7% quantile of a normal distribution would have.  A row is *suspect* if its
evidence exceeds what `EXPECTED` of so many normal scores would.  Two identities are *likely one* if each has its score
under the other one, with evidence beyond the same limit for so many identities.  Fewer than `LEAST_ROWS` rows, or
`LEAST_IDENTITIES`, show no spread.  Identities -1 and 0, of junk and distractors, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import entry_owners, run_offsets
from reid_dist.reports.failure_kinds import NO_IDENTITY, CommonLabels, duplicate_limit
from reid_dist.reports.topk_entries import TopK

MOST_SHOWN: Final = 20
"""Entries of each kind in a report; their number is that of all."""

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_NORMAL: Final = NormalDist()


EXPECTED: Final = 0.01
"""Suspect rows, and pairs of identities, that a normal distribution of scores would show without any wrong label."""

LEAST_ROWS: Final = 50
LEAST_IDENTITIES: Final = 20


@dataclass(frozen=True)
class GenuinePairs:
    """Relevant pairs: gallery rows and canonical distances of query ``i`` are at ``indptr[i]:indptr[i + 1]``."""

    indptr: Int64
    row: Int64
    distance: Float64


@dataclass(frozen=True)
class _Others:
    """Pairs of the lists of different identities, nearest first of each query: rows and distance, all (n,)."""

    query: Int64
    item: Int64
    distance: Float64


def find_data_problems(topk: TopK, labels: CommonLabels, genuine: GenuinePairs) -> dict[str, Any]:
    """Find likely errors of labels and duplicates.

    Returns
    -------
    ``suspects`` (``side`` of the row whose label is doubtful, ``query``, ``gallery``: rows of the pair of it and the
    nearest row of another identity; ``distance``, that of the pair, ``own``, the median of its relevant pairs, and
    ``evidence``), the largest evidence first; ``identities`` (``pids``: two of the common numbering, ``evidence``: the
    smaller one of both), likewise; and ``duplicates`` (``query``, ``gallery``, ``distance``, ``relevant``), the nearest
    first; each with at most `MOST_SHOWN` entries beside ``n_suspects``, ``n_identities``, ``n_duplicates``.
    """
    kept = topk.index >= 0
    if topk.junk is not None:
        kept &= ~topk.junk
    others = _others(topk, kept, labels)
    own = _own_distances(genuine, len(labels.gallery_pids))
    ends = np.max(topk.distance, axis=1, where=kept, initial=-np.inf)
    suspects = _suspects(others, own, ends)
    identities = _likely_one(others, own[0], ends, labels)
    twins = _duplicates(topk, kept)
    return {
        "n_suspects": len(suspects),
        "suspects": suspects[:MOST_SHOWN],
        "n_identities": len(identities),
        "identities": identities[:MOST_SHOWN],
        "n_duplicates": len(twins),
        "duplicates": twins[:MOST_SHOWN],
    }


def _others(topk: TopK, kept: NDArray[np.bool_], labels: CommonLabels) -> _Others:
    query, place = np.nonzero(kept if topk.relevant is None else kept & ~topk.relevant)
    item, distance = topk.index[query, place], topk.distance[query, place]
    near, far = labels.query_pids[query], labels.gallery_pids[item]
    # A logarithm needs a scale: given distances may be negative, and duplicates are found apart.
    chosen = (near != far) & ~np.isin(near, NO_IDENTITY) & ~np.isin(far, NO_IDENTITY) & (distance > 0)
    return _Others(query[chosen], item[chosen], distance[chosen])


def _own_distances(genuine: GenuinePairs, n_gallery: int) -> tuple[Float64, Float64]:
    """Median distances of the relevant pairs of each query and each gallery row; NaN without any, or if not above 0."""
    n_query = len(genuine.indptr) - 1
    found = []
    for rows, n in ((entry_owners(genuine.indptr), n_query), (genuine.row, n_gallery)):
        median = np.full(n, np.nan)
        having, medians = _medians(rows, genuine.distance)
        median[having] = np.where(medians > 0, medians, np.nan)
        found.append(median)
    return found[0], found[1]


def _medians(groups: Int64, distance: Float64) -> tuple[Int64, Float64]:
    """Groups, ascending, and their median distances."""
    order = np.lexsort((distance, groups))
    own, start, size = np.unique(groups[order], return_index=True, return_counts=True)
    ordered, middle = distance[order], start + size // 2
    halves = ordered[np.maximum(middle - 1, 0)] / 2.0 + ordered[middle] / 2.0
    return own, np.where(size % 2 == 1, ordered[middle], halves)


def _bulk(scores: Float64, least: int, upper: Sequence[float]) -> tuple[float, float] | None:
    """Median and spread of scores, NaN for those that are not known and below the others; None if they show none."""
    known = np.sort(scores[~np.isnan(scores)])
    n_below = len(scores) - len(known)
    if len(scores) < least or 2 * n_below > len(scores):
        return None
    middle, *above = (float(known[int(share * len(scores)) - n_below]) for share in (0.5, *upper))
    spread = max((each - middle) / _NORMAL.inv_cdf(share) for each, share in zip(above, upper, strict=True))
    return (middle, spread) if spread > 0 else None


def _limit(n: int) -> float:
    """Evidence beyond which `EXPECTED` of n normal scores lie."""
    return -_NORMAL.inv_cdf(EXPECTED / n)


def _suspects(others: _Others, own: tuple[Float64, Float64], ends: Float64) -> list[dict[str, Any]]:
    """Suspect rows of both sides, those of the largest evidence first."""
    order = np.argsort(others.distance, kind="stable")
    n_rows = sum(int(np.count_nonzero(~np.isnan(each))) for each in own)
    found: list[dict[str, Any]] = []
    bulk = None
    for side, rows, medians in (("query", others.query, own[0]), ("gallery", others.item, own[1])):
        having, first = np.unique(rows[order], return_index=True)
        pair = np.full(len(medians), -1)
        pair[having] = order[first]
        known = (pair >= 0) & ~np.isnan(medians)
        scores = np.full(len(medians), np.nan)
        scores[known] = np.log(medians[known]) - np.log(others.distance[pair[known]])
        compared = scores.copy()
        if side == "query":
            # Nothing else in the list is at most what lies at its end.
            ended = ~known & ~np.isnan(medians) & (ends > 0)
            compared[ended] = np.log(medians[ended]) - np.log(ends[ended])
        # Where few lists hold a gallery row, those of queries show the spread.
        bulk = _bulk(compared[~np.isnan(medians)], LEAST_ROWS, (0.75, 0.977)) or bulk
        if bulk is None:
            continue
        evidence = (scores - bulk[0]) / bulk[1]
        for row in np.flatnonzero(evidence > _limit(n_rows)).tolist():
            at = pair[row]
            found.append(
                {
                    "side": side,
                    "query": int(others.query[at]),
                    "gallery": int(others.item[at]),
                    "distance": float(others.distance[at]),
                    "own": float(medians[row]),
                    "evidence": float(evidence[row]),
                }
            )
    return _without_echoes(sorted(found, key=lambda each: -each["evidence"]))


def _without_echoes(suspects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Suspects, without rows whose nearest row of another identity is a suspect of more evidence.

    A wrong label is near to rows of its true identity, and these are near to it.
    """
    left: list[dict[str, Any]] = []
    doubtful: set[tuple[str, int]] = set()
    for each in suspects:
        if doubtful.isdisjoint((side, each[side]) for side in ("query", "gallery")):
            doubtful.add((each["side"], each[each["side"]]))
            left.append(each)
    return left


def _likely_one(others: _Others, own: Float64, ends: Float64, labels: CommonLabels) -> list[dict[str, Any]]:
    """Pairs of identities that are likely one, the largest evidence first."""
    queries = np.flatnonzero(~np.isnan(own) & (ends > 0) & ~np.isin(labels.query_pids, NO_IDENTITY))
    pids, number, sizes = np.unique(labels.query_pids[queries], return_inverse=True, return_counts=True)
    # The mean as if no list held the other identity, and what each list that does adds to it.
    at_end = np.bincount(number, np.log(own[queries]) - np.log(ends[queries]), minlength=len(pids))
    usable = np.isin(others.query, queries)
    query, distance, far = others.query[usable], others.distance[usable], labels.gallery_pids[others.item[usable]]
    nearest = np.lexsort((distance, far, query))
    query, distance, far = query[nearest], distance[nearest], far[nearest]
    first = run_offsets(query, far)[:-1]
    query, distance, far = query[first], distance[first], far[first]
    near = labels.query_pids[query]
    keys, place = np.unique(np.stack([near, far], axis=1), axis=0, return_inverse=True)
    of = np.searchsorted(pids, keys[:, 0])
    gained = np.bincount(place.reshape(-1), np.log(ends[query]) - np.log(distance), minlength=len(keys))
    means = (at_end[of] + gained) / sizes[of]
    order = np.lexsort((-means, of))
    best = order[np.unique(of[order], return_index=True)[1]]
    scores = np.full(len(pids), np.nan)
    scores[of[best]] = means[best]
    # Identities with two labels may be several in a hundred.
    bulk = _bulk(scores, LEAST_IDENTITIES, (0.75,))
    if bulk is None:
        return []
    other = dict(zip(keys[best, 0].tolist(), keys[best, 1].tolist(), strict=True))
    evidence = dict(zip(pids.tolist(), ((scores - bulk[0]) / bulk[1]).tolist(), strict=True))
    limit = _limit(len(pids))
    found = [
        {"pids": [a, b], "evidence": min(evidence[a], evidence[b])}
        for a, b in other.items()
        if a < b and other.get(b) == a and min(evidence[a], evidence[b]) > limit
    ]
    return sorted(found, key=lambda each: (-each["evidence"], each["pids"]))


def _duplicates(topk: TopK, kept: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Kept items at distance 0 from a query, or nearly so, nearest first."""
    query, place = np.nonzero(kept & (topk.distance <= duplicate_limit(topk)))
    order = np.argsort(topk.distance[query, place], kind="stable")
    relevant = np.zeros(topk.index.shape, np.bool_) if topk.relevant is None else topk.relevant
    return [
        {
            "query": int(q),
            "gallery": int(topk.index[q, p]),
            "distance": float(topk.distance[q, p]),
            "relevant": bool(relevant[q, p]),
        }
        for q, p in zip(query[order], place[order], strict=True)
    ]
