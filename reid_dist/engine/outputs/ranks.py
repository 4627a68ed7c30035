"""Ranks of the positives among gallery items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from reid_dist.core.model import RankedQueries, Thresholds
from reid_dist.engine.outputs.output import Float64, Merge, Output, QueryBlock, R
from reid_dist.engine.reductions.counts import CountNearer
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.targets import append_unranked, rank

COUNTS = "counts"
"""Name of the counts of negatives before the thresholds of items, by group of gallery rows."""


class CountingOutput(Output[R]):
    """An output of counts of negatives before the thresholds of items."""

    reads_thresholds: ClassVar[bool] = True
    # Sums, group by group.
    merged_by: ClassVar[Mapping[str, Merge]] = {COUNTS: CountNearer.combine}

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Counts of negatives."""
        return {COUNTS: CountNearer(block.thresholds.counted, block.labels.mask)}


@dataclass(frozen=True)
class Ranks(CountingOutput[RankedQueries]):
    """Ranks of the positives of every query."""

    # Number of the nearest positives of every query that are ranked, and those tied with the last; None for all.
    n_nearest: int | None = None

    def thresholds(self, block: QueryBlock, distance: Float64) -> Thresholds:
        """Thresholds of the positives that are ranked."""
        known = block.thresholds
        return known if self.n_nearest is None else replace(known, counted=known.items.first(self.n_nearest))

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> RankedQueries:
        """Ranks; those of other positives are beyond all items."""
        ranked = rank(block.relevance, block.thresholds.counted, merged[COUNTS].values())
        return ranked if self.n_nearest is None else append_unranked(ranked, block.thresholds.items, self.n_nearest)


@dataclass(frozen=True)
class Positives(Output[RankedQueries]):
    """Positives of every query with their distances, in ranks as without any negative: nothing is counted."""

    reads_thresholds: ClassVar[bool] = True

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> RankedQueries:
        """Ranks among the positives."""
        return rank(block.relevance, block.thresholds.items, [])
