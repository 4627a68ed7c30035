"""Identities of a gallery and their items, numbered once per process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden, Targets
from reid_dist.core.segments import entry_keys
from reid_dist.core.sorted_values import places_among
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
    # Labels that queries may hide, ascending; ascending numbers ``identity * len(label) + place of the label`` of those
    # that items of an identity carry, and how many carry each; int64.  Empty where no query hides a label.
    label: Int64
    labelled: Int64
    label_size: Int64
    # Oversized groups, whose items are counted instead of listed, ascending, int64.
    oversized: Int64

    @classmethod
    def make(cls, pids: Int64, mask: GalleryMask) -> Identities:
        """Number the identities of a gallery, from the pids of all its rows, shape (n_gallery,)."""
        groups = Groups.make(pids, mask)
        label = labelled = label_size = np.empty(0, np.int64)
        if mask.label is not None:
            rows = np.flatnonzero(~mask.junk_row)
            label, code = np.unique(mask.label[rows], return_inverse=True)
            labelled, label_size = np.unique(groups.of_row[rows] * len(label) + code, return_counts=True)
        return cls(groups.value, groups.size, groups.of_row, label, labelled, label_size, oversized_groups(groups.size))

    def of_queries(self, targets: Targets) -> Int64:
        """Identity of each query, from its positives, shape (n_query,), int64; -1 for a query without positives."""
        start = targets.positive_indptr
        own = np.full(len(start) - 1, -1, np.int64)
        valid = np.diff(start) > 0
        own[valid] = self.of_row[targets.positive_row[start[:-1][valid]]]
        return own

    def kept_items(self, hidden: Hidden, query: Int64, identity: Int64) -> Int64:
        """Number of the items of some identities that are visible to some queries of a block; both (n,), int64."""
        kept = self.size[identity]
        if hidden.label is not None:
            code = places_among(self.label, hidden.label)[query]
            place = places_among(self.labelled, identity * len(self.label) + code)
            hides = (code >= 0) & (place >= 0)
            kept[hides] -= self.label_size[place[hides]]
        if hidden.crosses:
            # Single rows that are hidden from a query.
            n = len(self.pid)
            rows = np.sort(entry_keys(hidden.indptr, self.of_row[hidden.row], n)[self.of_row[hidden.row] >= 0])
            wanted = query * n + identity
            kept -= np.searchsorted(rows, wanted, "right") - np.searchsorted(rows, wanted)
        return kept
