"""Counts of the groups of gallery items that come before each relevant group: the reduction for ranking by group.

A group comes before a relevant group if any of its kept items does.  So the place of a group is the least place of its
items: an integer, whose minimum over gallery blocks is the same in any order and grouping.  A partial result counts the
groups of which it holds every item, by place, and has entries of the others that come before a positive, whose items
lie in several blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import segment_offsets
from reid_dist.engine.plan import MERGED_AT_ONCE
from reid_dist.engine.reductions.bands import EnteringTiles, entry_type, number_bits
from reid_dist.engine.reductions.costs import Need
from reid_dist.engine.reductions.tile_products import BlockPair
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.group_places import lower_places, merge_groups, settle_groups
from reid_dist.kernels.placing import PlacedPairs
from reid_dist.relevance.groups import Groups

Int64 = NDArray[np.int64]

# Rows of the largest gallery block, by which the memory of a job is projected.
_LARGEST_BLOCK = 65536


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """Groups before the relevant groups of a block of queries, from some gallery blocks.

    Stored in workspaces by the names of its fields.
    """

    # Groups whose items all lie in these blocks, by place: int32, those of query ``i`` from ``start[i]`` on.
    count: NDArray[np.int32]
    # Other groups: entries ``entry[indptr[i]:indptr[i + 1]]`` of query ``i``, place above and place in `group`.
    indptr: Int64
    entry: NDArray[np.signedinteger]
    # Numbers of these groups, ascending, and how many of their items lie in these blocks, shape (n_open,).
    group: Int64
    held: Int64
    # First place of every query, and their number at the end, shape (n_query + 1,).
    start: Int64


def combine_groups(partials: Sequence[GroupCounts], size: Int64) -> GroupCounts:
    """Add counts, and take the least place of every other group; `size` are the items of each group, (n_group,)."""
    if len(partials) == 1:
        return partials[0]
    if len(partials) > MERGED_AT_ONCE:
        rest = combine_groups(partials[MERGED_AT_ONCE - 1 :], size)
        return combine_groups([*partials[: MERGED_AT_ONCE - 1], rest], size)
    start = partials[0].start
    count = sum((partial.count for partial in partials[1:]), partials[0].count.copy())
    group, position = np.unique(np.concatenate([partial.group for partial in partials]), return_inverse=True)
    held = np.zeros(len(group), np.int64)
    np.add.at(held, position, np.concatenate([partial.held for partial in partials]))
    is_open = held < size[group]
    number, first_whole, width = _numbered(~is_open)
    # A tuple of one length and type, so that one kernel is compiled.
    parts = [read_only(partial.entry) for partial in partials]
    padding = [parts[0][:0]] * (MERGED_AT_ONCE - len(parts))
    entry, indptr = np.empty(sum(map(len, parts)) + 1, parts[0].dtype), np.zeros(len(start), np.int64)
    merge_groups(
        (*parts, *padding),
        np.stack([partial.indptr for partial in partials]),
        number[position],
        segment_offsets([len(partial.group) for partial in partials]),
        np.empty(width, _place_type(start)),
        first_whole,
        number_bits(len(size)),
        count,
        start,
        indptr,
        entry,
    )
    return GroupCounts(count, indptr, entry[: indptr[-1]].copy(), group[is_open], held[is_open], start)


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
    n_places = 3 * int(per_query)
    itemsize = entry_type(number_bits(len(first)), n_places).itemsize
    # Places are at most three per positive, int32; the least one of every group of a block is held.
    least = _place_type(np.array([0, n_places])).itemsize * min(len(first), _LARGEST_BLOCK)
    return itemsize * n_entries + least + int(per_query * 3 * 4 * (MERGED_AT_ONCE + 3))


def _place_type(start: Int64) -> np.dtype[np.unsignedinteger]:
    """Smallest type that holds the places of a query, and one for none; `start` are the first places."""
    return np.min_scalar_type(np.diff(start).max(initial=0))


def _numbered(is_whole: NDArray[np.bool_]) -> tuple[Int64, int, int]:
    """Number groups, those that are not whole first; both begin and end at multiples of eight, as kernels read them.

    Returns the number of each group, that of the first whole one, and the one behind all.
    """
    n_open, n_whole = int(np.count_nonzero(~is_whole)), int(np.count_nonzero(is_whole))
    first_whole = -(-n_open // 8) * 8
    number = np.where(is_whole, first_whole + np.cumsum(is_whole), np.cumsum(~is_whole)) - 1
    return number, first_whole, first_whole + -(-n_whole // 8) * 8


@dataclass(eq=False)
class CountGroups(EnteringTiles[GroupCounts]):
    """Count groups before every relevant group, tied with it, and tied with it at a lower gallery row.

    The places of a query are those of `reid_dist.kernels.deciding` with ``APART``.
    """

    need = Need.GROUPS

    # Groups of the gallery.
    groups: Groups

    def _numbers(self, pair: BlockPair) -> NDArray[np.int32]:
        """Number of the group of every column, those first that have items in other blocks."""
        groups, of_column = self.groups, self.groups.of_row[pair.gallery.numbers]
        shown = of_column >= 0
        number, local, held = np.unique(of_column[shown], return_inverse=True, return_counts=True)
        is_whole = held == groups.size[number]
        position, self._first_whole, self._width = _numbered(is_whole)
        # Columns without a group are hidden from all queries.
        number_of = np.zeros(len(of_column), np.int32)
        number_of[shown] = position[local]
        # Groups with items in other blocks, and how many of their items lie in this one.
        self._shared, self._held = number[~is_whole].astype(np.int64), held[~is_whole]
        return number_of

    @cached_property
    def _least(self) -> NDArray[np.unsignedinteger]:
        """Least place of every group of the block so far, all bits set for none, shape (n_query, width)."""
        dtype = _place_type(self._start)
        return np.full((len(self._start) - 1, self._width), np.iinfo(dtype).max, dtype)

    def _enter_placed(self, placed: PlacedPairs) -> None:
        lower_places(placed, self._least)

    def result(self) -> GroupCounts:
        """Return the counts and places of the block pair."""
        self._decide()
        least, start, bits = self._least, self._start, number_bits(len(self.groups))
        n_entries = np.count_nonzero(least[:, : self._first_whole] != np.iinfo(least.dtype).max)
        entry = np.empty(n_entries + 1, entry_type(bits, int(np.diff(start).max(initial=0))))
        indptr, count = np.zeros(len(start), np.int64), np.zeros(start[-1], np.int32)
        settle_groups(least, self._first_whole, bits, count, start, indptr, entry)
        return GroupCounts(count, indptr, entry[:-1], self._shared, self._held, start)
