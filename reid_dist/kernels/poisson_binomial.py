r"""The expected single-gallery-shot CMC: how likely few identities come before a positive.

Each draw keeps one kept item of every gallery identity.  Identity ``i`` comes before a positive with probability
``p_i = c_i / n_i``: of its ``n_i`` kept items, ``c_i`` come before the positive.  Draws of different identities are
independent, so the number ``K`` of identities before the positive is Poisson-binomial.  Its distribution is multiplied
out identity by identity, cut at the largest rank: sums of products of numbers that are not negative, in one fixed
order.  Where ``p_i`` is 1 the distribution moves up by one place, and where it is 0 nothing happens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.items import ItemTable, kept_items
from reid_dist.kernels.settings import kernel
from reid_dist.kernels.single_shot import Listed

__all__ = ["expected_curves"]


@kernel
def _multiply_in(
    p: NDArray[np.float64], other: NDArray[np.float64], n: int, old: NDArray[np.float64], new: NDArray[np.float64]
) -> bool:
    """Distribution of the number of successes of ``n`` trials with chances `p` (`other` of failure), below its length.

    Starts and ends in `old` or `new`; says whether it ended in `new`.
    """
    old[:] = 0.0
    new[:] = 0.0
    old[0] = 1.0
    swapped = False
    for t in range(n):
        source, target = (new, old) if swapped else (old, new)
        success = p[t]
        failure = other[t]
        reach = min(t + 2, len(old))
        target[0] = source[0] * failure
        here = target[1:reach]
        stay = source[1:reach]
        move = source[: reach - 1]
        for k in range(len(here)):
            here[k] = stay[k] * failure + move[k] * success
        swapped = not swapped
    return swapped


@kernel
def expected_curves(
    listed: Listed,
    live: NDArray[np.int64],
    positive_start: NDArray[np.int64],
    giant: NDArray[np.int32],
    giant_identity: NDArray[np.int64],
    table: ItemTable,
    curves: NDArray[np.float64],
) -> None:
    """Write the mean over a query's positives of ``P(K <= k - 1)`` for every ``k``.

    Identities are multiplied in by ascending number, positives added from near to far: one definite float64 each.

    Parameters
    ----------
    listed
        Entries, complete up to the last live positive of each query.
    live
        Live positives of each query, shape (n_query,), int64.
    positive_start
        Where the positives of each query begin, shape (n_query + 1,), int64.
    giant, giant_identity
        Items of each giant that come before each positive first, shape (n_positive, n_giant), int32; and which
        identities these are, ascending.
    table
        How many items there are to draw from.
    curves
        Shape (n_query, max_rank), float64; written.  NaN for a query without positives.
    """
    n_identity = len(table.size)
    n_rank = curves.shape[1]
    n_giant = len(giant_identity)
    seen = np.zeros(n_identity, np.bool_)
    number_of = np.zeros(n_identity, np.int64)
    old = np.empty(n_rank, np.float64)
    new = np.empty(n_rank, np.float64)
    within = np.empty(n_rank, np.float64)
    for q in range(len(live)):
        n_positive = positive_start[q + 1] - positive_start[q]
        if n_positive == 0:
            curves[q] = np.nan
            continue
        curves[q] = 0.0
        n_live = live[q]
        # Entries by place: a sort by counting.
        source = listed.entry[listed.start[q] : listed.stop[q]]
        bounds = np.zeros(n_live + 1, np.int64)
        for e in range(len(source)):
            bounds[source[e] // n_identity + 1] += 1
        for place in range(n_live):
            bounds[place + 1] += bounds[place]
        filled = bounds[:-1].copy()
        identities = np.empty(len(source), np.int64)
        n_touched = 0
        for e in range(len(source)):
            place = source[e] // n_identity
            identity = source[e] - place * n_identity
            identities[filled[place]] = identity
            filled[place] += 1
            n_touched += int(not seen[identity])
            seen[identity] = True
        for g in range(n_giant):
            n_touched += int(not seen[giant_identity[g]])
            seen[giant_identity[g]] = True
        # Identities that occur, by ascending number.
        touched = np.empty(n_touched, np.int64)
        at = 0
        for identity in range(n_identity):
            if seen[identity]:
                touched[at] = identity
                number_of[identity] = at
                seen[identity] = False
                at += 1
        before = np.zeros(n_touched, np.int64)
        kept = np.empty(n_touched, np.int64)
        for t in range(n_touched):
            kept[t] = kept_items(table, q, touched[t], 0)[0]
        success = np.empty(n_touched, np.float64)
        failure = np.empty(n_touched, np.float64)
        changed = True
        for place in range(n_live):
            for e in range(bounds[place], bounds[place + 1]):
                before[number_of[identities[e]]] += 1
                changed = True
            for g in range(n_giant):
                more = giant[positive_start[q] + place, g]
                if more:
                    before[number_of[giant_identity[g]]] += more
                    changed = True
            if changed:
                certain = 0
                n_open = 0
                for t in range(n_touched):
                    count = before[t]
                    if count == kept[t]:
                        certain += int(count > 0)
                    elif count > 0:
                        success[n_open] = count / kept[t]
                        failure[n_open] = (kept[t] - count) / kept[t]
                        n_open += 1
                within[:] = 0.0
                reach = n_rank - certain
                if reach > 0:
                    swapped = _multiply_in(success, failure, n_open, old[:reach], new[:reach])
                    sum_to = new if swapped else old
                    running = 0.0
                    for k in range(reach):
                        running += sum_to[k]
                        within[certain + k] = 1.0 if k >= n_open else min(running, 1.0)
                changed = False
            for k in range(n_rank):
                curves[q, k] += within[k]
        for k in range(n_rank):
            curves[q, k] /= n_positive
