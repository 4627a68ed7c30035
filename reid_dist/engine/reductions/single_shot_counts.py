r"""The single-gallery-shot CMC: the exact expectation over all draws, or a number of seeded draws.

For a positive of query ``q``, identity ``i`` comes before it with probability ``p_i = c_i / n_i``, where ``c_i`` of its
``n_i`` kept items come before the positive in the order (distance, gallery row).  ``K``, the number of identities that
come before, is Poisson-binomial with mean ``mu = sum p_i``, and ``CMC_single_shot@k`` of the query is the mean over its
positives of ``P(K <= k - 1)`` (Li et al., CVPR 2014, whose draws torchreid and open-reid repeat ten times).

Bound on the cost of the expectation
------------------------------------
Chernoff's bound, ``P(K <= a) <= exp(-mu + a + a ln(mu / a))`` for ``a < mu``, falls as ``mu`` grows.  With ``a =
max_rank - 1`` the integer `inactive_mass` is where it passes below 2^-80; some 160 for ranks up to 50.  A positive
whose preceding items weigh more than that (see `reid_dist.kernels.single_shot`) therefore adds less than 2^-80 to any
value up to `max_rank`, and counts as 0.  An active positive has at most as many listed items before it as the
``inactive_mass + 1`` largest listed identities have together (`longest_list`): the most items for their weight are
whole identities, largest first, and each weighs all but ``n_i 2^-32`` of 1.  This bounds memory and work per query
independently of the size of the gallery.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.segments import (
    entry_numbers,
    entry_owners,
    segment_offsets,
    segment_running_sums,
)
from reid_dist.engine.plan import MERGED_AT_ONCE
from reid_dist.engine.reductions.bands import EnteringTiles, entry_type, number_bits
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.identities import Identities, oversized_groups
from reid_dist.engine.reductions.tile_products import BlockPair
from reid_dist.kernels.placing import PlacedPairs
from reid_dist.kernels.single_shot import add_weights, keep_active, list_items
from reid_dist.kernels.trials import (
    Trials,
    drawn_curves,
    expected_curves,
    identity_states,
    number_trials,
    query_states,
)

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Contributions of a positive below 2^-NEGLIGIBLE_BITS count as 0.
NEGLIGIBLE_BITS = 80
_WEIGHT_BITS = 32
# Entries for which a block has room, beyond twice those that pruning leaves.
_MORE = 2**18


@dataclass(frozen=True, slots=True)
class SingleShot:
    """Definition of the single-shot CMC."""

    # Largest rank of the curve.
    max_rank: int
    # Number of seeded draws per query; None for the exact expectation.
    n_draws: int | None = None
    # Seed of the draws; 0 without draws.
    seed: int = 0

    def describe(self) -> dict[str, str | int]:
        """Return the definition for a report."""
        if self.n_draws is None:
            return {
                "form": "exact expectation",
                "omitted": f"positives with P(K <= {self.max_rank - 1}) proven below 2^-{NEGLIGIBLE_BITS}, as 0",
            }
        return {"form": "draws", "num_repeats": self.n_draws, "seed": self.seed}

    def query_bytes(self, size: Int64, per_query: float) -> int:
        """Bound the bytes of a task per query, including partial results that wait to be merged.

        `size` are the items of each gallery identity, shape (n_identity,); `per_query` is the mean number of positives.
        """
        listed = np.delete(size, oversized_groups(size))
        itemsize = np.dtype(np.int64).itemsize
        # A list grows to twice its bound before it is pruned; its copy, waiting lists and their sum are added.
        entries = min(longest_list(size, inactive_mass(self.max_rank)), int(listed.sum())) * (
            2 + 1 + MERGED_AT_ONCE + 1
        )
        return entries * itemsize + int(per_query * (24 + 4 * len(oversized_groups(size)) * (MERGED_AT_ONCE + 3)))


@lru_cache(maxsize=64)
def inactive_mass(max_rank: int) -> int:
    """Smallest whole number above which the mean of ``K`` makes ``P(K <= max_rank - 1)`` less than 2^-80.

    Computed in decimal arithmetic, with the same result on every machine.
    """
    a = max_rank - 1
    with localcontext() as context:
        context.prec = 50
        wanted = NEGLIGIBLE_BITS * Decimal(2).ln()

        def negligible(mean: int) -> bool:
            return mean - a - (a * (Decimal(mean) / a).ln() if a else 0) > wanted

        low, high = a, 2 * max_rank + 2 * NEGLIGIBLE_BITS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if negligible(middle) else (middle, high)
    return high


def longest_list(size: Int64, mass: int) -> int:
    """Bound the listed items before an active positive, from the numbers of items of all identities."""
    listed = np.sort(np.delete(size, oversized_groups(size)))
    return int(listed[-(mass + 1) :].sum())


@dataclass(frozen=True, slots=True)
class ListedItems:
    """Items before the active positives of a block of queries, from some gallery blocks.

    Stored in workspaces by the names of its fields.
    """

    # Entries in no order, shape (n,): the place of a positive in the block above, and an identity in the low bits.
    entry: NDArray[np.signedinteger]
    # Positives of each query that are active given these items, shape (n_query,), int64.
    active: Int64
    # Items of each oversized group, by the first positive that they come before, shape (n_positive, n_oversized),
    # int32.
    oversized: NDArray[np.int32]
    # First positive of each query, and their number at the end, shape (n_query + 1,), int64.
    start: Int64


class _Limit:
    """The weight of preceding items beyond which a positive is inactive, and the entries that it leaves."""

    def __init__(self, identities: Identities, shot: SingleShot) -> None:
        self.bits = number_bits(len(identities.pid))
        self._most = inactive_mass(shot.max_rank) << _WEIGHT_BITS
        # Of an item of each identity, in units of 2^-32, rounded down.
        self._weight = (1 << _WEIGHT_BITS) // np.maximum(identities.size, 1)

    def is_exceeded(self, identity: NDArray[np.int32]) -> bool:
        """Whether items of some identities, shape (n,), weigh more than the limit."""
        return int(self._weight[identity].sum()) > self._most

    def prune(
        self, entry: NDArray[np.signedinteger], active: Int64, start: Int64
    ) -> tuple[NDArray[np.signedinteger], Int64]:
        """Entries before positives that are still active, and the number of these of each query; reuses the memory."""
        totals = np.zeros(start[-1], np.int64)
        add_weights(entry, self.bits, self._weight, totals)
        # Sums only grow from near to far.
        within = segment_running_sums(totals, start) <= self._most
        active = np.minimum(active, np.diff(segment_offsets(within)[start]))
        is_active = entry_numbers(start) < np.repeat(active, np.diff(start))
        if is_active.all():
            return entry, active
        return entry[: keep_active(entry, self.bits, is_active)].copy(), active


@dataclass(eq=False)
class ListBefore(EnteringTiles[ListedItems]):
    """List the items before every active positive, and compute the single-shot CMC from the lists."""

    need = Need.SINGLE_SHOT

    # Identities of the gallery.
    identities: Identities
    # Largest rank, draws and seed.
    shot: SingleShot
    ties: int = field(default=0, kw_only=True)

    def _numbers(self, pair: BlockPair) -> NDArray[np.int32]:
        """Number of the identity of every column; oversized groups have negative ones."""
        identities = self.identities
        # That of junk rows is never read.
        number = np.arange(len(identities.pid) + 1, dtype=np.int32)
        number[identities.oversized] = -1 - np.arange(len(identities.oversized))
        return number[identities.of_row[pair.gallery.numbers]]

    def _begin(self, pair: BlockPair) -> None:
        super()._begin(pair)
        identity = self.identities.of_row[pair.gallery.numbers]
        self._limit = _Limit(self.identities, self.shot)
        # Whether all items of the block together may make a positive inactive.
        self._is_heavy = self._limit.is_exceeded(identity[identity >= 0])
        n_positive = len(self.targets.positive_row)
        room = _MORE if self._is_heavy else len(pair.query) * len(identity)
        self._entry, self._size = np.empty(room, entry_type(self._limit.bits, n_positive)), 0
        self._active = np.diff(self._start)
        self._oversized = np.zeros((n_positive, len(self.identities.oversized)), np.int32)

    def _prune(self) -> None:
        """Remove entries before inactive positives, of which no more follow, and find room for others."""
        entry, self._active = self._limit.prune(self._entry[: self._size], self._active, self._start)
        self._size = len(entry)
        self._stop = np.searchsorted(self.targets.positive_start, self._start[:-1] + self._active)
        self._entry = np.concatenate([entry, np.empty(len(entry) + _MORE, entry.dtype)])

    def _enter_placed(self, placed: PlacedPairs) -> None:
        n = int(placed.start[len(placed.query)])
        if self._size + n > len(self._entry):
            self._prune()
        free = self._entry[self._size :]
        self._size += list_items(placed, self._start, self._active, self._limit.bits, free, self._oversized)

    def result(self) -> ListedItems:
        """Return the lists of the block pair."""
        self._decide()
        if self._is_heavy:
            self._prune()
        # The memory of the others is given back without a copy.
        self._entry.resize(self._size, refcheck=False)
        return ListedItems(self._entry, self._active, self._oversized, self._start)

    def finish(self, merged: ListedItems, queries: RowRange, query_row: Int64) -> Float64:
        """Compute the expectation, or the mean of the draws, for some queries of the block.

        `merged` are the lists of the whole gallery; `query_row` are the rows of the block's queries in their set, shape
        (n_query,), by which draws are keyed.  Returns ``CMC_single_shot`` at every rank, shape (len(queries),
        max_rank), float64; NaN for a query without positives.
        """
        some = slice(queries.start, queries.stop)
        trials = self._trials(merged, queries)
        curves = np.empty((len(queries), self.shot.max_rank))
        if self.shot.n_draws is None:
            expected_curves(trials, curves)
            return curves
        own = self.identities.of_queries(self.targets)[some]
        with np.errstate(over="ignore"):
            # Wrap-around of unsigned numbers is intended.
            query_state = query_states(np.uint64(self.shot.seed % 2**64), query_row[some], self.shot.n_draws)
            identity_state = identity_states(self.identities.pid.astype(np.uint64))
            drawn_curves(trials, own, query_state, identity_state, curves)
        return curves

    def _trials(self, merged: ListedItems, queries: RowRange) -> Trials:
        """Sort the items before the positives of some queries into trials."""
        start, active = merged.start[queries.start : queries.stop + 1], merged.active[queries.start : queries.stop]
        first, stop, n_identity = int(start[0]), int(start[-1]), len(self.identities.pid)
        bits = number_bits(n_identity)
        entry = merged.entry[(merged.entry >= first << bits) & (merged.entry < stop << bits)]
        if len(self.identities.oversized):
            is_active = entry_numbers(start - first) < np.repeat(active, np.diff(start))
            oversized = merged.oversized[first:stop] * is_active[:, None]
            place, group = np.nonzero(oversized)
            n_items = np.concatenate([np.ones(len(entry), np.int32), oversized[place, group]])
            entry = np.concatenate([entry, (place + first) << bits | self.identities.oversized[group]])
            order = np.argsort(entry)
            entry, n_items = entry[order], n_items[order]
        else:
            entry, n_items = np.sort(entry), np.ones(len(entry), np.int32)
        item_start = np.searchsorted(entry, np.arange(first, stop + 1) << bits)
        trial, trial_start = np.empty(len(entry), np.int64), np.empty(len(start), np.int64)
        identity = np.empty(len(entry) + 1, np.int64)
        number_trials(entry, item_start[start - first], bits, n_identity, trial, trial_start, identity)
        identity = identity[: trial_start[-1]]
        hidden = self.targets.hidden.take(np.arange(queries.start, queries.stop))
        kept = self.identities.kept_items(hidden, entry_owners(trial_start), identity)
        return Trials(trial_start, identity, kept, start - first, active, item_start, trial, n_items)


def combine_lists(partials: Sequence[ListedItems], identities: Identities, shot: SingleShot) -> ListedItems:
    """Join lists, and remove entries that come before inactive positives only."""
    start, active = partials[0].start, np.minimum.reduce([partial.active for partial in partials])
    entry = np.concatenate([partial.entry for partial in partials])
    entry, active = _Limit(identities, shot).prune(entry, active, start)
    oversized = sum((partial.oversized for partial in partials[1:]), partials[0].oversized)
    return ListedItems(entry, active, oversized, start)
