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
from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.deciding import Bands, OpenPairs
from reid_dist.kernels.placing import make_row, place_row
from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.tiles import Tile

# Decided pairs that are listed together: a list has room for so many behind the longest one that is left of pruning.
LISTED_TOGETHER = 64


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


@inner_kernel
def _enter(
    q: int,
    columns: NDArray[np.int64],
    places: NDArray[np.int64],
    first: int,
    identity_of: NDArray[np.int32],
    bits: int,
    weight: NDArray[np.int64],
    weight_limit: int,
    lists: Lists,
) -> None:
    """List items of a query in some columns, which come before the positives `places`, numbered from `first` on."""
    if lists.size[q] + len(columns) > lists.entry.shape[1]:
        _prune(q, bits, weight, weight_limit, lists)
        if lists.size[q] + len(columns) > lists.entry.shape[1]:
            raise AssertionError("a pruned list is longer than it can be")
    entry, size, n_active, oversized = lists.entry[q], lists.size[q], lists.n_active[q], lists.oversized
    total = np.int64(0)
    for c in range(len(columns)):
        place, identity = places[c] - first, np.int64(identity_of[columns[c]])
        if place >= n_active:
            continue
        if identity < 0:
            oversized[first + place, -1 - identity] += 1
        else:
            entry[size] = (place << bits) | identity
            total += weight[identity]
            size += 1
    lists.size[q] = size
    lists.weight[q] += total


@kernel
def list_tile(
    tile: Tile,
    bands: Bands,
    pairs: OpenPairs,
    n_open: int,
    first_row: int,
    limit: int,
    identity_of: NDArray[np.int32],
    bits: int,
    weight: NDArray[np.int64],
    weight_limit: int,
    lists: Lists,
) -> tuple[int, int, int]:
    """List the items of a tile that come before active positives; pairs that values leave open are added to `pairs`.

    `identity_of` holds the identity of each column, shape (columns,); oversized group ``g`` is ``-1 - g``.  Entries
    hold the identity in their low `bits`.  `weight` is the weight of an item of each identity, shape (n_identity,), and
    a positive with more than `weight_limit` before it is inactive.  The other parameters and the result are as in
    `reid_dist.kernels.counting.count_tile`.
    """
    row = make_row(tile, bands)
    column, place, room = row.pending.column, row.pending.place, len(pairs.query) - tile.products.shape[1]
    indptr, positive_start = bands.indptr, bands.positive_start
    # A list is pruned at 1.5 times the limit, so that pruning is rare.
    due = weight_limit + weight_limit // 2
    inside = int(np.int64(0))
    for i in range(first_row, len(tile.query)):
        q = tile.query[i]
        if lists.weight[q] > due:
            _prune(q, bits, weight, weight_limit, lists)
        if lists.n_active[q] == 0:
            continue
        if n_open > room:
            return i, n_open, inside
        first = indptr[q]
        # Thresholds beyond that of the last active positive are not needed.
        last = first_at_least(positive_start, first, indptr[q + 1], positive_start[first] + lists.n_active[q])
        n, n_open, more = place_row(tile, i, bands, last, limit - inside, row, pairs, n_open)
        inside += more
        if n < 0:
            return i, n_open, inside
        for c in range(n):
            place[c] = positive_start[first + place[c]]
        own = positive_start[first]
        _enter(q, column[:n], place[:n], own, identity_of, bits, weight, weight_limit, lists)
    return len(tile.query), n_open, inside


@kernel
def list_decided(
    decided: OpenPairs,
    start: NDArray[np.int64],
    identity_of: NDArray[np.int32],
    bits: int,
    weight: NDArray[np.int64],
    weight_limit: int,
    lists: Lists,
) -> None:
    """List pairs that are at their places, as `list_tile` does.

    `start` holds the first positive of each query, and `identity_of` the identities of the columns of the block.
    """
    query, column, place = decided.query, decided.column, decided.place
    stop = 0
    while stop < len(query):
        first, q = stop, query[stop]
        while stop < min(len(query), first + LISTED_TOGETHER) and query[stop] == q:
            stop += 1
        own = start[q]
        _enter(q, column[first:stop], place[first:stop], own, identity_of, bits, weight, weight_limit, lists)


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
