"""The identities before the positives of a query, as trials: numbers of the kept items of each that come before.

A draw keeps one kept item of every identity.  So each identity is a trial that succeeds, for a positive, when the item
that was drawn comes before it.  Here the listed items of one query are sorted into such trials, for the expectation
(`reid_dist.kernels.expectation`) and for seeded draws (`reid_dist.kernels.draws`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.settings import inner_kernel
from reid_dist.kernels.single_shot import Listed


class ItemTable(NamedTuple):
    """Numbers of items of each identity that are visible to a query."""

    # Items of each identity that are not junk for every query, shape (n_identity,), int64.
    size: NDArray[np.int64]
    # Labels of identity ``i`` are ``label[label_indptr[i]:label_indptr[i + 1]]``, ascending; `label_size` is the number
    # of its items that carry each; int64.  Empty where no query hides a label.
    label_indptr: NDArray[np.int64]
    label: NDArray[np.int64]
    label_size: NDArray[np.int64]
    # The label that is hidden from each query, shape (n_query,), int64.
    hidden_label: NDArray[np.int64]
    # Further items that are hidden from a query, by query: their identities, ascending; int64.
    extra_indptr: NDArray[np.int64]
    extra_identity: NDArray[np.int64]


class OversizedGroups(NamedTuple):
    """Identities that were counted and not listed."""

    # Their numbers, ascending, shape (n_oversized,), int64.
    identity: NDArray[np.int64]
    # Their items by the positive that they come before first, shape (n_positive, n_oversized), int32.
    before: NDArray[np.int32]


class Trials(NamedTuple):
    """The identities that occur before the positives of one query, by ascending number."""

    # Their numbers, and the items of each that are visible to the query, shape (n_trial,), int64.
    identity: NDArray[np.int64]
    kept: NDArray[np.int64]
    # Those of these items that come before the current positive, shape (n_trial,), int64.
    before: NDArray[np.int64]
    # The share of these, and of the others, shape (n_trial,), float64.
    success: NDArray[np.float64]
    failure: NDArray[np.float64]
    # Whether both are more than 0, shape (n_trial,), bool.
    is_open: NDArray[np.bool_]
    # The items that come before positive ``p`` and none before it belong to the trials ``trial_of[bounds[p]:bounds[p +
    # 1]]``; int64.
    trial_of: NDArray[np.int64]
    bounds: NDArray[np.int64]
    # Trial of each oversized group, shape (n_oversized,), int64.
    trial_of_oversized: NDArray[np.int64]


@inner_kernel
def _kept_items(table: ItemTable, q: int, identity: int) -> int:
    """Count the items of an identity that are visible to a query."""
    kept = table.size[identity]
    begin = table.label_indptr[identity]
    end = table.label_indptr[identity + 1]
    if begin < end:
        at = first_at_least(table.label, begin, end, table.hidden_label[q])
        if at < end and table.label[at] == table.hidden_label[q]:
            kept -= table.label_size[at]
    stop = table.extra_indptr[q + 1]
    at = first_at_least(table.extra_identity, table.extra_indptr[q], stop, identity)
    while at < stop and table.extra_identity[at] == identity:
        kept -= 1
        at += 1
    return int(kept)


@inner_kernel
def make_trials(
    listed: Listed,
    q: int,
    bits: int,
    oversized_groups: OversizedGroups,
    table: ItemTable,
    seen: NDArray[np.bool_],
    number_of: NDArray[np.int64],
) -> Trials:
    """Sort the listed items of query `q` into trials, with nothing before the positives yet.

    Entries are complete up to the last active positive, and hold the identity in their low `bits`.  `seen` and
    `number_of` are scratch of shape (n_identity,); `seen` is False everywhere, before and after.
    """
    entry = listed.entry[listed.start[q] : listed.stop[q]]
    mask = (1 << bits) - 1
    # Entries by place, by counting.
    bounds = np.zeros(listed.n_active[q] + 1, np.int64)
    for e in range(len(entry)):
        bounds[(np.int64(entry[e]) >> bits) + 1] += 1
        seen[np.int64(entry[e]) & mask] = True
    for g in range(len(oversized_groups.identity)):
        seen[oversized_groups.identity[g]] = True
    for place in range(listed.n_active[q]):
        bounds[place + 1] += bounds[place]
    # The identities that occur; written always, kept when it counts, without a branch.
    identity = np.empty(len(seen) + 1, np.int64)
    n = 0
    for i in range(len(seen)):
        identity[n] = i
        number_of[i] = n
        n += int(seen[i])
        seen[i] = False
    filled = bounds[:-1].copy()
    trial_of = np.empty(len(entry), np.int64)
    for e in range(len(entry)):
        above = np.int64(entry[e]) >> bits
        trial_of[filled[above]] = number_of[np.int64(entry[e]) & mask]
        filled[above] += 1
    trial_of_oversized = np.empty(len(oversized_groups.identity), np.int64)
    for g in range(len(oversized_groups.identity)):
        trial_of_oversized[g] = number_of[oversized_groups.identity[g]]
    kept = np.empty(n, np.int64)
    for t in range(n):
        kept[t] = _kept_items(table, q, identity[t])
    return Trials(
        identity[:n],
        kept,
        np.zeros(n, np.int64),
        np.zeros(n, np.float64),
        np.ones(n, np.float64),
        np.zeros(n, np.bool_),
        trial_of,
        bounds,
        trial_of_oversized,
    )


@inner_kernel
def _add(trials: Trials, t: int, more: int) -> int:
    trials.before[t] += more
    count = trials.before[t]
    kept = trials.kept[t]
    trials.success[t] = count / kept
    trials.failure[t] = (kept - count) / kept
    trials.is_open[t] = count < kept
    return int(count == kept)


@inner_kernel
def advance(trials: Trials, place: int, oversized_before: NDArray[np.int32]) -> tuple[bool, int]:
    """Advance the trials to the positive at `place`, numbered within the query; places ascend from call to call.

    `oversized_before`, shape (n_oversized,), are the items of each oversized group that come before this positive
    first. Returns whether anything changed, and the number of trials that became certain to succeed.
    """
    changed = trials.bounds[place + 1] > trials.bounds[place]
    certain = 0
    for e in range(trials.bounds[place], trials.bounds[place + 1]):
        certain += _add(trials, trials.trial_of[e], 1)
    for g in range(len(oversized_before)):
        if oversized_before[g] > 0:
            certain += _add(trials, trials.trial_of_oversized[g], oversized_before[g])
            changed = True
    return changed, certain
