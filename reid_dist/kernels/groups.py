"""Groups of gallery items before the thresholds of each query, collected tile by tile.

A group comes before a positive if any of its items does, so that the place of a group is the least place of its items
(`reid_dist.kernels.deciding`).  Places are integers, and the least of them is the same for any order of tiles.

Within a gallery block, the least place of every group is held per query, in as few bytes as the places need: a row of
them is in the nearest cache while a tile is added.  At the end of the block, groups without items elsewhere are counted
by place.  Those of the others are kept: as *entries*, the place above and the group in the low bits, or all of them
where that takes less memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.deciding import APART, Bands, OpenPairs, place_before
from reid_dist.kernels.placing import make_row, place_row
from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.tiles import Tile

_UNSIGNED = NDArray[np.unsignedinteger]
# Eight bytes of places, none of which is any.
_EMPTY = np.uint64(2**64 - 1)


class GroupPlaces(NamedTuple):
    """Least places of the groups of a gallery block, per query."""

    # Shape (n_query, width), unsigned, all bits set for none; `width` is a multiple of eight.
    least: _UNSIGNED
    # The same memory, eight bytes at a time, uint64.
    words: NDArray[np.uint64]
    # Counted groups by place: those of query ``i`` are ``counted[start[i]:start[i + 1]]``; int32 and int64.
    counted: NDArray[np.int32]
    start: NDArray[np.int64]


@kernel
def place_groups(
    tile: Tile,
    bands: Bands,
    pairs: OpenPairs,
    n_open: int,
    first_row: int,
    limit: int,
    group_of: NDArray[np.int32],
    in_runs: bool,
    places: GroupPlaces,
) -> tuple[int, int, int]:
    """Add the items of a tile before some threshold, and the pairs that values leave open to `pairs`.

    `group_of` holds the group of each column, shape (columns,); with `in_runs`, many neighbours are of one group.  The
    other parameters and the result are as in `reid_dist.kernels.counting.count_tile`.
    """
    row = make_row(tile, bands)
    column, place, room = row.pending.column, row.pending.place, len(pairs.query) - tile.products.shape[1]
    inside = int(np.int64(0))
    for i in range(first_row, len(tile.query)):
        q = tile.query[i]
        first, last = bands.indptr[q], bands.indptr[q + 1]
        if first == last:
            continue
        if n_open > room:
            return i, n_open, inside
        n, n_open, more = place_row(tile, i, bands, last, limit - inside, row, pairs, n_open)
        inside += more
        if n < 0:
            return i, n_open, inside
        own = places.least[q]
        # One place per run: a place that was just written takes longer to read than to hold.
        before = np.int32(-1)
        latest = np.int64(0)
        n_runs = 0
        for c in range(n):
            group = group_of[column[c]]
            at = place_before(first + place[c], bands.positive_start, APART) - places.start[q]
            is_new = group != before or not in_runs
            latest = at if is_new else min(latest, at)
            n_runs += int(is_new)
            column[n_runs - 1] = group
            place[n_runs - 1] = latest
            before = group
        for c in range(n_runs):
            own[column[c]] = min(np.int64(own[column[c]]), place[c])
    return len(tile.query), n_open, inside


@kernel
def count_open(places: GroupPlaces, n_open: int, indptr: NDArray[np.int64]) -> None:
    """Fill `indptr`, shape (n_query + 1,), with the offsets of entries of the first `n_open` groups."""
    indptr[0] = 0
    for q in range(len(places.least)):
        own = places.least[q, :n_open]
        beyond = places.least.dtype.type(places.start[q + 1] - places.start[q])
        n = np.int32(0)
        for g in range(len(own)):
            n += np.int32(own[g] < beyond)
        indptr[q + 1] = indptr[q] + n


@kernel
def settle_groups(
    places: GroupPlaces,
    first: int,
    n_open: int,
    number_of: NDArray[np.int64],
    bits: int,
    entry: NDArray[np.signedinteger],
) -> None:
    """Count groups from `n_open` on by their places, and write entries of those from `first` up to `n_open`.

    Entries are written one query after the other, with group ``number_of[g]`` for ``g``, in the low `bits`; `entry` has
    room for one more.  `number_of` has shape (n_group,).
    """
    in_word = 8 // places.least.itemsize
    n_group = len(number_of)
    at = np.int64(0)
    for q in range(len(places.least)):
        own = places.counted[places.start[q] : places.start[q + 1]]
        row = places.least[q]
        beyond = len(own)
        for w in range(first // in_word, -(-n_open // in_word)):
            if places.words[q, w] == _EMPTY:
                continue
            for g in range(max(first, w * in_word), min(n_open, (w + 1) * in_word)):
                place = np.int64(row[g])
                # Written always, kept when it counts: no branch.
                entry[at] = (place << bits) | number_of[g]
                at += np.int64(place < beyond)
        for w in range(n_open // in_word, -(-n_group // in_word)):
            if places.words[q, w] == _EMPTY:
                continue
            for g in range(max(n_open, w * in_word), min(n_group, (w + 1) * in_word)):
                place = np.int64(row[g])
                found = np.int64(place < beyond)
                own[place * found] += np.int32(found)


@inner_kernel
def _take(
    group: np.int64,
    bits: int,
    is_whole: NDArray[np.bool_],
    own: NDArray[np.int32],
    least: _UNSIGNED,
    merged: NDArray[np.signedinteger],
    at: np.int64,
) -> np.int64:
    """Take the least place of a group: count it if it is whole, else write its entry; return the next position."""
    place = np.int64(least[group])
    least[group] |= ~least[group]
    found = np.int64(place < len(own))
    counts = found & np.int64(is_whole[group])
    own[place * counts] += np.int32(counts)
    # Written always, kept when it counts: no branch.
    merged[at] = (place << bits) | group
    return at + found - counts


@kernel
def merge_groups(
    entries: tuple[NDArray[np.signedinteger], ...],
    bounds: NDArray[np.int64],
    bits: int,
    rows: tuple[_UNSIGNED, ...],
    numbers: tuple[NDArray[np.int64], ...],
    is_whole: NDArray[np.bool_],
    counted: NDArray[np.int32],
    start: NDArray[np.int64],
    least: _UNSIGNED,
    indptr: NDArray[np.int64],
    merged: NDArray[np.signedinteger],
) -> None:
    """Merge several parts to one entry per query and group, at its least place, and count groups that are whole.

    Entries of part ``p`` and query ``q`` are ``entries[p][bounds[p, q]:bounds[p, q + 1]]``; ``rows[p]``, shape
    (n_query, n), are the places of all groups ``numbers[p]``, or n is 0.  `is_whole` has shape (n_group,), and `least`,
    of the type of the rows, has all bits set before and after.  `merged` has room for one entry more; other parameters
    are as in `GroupPlaces` and `count_open`.
    """
    mask = (1 << bits) - 1
    n_group = len(is_whole)
    at = np.int64(0)
    indptr[0] = 0
    for q in range(len(indptr) - 1):
        own = counted[start[q] : start[q + 1]]
        if len(own) == 0:
            # Without a place, there is nothing to count.
            indptr[q + 1] = at
            continue
        n = 0
        for p in range(len(entries)):
            entry = entries[p][bounds[p, q] : bounds[p, q + 1]]
            n += len(entry)
            for e in range(len(entry)):
                group = np.int64(entry[e]) & mask
                least[group] = min(np.int64(least[group]), np.int64(entry[e]) >> bits)
        for p in range(len(rows)):
            row = rows[p]
            number = numbers[p]
            n += row.shape[1]
            for g in range(row.shape[1]):
                least[number[g]] = min(least[number[g]], row[q, g])
        if n >= n_group:
            for g in range(n_group):
                at = _take(np.int64(g), bits, is_whole, own, least, merged, at)
        else:
            for p in range(len(entries)):
                entry = entries[p][bounds[p, q] : bounds[p, q + 1]]
                for e in range(len(entry)):
                    at = _take(np.int64(entry[e]) & mask, bits, is_whole, own, least, merged, at)
            for p in range(len(rows)):
                number = numbers[p]
                for g in range(rows[p].shape[1]):
                    at = _take(number[g], bits, is_whole, own, least, merged, at)
        indptr[q + 1] = at
