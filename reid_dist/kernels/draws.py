"""Seeded draws of one item per gallery identity, determined by a key and not by the order of computation.

Repeat ``t`` of query row ``q`` draws, from an identity with ``n`` items visible to the query, the ``u``-th nearest of
them, ``u`` in 0 … n - 1 by a hash of (seed, t, q, pid).  All items are equally likely, and the drawn one comes before a
positive exactly when more than ``u`` items of the identity do: the item itself is not needed.  The positive is drawn in
the same way.  A drawn positive that is inactive (see `reid_dist.kernels.single_shot`) has more than the largest rank of
identities before it, except with a probability below 2^-80, and counts as a miss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.splitmix import finalise, finalise_one, stream_outputs
from reid_dist.kernels.trials import Trials, advance, make_tally

# Sets the states of pids apart from those of a stream.
_OF_IDENTITIES = np.uint64(0xD1B54A32D192ED03)


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
    `reid_dist.kernels.expectation.expected_curves`.
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
