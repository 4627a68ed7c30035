"""Metrics of one query: functions of the ranks r_1 < ... < r_n of its n positives, junk taken out.

`value` is the formula.  The `walk_*` functions find the same numbers in another way, walking down a list of hits and
misses as the programs do that the conventions come from, and are there to hold the formulas against.
"""

from __future__ import annotations

import math

RECALL_LEVELS = 101
ALL_METRICS = (
    *("mAP", "mAP_trapezoid", "mINP", "MRR", "Rprec"),
    *(f"CMC@{k}" for k in (1, 2, 5, 10, 20)),
    *(f"{name}@{k}" for name in ("P", "R") for k in (1, 2, 5, 10, 100)),
)


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


def interpolated_precision(ranks):
    """The best precision at recall 0.00, 0.01, ..., 1.00 or more; recalls compared as integers."""
    n = len(ranks)
    return [max(j / r for j, r in enumerate(ranks, start=1) if 100 * j >= level * n) for level in range(RECALL_LEVELS)]


def all_shots_at(ranks, k):
    """(1/n) sum_j [r_j - j + 1 <= k]: the share of positives that fewer than k negatives precede."""
    return sum(r - j + 1 <= k for j, r in enumerate(ranks, start=1)) / len(ranks)


def average_precision_found_at(ranks, k):
    """The sum of j / r_j over the positives among the first k, by their number; 0 when there are none."""
    found = hits_at(ranks, k)
    return average_precision_at(ranks, k) * len(ranks) / found if found else 0.0


def average_precision_min_at(ranks, k):
    """The sum of j / r_j over the positives among the first k, by the largest number of them that fits there."""
    return math.fsum(j / r for j, r in enumerate(ranks, start=1) if r <= k) / min(len(ranks), k)


def average_precision_at_r(ranks):
    """The rectangle rule on a list cut at n."""
    return average_precision_at(ranks, len(ranks))


def clipped_precision_at(ranks, k):
    """#{r_j <= kappa} / kappa with kappa = min(r_n, K)."""
    kappa = min(ranks[-1], k)
    return hits_at(ranks, kappa) / kappa


def precision_min_at(ranks, k):
    """Hits among the first k, by the largest number of them that fits there."""
    return hits_at(ranks, k) / min(len(ranks), k)


def discounted_gain_at(ranks, k):
    """The sum of 1 / log2(r + 1) over the positives among the first k, by that of the positives first."""
    best = math.fsum(1 / math.log2(j + 1) for j in range(1, min(len(ranks), k) + 1))
    return math.fsum(1 / math.log2(r + 1) for r in ranks if r <= k) / best


def area_under_roc(ranks, n_items):
    """The share of the pairs of a positive and a negative in which the positive comes first."""
    negatives = sorted(set(range(1, n_items + 1)) - set(ranks))
    pairs = [r < other for r in ranks for other in negatives]
    return sum(pairs) / len(pairs) if pairs else 1.0


_WHOLE_LIST = {
    "mAP": average_precision,
    "mAP_trapezoid": average_precision_trapezoid,
    "mINP": inverse_negative_penalty,
    "MRR": reciprocal_rank,
    "Rprec": r_precision,
    "mAP_R": average_precision_at_r,
}
_CUT_LIST = {
    "CMC": cmc_at,
    "CMC_allshots": all_shots_at,
    "P": precision_at,
    "P_clipped": clipped_precision_at,
    "P_min": precision_min_at,
    "R": recall_at,
    "mAP": average_precision_at,
    "mAP_found": average_precision_found_at,
    "mAP_min": average_precision_min_at,
    "nDCG": discounted_gain_at,
}


def value(name, ranks, n_items=None):
    """The value of a metric for one query by its name in a report; AUC also depends on the number of kept items."""
    if name == "AUC":
        return area_under_roc(ranks, n_items)
    family, _, parameter = name.partition("@")
    return _CUT_LIST[family](ranks, int(parameter)) if parameter else _WHOLE_LIST[name](ranks)


# -------------------------------------------------------------------------------------------- walking down a list


def hits_of(ranks, length=None):
    """A list of hits and misses with hits at the ranks."""
    return [place in set(ranks) for place in range(1, (length or ranks[-1]) + 1)]


def walk_average_precision(hits, n):
    """Precision at each hit, summed and shared among all n relevant items."""
    found, total = 0, 0.0
    for seen, hit in enumerate(hits, start=1):
        if hit:
            found += 1
            total += found / seen
    return total / n


def walk_trapezoid(hits, n):
    """The area under precision over recall: of each step in recall, the mean of the precision before and after."""
    found, area, precision = 0, 0.0, 1.0
    for seen, hit in enumerate(hits, start=1):
        found += hit
        recall_step = hit / n
        area += recall_step * (precision + found / seen) / 2
        precision = found / seen
    return area


def walk_first_match(hits, max_rank):
    """1 from the first hit on."""
    curve = [0.0] * max_rank
    for place, hit in enumerate(hits):
        if hit:
            return [0.0 if k < place else 1.0 for k in range(max_rank)]
    return curve


def walk_all_shots(hits, max_rank):
    """Each hit adds its share from the number of misses before it on."""
    share = 1 / sum(hits)
    steps = [0.0] * max_rank
    misses = 0
    for hit in hits:
        if not hit:
            misses += 1
        elif misses < max_rank:
            steps[misses] += share
    return [math.fsum(steps[: k + 1]) for k in range(max_rank)]


def walk_revisitop(order, relevant, junk, cutoffs):
    """(trapezoid AP, {K: clipped precision}) of one ranked list of gallery rows, junk among them.

    Positions count from 0 and are moved up by the number of junk items before them, as in the evaluation of the
    revisited Oxford and Paris sets.
    """
    positions, skipped = [], 0
    for place, row in enumerate(order):
        if junk[row]:
            skipped += 1
        elif relevant[row]:
            positions.append(place - skipped)
    area = 0.0
    for found, position in enumerate(positions):
        left = 1.0 if position == 0 else found / position
        right = (found + 1) / (position + 1)
        area += (left + right) / (2 * len(positions))
    precisions = {}
    for cutoff in cutoffs:
        kappa = min(positions[-1] + 1, cutoff)
        precisions[cutoff] = sum(position < kappa for position in positions) / kappa
    return area, precisions
