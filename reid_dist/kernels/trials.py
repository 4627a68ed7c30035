"""The identities before the positives of a query, as trials: numbers of the kept items of each that come before.

A draw keeps one kept item of every identity.  So each identity is a trial that succeeds, for a positive, when the item
that was drawn comes before it: for the expectation (`reid_dist.kernels.expectation`) and for seeded draws
(`reid_dist.kernels.draws`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import inner_kernel, kernel


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
