"""Ranks under several protocols by labels from one pass over the tiles.

Protocols differ in few of the pairs: in those that one of them lists as relevant or as junk of a single query, and in
rows that one of them hides from all queries.  The pass lists all the former, so that none is among the counted items,
and counts the gallery in groups of rows that the same protocols hide.  A rank under a protocol is then one plus the
counts of the groups that it shows, plus the listed items before the positive that it keeps.

Two kinds of results need thresholds of their own, which are a part of the listed distances: ranks under a protocol that
hides whole cameras from a query, and the single-shot CMC.  Each adds a reduction to the same pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Hidden, Int64, Labels, RankedQueries, Relevance, Targets, Thresholds
from reid_dist.core.segments import entry_keys, owner_offsets
from reid_dist.core.sorted_values import is_among
from reid_dist.engine.outputs.output import Float64, JobLabels, JobSizes, Merge, QueryBlock
from reid_dist.engine.outputs.ranks import COUNTS, CountingOutput
from reid_dist.engine.outputs.single_shot_curves import Case, SingleShotCurves
from reid_dist.engine.plan import MERGED_AT_ONCE, ExtraMemory
from reid_dist.engine.reductions.counts import CountNearer
from reid_dist.engine.reductions.identities import Identities
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.targets import make_targets, rank, select
from reid_dist.relevance.assignment import GalleryIndex, assign_relevance, whole_label
from reid_dist.relevance.protocols import Protocol

EVERY_ROW = Protocol(
    name="every row", summary="no item is junk", source="the union of several protocols", junk=(), junk_pid=None
)
"""The protocol of a pass that ranks under several ones."""


@dataclass(frozen=True)
class ProtocolRanks(CountingOutput[tuple[RankedQueries, ...]]):
    """Ranks under several protocols by labels; the protocol of the job is `EVERY_ROW`."""

    protocols: tuple[Protocol, ...]

    def relevance(self, block: QueryBlock) -> Relevance:
        """List the pairs of all protocols."""
        return _variants(block.labels, self.protocols).assign(block.labels.query.take(block.rows))

    def thresholds(self, block: QueryBlock, distance: Float64) -> Thresholds:
        """Add those of protocols that hide whole cameras."""
        variants = _variants(block.labels, self.protocols)
        return variants.with_own_targets(block.relevance, block.thresholds, variants.apart)

    def row_groups(self, labels: JobLabels) -> Int64:
        """Groups of rows that the same protocols hide."""
        return _variants(labels, self.protocols).group

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Counts of negatives, and those under protocols that hide whole cameras."""
        variants, own = _variants(block.labels, self.protocols), block.thresholds.variants
        apart = {_counts(place): CountNearer(own[place], variants.indexes[place].mask) for place in variants.apart}
        return {**super().reductions(block), **apart}

    def merges(self, labels: JobLabels) -> Mapping[str, Merge]:
        """Sums, group by group."""
        own = {_counts(place): CountNearer.combine for place in _variants(labels, self.protocols).apart}
        return {**super().merges(labels), **own}

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> tuple[RankedQueries, ...]:
        """Ranks under each protocol."""
        variants, known = _variants(block.labels, self.protocols), block.thresholds
        pairs = variants.listed(known.items)
        places = range(len(self.protocols))
        return tuple(variants.rank(place, block.relevance, known, merged, pairs) for place in places)

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """Counts of groups: rows of pid -1, of pid 0 and all others, and once more without the query's camera."""
        return ExtraMemory(int(sizes.per_query * 4 * 6 * (MERGED_AT_ONCE + 3)), 24)


@dataclass(frozen=True, kw_only=True)
class ProtocolCurves(SingleShotCurves):
    """One curve for each of several protocols that reports the single-shot CMC, in the order of `single_shot_places`.

    It stands beside `ProtocolRanks` of the same protocols.
    """

    protocols: tuple[Protocol, ...]

    def thresholds(self, block: QueryBlock, distance: Float64) -> Thresholds:
        """Add those of these protocols."""
        variants, places = _variants(block.labels, self.protocols), single_shot_places(self.protocols)
        return variants.with_own_targets(block.relevance, block.thresholds, places)

    def cases(self, labels: JobLabels) -> dict[str, Case]:
        """Gallery rows that each of these protocols shows."""
        indexes = _variants(labels, self.protocols).indexes

        def make(index: GalleryIndex) -> dict[str, Case]:
            masks = {place: indexes[place].mask for place in single_shot_places(self.protocols)}
            pids = index.labels.pids
            return {f"single_shot, {place}": Case(mask, Identities.make(pids, mask)) for place, mask in masks.items()}

        return labels.derive((Case, self.protocols), make)

    def targets(self, block: QueryBlock) -> Sequence[Targets]:
        """Thresholds under each of these protocols."""
        return [block.thresholds.variants[place] for place in single_shot_places(self.protocols)]

    @property
    def n_curves(self) -> int:
        """Number of these protocols."""
        return len(single_shot_places(self.protocols))


def _variants(labels: JobLabels, protocols: tuple[Protocol, ...]) -> GalleryVariants:
    return labels.derive((GalleryVariants, protocols), lambda index: GalleryVariants(protocols, index))


class GalleryVariants:
    """The labels of a gallery under several protocols by labels; `index` is of the same labels under `EVERY_ROW`."""

    def __init__(self, protocols: Sequence[Protocol], index: GalleryIndex) -> None:
        if any(protocol.is_listed for protocol in protocols):
            raise AssertionError("protocols by lists are not ranked together with others")
        self.n_gallery = index.n_gallery
        self._protocols = tuple(protocols)
        # Sorted labels under each protocol.
        self.indexes = [GalleryIndex(index.labels, protocol, same_rows=index) for protocol in protocols]
        # Group of every row, shape (n_gallery,), int64: bit i is set if protocol i hides the row from all queries.
        self.group = np.zeros(index.n_gallery, np.int64)
        for place, each in enumerate(self.indexes):
            self.group |= each.mask.junk_row.astype(np.int64) << place
        # Places of protocols that hide whole cameras.
        self.apart = [place for place, protocol in enumerate(protocols) if whole_label(protocol) is not None]

    def assign(self, query: Labels) -> Relevance:
        """Relevance of a block of queries: all pairs that any protocol lists, and what they are under each."""
        variants = [
            assign_relevance(protocol, query, index)
            for protocol, index in zip(self._protocols, self.indexes, strict=True)
        ]
        n_query = len(query.pids)
        pairs = np.empty(0, np.int64)
        for each in variants:
            own = self._keys(each.hidden.indptr, each.hidden.row)
            # Mostly all are there.
            added = own[:0] if np.array_equal(own, pairs) else own[~is_among(pairs, own)]
            if len(added):
                pairs = np.sort(np.concatenate([pairs, added]))
        owner, row = np.divmod(pairs, max(1, self.n_gallery))
        indptr = owner_offsets(owner, n_query)
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

    def with_own_targets(self, relevance: Relevance, thresholds: Thresholds, places: Sequence[int]) -> Thresholds:
        """Add the thresholds of protocols that need their own."""
        if not places:
            return thresholds
        items, own = thresholds.items, dict(thresholds.variants)
        pairs, order = self.listed(items)
        distance = np.repeat(items.distance, np.diff(items.positive_start))[order]
        for place in places:
            variant = relevance.variants[place]
            wanted = self._keys(variant.relevant_indptr, variant.relevant_row)
            own[place] = make_targets(variant, distance[np.searchsorted(pairs, wanted)])
        return replace(thresholds, variants=own)

    def listed(self, items: Targets) -> tuple[Int64, Int64]:
        """All listed pairs as numbers, ascending, and the place of each among the thresholds; shape (n_listed,)."""
        pairs = self._keys(items.positive_indptr, items.positive_row)
        order = np.argsort(pairs)
        return pairs[order], order

    def rank(
        self,
        place: int,
        relevance: Relevance,
        thresholds: Thresholds,
        merged: Mapping[str, Any],
        pairs: tuple[Int64, Int64],
    ) -> RankedQueries:
        """Rank a block of queries under the protocol at `place`; `pairs` are those of `listed`."""
        variant = relevance.variants[place]
        if place in self.apart:
            return rank(variant, thresholds.variants[place], merged[_counts(place)].values())
        shown = [part for group, part in merged[COUNTS].items() if not group >> place & 1]
        items = thresholds.items
        return self._select(place, variant, items, rank(relevance, items, shown), pairs)

    def _select(
        self, place: int, variant: Relevance, items: Targets, listed: RankedQueries, pairs: tuple[Int64, Int64]
    ) -> RankedQueries:
        """Ranks of the positives under a protocol, from those of all listed items, in which these are all kept."""
        row = items.positive_row
        relevant = self._flags(variant.relevant_indptr, variant.relevant_row, *pairs)
        hidden = self._flags(variant.hidden.indptr, variant.hidden.row, *pairs)
        negative = ~(relevant | hidden | self.indexes[place].mask.junk_row[row])
        found = select(listed, items.positive_start, relevant, negative)
        return replace(found, n_kept=variant.n_kept, n_junk=variant.n_junk, reason=variant.reason)

    def _flags(self, indptr: Int64, row: Int64, pairs: Int64, order: Int64) -> NDArray[np.bool_]:
        """Which of the listed pairs, all or some, are query ``i`` and rows ``row[indptr[i]:indptr[i + 1]]``."""
        found = np.ones(len(pairs), np.bool_)
        if len(row) < len(pairs):
            found[:] = False
            found[order[np.searchsorted(pairs, self._keys(indptr, row))]] = True
        return found

    def _keys(self, indptr: Int64, row: Int64) -> Int64:
        """Pairs of query ``i`` and gallery rows ``row[indptr[i]:indptr[i + 1]]`` as single numbers."""
        return entry_keys(indptr, row, self.n_gallery)


def single_shot_places(protocols: Sequence[Protocol]) -> list[int]:
    """Places of the protocols that report the single-shot CMC."""
    return [place for place, protocol in enumerate(protocols) if protocol.cmc_family == "CMC_single_shot"]


def _counts(place: int) -> str:
    return f"ranks of protocol {place}"
