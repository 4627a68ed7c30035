"""Counts of the groups of gallery items that come before each relevant group: the reduction for ranking by group.

A group comes before a relevant group if any of its kept items does.  So the place of a group is the least place of its
items: an integer, whose minimum over gallery blocks is the same in any order and grouping.  A partial result counts the
groups of which it holds every item, by place, and has the places of the others, whose items lie in several blocks: of
those that come before a positive, or of all of them where that takes less memory.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Targets
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import MERGED_AT_ONCE
from reid_dist.engine.reductions.backends import Advance, Backend, Pairs, Rest
from reid_dist.engine.reductions.bands import PlacingTiles
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.counts import PartialCounts, counts_of_places, place_starts
from reid_dist.engine.reductions.tiles import BlockPair
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.deciding import APART, Bands, OpenPairs
from reid_dist.kernels.groups import GroupPlaces, count_open, merge_groups, place_groups, settle_groups
from reid_dist.kernels.tiles import Tile
from reid_dist.relevance.groups import Groups

Int64 = NDArray[np.int64]

# Rows of the largest gallery block, by which the memory of a job is projected.
_LARGEST_BLOCK = 65536

# Bytes of places that a thread keeps for its next block, at most.
_MOST_KEPT = 2**27


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Groups before the relevant groups of a block of queries, from some gallery blocks.

    Stored in workspaces by the names of its fields.
    """

    # Groups whose items all lie in these blocks, by place: int32, those of query ``i`` from ``start[i]`` on.
    count: NDArray[np.int32]
    # Other groups: entries ``entry[indptr[i]:indptr[i + 1]]`` of query ``i``, place above and group in the low bits.
    indptr: Int64
    entry: NDArray[np.signedinteger]
    # Or the places of all of them, shape (n_query, n_open), unsigned, all bits set for none; n_open is 0 with entries.
    place: NDArray[np.unsignedinteger]
    # Numbers of these groups, ascending, and how many of their items lie in these blocks, shape (n_open,).
    group: Int64
    held: Int64
    # First place of every query, and their number at the end, shape (n_query + 1,).
    start: Int64


@dataclass(frozen=True, slots=True)
class CountGroups:
    """Count groups before every relevant group, tied with it, and tied with it at a lower gallery row.

    The places of a query are those of `reid_dist.kernels.deciding` with ``APART``.
    """

    need: ClassVar[Need] = Need.GROUPS

    # Thresholds of the block of queries.
    targets: Targets
    # Gallery rows hidden from all queries.
    mask: GalleryMask
    # Registered, re-ranked or precomputed distance.
    distance: Distance
    # Groups of the gallery.
    groups: Groups

    @property
    def bits(self) -> int:
        """Number of low bits of an entry that hold the group."""
        return _bits(len(self.groups))

    def start(self, pair: BlockPair) -> _Grouping:
        """Make an accumulator for a block pair."""
        return _Grouping(self, pair)


def combine_groups(partials: Sequence[GroupCounts], size: Int64) -> GroupCounts:
    """Add counts, and take the least place of every other group; `size` are the items of each group, (n_group,)."""
    if len(partials) > MERGED_AT_ONCE:
        rest = combine_groups(partials[MERGED_AT_ONCE - 1 :], size)
        return combine_groups([*partials[: MERGED_AT_ONCE - 1], rest], size)
    if len(partials) == 1:
        return partials[0]
    count = sum((partial.count for partial in partials[1:]), partials[0].count.copy())
    held = np.zeros(len(size), np.int64)
    for partial in partials:
        held[partial.group] += partial.held
    is_whole = held == size
    # A tuple of one length and type, so that one kernel is compiled.
    entries = [partial.entry for partial in partials]
    entries += [entries[0][:0]] * (MERGED_AT_ONCE - len(partials))
    bounds = np.zeros((MERGED_AT_ONCE, len(partials[0].indptr)), np.int64)
    bounds[: len(partials)] = [partial.indptr for partial in partials]
    places = [partial.place for partial in partials]
    places += [places[0][:, :0]] * (MERGED_AT_ONCE - len(partials))
    numbers = [partial.group for partial in partials]
    numbers += [numbers[0][:0]] * (MERGED_AT_ONCE - len(partials))
    group = np.flatnonzero((held > 0) & ~is_whole)
    n_query = bounds.shape[1] - 1
    most = sum(map(len, entries)) + sum(place.size for place in places)
    merged = np.empty(min(most, n_query * len(group)) + 1, entries[0].dtype)
    indptr, start = np.empty(n_query + 1, np.int64), partials[0].start
    merge_groups(
        tuple(map(read_only, entries)),
        bounds,
        _bits(len(size)),
        tuple(map(_packed, places)),
        tuple(map(read_only, numbers)),
        is_whole,
        count,
        start,
        _nowhere(np.empty(len(size), places[0].dtype)),
        indptr,
        merged,
    )
    return GroupCounts(count, indptr, _trimmed(merged, indptr[-1]), _no_places(places[0]), group, held[group], start)


def counts_of_groups(merged: GroupCounts, targets: Targets) -> PartialCounts:
    """Convert the result of the whole gallery to counts of groups, as `CountNearer` gives them of items."""
    if len(merged.group):
        raise AssertionError("some blocks of the gallery are missing")
    return counts_of_places(merged.count, targets, int(merged.count.sum(dtype=np.int64)))


def group_bytes(group: Int64, block_rows: int, per_query: float) -> int:
    """Project the bytes of a task per query, partial results that wait to be merged included.

    `group` is the number of the group of every gallery row, shape (n_gallery,); `block_rows` are the rows that a
    gallery block has at least; `per_query` is the mean number of items in relevant groups.
    """
    rows = np.arange(len(group))
    first, last = np.full(group.max(initial=-1) + 1, len(group)), np.zeros(group.max(initial=-1) + 1, np.int64)
    np.minimum.at(first, group, rows)
    np.maximum.at(last, group, rows)
    size = np.bincount(group)
    # Groups with items in several blocks, and their items: there are no more entries, as parts have different rows.
    is_open = first // block_rows != last // block_rows
    n_open = int(is_open.sum())
    n_entries = min(n_open * (MERGED_AT_ONCE + 3), int(size[is_open].sum()) + 3 * n_open)
    itemsize = _entry_type(_bits(len(first)), int(per_query)).itemsize
    # Places are at most three per positive, int32; the least one of every group of a block is held.
    places = int(per_query * 3 * 4 * (MERGED_AT_ONCE + 3))
    least = _place_type(3 * int(per_query)).itemsize * min(len(first), _LARGEST_BLOCK)
    return itemsize * n_entries + least + places


def _bits(n_group: int) -> int:
    return max(1, (n_group - 1).bit_length())


def _entry_type(bits: int, most_places: int) -> np.dtype[np.signedinteger]:
    return np.dtype(np.int32 if (most_places + 1) << bits <= np.iinfo(np.int32).max else np.int64)


def _place_type(most_places: int) -> np.dtype[np.unsignedinteger]:
    """Smallest type that holds so many places, and one for none."""
    return np.dtype(np.uint8 if most_places < 2**8 else np.uint16 if most_places < 2**16 else np.uint32)


def _nowhere(least: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Set all bits: no place."""
    least.fill(np.iinfo(least.dtype).max)
    return least


def _no_places(places: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Places of no group, for the same queries, in the same type."""
    return np.empty((len(places), 0), places.dtype)


def _packed(places: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """The same as kernels take it."""
    return read_only(np.ascontiguousarray(places))


def _trimmed(entry: NDArray[np.signedinteger], n: int) -> NDArray[np.signedinteger]:
    """Return the first `n` entries; the memory of the others is given back without a copy."""
    entry.resize(n, refcheck=False)
    return entry


class _Memory(threading.local):
    """Memory of the places of a thread, for one block after the other: new pages take longer than filling them."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)

    def array(self, shape: tuple[int, int], dtype: np.dtype[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        """Return an array of any values, valid until the next call in this thread."""
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes > _MOST_KEPT:
            return np.empty(shape, dtype)
        if len(self._bytes) < n_bytes:
            self._bytes = np.empty(n_bytes, np.uint8)
        return self._bytes[:n_bytes].view(dtype).reshape(shape)


_MEMORY = _Memory()


class _Grouping(PlacingTiles[GroupCounts]):
    """Accumulator of `CountGroups`."""

    need: ClassVar[Need] = CountGroups.need

    def __init__(self, reduction: CountGroups, pair: BlockPair) -> None:
        super().__init__(reduction.targets, reduction.mask, pair, APART)
        self._bits, gallery = reduction.bits, pair.gallery
        self._start = place_starts(reduction.targets)
        self._most_places = int(np.diff(self._start).max(initial=0))
        # Groups of the block, in the order of their numbers, but those with items elsewhere first.
        groups, of_column = reduction.groups, reduction.groups.of_row[gallery.numbers]
        shown = of_column >= 0
        number, local, held = np.unique(of_column[shown], return_inverse=True, return_counts=True)
        is_whole = held == groups.size[number]
        order = np.argsort(is_whole, kind="stable")
        # Columns without a group are hidden from all queries.
        self._group_of = np.full(len(gallery), len(number), np.int32)
        self._group_of[shown] = np.argsort(order)[local]
        n_repeated = int(np.count_nonzero(self._group_of[1:] == self._group_of[:-1]))
        self._in_runs = 4 * n_repeated > len(gallery)
        self._number, self._held = number[order].astype(np.int64), held[order]
        self._n_shared = int(np.count_nonzero(~is_whole))
        self._count = np.zeros(self._start[-1], np.int32)

    @cached_property
    def _places(self) -> GroupPlaces:
        """Places of the items so far."""
        n_query, width = len(self._start) - 1, -(-(len(self._number) + 1) // 8) * 8
        least = _nowhere(_MEMORY.array((n_query, width), _place_type(self._most_places)))
        return GroupPlaces(least, least.view(np.uint64), self._count, self._start)

    def _place(self, backend: Backend, pairs: Pairs, bands: Bands, rest: Rest) -> Advance:
        group_of = self._group_of[pairs.columns.start : pairs.columns.stop]

        def enter(tile: Tile) -> Advance:
            return place_groups(tile, bands, *rest, group_of, self._in_runs, self._places)

        return backend.enter(pairs, enter)

    def _enter(self, decided: OpenPairs) -> None:
        least = self._places.least
        at = decided.query * least.shape[1] + self._group_of[decided.column]
        place = decided.place - self._start[decided.query]
        np.minimum.at(least.reshape(-1), at, place.astype(least.dtype))

    def result(self) -> GroupCounts:
        """Return the counts and places of the block pair."""
        self._decide()
        places, n_shared, bits = self._places, self._n_shared, self._bits
        indptr = np.empty(len(self._start), np.int64)
        count_open(places, n_shared, indptr)
        dtype = _entry_type(bits, self._most_places)
        kept = _no_places(places.least)
        first = 0
        if indptr[-1] * dtype.itemsize > places.least[:, :n_shared].nbytes:
            kept, first = places.least[:, :n_shared].copy(), n_shared
            indptr[:] = 0
        entry = np.empty(indptr[-1] + 1, dtype)
        settle_groups(places, first, n_shared, self._number, bits, entry)
        group, held = self._number[:n_shared], self._held[:n_shared]
        return GroupCounts(self._count, indptr, entry[:-1], kept, group, held, self._start)
