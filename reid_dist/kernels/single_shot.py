"""Lists of the items that come before the positives of each query, kept while tiles go by.

The single-gallery-shot CMC needs, for every query, the items before its positives: the identity of each, and the first
positive that it comes before.  Both are one number, an *entry*: ``place * n_identity + identity``.

*Dead positives.*  A far positive has thousands of items before it, and no chance worth a number.  Each item of an
identity with ``n`` items weighs ``floor(2^32 / n)``.  Beyond a limit (see `reid_dist.reductions.single_shot`) a
positive is *dead*: its share is defined as 0, and neither it nor what lies beyond is listed.  Weights are integers and
only ever added, so a positive that is dead by some of the gallery is dead by all of it, and who is dead at the end does
not depend on how it was cut.

*Giants.*  Thousands of items of one identity (distractors with pid 0) would fill the lists and say little.  They are
counted per positive, and weigh nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.placing import ScreenedTile, make_scratch, place_row
from reid_dist.kernels.settings import kernel

__all__ = ["Listed", "Lists", "add_weights", "copy_live", "count_live", "kill", "list_tile"]

# After a list was pruned it may grow by this many entries, and by half, before it is pruned again.
_GROWTH = 256


class Lists(NamedTuple):
    """The growing lists of a block of queries against a gallery block; added to.

    Attributes
    ----------
    entry
        Shape (n_query, capacity), int32 or int64, in no particular order.
    size
        How many of each list are in use, shape (n_query,), int64.
    due
        Size at which each list is pruned, shape (n_query,), int64.
    live
        How many positives of each query are not known to be dead, shape (n_query,), int64.
    giant
        Items of each giant that come before each positive first, shape (n_positive, n_giant), int32.
    """

    entry: NDArray[np.signedinteger]
    size: NDArray[np.int64]
    due: NDArray[np.int64]
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
    """

    entry: NDArray[np.signedinteger]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]


@kernel
def _first_dead(totals: NDArray[np.int64], limit: int) -> int:
    """Find the first place at which the running sum of `totals` passes the limit; their number if none does."""
    running = np.int64(0)
    for place in range(len(totals)):
        running += totals[place]
        if running > limit:
            return place
    return len(totals)


@kernel
def _prune(q: int, n_identity: int, weight: NDArray[np.int64], limit: int, lists: Lists) -> None:
    """Strike out what comes before none of the live positives of a query."""
    entry = lists.entry[q, : lists.size[q]]
    totals = np.zeros(lists.live[q], np.int64)
    for e in range(len(entry)):
        place = np.int64(entry[e]) // n_identity
        if place < len(totals):
            totals[place] += weight[entry[e] - place * n_identity]
    lists.live[q] = _first_dead(totals, limit)
    end = lists.live[q] * n_identity
    kept = 0
    for e in range(len(entry)):
        entry[kept] = entry[e]
        kept += int(entry[e] < end)
    lists.size[q] = kept
    lists.due[q] = kept + max(_GROWTH, kept // 2)


@kernel
def list_tile(
    tile: ScreenedTile,
    query_start: int,
    positive_start: NDArray[np.int64],
    identity_of: NDArray[np.int32],
    n_identity: int,
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
    n_identity, weight
        Identities, and the weight of an item of each, shape (n_identity,), int64.
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
    scratch = make_scratch(tile.values)
    decided = 0
    for i in range(n_rows):
        q = query_start + i
        if lists.live[q] == 0:
            continue
        if lists.size[q] >= lists.due[q] or lists.size[q] + n_columns > lists.entry.shape[1]:
            _prune(q, n_identity, weight, weight_limit, lists)
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
        entry = lists.entry[q]
        for c in range(n):
            place = scratch.place[c]
            identity = np.int64(identity_of[scratch.column[c]])
            if place >= live:
                continue
            if identity < 0:
                lists.giant[positive_start[q] + place, -1 - identity] += 1
            else:
                entry[size] = place * n_identity + identity
                size += 1
        lists.size[q] = size
    return int(n_rows)


@kernel
def add_weights(
    listed: Listed,
    n_identity: int,
    weight: NDArray[np.int64],
    live: NDArray[np.int64],
    positive_start: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Add the weights of listed items to `totals`, shape (n_positive,), at the positive that they come before first."""
    for q in range(len(live)):
        own = totals[positive_start[q] : positive_start[q] + live[q]]
        entry = listed.entry[listed.start[q] : listed.stop[q]]
        for e in range(len(entry)):
            place = np.int64(entry[e]) // n_identity
            if place < len(own):
                own[place] += weight[entry[e] - place * n_identity]


@kernel
def kill(
    totals: NDArray[np.int64], positive_start: NDArray[np.int64], weight_limit: int, live: NDArray[np.int64]
) -> None:
    """Lower `live` to what the weights leave of it."""
    for q in range(len(live)):
        live[q] = _first_dead(totals[positive_start[q] : positive_start[q] + live[q]], weight_limit)


@kernel
def count_live(listed: Listed, n_identity: int, live: NDArray[np.int64], size: NDArray[np.int64]) -> None:
    """Add to `size`, shape (n_query,), how many entries come before a live positive."""
    for q in range(len(live)):
        end = live[q] * n_identity
        entry = listed.entry[listed.start[q] : listed.stop[q]]
        kept = 0
        for e in range(len(entry)):
            kept += int(entry[e] < end)
        size[q] += kept


@kernel
def copy_live(
    listed: Listed,
    n_identity: int,
    live: NDArray[np.int64],
    target: NDArray[np.signedinteger],
    filled: NDArray[np.int64],
) -> None:
    """Copy those entries to ``target[filled[q]:]``, and move `filled` on."""
    for q in range(len(live)):
        end = live[q] * n_identity
        entry = listed.entry[listed.start[q] : listed.stop[q]]
        at = filled[q]
        for e in range(len(entry)):
            if entry[e] < end:
                target[at] = entry[e]
                at += 1
        filled[q] = at
