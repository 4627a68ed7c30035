"""Ranks under several protocols by labels from one pass over the tiles.

Protocols differ in few of the pairs: in those that one of them lists as relevant or as junk of a single query, and in
rows that one of them hides from all queries.  The pass lists all the former, so that none is among the counted items,
and counts the gallery in groups of rows that the same protocols hide.  A rank under a protocol is then one plus the
counts of the groups that it shows, plus the listed items before the positive that it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Hidden, Int64, Labels, RankedQueries, Relevance, Targets
from reid_dist.engine.reductions import PartialCounts, add_counts, rank
from reid_dist.relevance.assignment import GalleryIndex, assign_relevance, whole_label
from reid_dist.relevance.protocols import Protocol

EVERY_ROW = Protocol(
    name="every row", summary="no item is junk", source="the union of several protocols", junk=(), junk_pid=None
)
"""The protocol of a pass that ranks under several ones."""


class GalleryVariants:
    """The labels of a gallery under several protocols, none of which hides whole cameras.

    `index` is of the same labels under `EVERY_ROW`.
    """

    def __init__(self, protocols: Sequence[Protocol], index: GalleryIndex) -> None:
        if any(whole_label(protocol) is not None or protocol.is_listed for protocol in protocols):
            raise AssertionError("protocols by lists, or that hide whole cameras, are not ranked from one pass")
        self.n_gallery = index.n_gallery
        self._protocols = tuple(protocols)
        self._indexes = [GalleryIndex(index.labels, protocol, index) for protocol in protocols]
        # Group of every row, shape (n_gallery,), int64: bit i is set if protocol i hides the row from all queries.
        self.group = np.zeros(index.n_gallery, np.int64)
        for place, each in enumerate(self._indexes):
            self.group |= each.mask.junk_row.astype(np.int64) << place

    def assign(self, query: Labels) -> Relevance:
        """Relevance of a block of queries: all pairs that any protocol lists, and what they are under each."""
        variants = [
            assign_relevance(protocol, query, index)
            for protocol, index in zip(self._protocols, self._indexes, strict=True)
        ]
        n_query = len(query.pids)
        pairs = np.unique(np.concatenate([self._keys(each.hidden.indptr, each.hidden.row) for each in variants]))
        owner, row = np.divmod(pairs, max(1, self.n_gallery))
        indptr = np.searchsorted(owner, np.arange(n_query + 1))
        return Relevance(
            relevant_indptr=indptr,
            relevant_row=row,
            hidden=Hidden(indptr, row, None, any(each.hidden.crosses for each in variants)),
            n_kept=np.full(n_query, self.n_gallery),
            n_junk=np.zeros(n_query, np.int64),
            mated=variants[0].mated,
            reason=np.zeros(n_query, np.uint8),
            variants=tuple(variants),
        )

    def hides(self, place: int, row: Int64) -> NDArray[np.bool_]:
        """Whether the protocol at `place` hides gallery rows from all queries."""
        return (self.group[row] >> place & 1).astype(np.bool_)

    def shown(self, place: int, counts: Mapping[int, PartialCounts], n_threshold: int) -> PartialCounts:
        """Counts over all rows but those that the protocol at `place` hides from all queries."""
        some = [part for group, part in counts.items() if not group >> place & 1]
        return add_counts(some) if some else PartialCounts.zeros(n_threshold)

    def holds(self, indptr: Int64, row: Int64, pairs: Int64) -> NDArray[np.bool_]:
        """Whether pairs, as numbers, are among the rows ``row[indptr[i]:indptr[i + 1]]`` of query ``i``."""
        return np.isin(pairs, self._keys(indptr, row), assume_unique=True)

    def _keys(self, indptr: Int64, row: Int64) -> Int64:
        """Pairs of query and gallery row as single numbers, ascending."""
        return self.keys(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), row)

    def keys(self, owner: Int64, row: Int64) -> Int64:
        """Pairs of query and gallery row as single numbers."""
        return owner * self.n_gallery + row


def rank_variants(
    relevance: Relevance, targets: Targets, counts: Mapping[int, PartialCounts], gallery: GalleryVariants
) -> tuple[RankedQueries, ...]:
    """Rank a block of queries under each protocol; `counts` are those of the whole gallery by group of rows."""
    indptr, row = targets.positive_indptr, targets.positive_row
    pairs = gallery.keys(np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)), row)
    # 0-based positions among the listed items of a query.
    position = np.arange(len(row)) - np.repeat(indptr[:-1], np.diff(indptr))
    found = []
    for place, variant in enumerate(relevance.variants):
        listed = rank(relevance, targets, gallery.shown(place, counts, len(targets.distance)))
        relevant = gallery.holds(variant.relevant_indptr, variant.relevant_row, pairs)
        junk = gallery.holds(variant.hidden.indptr, variant.hidden.row, pairs) & ~relevant
        kept = ~(junk | gallery.hides(place, row))
        negative = kept & ~relevant
        found.append(
            RankedQueries(
                indptr=_running(relevant)[indptr],
                rank=(listed.rank - position + _before(kept, indptr))[relevant],
                tied=(listed.tied + _in_segment(negative, targets.positive_start))[relevant],
                tied_before=(listed.tied_before + _before(negative, targets.positive_start))[relevant],
                row=row[relevant],
                distance=listed.distance[relevant],
                n_kept=variant.n_kept,
                n_junk=variant.n_junk,
                reason=variant.reason,
            )
        )
    return tuple(found)


def _running(flag: NDArray[np.bool_]) -> Int64:
    """Number of true values before each place and at the end, shape (n + 1,)."""
    total = np.zeros(len(flag) + 1, np.int64)
    np.cumsum(flag, out=total[1:])
    return total


def _before(flag: NDArray[np.bool_], indptr: Int64) -> Int64:
    """Number of true values before each place in its segment; shape of `flag`."""
    total = _running(flag)
    return total[:-1] - np.repeat(total[indptr[:-1]], np.diff(indptr))


def _in_segment(flag: NDArray[np.bool_], indptr: Int64) -> Int64:
    """Number of true values in the segment of each place; shape of `flag`."""
    return np.repeat(np.diff(_running(flag)[indptr]), np.diff(indptr))
