"""Groups of gallery items before the thresholds of each query, by the least place of the items of each.

A group comes before a positive if any of its items does, so that the place of a group is the least place of its items
(`reid_dist.kernels.deciding`).  Places are integers, and the least of them is the same for any order of tiles.

Within a gallery block, the least place of every group is held per query, in as few bytes as the places need.  At the
end of the block, groups without items elsewhere are counted by place, and entries are kept of the others: the place
above and the group in the low bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inner_kernel, kernel
from reid_dist.kernels.placing import PlacedPairs
from reid_dist.kernels.prefetch import prefetch

_UNSIGNED = NDArray[np.unsignedinteger]

# Eight bytes of places, none of which is any: these groups are passed over together.
_EMPTY = np.uint64(2**64 - 1)


@kernel
def lower_places(placed: PlacedPairs, least: _UNSIGNED) -> None:
    """Lower the least places of the groups of placed pairs, shape (n_query, n_group); all bits are set for none."""
    group, place = placed.number, placed.place
    for i in range(len(placed.query)):
        q, first, stop = placed.query[i], placed.start[i], placed.start[i + 1]
        own, before = least[q], q * least.shape[1]
        # The places of all queries together are not in the cache of a core: each would be waited for.
        for p in range(first, stop):
            prefetch(least, before + group[p])
        # Four stretches in turn: the next item is often of the same group, whose place would be read as it is written.
        quarter = (stop - first) // 4
        for p in range(first, first + quarter):
            for k in range(4):
                at = p + k * quarter
                own[group[at]] = min(np.int64(own[group[at]]), np.int64(place[at]))
        for p in range(first + 4 * quarter, stop):
            own[group[p]] = min(np.int64(own[group[p]]), np.int64(place[p]))


@inner_kernel
def _settle_row(
    least: _UNSIGNED,
    first_whole: int,
    bits: int,
    counted: NDArray[np.int32],
    entry: NDArray[np.signedinteger],
    at: int | np.int64,
) -> int | np.int64:
    """Settle the groups of one query as `settle_groups` does, with entries from `at` on; return where they end."""
    none, in_word = np.iinfo(least.dtype).max, 64 // np.iinfo(least.dtype).bits
    words = least.view(np.uint64)
    for w in range(first_whole // in_word):
        if words[w] == _EMPTY:
            continue
        for g in range(w * in_word, w * in_word + in_word):
            # Written always, kept when it counts: no branch.
            entry[at] = (np.int64(least[g]) << bits) | g
            at += np.int64(least[g] != none)
    for w in range(first_whole // in_word, len(words)):
        if words[w] == _EMPTY:
            continue
        for g in range(w * in_word, w * in_word + in_word):
            is_before = np.int64(least[g] != none)
            counted[np.int64(least[g]) * is_before] += np.int32(is_before)
    return at


@kernel
def settle_groups(
    least: _UNSIGNED,
    first_whole: int,
    bits: int,
    counted: NDArray[np.int32],
    start: NDArray[np.int64],
    indptr: NDArray[np.int64],
    entry: NDArray[np.signedinteger],
) -> None:
    """Write entries of the groups before `first_whole`, one query after the other, and count the others by place.

    `least` has shape (n_query, width); both kinds of groups begin and end at multiples of eight, where numbers of no
    group have no place.  Places of query ``q`` are ``counted[start[q]:start[q + 1]]``, its entries
    ``entry[indptr[q]:indptr[q + 1]]`` of the result; `entry` has room for one more.
    """
    at = indptr[0]
    for q in range(len(least)):
        at = _settle_row(least[q], first_whole, bits, counted[start[q] : start[q + 1]], entry, at)
        indptr[q + 1] = at


@kernel
def merge_groups(
    parts: tuple[NDArray[np.signedinteger], ...],
    bounds: NDArray[np.int64],
    group_of: NDArray[np.int64],
    group_start: NDArray[np.int64],
    least: _UNSIGNED,
    first_whole: int,
    bits: int,
    counted: NDArray[np.int32],
    start: NDArray[np.int64],
    indptr: NDArray[np.int64],
    entry: NDArray[np.signedinteger],
) -> None:
    """Take the least place of every group in the entries of several parts, and settle as `settle_groups` does.

    Entries of part ``p`` and query ``q`` are ``parts[p][bounds[p, q]:bounds[p, q + 1]]``, and number ``i`` in them is
    group ``group_of[group_start[p] + i]``.  `least` is memory for the places of a query.
    """
    mask, none = (1 << bits) - 1, np.iinfo(least.dtype).max
    at = indptr[0]
    for q in range(len(indptr) - 1):
        least[:] = none
        for p in range(len(bounds)):
            own, part = group_of[group_start[p] : group_start[p + 1]], parts[p]
            for e in range(bounds[p, q], bounds[p, q + 1]):
                group = own[np.int64(part[e]) & mask]
                least[group] = min(np.int64(least[group]), np.int64(part[e]) >> bits)
        at = _settle_row(least, first_whole, bits, counted[start[q] : start[q + 1]], entry, at)
        indptr[q + 1] = at
