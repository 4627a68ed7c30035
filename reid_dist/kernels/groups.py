"""Groups of gallery items before the thresholds of each query, collected tile by tile.

A group comes before a positive if any of its items does, so that the place of a group is the least place of its items
(`reid_dist.kernels.placing.place_row`).  Places are integers, and the least of them is the same for any order of tiles.

Items before the farthest threshold are listed per query, as *entries*: the place above, the group in the low bits.
Neighbouring columns are mostly of one group and become one entry.  A full list is reduced to one entry per group.  At
the end of a gallery block, groups without items elsewhere are counted by place; entries of the others are kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.deciding import ScreenedTile
from reid_dist.kernels.placing import make_scratch, place_row
from reid_dist.kernels.settings import inner_kernel, kernel

# Larger than any place.
_NOWHERE = 2**31 - 1


class GroupLists(NamedTuple):
    """The growing lists of a block of queries against a gallery block."""

    # Shape (n_query, capacity), int32 or int64, in no particular order.
    entry: NDArray[np.signedinteger]
    # Used entries of each list, shape (n_query,), int64.
    size: NDArray[np.int64]
    # Counted groups by place: those of query ``i`` are ``counted[start[i]:start[i + 1]]``; int32 and int64.
    counted: NDArray[np.int32]
    start: NDArray[np.int64]
    # Scratch: least place of each group, shape (n_group,), int32, `_NOWHERE` before and after.
    least: NDArray[np.int32]


def nowhere(n_group: int) -> NDArray[np.int32]:
    """Scratch for the least places of groups, shape (n_group,), int32."""
    return np.full(n_group, _NOWHERE, np.int32)


@inner_kernel
def _reduce(entry: NDArray[np.signedinteger], bits: int, least: NDArray[np.int32]) -> int:
    """Reduce entries to one per group, at its least place; return their number."""
    mask = (1 << bits) - 1
    for e in range(len(entry)):
        group = np.int64(entry[e]) & mask
        least[group] = min(least[group], np.int32(np.int64(entry[e]) >> bits))
    kept = 0
    for e in range(len(entry)):
        group = np.int64(entry[e]) & mask
        place = np.int64(least[group])
        # Written always, kept when it counts: no branch.
        entry[kept] = (place << bits) | group
        kept += int(place < _NOWHERE)
        least[group] = _NOWHERE
    return kept


@kernel
def list_groups(
    tile: ScreenedTile,
    query_start: int,
    group_of: NDArray[np.int32],
    bits: int,
    lists: GroupLists,
    limit: int,
) -> tuple[int, int]:
    """Add the items of a tile before some threshold to the lists; `query_start` is the first query of the tile.

    `group_of` holds the group of each column, shape (columns,); a negative number for a column that is the only item of
    its group, and is counted at once.  Entries hold the group in their low `bits`.

    At most `limit` pairs are decided canonically.  Returns the number of finished rows, fewer than all if the next one
    exceeded `limit` (nothing of that one is listed), and the number of decided pairs.
    """
    n_rows = tile.values.shape[0]
    scratch = make_scratch(tile)
    bands = tile.bands
    decided = 0
    capacity = lists.entry.shape[1]
    for i in range(n_rows):
        first, last = bands.indptr[i], bands.indptr[i + 1]
        if first == last:
            continue
        q = query_start + i
        n, pairs = place_row(tile, i, bands.positive_start[last] - bands.positive_start[first], scratch)
        decided += pairs
        if decided > limit:
            return i, decided
        entry = lists.entry[q]
        if lists.size[q] + n > capacity:
            lists.size[q] = _reduce(entry[: lists.size[q]], bits, lists.least)
            if lists.size[q] + n > capacity:
                raise AssertionError("a reduced list is longer than it can be")
        begin = lists.start[q]
        beyond = lists.start[q + 1] - begin
        size = lists.size[q]
        before = np.int64(-1)
        latest = np.int64(0)
        for c in range(n):
            place = scratch.place[c]
            if place >= beyond:
                continue
            group = np.int64(group_of[scratch.column[c]])
            if group < 0:
                lists.counted[begin + place] += np.int32(1)
                continue
            made = (place << bits) | group
            is_new = group != before
            size += np.int64(is_new)
            latest = made if is_new else min(latest, made)
            entry[size - 1] = latest
            before = group
        lists.size[q] = size
    return n_rows, decided


@kernel
def settle_groups(
    lists: GroupLists,
    bits: int,
    is_whole: NDArray[np.bool_],
    number_of: NDArray[np.int64],
    packed_bits: int,
    indptr: NDArray[np.int64],
    packed: NDArray[np.signedinteger],
) -> None:
    """Reduce all lists, count the groups that are whole by their places, and write the entries of the others.

    `is_whole`, bool, and `number_of` have shape (n_group,).  Entries are written one query after the other, with group
    ``number_of[g]`` for ``g``, in the low `packed_bits`; `indptr`, shape (n_query + 1,), is filled with their offsets.
    """
    mask = (1 << bits) - 1
    least = lists.least
    at = np.int64(0)
    indptr[0] = 0
    for q in range(len(lists.size)):
        own = lists.counted[lists.start[q] : lists.start[q + 1]]
        entry = lists.entry[q, : lists.size[q]]
        for e in range(len(entry)):
            group = np.int64(entry[e]) & mask
            least[group] = min(least[group], np.int32(np.int64(entry[e]) >> bits))
        for e in range(len(entry)):
            group = np.int64(entry[e]) & mask
            place = np.int64(least[group])
            least[group] = _NOWHERE
            found = np.int64(place < _NOWHERE)
            counts = found & np.int64(is_whole[group])
            own[place * counts] += np.int32(counts)
            # Written always, kept when it counts: no branch.
            packed[at] = (place << packed_bits) | number_of[group]
            at += found - counts
        indptr[q + 1] = at


@kernel
def merge_groups(
    entries: tuple[NDArray[np.signedinteger], ...],
    bounds: NDArray[np.int64],
    bits: int,
    is_whole: NDArray[np.bool_],
    start: NDArray[np.int64],
    counted: NDArray[np.int32],
    least: NDArray[np.int32],
    indptr: NDArray[np.int64],
    merged: NDArray[np.signedinteger],
) -> None:
    """Merge entries of several parts to one per query and group, at its least place, and count groups that are whole.

    Those of part ``p`` and query ``q`` are ``entries[p][bounds[p, q]:bounds[p, q + 1]]``; `is_whole` has shape
    (n_group,).  Other parameters are as in `GroupLists` and `settle_groups`.
    """
    mask = (1 << bits) - 1
    at = np.int64(0)
    indptr[0] = 0
    for q in range(len(indptr) - 1):
        own = counted[start[q] : start[q + 1]]
        for p in range(len(entries)):
            entry = entries[p][bounds[p, q] : bounds[p, q + 1]]
            for e in range(len(entry)):
                group = np.int64(entry[e]) & mask
                least[group] = min(least[group], np.int32(np.int64(entry[e]) >> bits))
        for p in range(len(entries)):
            entry = entries[p][bounds[p, q] : bounds[p, q + 1]]
            for e in range(len(entry)):
                group = np.int64(entry[e]) & mask
                place = np.int64(least[group])
                least[group] = _NOWHERE
                found = np.int64(place < _NOWHERE)
                counts = found & np.int64(is_whole[group])
                own[place * counts] += np.int32(counts)
                merged[at] = (place << bits) | group
                at += found - counts
        indptr[q + 1] = at
