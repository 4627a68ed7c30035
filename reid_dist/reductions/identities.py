"""The identities of a gallery and their items, numbered once per process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.items import ItemTable
from reid_dist.model import GalleryMask, Targets

__all__ = ["GIANT_ITEMS", "MOST_GIANTS", "Identities", "giants"]

Int64 = NDArray[np.int64]

# Identities that are counted and not listed: the largest, if they have more items than this.
MOST_GIANTS = 8
GIANT_ITEMS = 1000


def giants(size: Int64) -> Int64:
    """Say which identities are too large to be listed, by the numbers of their items; ascending, int64."""
    largest = np.argsort(-size, kind="stable")[:MOST_GIANTS]
    return np.sort(largest[size[largest] > GIANT_ITEMS])


@dataclass(frozen=True, slots=True)
class Identities:
    """The identities that a gallery shows, by ascending pid; rows that are junk for every query belong to nobody.

    Attributes
    ----------
    pid
        Shape (n_identity,), int64.
    size
        Items of each, shape (n_identity,), int64.
    of_row
        Identity of each gallery row, -1 for none, shape (n_gallery,), int32.
    item_of_row
        Number of each gallery row among the items of its identity, by (label, gallery row), shape (n_gallery,), int32;
        -1 for rows that belong to nobody.  The label is the one by which a query may hide rows.
    label_indptr, label, label_start
        As in `reid_dist.kernels.items.ItemTable`.
    giant
        Identities that are counted and not listed, ascending, int64.
    """

    pid: Int64
    size: Int64
    of_row: NDArray[np.int32]
    item_of_row: NDArray[np.int32]
    label_indptr: Int64
    label: Int64
    label_start: Int64
    giant: Int64

    @classmethod
    def make(cls, pids: Int64, mask: GalleryMask) -> Identities:
        """Number the identities of a gallery.

        Parameters
        ----------
        pids
            Of all gallery rows, shape (n_gallery,), int64.
        mask
            What no query, or not every query, may see.
        """
        rows = np.flatnonzero(~mask.junk_row)
        pid, identity = np.unique(pids[rows], return_inverse=True)
        size = np.bincount(identity, minlength=len(pid))
        label = None if mask.label is None else mask.label[rows]
        order = np.argsort(identity, kind="stable") if label is None else np.lexsort((label, identity))
        first = np.cumsum(size) - size
        number = np.arange(len(rows)) - np.repeat(first, size)
        of_row, item_of_row = (np.full(len(pids), -1, np.int32) for _ in range(2))
        of_row[rows] = identity
        item_of_row[rows[order]] = number
        label_indptr = np.zeros(len(pid) + 1, np.int64)
        value = start = np.empty(0, np.int64)
        if label is not None:
            ordered, owner = label[order], identity[order]
            opens = np.ones(len(rows), bool)
            opens[1:] = (ordered[1:] != ordered[:-1]) | (owner[1:] != owner[:-1])
            value, start = ordered[opens], number[opens]
            np.cumsum(np.bincount(owner[opens], minlength=len(pid)), out=label_indptr[1:])
        return cls(pid, size, of_row, item_of_row, label_indptr, value, start, giants(size))

    def of_queries(self, targets: Targets) -> Int64:
        """Identity of each query, by its positives; -1 for a query without any."""
        start = targets.positive_indptr
        own = np.full(len(start) - 1, -1, np.int64)
        valid = np.diff(start) > 0
        own[valid] = self.of_row[targets.positive_row[start[:-1][valid]]]
        return own

    def table(self, targets: Targets) -> ItemTable:
        """What each query of a block sees of every identity's items."""
        hidden = targets.hidden
        n_query = len(hidden.indptr) - 1
        owner = identity = number = np.empty(0, np.int64)
        if hidden.crosses:
            owner = np.repeat(np.arange(n_query), np.diff(hidden.indptr))
            identity = self.of_row[hidden.row].astype(np.int64)
            others = np.flatnonzero((identity >= 0) & (identity != self.of_queries(targets)[owner]))
            others = others[np.lexsort((identity[others], owner[others]))]
            owner, identity = owner[others], identity[others]
            number = self.item_of_row[hidden.row[others]].astype(np.int64)
        extra_indptr = np.zeros(n_query + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=n_query), out=extra_indptr[1:])
        return ItemTable(
            size=self.size,
            label_indptr=self.label_indptr,
            label=self.label,
            label_start=self.label_start,
            hidden_label=np.zeros(n_query, np.int64) if hidden.label is None else hidden.label,
            extra_indptr=extra_indptr,
            extra_identity=identity,
            extra_number=number,
        )
