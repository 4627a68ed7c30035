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

from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.trials import Trials, advance, make_tally

# Identities that are multiplied in together.
AT_ONCE = 4


@inner_kernel
def _multiply_in(
    success: NDArray[np.float64],
    failure: NDArray[np.float64],
    n: int,
    length: int,
    old: NDArray[np.float64],
    new: NDArray[np.float64],
) -> bool:
    """First `length` chances of the number of successes in ``n`` trials, four trials at a time.

    The distribution starts and ends in `old` or `new`, behind four zeros; the return value is whether it ended in
    `new`. `success` and `failure` have space for four more trials, which are written here.
    """
    old[:] = 0.0
    new[:] = 0.0
    old[AT_ONCE] = 1.0
    success[n : n + AT_ONCE] = 0.0
    failure[n : n + AT_ONCE] = 1.0
    swapped = False
    for t in range(0, n, AT_ONCE):
        source, target = (new, old) if swapped else (old, new)
        p0, p1, p2, p3 = success[t], success[t + 1], success[t + 2], success[t + 3]
        q0, q1, q2, q3 = failure[t], failure[t + 1], failure[t + 2], failure[t + 3]
        # The products of the first two and of the last two, and theirs.
        a0, a1, a2 = q0 * q1, p0 * q1 + q0 * p1, p0 * p1
        b0, b1, b2 = q2 * q3, p2 * q3 + q2 * p3, p2 * p3
        c0 = a0 * b0
        c1 = a0 * b1 + a1 * b0
        c2 = a0 * b2 + a1 * b1 + a2 * b0
        c3 = a1 * b2 + a2 * b1
        c4 = a2 * b2
        reach = min(t + AT_ONCE + 1, length)
        here = target[AT_ONCE : AT_ONCE + reach]
        by0 = source[AT_ONCE : AT_ONCE + reach]
        by1 = source[AT_ONCE - 1 : AT_ONCE - 1 + reach]
        by2 = source[AT_ONCE - 2 : AT_ONCE - 2 + reach]
        by3 = source[AT_ONCE - 3 : AT_ONCE - 3 + reach]
        by4 = source[AT_ONCE - 4 : AT_ONCE - 4 + reach]
        for k in range(len(here)):
            here[k] = by0[k] * c0 + by1[k] * c1 + by2[k] * c2 + by3[k] * c3 + by4[k] * c4
        swapped = not swapped
    return swapped


@kernel
def expected_curves(trials: Trials, curves: NDArray[np.float64]) -> None:
    """Write the mean over a query's positives of ``P(K <= k - 1)`` for every ``k``; NaN without positives.

    Identities are multiplied in by ascending number, positives added from near to far: one definite float64 each.
    `curves` has shape (n_query, max_rank).
    """
    n_rank = curves.shape[1]
    old = np.empty(n_rank + AT_ONCE, np.float64)
    new = np.empty(n_rank + AT_ONCE, np.float64)
    within = np.empty(n_rank, np.float64)
    for q in range(len(curves)):
        first_positive = trials.positive_start[q]
        n_positive = trials.positive_start[q + 1] - first_positive
        if n_positive == 0:
            curves[q] = np.nan
            continue
        curves[q] = 0.0
        tally = make_tally(trials, q)
        n_trial = len(tally.before)
        success = np.empty(n_trial + AT_ONCE, np.float64)
        failure = np.empty(n_trial + AT_ONCE, np.float64)
        n_certain = 0
        for p in range(first_positive, first_positive + trials.active[q]):
            n_certain += advance(trials, q, p, tally)
            if trials.item_start[p + 1] > trials.item_start[p] or p == first_positive:
                n_open = 0
                for t in range(n_trial):
                    success[n_open] = tally.success[t]
                    failure[n_open] = tally.failure[t]
                    n_open += int(tally.is_open[t])
                within[:] = 0.0
                reach = n_rank - n_certain
                if reach > 0:
                    swapped = _multiply_in(success, failure, n_open, reach, old, new)
                    distribution = new if swapped else old
                    running = 0.0
                    for k in range(reach):
                        running += distribution[AT_ONCE + k]
                        within[n_certain + k] = 1.0 if k >= n_open else min(running, 1.0)
            for k in range(n_rank):
                curves[q, k] += within[k]
        for k in range(n_rank):
            curves[q, k] /= n_positive
