"""An obvious oracle: whole rows, sorted, one query at a time, in plain Python over NumPy and nothing else.

Distances are float64 values of the stored numbers (float16 and float32 convert without loss)::

    cosine       1 - xy / sqrt(xx * yy), and 1 when a vector is zero
    sqeuclidean  sum of (x - y) ** 2
    euclidean    its square root

A tie is an equal float64 distance, ties are ordered by gallery row, and whatever is junk to a query is taken out
of its list before anything is counted.  The functions below are the definitions, written to be read.

**When this file may decide a tie.**  Its sums run over the columns in ascending order; another program may sum in
another fixed order and differ in the last bit.  The two must agree on every rank only when the order does not hang
on that bit, which `order_is_unambiguous` establishes: of two neighbours in a sorted row, either the distances
are clearly apart, or the summed terms are the same numbers in the same places (exact duplicates, for example), or
all sums are exact in float64 whatever their order (small integers, few-valued features).  A test draws features
for which that holds, or asks that function first.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace

import numpy as np

DISTANCES = ("cosine", "sqeuclidean", "euclidean")
PROTOCOLS = ("market1501", "no_cameras", "same_set")
RECALL_LEVELS = 101
ALL_METRICS = (
    *("mAP", "mAP_trapezoid", "mINP", "MRR", "Rprec"),
    *(f"CMC@{k}" for k in (1, 2, 5, 10, 20)),
    *(f"{name}@{k}" for name in ("P", "R") for k in (1, 2, 5, 10, 100)),
)


@dataclass(frozen=True)
class ItemSet:
    """Features (n, dim), identities (n,), and cameras and item names (n,) or None."""

    features: np.ndarray
    pids: np.ndarray
    camids: np.ndarray | None = None
    item_ids: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.pids)

    def take(self, rows) -> ItemSet:
        """Rows in the order given; a row may come more than once."""
        rows = np.asarray(rows, dtype=np.int64)
        return ItemSet(
            self.features[rows],
            self.pids[rows],
            None if self.camids is None else self.camids[rows],
            None if self.item_ids is None else self.item_ids[rows],
        )

    def with_features(self, features) -> ItemSet:
        """The same items with other features."""
        return replace(self, features=features)

    def __add__(self, other: ItemSet) -> ItemSet:
        return ItemSet(
            np.concatenate([self.features, other.features]),
            np.concatenate([self.pids, other.pids]),
            None if self.camids is None else np.concatenate([self.camids, other.camids]),
            None if self.item_ids is None else np.concatenate([self.item_ids, other.item_ids]),
        )


# ---------------------------------------------------------------------------------------------- distances


def _row_sums(terms):
    """Sums of rows (n, dim), columns ascending: equal rows have equal sums."""
    return np.add.accumulate(terms, axis=1)[:, -1]


def _cosine(xy, xx, yy):
    """1 - xy / sqrt(xx * yy); 1 where a vector is zero."""
    zero = (xx == 0) | (yy == 0)
    return np.where(zero, 1.0, 1.0 - xy / np.sqrt(np.where(zero, 1.0, xx * yy)))


def _pair_sums(query, gallery, term):
    """Sums of a term over the columns of all pairs of rows, columns ascending: as `_row_sums`, pair by pair."""
    sums = np.zeros((len(query), len(gallery)))
    for x, y in zip(query.T, gallery.T, strict=True):
        sums += term(x[:, None], y)
    return sums


def canonical_distances(query_features, gallery_features, distance):
    """Distances of all pairs, (n_query, n_gallery) float64."""
    if distance not in DISTANCES:
        raise ValueError(distance)
    query = np.asarray(query_features, dtype=np.float64)
    gallery = np.asarray(gallery_features, dtype=np.float64)
    if distance == "cosine":
        xx, yy = _row_sums(query * query), _row_sums(gallery * gallery)
        return _cosine(_pair_sums(query, gallery, np.multiply), xx[:, None], yy)
    squared = _pair_sums(query, gallery, lambda x, y: (x - y) ** 2)
    return np.sqrt(squared) if distance == "euclidean" else squared


def _summed_terms(x, gallery_rows, distance):
    """What is summed for the distances of one query to some gallery rows, as (rows, dim) arrays."""
    if distance == "cosine":
        return [x * gallery_rows, np.broadcast_to(x * x, gallery_rows.shape), gallery_rows * gallery_rows]
    return [(x - gallery_rows) ** 2]


def sums_are_exact(terms):
    """Which rows (n, dim) sum without rounding in any order: all their partial sums fit the 53 bits of a float64."""
    mantissa, exponent = np.frexp(terms)
    integer = np.ldexp(mantissa, 53).astype(np.int64)
    lowest_bit = np.frexp((integer & -integer).astype(np.float64))[1] - 1
    unit = np.where(terms == 0, np.iinfo(np.int32).max // 2, exponent - 53 + lowest_bit).min(axis=1)
    with np.errstate(over="ignore"):
        return np.abs(terms).sum(axis=1) < np.ldexp(1.0, np.minimum(unit + 53, 2000))


def order_is_unambiguous(query_features, gallery_features, distance, margin=1e-12, distances=None):
    """Whether every fixed order of summation ranks these rows as this file does; see the head of the file.

    `margin` is a difference of cosines, and a share of the larger one of two (squared) Euclidean distances;
    `distances` are the canonical ones, if they are known.
    """
    query = np.asarray(query_features, dtype=np.float64)
    gallery = np.asarray(gallery_features, dtype=np.float64)
    if distances is None:
        distances = canonical_distances(query, gallery, distance)
    for x, row in zip(query, distances, strict=True):
        order = np.argsort(row, kind="stable")
        near_to_far = row[order]
        unit = 1.0 if distance == "cosine" else near_to_far[1:]
        together = np.flatnonzero(np.diff(near_to_far) <= margin * unit)
        for pair in (order[place : place + 2] for place in together):
            terms = _summed_terms(x, gallery[pair], distance)
            if all(np.array_equal(one, other) for one, other in terms):
                continue
            if not all(sums_are_exact(part).all() for part in terms):
                return False
    return True


# ---------------------------------------------------------------------------------------------- protocols


def assign_relevance(query, gallery, protocol):
    """Who is relevant and who is junk: two (n_query, n_gallery) masks that never overlap."""
    same_pid = query.pids[:, None] == gallery.pids[None, :]
    unlabelled = np.broadcast_to(gallery.pids[None, :] == -1, same_pid.shape)
    if protocol == "market1501":
        same_camera = query.camids[:, None] == gallery.camids[None, :]
        junk = unlabelled | (same_pid & same_camera)
    elif protocol == "no_cameras":
        junk = unlabelled
    elif protocol == "same_set":
        itself = query.item_ids[:, None] == gallery.item_ids[None, :]
        junk = unlabelled | itself
    else:
        raise ValueError(protocol)
    return same_pid & ~junk, np.array(junk)


def true_reasons(query, gallery, protocol, row):
    """All reasons that apply to a query without a relevant item; {""} when it has one.

    More than one thing may be true: a gallery may be junk altogether and hold the query's identity in its own camera,
    and who asks for pid -1 finds nothing but junk, hence no positive.
    """
    relevant, junk = assign_relevance(query.take([row]), gallery, protocol)
    if relevant.any():
        return {""}
    namesakes = gallery.pids == query.pids[row]
    unlabelled = gallery.pids == -1
    reasons = set()
    if junk.all() or (namesakes & unlabelled).any():
        reasons.add("all_junk")
    if protocol == "market1501" and (namesakes & ~unlabelled).any():
        reasons.add("only_same_camera_positives")
    else:
        reasons.add("no_positive_in_gallery")
    return reasons


# ------------------------------------------------------------------------------------------------ ranking


@dataclass(frozen=True)
class Ranking:
    """The list of one query, junk taken out.

    Gallery rows from near to far, 1-based ranks of the positives in the default order, and the ranks that they
    have at best and at worst among negatives of the same distance.
    """

    rows: list[int]
    ranks: list[int]
    optimistic: list[int]
    pessimistic: list[int]


def rank_one_query(distances, relevant, junk):
    """Sort what is kept by (distance, gallery row) and look where the positives are."""
    distances = [float(distance) for distance in distances]
    kept = [row for row in range(len(distances)) if not junk[row]]
    rows = sorted(kept, key=lambda row: (distances[row], row))
    ranks = [place for place, row in enumerate(rows, start=1) if relevant[row]]
    positives = [distances[row] for row in rows if relevant[row]]
    negatives = [distances[row] for row in rows if not relevant[row]]  # from near to far
    optimistic = [bisect_left(negatives, distance) + j for j, distance in enumerate(positives, start=1)]
    pessimistic = [bisect_right(negatives, distance) + j for j, distance in enumerate(positives, start=1)]
    return Ranking(rows, ranks, optimistic, pessimistic)


# ------------------------------------------------- metrics: functions of the ranks r_1 < ... < r_n of one query
# `n` is the number of relevant items, len(ranks) unless the list was cut.


def average_precision(ranks, n=None):
    """Rectangle rule: the mean of j / r_j."""
    return math.fsum(j / r for j, r in enumerate(ranks, start=1)) / (n or len(ranks))


def average_precision_trapezoid(ranks, n=None):
    """The mean of the precisions at r_j and just before it."""
    total = []
    for j, r in enumerate(ranks, start=1):
        before = 1.0 if r == 1 else (j - 1) / (r - 1)
        total.append((j / r + before) / 2)
    return math.fsum(total) / (n or len(ranks))


def average_precision_at(ranks, k):
    """The rectangle rule on a list cut at k; all positives stay in the denominator."""
    return average_precision([r for r in ranks if r <= k], len(ranks))


def inverse_negative_penalty(ranks):
    """Share of positives down to the hardest one: n / r_n."""
    return len(ranks) / ranks[-1]


def cmc_at(ranks, k):
    """Whether the first positive is among the first k."""
    return float(ranks[0] <= k)


def hits_at(ranks, k):
    """How many positives are among the first k."""
    return sum(r <= k for r in ranks)


def precision_at(ranks, k):
    """Hits among the first k, by k."""
    return hits_at(ranks, k) / k


def recall_at(ranks, k):
    """Hits among the first k, by the number of positives."""
    return hits_at(ranks, k) / len(ranks)


def r_precision(ranks):
    """Precision at n, the number of positives."""
    return hits_at(ranks, len(ranks)) / len(ranks)


def reciprocal_rank(ranks):
    """1 / r_1."""
    return 1 / ranks[0]


def precision_recall_points(ranks):
    """(recall, precision) at each positive, (j / n, j / r_j)."""
    return [(j / len(ranks), j / r) for j, r in enumerate(ranks, start=1)]


def interpolated_precision(ranks):
    """The best precision at recall 0.00, 0.01, ..., 1.00 or more; recalls compared as integers."""
    n = len(ranks)
    return [max(j / r for j, r in enumerate(ranks, start=1) if 100 * j >= level * n) for level in range(RECALL_LEVELS)]


_WHOLE_LIST = {
    "mAP": average_precision,
    "mAP_trapezoid": average_precision_trapezoid,
    "mINP": inverse_negative_penalty,
    "MRR": reciprocal_rank,
    "Rprec": r_precision,
}
_CUT_LIST = {"CMC": cmc_at, "P": precision_at, "R": recall_at, "mAP": average_precision_at}


def metric_of(name, ranks):
    """The value for one query of a metric by its name in a report."""
    if name in _WHOLE_LIST:
        return _WHOLE_LIST[name](ranks)
    family, k = re.fullmatch(r"(\w+)@(\d+)", name).groups()
    return _CUT_LIST[family](ranks, int(k))


def mean(values):
    """The exactly rounded sum, by the number of values."""
    values = list(values)
    return math.fsum(values) / len(values)


# --------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True)
class ReferenceReport:
    """What an evaluation must answer.  `reasons` holds the admissible reasons of each query, {""} for a valid one."""

    metrics: dict[str, float]
    curves: dict[str, np.ndarray]
    per_query: dict[str, np.ndarray]
    counts: dict[str, int]
    reasons: list[set[str]]
    rankings: list[Ranking] = field(repr=False)


def reference_evaluate(
    query, gallery, protocol="market1501", distance="cosine", metrics=ALL_METRICS, max_rank=50, distances=None
):
    """Evaluate two `ItemSet`; None when no query has a relevant item.  `distances` are the canonical ones, if known."""
    if distances is None:
        distances = canonical_distances(query.features, gallery.features, distance)
    relevant, junk = assign_relevance(query, gallery, protocol)
    rankings = [rank_one_query(*rows) for rows in zip(distances, relevant, junk, strict=True)]
    valid = [ranking.ranks for ranking in rankings if ranking.ranks]
    if not valid:
        return None
    columns = {
        "AP": average_precision,
        "AP_trapezoid": average_precision_trapezoid,
        "INP": inverse_negative_penalty,
        "first_rank": lambda ranks: ranks[0],
        "n_relevant": len,
    }
    per_query = {
        name: np.array([float(value(ranking.ranks)) if ranking.ranks else math.nan for ranking in rankings])
        for name, value in columns.items()
    }
    interpolated = [interpolated_precision(ranks) for ranks in valid]
    return ReferenceReport(
        metrics={name: mean(metric_of(name, ranks) for ranks in valid) for name in metrics},
        curves={
            "CMC": np.array([mean(cmc_at(ranks, k) for ranks in valid) for k in range(1, max_rank + 1)]),
            "precision_recall": np.array([mean(level) for level in zip(*interpolated, strict=True)]),
        },
        per_query=per_query,
        counts={
            "n_query": len(query),
            "n_valid": len(valid),
            "n_gallery": len(gallery),
            "n_junk": int(junk.sum()),
        },
        reasons=[true_reasons(query, gallery, protocol, row) for row in range(len(query))],
        rankings=rankings,
    )


def reference_topk(query_features, gallery_features, k, distance, own_rows=None):
    """The k nearest gallery rows by (distance, row): rows (n, k), -1 where absent, and distances, +inf there.

    With `own_rows`, the gallery row that each query is, that row comes first whatever else is at its distance.
    """
    index = np.full((len(query_features), k), -1, dtype=np.int64)
    nearest = np.full((len(query_features), k), np.inf)
    for i, row in enumerate(canonical_distances(query_features, gallery_features, distance)):
        own = None if own_rows is None else own_rows[i]
        order = sorted(range(len(row)), key=lambda j, row=row, own=own: (j != own, row[j], j))[:k]
        index[i, : len(order)] = order
        nearest[i, : len(order)] = row[order]
    return index, nearest
