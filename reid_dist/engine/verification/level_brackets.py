"""Counts of impostors around levels of a few metrics, in the pass that ranks: brackets come from a sample of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from reid_dist.engine.outputs import ImpostorBrackets, JobLabels, JobSizes, Merge, Output, QueryBlock
from reid_dist.engine.plan import Besides
from reid_dist.engine.reductions import BracketCounts, Reduction, join_brackets
from reid_dist.engine.verification.crossings import Guesses, Level, Range, ThresholdSearch
from reid_dist.engine.verification.measures import wanted_levels
from reid_dist.engine.verification.sampling import Sample, guesses_of_sample, join_samples, sample_block
from reid_dist.metrics.definitions import parse_metrics


@dataclass(frozen=True, slots=True)
class LevelCounts:
    """Counts of impostors of the first pass of a search."""

    # As the search begins with them; none if there are no levels.
    guesses: Guesses
    counts: BracketCounts


@dataclass(frozen=True)
class LevelBrackets(Output[LevelCounts]):
    """Exact counts of impostors around the levels of metrics over pairs."""

    reads_relevance: ClassVar[bool] = True
    reads_thresholds: ClassVar[bool] = True
    prepares: ClassVar[bool] = True
    stored: ClassVar[tuple[type, ...]] = ImpostorBrackets.stored

    # Names of the metrics.
    names: tuple[str, ...]
    # Levels with their brackets, as soon as these are known.
    guesses: tuple[tuple[Level, tuple[Range, ...]], ...] = ()

    def summary(self, block: QueryBlock) -> Sample:
        """Sampled distances of impostors, and the numbers of pairs."""
        return sample_block(block, len(block.labels.query.pids))

    def prepared(self, summaries: Sequence[Sample]) -> Self:
        """Brackets around all levels; none without genuine pairs or impostors, which is refused later."""
        sample = join_samples(summaries)
        n_genuine, n_impostor = sample.genuine.total, sample.n_impostor
        if not n_genuine or not n_impostor:
            return self
        levels = wanted_levels(parse_metrics(self.names), False, n_genuine, n_impostor)
        return replace(self, guesses=tuple(guesses_of_sample(levels, sample).items()))

    @property
    def _brackets(self) -> ImpostorBrackets:
        # Without levels, a bracket that holds no distance.
        return ImpostorBrackets(ThresholdSearch(dict(self.guesses), np.empty(0)).edges or (0.0, 0.0))

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Counts of a block pair."""
        return self._brackets.reductions(block)

    def merges(self, labels: JobLabels) -> Mapping[str, Merge]:
        """Sums, bracket by bracket."""
        return self._brackets.merges(labels)

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> LevelCounts:
        """Counts of a block of queries."""
        return LevelCounts(dict(self.guesses), self._brackets.finish(block, merged))

    def join(self, parts: Sequence[LevelCounts]) -> LevelCounts:
        """Sums, bracket by bracket."""
        return LevelCounts(parts[0].guesses, join_brackets([part.counts for part in parts]))

    def besides(self, sizes: JobSizes) -> Besides:
        """Counts."""
        return self._brackets.besides(sizes) + Besides(prepares=True)
