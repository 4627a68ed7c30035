"""Lists of the items that come before the positives of each query, collected tile by tile.

The single-gallery-shot CMC needs, for every query, the items before its positives: the identity of each, and the first
positive that it comes before.  Both are one number, an *entry*: the place of the positive above, the identity in the
low bits.

*Inactive positives.*  A far positive has thousands of items before it and a negligible probability.  Each item of an
identity with ``n`` items weighs ``floor(2^32 / n)``.  Beyond a limit (see `reid_dist.engine.reductions.single_shot`) a
positive is *inactive*: its share is defined as 0, and items are listed for nearer positives only.  Weights are integers
and sums of them only grow, so a positive that is inactive given a part of the gallery is inactive given all of it, and
the active positives do not depend on the blocks of the gallery.

*Oversized groups.*  Thousands of items of one identity (distractors with pid 0) would only fill the lists.  They are
counted per positive, and have no weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.arrays import put
from reid_dist.kernels.placing import Placing, make_scratch, place_row
from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.tiles import Tile


class Lists(NamedTuple):
    """The growing lists of a block of queries against a gallery block."""

    # Shape (n_query, capacity), int32 or int64, in no particular order.
    entry: NDArray[np.signedinteger]
    # Used entries of each list, shape (n_query,), int64.
    size: NDArray[np.int64]
    # Their total weight, shape (n_query,), int64.
    weight: NDArray[np.int64]
    # Active positives of each query so far, shape (n_query,), int64.
    n_active: NDArray[np.int64]
    # Items of each oversized group that come before each positive first, shape (n_positive, n_oversized), int32.
    oversized: NDArray[np.int32]


class Listed(NamedTuple):
    """Entries of a block of queries: those of query ``i`` are ``entry[start[i]:stop[i]]``."""

    # Flat, int32 or int64.
    entry: NDArray[np.signedinteger]
    # Shape (n_query,), int64.
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    # All of them come before one of this many first positives, shape (n_query,), int64.
    n_active: NDArray[np.int64]


@inner_kernel
def _first_inactive(totals: NDArray[np.int64], limit: int) -> tuple[int, int]:
    """Find the first place at which the running sum of `totals` passes the limit, and the sum before that place."""
    running = 0
    for place in range(len(totals)):
        if running + totals[place] > limit:
            return place, running
        running += totals[place]
    return len(totals), running


@inner_kernel
def _prune(q: int, bits: int, weight: NDArray[np.int64], limit: int, lists: Lists) -> None:
    """Remove the entries of a query that come before none of its active positives."""
    entry = lists.entry[q, : lists.size[q]]
    totals = np.zeros(lists.n_active[q], np.int64)
    mask = (1 << bits) - 1
    for e in range(len(entry)):
        place = np.int64(entry[e]) >> bits
        if place < len(totals):
            totals[place] += weight[np.int64(entry[e]) & mask]
    lists.n_active[q], lists.weight[q] = _first_inactive(totals, limit)
    end = lists.n_active[q] << bits
    kept = 0
    for e in range(len(entry)):
        entry[kept] = entry[e]
        kept += int(entry[e] < end)
    lists.size[q] = kept


@kernel
def prune_heavy(bits: int, weight: NDArray[np.int64], weight_limit: int, lists: Lists) -> None:
    """Prune every list whose weight exceeds the limit."""
    for q in range(len(lists.size)):
        if lists.weight[q] > weight_limit:
            _prune(q, bits, weight, weight_limit, lists)


@kernel
def list_tile(
    tile: Tile,
    by: Placing,
    first_row: int,
    positive_start: NDArray[np.int64],
    identity_of: NDArray[np.int32],
    bits: int,
    weight: NDArray[np.int64],
    weight_limit: int,
    lists: Lists,
    limit: int,
) -> tuple[int, int]:
    """List the items of a tile that come before active positives, from row `first_row` on.

    `positive_start` has shape (n_query + 1,).  `identity_of` holds the identity of each column, shape (columns,);
    oversized group ``g`` is ``-1 - g``.  Entries hold the identity in their low `bits`.  `weight` is the weight of an
    item of each identity, shape (n_identity,), and a positive with more than `weight_limit` before it is inactive.

    At most `limit` values may lie inside bands.  Returns the number of finished rows, fewer than all if the next one
    exceeded `limit` (nothing of that one is listed), and of these values.
    """
    n_rows, n_columns = tile.products.shape
    scratch = make_scratch(tile, by.bands)
    # A list is pruned at 1.5 times the limit, so that pruning is rare.
    due = weight_limit + weight_limit // 2
    decided = 0
    for i in range(first_row, n_rows):
        q = tile.query[i]
        if lists.n_active[q] == 0:
            continue
        if lists.weight[q] > due or lists.size[q] + n_columns > lists.entry.shape[1]:
            _prune(q, bits, weight, weight_limit, lists)
            if lists.n_active[q] == 0:
                continue
            if lists.size[q] + n_columns > lists.entry.shape[1]:
                raise AssertionError("a pruned list is longer than it can be")
        n_active = lists.n_active[q]
        n, pairs = place_row(tile, by, i, n_active, scratch)
        decided += pairs
        if decided > limit:
            return i, decided
        size = lists.size[q]
        total = np.int64(0)
        entry = lists.entry[q]
        for c in range(n):
            place = scratch.place[c]
            identity = np.int64(identity_of[scratch.column[c]])
            if place >= n_active:
                continue
            if identity < 0:
                lists.oversized[positive_start[q] + place, -1 - identity] += 1
            else:
                entry[size] = (place << bits) | identity
                total += weight[identity]
                size += 1
        lists.size[q] = size
        lists.weight[q] += total
    return int(n_rows), decided


@kernel
def add_weights(
    listed: Listed,
    bits: int,
    weight: NDArray[np.int64],
    heavy: NDArray[np.bool_],
    n_active: NDArray[np.int64],
    positive_start: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Add the weights of listed items to `totals`, shape (n_positive,), at the first positive that they come before.

    Only for queries that are `heavy`, shape (n_query,), bool.
    """
    mask = (1 << bits) - 1
    for q in range(len(n_active)):
        if not heavy[q]:
            continue
        own = totals[positive_start[q] : positive_start[q] + n_active[q]]
        entry = listed.entry[listed.start[q] : listed.stop[q]]
        for e in range(len(entry)):
            place = np.int64(entry[e]) >> bits
            if place < len(own):
                own[place] += weight[np.int64(entry[e]) & mask]


@kernel
def prune(
    totals: NDArray[np.int64],
    positive_start: NDArray[np.int64],
    weight_limit: int,
    heavy: NDArray[np.bool_],
    n_active: NDArray[np.int64],
    weight: NDArray[np.int64],
) -> None:
    """Lower `n_active` and `weight` of the heavy queries to the positives whose `totals` stay within the limit."""
    for q in range(len(n_active)):
        if heavy[q]:
            own = totals[positive_start[q] : positive_start[q] + n_active[q]]
            n_active[q], weight[q] = _first_inactive(own, weight_limit)


@kernel
def count_active(listed: Listed, bits: int, n_active: NDArray[np.int64], size: NDArray[np.int64]) -> None:
    """Add to `size`, shape (n_query,), the number of entries that come before an active positive."""
    for q in range(len(n_active)):
        entry = listed.entry[listed.start[q] : listed.stop[q]]
        kept = len(entry)
        if n_active[q] < listed.n_active[q]:
            end = n_active[q] << bits
            kept = 0
            for e in range(len(entry)):
                kept += int(entry[e] < end)
        size[q] += kept


@kernel
def copy_active(
    listed: Listed,
    bits: int,
    n_active: NDArray[np.int64],
    target: NDArray[np.signedinteger],
    filled: NDArray[np.int64],
) -> None:
    """Copy the entries that come before active positives to ``target[filled[q]:]``, and advance `filled`."""
    for q in range(len(n_active)):
        entry = listed.entry[listed.start[q] : listed.stop[q]]
        at = filled[q]
        if n_active[q] == listed.n_active[q]:
            put(entry, target, at)
            filled[q] = at + len(entry)
            continue
        end = n_active[q] << bits
        for e in range(len(entry)):
            if entry[e] < end:
                target[at] = entry[e]
                at += 1
        filled[q] = at
