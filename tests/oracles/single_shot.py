"""CMC over single-shot galleries: one kept item of every gallery identity, drawn at random, is all that is searched.

`expected_curve` is the formula: the drawn positive has rank 1 + K, where K counts the other identities whose drawn item
is nearer, each with probability p_i = (kept items of i that are nearer) / (kept items of i).  `enumerated_curve` tries
every draw.  Both are exact, in fractions.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction

ORDERS = ("default", "optimistic", "pessimistic")


def precedes(distances, row, positive, order="default"):
    """Whether a negative comes before a positive.

    By (distance, gallery row), or with ties settled for or against the positive.
    """
    if distances[row] != distances[positive]:
        return bool(distances[row] < distances[positive])
    return {"default": int(row) < int(positive), "optimistic": False, "pessimistic": True}[order]


def kept_items(pids, junk):
    """Kept gallery rows of each identity."""
    items = defaultdict(list)
    for row, pid in enumerate(pids):
        if not junk[row]:
            items[int(pid)].append(row)
    return items


def number_of_successes(probabilities):
    """The distribution of a sum of independent trials (Poisson-binomial): P(0), P(1), ..."""
    distribution = [Fraction(1)]
    for p in probabilities:
        failed = [weight * (1 - p) for weight in distribution] + [Fraction(0)]
        succeeded = [Fraction(0)] + [weight * p for weight in distribution]
        distribution = [a + b for a, b in zip(failed, succeeded, strict=True)]
    return distribution


def expected_curve(distances, relevant, junk, pids, max_rank, order="default"):
    """P(rank <= k) for k = 1 .. max_rank, by the formula; fractions."""
    positives = [row for row in range(len(pids)) if relevant[row]]
    own = int(pids[positives[0]])
    others = [rows for pid, rows in kept_items(pids, junk).items() if pid != own]
    curve = [Fraction(0)] * max_rank
    for positive in positives:
        nearer = [
            Fraction(sum(precedes(distances, row, positive, order) for row in rows), len(rows)) for rows in others
        ]
        at_most = list(itertools.accumulate(number_of_successes(nearer)))
        for k in range(1, max_rank + 1):
            curve[k - 1] += at_most[min(k, len(at_most)) - 1] / len(positives)
    return curve


def enumerated_curve(distances, relevant, junk, pids, max_rank, order="default"):
    """The same by trying every draw: all are equally likely."""
    items = kept_items(pids, junk)
    own = int(pids[next(row for row in range(len(pids)) if relevant[row])])
    within = [0] * max_rank
    n_draws = 0
    for draw in itertools.product(*items.values()):
        n_draws += 1
        positive = next(row for row in draw if int(pids[row]) == own)
        rank = 1 + sum(row != positive and precedes(distances, row, positive, order) for row in draw)
        for k in range(rank, max_rank + 1):
            within[k - 1] += 1
    return [Fraction(count, n_draws) for count in within]
