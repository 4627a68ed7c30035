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
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, RowRange, Targets
from reid_dist.core.segments import segment_offsets
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import MERGED_AT_ONCE
from reid_dist.engine.reductions.backends import Advance, Backend, Pairs, Rest
from reid_dist.engine.reductions.bands import PlacingTiles
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.identities import Identities, oversized_groups
from reid_dist.engine.reductions.tiles import BlockPair
from reid_dist.kernels.deciding import Bands, OpenPairs
from reid_dist.kernels.draws import drawn_curves, identity_states, query_states
from reid_dist.kernels.expectation import expected_curves
from reid_dist.kernels.single_shot import (
    LISTED_TOGETHER,
    Listed,
    Lists,
    add_weights,
    copy_active,
    count_active,
    list_decided,
    list_tile,
    prune,
    prune_heavy,
)
from reid_dist.kernels.tiles import Tile
from reid_dist.kernels.trials import OversizedGroups

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Contributions of a positive below 2^-NEGLIGIBLE_BITS count as 0.
NEGLIGIBLE_BITS = 80
_WEIGHT_BITS = 32


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
        itemsize = _entry_type(_identity_bits(len(size)), int(size.max(initial=0))).itemsize
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


def _identity_bits(n_identity: int) -> int:
    return max(1, (n_identity - 1).bit_length())


def _entry_type(bits: int, most_positives: int) -> np.dtype[np.signedinteger]:
    fits = (most_positives + 1) << bits <= np.iinfo(np.int32).max
    return np.dtype(np.int32 if fits else np.int64)


# ---- the exact expectation -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedItems:
    """Items before the active positives of a block of queries, from some gallery blocks.

    Stored in workspaces by the names of its fields.
    """

    # Entries of query ``i`` are ``entry[indptr[i]:indptr[i + 1]]``; see `reid_dist.kernels.single_shot`.
    indptr: Int64
    entry: NDArray[np.signedinteger]
    # Positives of each query that are active given these items, shape (n_query,), int64.
    active: Int64
    # Upper bound on the weight of the entries of each query, shape (n_query,), int64.
    weight: Int64
    # Items of each oversized group, by the first positive that they come before, shape (n_positive, n_oversized),
    # int32.
    oversized: NDArray[np.int32]
    # First positive of each query, and their number at the end, shape (n_query + 1,), int64.
    start: Int64

    @property
    def listed(self) -> Listed:
        """Convert to the argument of kernels."""
        return Listed(self.entry, self.indptr[:-1], self.indptr[1:], self.active)


@dataclass(frozen=True, slots=True)
class ListBefore:
    """List the items before every active positive, and compute the single-shot CMC from the lists."""

    need: ClassVar[Need] = Need.SINGLE_SHOT

    # Thresholds of the block of queries.
    targets: Targets
    # Gallery rows hidden from queries.
    mask: GalleryMask
    # Registered, re-ranked or precomputed distance.
    distance: Distance
    # Identities of the gallery.
    identities: Identities
    # Largest rank, draws and seed.
    shot: SingleShot
    # Rule of ties; see `reid_dist.kernels.deciding`.
    ties: int = 0

    @property
    def weight(self) -> Int64:
        """Weight of an item of each identity, in units of 2^-32, rounded down, shape (n_identity,), int64."""
        return _weights(self.identities)

    @property
    def weight_limit(self) -> int:
        """Weight of preceding items, in units of 2^-32, beyond which a positive is inactive."""
        return _weight_limit(self.shot)

    def start(self, pair: BlockPair) -> _ListingBefore:
        """Make an accumulator for a block pair."""
        return _ListingBefore(self, pair)

    @property
    def bits(self) -> int:
        """Number of low bits of an entry that hold the identity."""
        return _identity_bits(len(self.identities.pid))

    def finish(self, merged: ListedItems, queries: RowRange, query_row: Int64) -> Float64:
        """Compute the expectation, or the mean of the draws, for some queries of the block.

        `merged` are the lists of the whole gallery; `query_row` are the rows of the block's queries in their set, shape
        (n_query,), by which draws are keyed.  Returns ``CMC_single_shot`` at every rank, shape (len(queries),
        max_rank), float64; NaN for a query without positives.
        """
        some = slice(queries.start, queries.stop)
        indptr = merged.indptr[queries.start : queries.stop + 1]
        listed = Listed(merged.entry, indptr[:-1], indptr[1:], merged.active[some])
        start = self.targets.positive_indptr[queries.start : queries.stop + 1]
        oversized_groups = OversizedGroups(self.identities.oversized, merged.oversized)
        table = self.identities.table(self.targets, queries)
        curves = np.empty((len(queries), self.shot.max_rank))
        if self.shot.n_draws is None:
            expected_curves(listed, start, oversized_groups, self.bits, table, curves)
            return curves
        own = self.identities.of_queries(self.targets)[some]
        with np.errstate(over="ignore"):
            # Wrap-around of unsigned numbers is intended.
            query_state = query_states(np.uint64(self.shot.seed % 2**64), query_row[some], self.shot.n_draws)
            identity_state = identity_states(self.identities.pid.astype(np.uint64))
            drawn_curves(listed, start, own, oversized_groups, self.bits, table, query_state, identity_state, curves)
        return curves


def _weights(identities: Identities) -> Int64:
    return (1 << _WEIGHT_BITS) // np.maximum(identities.size, 1)


def _weight_limit(shot: SingleShot) -> int:
    return inactive_mass(shot.max_rank) << _WEIGHT_BITS


def combine_lists(partials: Sequence[ListedItems], identities: Identities, shot: SingleShot) -> ListedItems:
    """Join lists, and remove entries that come before inactive positives only."""
    start, bits, limit = partials[0].start, _identity_bits(len(identities.pid)), _weight_limit(shot)
    n_active = np.minimum.reduce([partial.active for partial in partials])
    weight = sum((partial.weight for partial in partials[1:]), partials[0].weight.copy())
    heavy = weight > limit
    if heavy.any():
        totals, item_weight = np.zeros(start[-1], np.int64), _weights(identities)
        for partial in partials:
            add_weights(partial.listed, bits, item_weight, heavy, n_active, start, totals)
        prune(totals, start, limit, heavy, n_active, weight)
    indptr, entry = _join([partial.listed for partial in partials], bits, n_active)
    oversized = sum((partial.oversized for partial in partials[1:]), partials[0].oversized)
    return ListedItems(indptr, entry, n_active, weight, oversized, start)


def _join(parts: Sequence[Listed], bits: int, n_active: Int64) -> tuple[Int64, NDArray[np.signedinteger]]:
    """Join the entries that come before active positives; see `ListedItems`."""
    size = np.zeros(len(n_active), np.int64)
    for part in parts:
        count_active(part, bits, n_active, size)
    indptr = segment_offsets(size)
    entry = np.empty(indptr[-1], parts[0].entry.dtype)
    filled = indptr[:-1].copy()
    for part in parts:
        copy_active(part, bits, n_active, entry, filled)
    return indptr, entry


class _ListingBefore(PlacingTiles[ListedItems]):
    """Accumulator of `ListBefore`."""

    need: ClassVar[Need] = ListBefore.need

    def __init__(self, reduction: ListBefore, pair: BlockPair) -> None:
        targets, identities, gallery = reduction.targets, reduction.identities, pair.gallery
        super().__init__(targets, reduction.mask, pair, reduction.ties)
        self._reduction, self._start = reduction, targets.positive_indptr
        place_of = np.full(len(identities.pid), -1, np.int32)
        place_of[identities.oversized] = np.arange(len(identities.oversized))
        column = identities.of_row[gallery.numbers]
        # Oversized groups have negative numbers; the number of junk rows is never read.
        group = place_of[column] if len(place_of) else column
        self._identity_of = np.where(group >= 0, -1 - group, column).astype(np.int32)
        self._weighing = reduction.bits, reduction.weight, reduction.weight_limit

    @cached_property
    def _lists(self) -> Lists:
        """Lists of the items so far; their memory is allocated as they grow."""
        identities, most = self._reduction.identities, np.diff(self._start)
        longest = longest_list(identities.size, inactive_mass(self._reduction.shot.max_rank))
        n_query, n_column = len(most), self._pair.gallery_rows
        # A pruned list, a tile, and another list so that pruning is rare; at most the whole block.
        capacity = min(len(self._identity_of), 2 * longest + max(n_column, LISTED_TOGETHER))
        return Lists(
            entry=np.empty((n_query, capacity), _entry_type(self._reduction.bits, int(most.max(initial=0)))),
            size=np.zeros(n_query, np.int64),
            weight=np.zeros(n_query, np.int64),
            n_active=most.copy(),
            oversized=np.zeros((len(self._targets.positive_row), len(identities.oversized)), np.int32),
        )

    def _place(self, backend: Backend, pairs: Pairs, bands: Bands, rest: Rest) -> Advance:
        identity_of = self._identity_of[pairs.columns.start : pairs.columns.stop]

        def enter(tile: Tile) -> Advance:
            return list_tile(tile, bands, *rest, identity_of, *self._weighing, self._lists)

        return backend.enter(pairs, enter)

    def _enter(self, decided: OpenPairs) -> None:
        list_decided(decided, self._start, self._identity_of, *self._weighing, self._lists)

    def result(self) -> ListedItems:
        """Return the lists of the block pair."""
        self._decide()
        lists, bits = self._lists, self._reduction.bits
        prune_heavy(*self._weighing, lists)
        begin = np.arange(len(lists.size)) * lists.entry.shape[1]
        listed = Listed(lists.entry.reshape(-1), begin, begin + lists.size, lists.n_active)
        indptr, entry = _join([listed], bits, lists.n_active)
        return ListedItems(indptr, entry, lists.n_active, lists.weight, lists.oversized, self._start)
