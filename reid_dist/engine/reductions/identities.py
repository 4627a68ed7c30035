"""Identities of a gallery and their items, numbered once per process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, RowRange, Targets
from reid_dist.core.segments import entry_owners, owner_offsets
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.trials import ItemTable
from reid_dist.relevance.groups import Groups

Int64 = NDArray[np.int64]

# Oversized groups are counted instead of listed: at most so many of the largest identities, of more items than this.
MOST_OVERSIZED = 8
OVERSIZED_ITEMS = 1000


def oversized_groups(size: Int64) -> Int64:
    """Select identities too large to be listed, by their numbers of items, shape (n_identity,); ascending, int64."""
    largest = np.argsort(-size, kind="stable")[:MOST_OVERSIZED]
    return np.sort(largest[size[largest] > OVERSIZED_ITEMS])


@dataclass(frozen=True, slots=True)
class Identities:
    """Identities of a gallery, by ascending pid; rows that are junk for every query belong to no identity."""

    # Pid of each identity, shape (n_identity,), int64.
    pid: Int64
    # Items of each identity, shape (n_identity,), int64.
    size: Int64
    # Identity of each gallery row, -1 for none, shape (n_gallery,), int32.
    of_row: NDArray[np.int32]
    # As in `reid_dist.kernels.trials.ItemTable`.
    label_indptr: Int64
    label: Int64
    label_size: Int64
    # Oversized groups, whose items are counted instead of listed, ascending, int64.
    oversized: Int64

    @classmethod
    def make(cls, pids: Int64, mask: GalleryMask) -> Identities:
        """Number the identities of a gallery, from the pids of all its rows, shape (n_gallery,)."""
        groups = Groups.make(pids, mask)
        owner = label = label_size = np.empty(0, np.int64)
        if mask.label is not None:
            rows = np.flatnonzero(~mask.junk_row)
            kinds, code = np.unique(mask.label[rows], return_inverse=True)
            found, label_size = np.unique(groups.of_row[rows] * len(kinds) + code, return_counts=True)
            owner, code = np.divmod(found, max(1, len(kinds)))
            label = kinds[code]
        size, label_indptr = groups.size, owner_offsets(owner, len(groups))
        return cls(groups.value, size, groups.of_row, label_indptr, label, label_size, oversized_groups(size))

    def of_queries(self, targets: Targets) -> Int64:
        """Identity of each query, from its positives, shape (n_query,), int64; -1 for a query without positives."""
        start = targets.positive_indptr
        own = np.full(len(start) - 1, -1, np.int64)
        valid = np.diff(start) > 0
        own[valid] = self.of_row[targets.positive_row[start[:-1][valid]]]
        return own

    def table(self, targets: Targets, queries: RowRange) -> ItemTable:
        """Items of every identity that are visible to some queries of a block."""
        hidden = targets.hidden
        some = slice(queries.start, queries.stop)
        owner = identity = np.empty(0, np.int64)
        if hidden.crosses:
            indptr = hidden.indptr[queries.start : queries.stop + 1]
            owner = entry_owners(indptr)
            row = hidden.row[indptr[0] : indptr[-1]]
            identity = self.of_row[row].astype(np.int64)
            others = np.flatnonzero((identity >= 0) & (identity != self.of_queries(targets)[some][owner]))
            others = others[np.lexsort((identity[others], owner[others]))]
            owner, identity = owner[others], identity[others]
        return ItemTable(
            size=self.size,
            label_indptr=self.label_indptr,
            label=self.label,
            label_size=self.label_size,
            hidden_label=read_only(np.zeros(len(queries), np.int64) if hidden.label is None else hidden.label[some]),
            extra_indptr=owner_offsets(owner, len(queries)),
            extra_identity=identity,
        )
