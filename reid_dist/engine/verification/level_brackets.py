"""Counts of impostors around levels, in the pass that ranks: brackets come from a sample of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from reid_dist.engine.outputs.impostors import ImpostorBrackets
from reid_dist.engine.outputs.output import JobSizes, QueryBlock
from reid_dist.engine.plan import Besides
from reid_dist.engine.verification.crossings import Level
from reid_dist.engine.verification.measures import wanted_levels
from reid_dist.engine.verification.sampling import Sample, edges_of_sample, join_samples, sample_block
from reid_dist.metrics.definitions import parse_metrics


@dataclass(frozen=True)
class LevelBrackets(ImpostorBrackets):
    """Exact counts of impostors around the levels of metrics over pairs, and of the ROC."""

    reads_thresholds: ClassVar[bool] = True
    prepares: ClassVar[bool] = True

    # Names of the metrics.
    names: tuple[str, ...] = ()
    roc: bool = False

    def _levels(self, n_genuine: int, n_impostor: int) -> list[Level]:
        return wanted_levels(parse_metrics(self.names), self.roc, n_genuine, n_impostor)

    def summary(self, block: QueryBlock) -> Sample:
        """Sampled distances of impostors, and the numbers of pairs."""
        n_query = len(block.labels.query.pids)
        return sample_block(block, n_query, self._levels(1, n_query * block.labels.index.n_gallery))

    def prepared(self, summaries: Sequence[Sample]) -> Self:
        """Brackets around all levels; none without genuine pairs or impostors, which is refused later."""
        sample = join_samples(summaries)
        n_genuine, n_impostor = sample.genuine.total, sample.n_impostor
        if not n_genuine or not n_impostor:
            return self
        return replace(self, edges=edges_of_sample(self._levels(n_genuine, n_impostor), sample) or self.edges)

    def besides(self, sizes: JobSizes) -> Besides:
        """Counts."""
        return super().besides(sizes) + Besides(prepares=True)
