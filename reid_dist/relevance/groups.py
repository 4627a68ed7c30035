"""Ranking by group: gallery items with one label are one entry of the ranking.

A group ranks at its nearest kept item by (distance, gallery row).  It is relevant to a query if any of its kept items
is; other kept items of a relevant group belong to it all the same, so that an irrelevant one may be its nearest.  Junk
items are in no group, and a group of junk alone does not exist for the query.

The rank of a relevant group is one more than the number of other groups whose nearest kept item comes before its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, GroupMembers, Hidden, Labels, Relevance
from reid_dist.core.segments import entry_keys, entry_owners, owner_offsets, range_entries, segment_offsets
from reid_dist.core.sorted_values import is_among, places_among
from reid_dist.errors import InputError

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Collapse:
    """Definition of a ranking by group.

    Attributes
    ----------
    label
        Label of gallery items that are one group: ``pid``, ``camid`` or a label column.
    families
        Metrics that rank groups, by the name before the parameter, such as ``CMC``; the others rank items.  Empty for
        all of them.
    """

    label: str
    families: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: object) -> Collapse:
        """Read ``pid``, or ``CMC:pid`` for one metric alone (``CMC,MRR:pid`` for two); `InputError` for other texts."""
        if not isinstance(text, str):
            raise InputError(f"collapse must be the name of a label, such as 'pid', found {text!r}")
        before, colon, label = text.rpartition(":")
        families = tuple(name.strip() for name in before.split(",")) if colon else ()
        if not label.strip() or "" in families:
            raise InputError(
                f"collapse must be a label such as 'pid', or metrics and a label such as 'CMC:pid', found {text!r}"
            )
        return cls(label.strip(), tuple(dict.fromkeys(families)))

    def covers(self, family: str) -> bool:
        """Whether a metric ranks groups; `family` is its name before the parameter."""
        return not self.families or family in self.families

    @property
    def in_words(self) -> str:
        """What is ranked, in words."""
        which = f" ({', '.join(self.families)} alone)" if self.families else ""
        return (
            f"groups of gallery items with one {self.label}{which}, each at its nearest kept item, relevant if any "
            "kept item of it is"
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of gallery rows by a label; rows that are junk for every query belong to no group."""

    # Label of each group, ascending, and its rows; shape (n_group,), int64.
    value: Int64
    size: Int64
    # Group of each gallery row, -1 for none, shape (n_gallery,), int32.
    of_row: NDArray[np.int32]

    @classmethod
    def make(cls, values: Int64, mask: GalleryMask) -> Groups:
        """Number the groups of a gallery, from the labels of all its rows, shape (n_gallery,)."""
        rows = np.flatnonzero(~mask.junk_row)
        value, group = np.unique(values[rows], return_inverse=True)
        of_row = np.full(len(values), -1, np.int32)
        of_row[rows] = group
        return cls(value, np.bincount(group, minlength=len(value)), of_row)

    def __len__(self) -> int:
        return len(self.value)


class GroupIndex:
    """Groups of a gallery, with its rows sorted by group."""

    def __init__(self, labels: Labels, label: str, mask: GalleryMask) -> None:
        self.groups = Groups.make(labels.get(label), mask)
        self._mask = mask
        self._n_gallery = len(labels.pids)
        of_row = self.groups.of_row
        # Rows of no group come first; half the memory, where row numbers allow it.
        order = np.argsort(of_row, kind="stable")
        order = order.astype(np.int32) if len(order) <= np.iinfo(np.int32).max else order
        self._row = order[len(order) - int(self.groups.size.sum()) :]
        self._indptr = segment_offsets(self.groups.size)
        self._is_pure = label == "pid" or self._of_one_pid(labels.pids)
        self._kinds = self._key = self._count = self._n_whole = np.empty(0, np.int64)
        if mask.label is not None:
            # Rows by (group, label that hides them), and by label the groups that it hides whole.
            kinds, code = np.unique(mask.label, return_inverse=True)
            kept = of_row >= 0
            key, count = np.unique(of_row[kept].astype(np.int64) * len(kinds) + code[kept], return_counts=True)
            whole = count == self.groups.size[key // max(1, len(kinds))]
            self._kinds, self._key, self._count = kinds, key, count
            self._n_whole = np.bincount(key[whole] % max(1, len(kinds)), minlength=len(kinds))

    def _of_one_pid(self, pids: Int64) -> bool:
        """Whether the rows of every group have one pid."""
        by_group = pids[self._row]
        return bool((by_group == np.repeat(by_group[self._indptr[:-1]], self.groups.size)).all())

    def with_members(self, relevance: Relevance, *, listed: bool) -> Relevance:
        """Add the groups of the positives; `listed` is whether relevance comes from lists and not from labels."""
        of_row, n_query = self.groups.of_row, relevance.n_query
        owner = entry_owners(relevance.relevant_indptr)
        row = relevance.relevant_row
        relevant_key = owner * self._n_gallery + row
        if self._is_pure and not listed:
            # Kept rows of a query's pid are positives of it.
            indptr, relevant, hidden = relevance.relevant_indptr, np.ones(len(row), np.bool_), relevance.hidden
        else:
            key = self._rows_of(np.unique(owner * len(self.groups) + of_row[row]), relevance)
            owner, row = np.divmod(key, self._n_gallery)
            relevant = is_among(relevant_key, key)
            indptr = owner_offsets(owner, n_query)
            hidden = self._hidden_with(key, relevance.hidden, n_query)
        n_kept = len(self.groups) - self._n_hidden(relevance)
        return replace(
            relevance, members=GroupMembers(indptr, row, of_row[row], relevant, hidden, n_kept.astype(np.int64))
        )

    def _rows_of(self, pairs: Int64, relevance: Relevance) -> Int64:
        """Kept rows of pairs of query and group, as numbers ``query * n_gallery + row``, ascending."""
        owner, group = np.divmod(pairs, max(1, len(self.groups)))
        sizes = self.groups.size[group]
        place = range_entries(self._indptr[group], sizes)[1]
        owner, row = np.repeat(owner, sizes), self._row[place].astype(np.int64)
        label = relevance.hidden.label
        if label is not None and self._mask.label is not None:
            seen = self._mask.label[row] != label[owner]
            owner, row = owner[seen], row[seen]
        key = np.sort(owner * self._n_gallery + row)
        return key[~is_among(self._junk_key(relevance), key)]

    def _junk_key(self, relevance: Relevance) -> Int64:
        """Own junk of every query, as numbers ``query * n_gallery + row``, ascending."""
        hidden_key = self._key_of(relevance.hidden.indptr, relevance.hidden.row)
        return hidden_key[~is_among(self._key_of(relevance.relevant_indptr, relevance.relevant_row), hidden_key)]

    def _key_of(self, indptr: Int64, row: Int64) -> Int64:
        return entry_keys(indptr, row, self._n_gallery)

    def _hidden_with(self, key: Int64, hidden: Hidden, n_query: int) -> Hidden:
        """Add the rows of relevant groups to those that are hidden already."""
        every = np.union1d(self._key_of(hidden.indptr, hidden.row), key)
        owner, row = np.divmod(every, self._n_gallery)
        return replace(hidden, indptr=owner_offsets(owner, n_query), row=row)

    def _n_hidden(self, relevance: Relevance) -> Int64:
        """Count the groups of which every item is junk for a query, shape (n_query,)."""
        n_hidden = np.zeros(relevance.n_query, np.int64)
        owner, row = np.divmod(np.unique(self._junk_key(relevance)), self._n_gallery)
        grouped = self.groups.of_row[row] >= 0
        hidden, code = relevance.hidden.label, None
        if hidden is not None and self._mask.label is not None and len(self._kinds):
            code = places_among(self._kinds, hidden)
            n_hidden += np.where(code >= 0, self._n_whole[code], 0)
            grouped &= self._mask.label[row] != hidden[owner]
        pair = owner[grouped] * len(self.groups) + self.groups.of_row[row[grouped]]
        pair, count = np.unique(pair, return_counts=True)
        owner, group = np.divmod(pair, max(1, len(self.groups)))
        if code is not None and len(self._key):
            wanted = group * len(self._kinds) + code[owner]
            at = places_among(self._key, wanted)
            count = count + np.where((code[owner] >= 0) & (at >= 0), self._count[at], 0)
        np.add.at(n_hidden, owner[count == self.groups.size[group]], 1)
        return n_hidden
