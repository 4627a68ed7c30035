"""Ranks of the relevant groups, where groups of gallery items are ranked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries, Relevance, Targets, Thresholds
from reid_dist.engine.outputs.output import Float64, JobLabels, JobSizes, Merge, Output, QueryBlock
from reid_dist.engine.plan import DEFAULT_TILE_GALLERY, ExtraMemory
from reid_dist.engine.reductions.bands import ENTERING_BYTES
from reid_dist.engine.reductions.group_counts import CountGroups, GroupCounts, combine_groups, group_bytes
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.targets import group_targets, rank_groups
from reid_dist.relevance.groups import GroupIndex
from reid_dist.stores import LabelledSet

_NAME = "groups"


@dataclass(frozen=True)
class GroupRanks(Output[RankedQueries]):
    """Ranks of the groups of gallery items with one label that hold a positive; see `reid_dist.relevance.groups`."""

    reads_thresholds: ClassVar[bool] = True
    stored: ClassVar[tuple[type, ...]] = (GroupCounts,)

    # Label of the groups.
    label: str
    # Whether the first relevant group of each query is ranked alone.
    first_alone: bool = False

    def relevance(self, block: QueryBlock) -> Relevance:
        """Add the groups of the positives."""
        return self._index(block.labels).with_members(block.relevance, listed=block.labels.is_listed)

    def thresholds(self, block: QueryBlock, distance: Float64) -> Thresholds:
        """Add thresholds of groups."""
        groups = group_targets(block.relevance, distance, first_alone=self.first_alone)
        return replace(block.thresholds, groups=groups)

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Counts of groups."""
        groups = self._index(block.labels).groups
        return {_NAME: CountGroups(self._targets(block), block.labels.mask, groups)}

    def merges(self, labels: JobLabels) -> Mapping[str, Merge]:
        """Sums, and the least place of every group."""
        return {_NAME: partial(combine_groups, size=self._index(labels).groups.size)}

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> RankedQueries:
        """Ranks of groups."""
        found: GroupCounts = merged[_NAME]
        if len(found.group):
            raise AssertionError("some blocks of the gallery are missing")
        return rank_groups(block.relevance, self._targets(block), [found.count])

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """Counts and places of groups, and relevance and thresholds of groups besides those of items."""
        rows = min(sizes.shape.chunk_rows, DEFAULT_TILE_GALLERY)
        groups = group_bytes(group_numbers(self.label, sizes.gallery), rows, sizes.per_query)
        return ExtraMemory(groups + int(160 * sizes.per_query), merges_slowly=True, bytes_per_task=ENTERING_BYTES)

    def _index(self, labels: JobLabels) -> GroupIndex:
        return labels.derive((GroupIndex, self.label), lambda index: GroupIndex(index.labels, self.label, index.mask))

    def _targets(self, block: QueryBlock) -> Targets:
        if block.thresholds.groups is None:
            raise AssertionError("thresholds of groups were not made")
        return block.thresholds.groups


def group_numbers(label: str, gallery: LabelledSet) -> NDArray[np.int64]:
    """Number of the group of every gallery row, shape (n_gallery,), int64."""
    columns = {**gallery.columns, "pid": gallery.pids}
    if gallery.camids is not None:
        columns["camid"] = gallery.camids
    group: NDArray[np.int64] = np.unique(columns[label], return_inverse=True)[1]
    return group
