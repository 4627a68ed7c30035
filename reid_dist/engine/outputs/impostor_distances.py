"""Distances of impostors, for thresholds over all pairs: exact counts around some distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from reid_dist.engine.outputs.output import JobSizes, Merge, Output, QueryBlock
from reid_dist.engine.plan import MERGED_AT_ONCE, NO_EXTRA_MEMORY, ExtraMemory
from reid_dist.engine.reductions.impostor_counts import (
    BracketCounts,
    CollectImpostors,
    Visibility,
    combine_brackets,
    join_brackets,
)
from reid_dist.engine.reductions.key_counts import KeyCounts
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.relevance.protocols import NOT_COUNTED

_BRACKETS = "brackets"


def visibility_of(block: QueryBlock) -> Visibility:
    """Visibility of the impostors of a block of queries."""
    counted = block.relevance.reason != NOT_COUNTED
    return Visibility(block.relevance.hidden, block.labels.mask, counted, block.scorer.falling_scale)


@dataclass(frozen=True)
class ImpostorBrackets(Output[BracketCounts]):
    """Exact counts of impostors around brackets of distances that are known before the pass."""

    reads_relevance: ClassVar[bool] = True
    stored: ClassVar[tuple[type, ...]] = (BracketCounts, KeyCounts)
    merged_by: ClassVar[Mapping[str, Merge]] = {_BRACKETS: combine_brackets}

    # As in `CollectImpostors`; one that holds no distance, as long as none are known.
    edges: tuple[float, ...] = (0.0, 0.0)
    by_query: bool = False

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Counts of a block pair."""
        return {_BRACKETS: CollectImpostors(visibility_of(block), self.edges, block.bracket_counts, self.by_query)}

    def join(self, parts: Sequence[BracketCounts]) -> BracketCounts:
        """Sums, and counts by query one after the other."""
        return join_brackets(parts)

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """Counts."""
        return ExtraMemory(pairs=True) + (held_by_queries(len(self.edges) // 2) if self.by_query else NO_EXTRA_MEMORY)


def held_by_queries(n_brackets: int) -> ExtraMemory:
    """Memory of counts by query around so many brackets."""
    # A bracket and a gap of four bytes each: being added to, waiting to be merged and in the result.
    return ExtraMemory(8 * n_brackets * (2 * MERGED_AT_ONCE + 4), values_per_query=3 * n_brackets)
