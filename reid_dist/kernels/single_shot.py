"""Lists of the items that come before the positives of each query, kept while tiles go by.

The single-gallery-shot CMC needs, for every query, the items before its positives: the identity of each, and the first
positive that it comes before.  Both are one number, an *entry*: the place of the positive above, the identity in the
low bits.

*Dead positives.*  A far positive has thousands of items before it, and no chance worth a number.  Each item of an
identity with ``n`` items weighs ``floor(2^32 / n)``.  Beyond a limit (see `reid_dist.engine.reductions.single_shot`) a
positive is *dead*: its share is defined as 0, and neither it nor what lies beyond is listed.  Weights are integers and
only ever added, so a positive that is dead by some of the gallery is dead by all of it, and who is dead at the end does
not depend on how it was cut.

*Oversized groups.*  Thousands of items of one identity (distractors with pid 0) would fill the lists to no use.  They
are counted per positive, and weigh nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.placing import ScreenedTile, make_scratch, place_row
from reid_dist.kernels.settings import inner_kernel, kernel


class Lists(NamedTuple):
    """The growing lists of a block of queries against a gallery block; added to.

    Attributes
    ----------
    entry
        Shape (n_query, capacity), int32 or int64, in no particular order.
    size
        How many of each list are in use, shape (n_query,), int64.
    weight
        What they weigh together, shape (n_query,), int64.
    live
        How many positives of each query are not known to be dead, shape (n_query,), int64.
    giant
        Items of each giant that come before each positive first, shape (n_positive, n_giant), int32.
    """

    entry: NDArray[np.signedinteger]
    size: NDArray[np.int64]
    weight: NDArray[np.int64]
    live: NDArray[np.int64]
    giant: NDArray[np.int32]


class Listed(NamedTuple):
    """Entries of a block of queries: those of query ``i`` are ``entry[start[i]:stop[i]]``.

    Attributes
    ----------
    entry
        Flat, int32 or int64.
    start, stop
        Shape (n_query,), int64.
    live
        All of them come before one of this many first positives; shape (n_query,), int64.
    """

    entry: NDArray[np.signedinteger]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    live: NDArray[np.int64]


@inner_kernel
def _first_dead(totals: NDArray[np.int64], limit: int) -> tuple[int, int]:
    """Find the first place at which the running sum of `totals` passes the limit, and the sum before that place."""
    running = 0
    for place in range(len(totals)):
        if running + totals[place] > limit:
            return place, running
        running += totals[place]
    return len(totals), running


@inner_kernel
def _prune(q: int, bits: int, weight: NDArray[np.int64], limit: int, lists: Lists) -> None:
    """Strike out what comes before none of the live positives of a query."""
    entry = lists.entry[q, : lists.size[q]]
    totals = np.zeros(lists.live[q], np.int64)
    mask = (1 << bits) - 1
    for e in range(len(entry)):
        place = np.int64(entry[e]) >> bits
        if place < len(totals):
            totals[place] += weight[np.int64(entry[e]) & mask]
    lists.live[q], lists.weight[q] = _first_dead(totals, limit)
    end = lists.live[q] << bits
    kept = 0
    for e in range(len(entry)):
        entry[kept] = entry[e]
        kept += int(entry[e] < end)
    lists.size[q] = kept


@kernel
def prune_heavy(bits: int, weight: NDArray[np.int64], weight_limit: int, lists: Lists) -> None:
    """Prune every list that holds something dead."""
    for q in range(len(lists.size)):
        if lists.weight[q] > weight_limit:
            _prune(q, bits, weight, weight_limit, lists)


@kernel
def list_tile(
    tile: ScreenedTile,
    query_start: int,
    positive_start: NDArray[np.int64],
    identity_of: NDArray[np.int32],
    bits: int,
    weight: NDArray[np.int64],
    weight_limit: int,
    lists: Lists,
    limit: int,
) -> int:
    """List the items of a tile that come before live positives.

    Parameters
    ----------
    tile
        The tile.
    query_start
        Which query of the block is its first.
    positive_start
        Where the positives of each query of the block begin, shape (n_query + 1,), int64.
    identity_of
        Identity of each column, shape (columns,), int32; giant ``g`` is ``-1 - g``.
    bits
        Low bits of an entry that hold the identity.
    weight
        Weight of an item of each identity, shape (n_identity,), int64.
    weight_limit
        Weight before a positive beyond which it is dead.
    lists
        Added to.
    limit
        The most pairs to decide canonically.

    Returns
    -------
    How many rows were done: fewer than there are when the next one passed `limit`; nothing of that one was listed.
    """
    n_rows, n_columns = tile.values.shape
    scratch = make_scratch(tile)
    # With half the limit to spare, a list is not looked through again for every few entries.
    due = weight_limit + weight_limit // 2
    decided = 0
    for i in range(n_rows):
        q = query_start + i
        if lists.live[q] == 0:
            continue
        if lists.weight[q] > due or lists.size[q] + n_columns > lists.entry.shape[1]:
            _prune(q, bits, weight, weight_limit, lists)
            if lists.live[q] == 0:
                continue
            if lists.size[q] + n_columns > lists.entry.shape[1]:
                raise AssertionError("a pruned list is longer than it can be")
        live = lists.live[q]
        n, pairs = place_row(tile, i, live, scratch)
        decided += pairs
        if decided > limit:
            return i
        size = lists.size[q]
        total = np.int64(0)
        entry = lists.entry[q]
        for c in range(n):
            place = scratch.place[c]
            identity = np.int64(identity_of[scratch.column[c]])
            if place >= live:
                continue
            if identity < 0:
                lists.giant[positive_start[q] + place, -1 - identity] += 1
            else:
                entry[size] = (place << bits) | identity
                total += weight[identity]
                size += 1
        lists.size[q] = size
        lists.weight[q] += total
    return int(n_rows)


@kernel
def add_weights(
    listed: Listed,
    bits: int,
    weight: NDArray[np.int64],
    heavy: NDArray[np.bool_],
    live: NDArray[np.int64],
    positive_start: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Add the weights of listed items to `totals`, shape (n_positive,), at the positive that they come before first.

    Of the queries that are `heavy`, shape (n_query,), bool.
    """
    mask = (1 << bits) - 1
    for q in range(len(live)):
        if not heavy[q]:
            continue
        own = totals[positive_start[q] : positive_start[q] + live[q]]
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
    live: NDArray[np.int64],
    weight: NDArray[np.int64],
) -> None:
    """Lower `live` of the heavy queries to what `totals` leave of it; `weight` becomes that of what is left."""
    for q in range(len(live)):
        if heavy[q]:
            own = totals[positive_start[q] : positive_start[q] + live[q]]
            live[q], weight[q] = _first_dead(own, weight_limit)


@kernel
def count_active(listed: Listed, bits: int, live: NDArray[np.int64], size: NDArray[np.int64]) -> None:
    """Add to `size`, shape (n_query,), how many entries come before a live positive."""
    for q in range(len(live)):
        entry = listed.entry[listed.start[q] : listed.stop[q]]
        kept = len(entry)
        if live[q] < listed.live[q]:
            end = live[q] << bits
            kept = 0
            for e in range(len(entry)):
                kept += int(entry[e] < end)
        size[q] += kept


@kernel
def copy_active(
    listed: Listed,
    bits: int,
    live: NDArray[np.int64],
    target: NDArray[np.signedinteger],
    filled: NDArray[np.int64],
) -> None:
    """Copy those entries to ``target[filled[q]:]``, and move `filled` on."""
    for q in range(len(live)):
        entry = listed.entry[listed.start[q] : listed.stop[q]]
        at = filled[q]
        if live[q] == listed.live[q]:
            target[at : at + len(entry)] = entry
            filled[q] = at + len(entry)
            continue
        end = live[q] << bits
        for e in range(len(entry)):
            if entry[e] < end:
                target[at] = entry[e]
                at += 1
        filled[q] = at
