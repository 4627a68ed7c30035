"""Likely errors of a data set, found in the lists of a run: labels to check, duplicates, identities with two labels.

A pair of a query and a kept gallery item of *another* identity is *suspect* if its distance is below the median
distance of genuine pairs (query and relevant item) of the query's identity, and below that of the item's identity; an
identity without queries takes the median of all genuine pairs.  Identities -1 and 0, of junk and distractors, are left
out.  Two identities are *likely one* if half of the queries of each, or more, have a suspect item of the other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import entry_owners, run_offsets
from reid_dist.core.sorted_values import places_among
from reid_dist.reports.failures import NO_IDENTITY, CommonLabels, duplicate_limit, median_of
from reid_dist.reports.topk import TopK

MOST_SHOWN: Final = 20
"""Entries of each kind in a report; their number is that of all."""

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class GenuinePairs:
    """Canonical distances of all relevant pairs: those of query ``i`` are ``distance[indptr[i]:indptr[i + 1]]``."""

    indptr: Int64
    distance: Float64


@dataclass(frozen=True)
class _Pairs:
    """Pairs of the lists: query row, gallery row, distance, and the smaller median of their identities; all (n,)."""

    query: Int64
    item: Int64
    distance: Float64
    median: Float64


def find_data_problems(topk: TopK, labels: CommonLabels, genuine: GenuinePairs) -> dict[str, Any]:
    """Find likely errors of labels and duplicates.

    Returns
    -------
    ``suspects`` (``query``, ``gallery``: rows; ``distance``, ``median``), those of the smallest ratio first,
    ``duplicates`` (``query``, ``gallery``, ``distance``, ``relevant``), the nearest first, and ``identities``
    (``pids``: two of the common numbering, ``n_queries``: suspect ones of both), each with at most `MOST_SHOWN` entries
    beside ``n_suspects``, ``n_duplicates``, ``n_identities``; and ``median``, that of all genuine pairs.
    """
    kept = topk.index >= 0
    if topk.junk is not None:
        kept &= ~topk.junk
    owner = entry_owners(genuine.indptr)
    overall = median_of(genuine.distance) if len(genuine.distance) else np.nan
    medians = _medians(labels.query_pids[owner], genuine.distance)
    suspects = _suspects(topk, kept, labels, medians, overall)
    identities = _likely_one(suspects, labels)
    twins = _duplicates(topk, kept)
    return {
        "median": overall,
        "n_suspects": len(suspects.query),
        "suspects": [
            {"query": q, "gallery": g, "distance": d, "median": m}
            for q, g, d, m in zip(*(values[:MOST_SHOWN].tolist() for values in vars(suspects).values()), strict=True)
        ],
        "n_identities": len(identities),
        "identities": identities[:MOST_SHOWN],
        "n_duplicates": len(twins),
        "duplicates": twins[:MOST_SHOWN],
    }


def _medians(pids: Int64, distance: Float64) -> tuple[Int64, Float64]:
    """Identities, ascending, and their median distances, as `median_of` computes them."""
    order = np.lexsort((distance, pids))
    own, start, size = np.unique(pids[order], return_index=True, return_counts=True)
    ordered, middle = distance[order], start + size // 2
    halves = ordered[np.maximum(middle - 1, 0)] / 2.0 + ordered[middle] / 2.0
    return own, np.where(size % 2 == 1, ordered[middle], halves)


def _suspects(
    topk: TopK, kept: NDArray[np.bool_], labels: CommonLabels, medians: tuple[Int64, Float64], overall: float
) -> _Pairs:
    """Suspect pairs, those of the smallest ratio of distance and median first."""
    wrong = kept if topk.relevant is None else kept & ~topk.relevant
    query, place = np.nonzero(wrong)
    item, distance = topk.index[query, place], topk.distance[query, place]
    near, far = labels.query_pids[query], labels.gallery_pids[item]
    median = np.minimum(_looked_up(near, medians, overall), _looked_up(far, medians, overall))
    chosen = (near != far) & ~np.isin(near, NO_IDENTITY) & ~np.isin(far, NO_IDENTITY) & (distance < median)
    query, item, distance, median = (values[chosen] for values in (query, item, distance, median))
    # Given distances may be negative: without a scale, such pairs come first, in the order of queries and ranks.
    ratio = np.divide(distance, median, out=np.full(len(distance), -np.inf), where=median > 0)
    order = np.argsort(ratio, kind="stable")
    return _Pairs(query[order], item[order], distance[order], median[order])


def _looked_up(pids: Int64, medians: tuple[Int64, Float64], otherwise: float) -> Float64:
    own, median = medians
    return np.append(median, otherwise)[places_among(own, pids)]


def _likely_one(suspects: _Pairs, labels: CommonLabels) -> list[dict[str, Any]]:
    """Pairs of identities of which half of the queries, or more, are suspect of the other one, most queries first."""
    near, far = labels.query_pids[suspects.query], labels.gallery_pids[suspects.item]
    # Each query once, however many items of the other identity its list has.
    (near, far, _), _ = _distinct(near, far, suspects.query)
    (near, far), counts = _distinct(near, far)
    own, sizes = np.unique(labels.query_pids, return_counts=True)
    half = 2 * counts >= sizes[np.searchsorted(own, near)]
    often = {(a, b): n for a, b, n in zip(*(each[half].tolist() for each in (near, far, counts)), strict=True)}
    found = [{"pids": [a, b], "n_queries": n + often[b, a]} for (a, b), n in often.items() if a < b and (b, a) in often]
    return sorted(found, key=lambda each: (-each["n_queries"], each["pids"]))


def _distinct(*columns: Int64) -> tuple[list[Int64], Int64]:
    """Distinct rows of some columns, each (n,), in ascending order, and how often each occurs, both int64.

    `numpy.unique` along an axis compares rows as bytes, which takes three times as long.
    """
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    runs = run_offsets(*ordered)
    return [column[runs[:-1]] for column in ordered], np.diff(runs)


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
