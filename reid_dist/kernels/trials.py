r"""Single-shot curves: one kept item of every gallery identity is drawn, and identities before a positive are counted.

*Trials.*  Each identity is a trial that succeeds, for a positive, when the item that was drawn comes before it.

*Expectation.*  Identity ``i`` comes before a positive with probability ``p_i = c_i / n_i``: of its ``n_i`` kept items,
``c_i`` come before the positive.  Draws of different identities are independent, so the number ``K`` of identities
before the positive is Poisson-binomial.  Its distribution is multiplied out identity by identity, cut at the largest
rank: sums of products of numbers that are not negative, in one fixed order.  Where ``p_i`` is 1 the distribution moves
up by one place, and where it is 0 nothing happens.

*Seeded draws* are determined by a key and not by the order of computation.  Repeat ``t`` of query row ``q`` draws, from
an identity with ``n`` items visible to the query, the ``u``-th nearest of them, ``u`` in 0 … n - 1 by a hash of (seed,
t, q, pid).  All items are equally likely, and the drawn one comes before a positive exactly when more than ``u`` items
of the identity do: the item itself is not needed.  The positive is drawn in the same way.  A drawn positive that is
inactive (see `reid_dist.kernels.single_shot`) has more than the largest rank of identities before it, except with a
probability below 2^-80, and counts as a miss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inner_kernel, kernel
from reid_dist.kernels.splitmix import finalise, finalise_one, stream_outputs

# Identities that are multiplied in together.
AT_ONCE = 4

# Sets the states of pids apart from those of a stream.
_OF_IDENTITIES = np.uint64(0xD1B54A32D192ED03)


class Trials(NamedTuple):
    """The identities that occur before the active positives of each query, by ascending number; all int64."""

    # Trials of query ``i`` are ``start[i]:start[i + 1]``; their identities, and the items of each that are visible to
    # the query, shape (n_trial,).
    start: NDArray[np.int64]
    identity: NDArray[np.int64]
    kept: NDArray[np.int64]
    # Positives of query ``i`` are ``positive_start[i]:positive_start[i + 1]``, of which the first ``active[i]`` count.
    positive_start: NDArray[np.int64]
    active: NDArray[np.int64]
    # ``n_items[e]`` items of trial ``trial[e]`` come before positive ``p`` and none before it, for ``e`` of
    # ``item_start[p]:item_start[p + 1]``.
    item_start: NDArray[np.int64]
    trial: NDArray[np.int64]
    n_items: NDArray[np.int64]


@kernel
def number_trials(
    entry: NDArray[np.signedinteger],
    bounds: NDArray[np.int64],
    bits: int,
    n_identity: int,
    trial: NDArray[np.int64],
    start: NDArray[np.int64],
    identity: NDArray[np.int64],
) -> None:
    """Number the identities of the entries of each query, ascending, one query after the other.

    Entries of query ``i`` are ``entry[bounds[i]:bounds[i + 1]]``, with the identity in the low `bits`.  Writes three
    fields of `Trials`, with a trial of each entry; `identity` has room for one more than there are entries.
    """
    mask = (1 << bits) - 1
    seen, number_of = np.zeros(n_identity, np.bool_), np.empty(n_identity, np.int64)
    n = np.int64(0)
    start[0] = 0
    for q in range(len(bounds) - 1):
        for e in range(bounds[q], bounds[q + 1]):
            seen[np.int64(entry[e]) & mask] = True
        if bounds[q] < bounds[q + 1]:
            for i in range(n_identity):
                # Written always, kept when it counts: no branch.
                identity[n], number_of[i] = i, n
                n += np.int64(seen[i])
                seen[i] = False
        for e in range(bounds[q], bounds[q + 1]):
            trial[e] = number_of[np.int64(entry[e]) & mask]
        start[q + 1] = n


class Tally(NamedTuple):
    """The trials of one query, at the current positive; shape (n_trial,)."""

    # Items that come before it, int64.
    before: NDArray[np.int64]
    # The share of these in the visible items, and of the others, float64.
    success: NDArray[np.float64]
    failure: NDArray[np.float64]
    # Whether both are more than 0, bool.
    is_open: NDArray[np.bool_]


@inner_kernel
def make_tally(trials: Trials, q: int) -> Tally:
    """Make a tally of the trials of query `q`, with nothing before the positives yet."""
    n = trials.start[q + 1] - trials.start[q]
    return Tally(np.zeros(n, np.int64), np.zeros(n, np.float64), np.ones(n, np.float64), np.zeros(n, np.bool_))


@inner_kernel
def advance(trials: Trials, q: int, positive: int, tally: Tally) -> int:
    """Advance the tally of a query to a positive, which ascend from call to call; return the trials newly certain."""
    certain = 0
    for e in range(trials.item_start[positive], trials.item_start[positive + 1]):
        t = trials.trial[e] - trials.start[q]
        tally.before[t] += trials.n_items[e]
        before, kept = tally.before[t], trials.kept[trials.trial[e]]
        tally.success[t] = before / kept
        tally.failure[t] = (kept - before) / kept
        tally.is_open[t] = before < kept
        certain += int(before == kept)
    return certain


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


def query_states(seed: int | np.uint64, query_row: NDArray[np.int64], n_draws: int) -> NDArray[np.uint64]:
    """Random states by query and repeat, shape (n_query, n_draws), uint64: a function of seed, repeat and query row."""
    of_repeats = stream_outputs(stream_outputs(seed, np.zeros(1, np.int64)), np.arange(n_draws))
    return stream_outputs(of_repeats, query_row[:, None])


def identity_states(pid: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Random state of each pid, taken as an unsigned number; shape of `pid`, uint64."""
    return finalise(pid + _OF_IDENTITIES)


@inner_kernel
def _drawn(state: np.uint64, identity_state: np.uint64, n: int) -> np.int64:
    """Number of the drawn item out of ``n``: both states, mixed and scaled to 0 … n - 1.

    The relative error of an item's probability is less than ``n 2^-32``.
    """
    mixed = finalise_one(state ^ identity_state)
    return np.int64(((mixed >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@kernel
def drawn_curves(
    trials: Trials,
    own_identity: NDArray[np.int64],
    query_state: NDArray[np.uint64],
    identity_state: NDArray[np.uint64],
    curves: NDArray[np.float64],
) -> None:
    """Write the fraction of draws in which at most ``k - 1`` identities come before the drawn positive.

    `own_identity` holds the identity of each query, shape (n_query,); `query_state` and `identity_state` are random
    states of each query in each repeat, and of each identity; `curves` is as in
    `expected_curves`.
    """
    n_rank, n_draws = curves.shape[1], query_state.shape[1]
    drawn = np.empty(n_draws, np.int64)
    within = np.empty(n_rank + 1, np.int64)
    for q in range(len(curves)):
        first, first_positive = trials.start[q], trials.positive_start[q]
        n_positive = trials.positive_start[q + 1] - first_positive
        if n_positive == 0:
            curves[q] = np.nan
            continue
        for t in range(n_draws):
            drawn[t] = _drawn(query_state[q, t], identity_state[own_identity[q]], n_positive)
        within[:] = 0
        tally = make_tally(trials, q)
        # A draw of an inactive positive is a miss.
        for place in range(trials.active[q]):
            advance(trials, q, first_positive + place, tally)
            for t in range(n_draws):
                if drawn[t] != place:
                    continue
                before = 0
                for i in range(len(tally.before)):
                    if tally.before[i] > 0:
                        state = identity_state[trials.identity[first + i]]
                        before += int(_drawn(query_state[q, t], state, trials.kept[first + i]) < tally.before[i])
                        if before == n_rank:
                            break
                within[before] += 1
        running = 0
        for k in range(n_rank):
            running += within[k]
            curves[q, k] = running / n_draws
