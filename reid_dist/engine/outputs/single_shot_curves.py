"""The single-gallery-shot CMC of every query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Targets
from reid_dist.engine.outputs.output import Float64, JobLabels, JobSizes, Merge, Output, QueryBlock
from reid_dist.engine.plan import ExtraMemory
from reid_dist.engine.reductions.bands import ENTERING_BYTES
from reid_dist.engine.reductions.identities import Identities
from reid_dist.engine.reductions.single_shot_counts import ListBefore, ListedItems, SingleShot, combine_lists
from reid_dist.kernels.deciding import BEFORE, BEHIND


class Case(NamedTuple):
    """Gallery rows that a curve shows, their identities, and its rule of ties, as in `ListBefore`."""

    mask: GalleryMask
    identities: Identities
    rule: int = 0


@dataclass(frozen=True)
class SingleShotCurves(Output[Float64]):
    """``CMC_single_shot`` of every query at every rank, shape (n_query, max_rank, rules); NaN for invalid queries.

    The first rule of ties is the usual one; on request the optimistic and the pessimistic one follow.
    """

    reads_thresholds: ClassVar[bool] = True
    stored: ClassVar[tuple[type, ...]] = (ListedItems,)
    # Finishing takes long.
    queries_per_piece: ClassVar[int | None] = 256

    # Largest rank, draws and seed.
    shot: SingleShot
    # Whether the curve is also computed with every tie decided for, and against, the positives.
    tie_rules: bool = False

    def cases(self, labels: JobLabels) -> dict[str, Case]:
        """What each curve is of, by the name of its reduction."""
        identities = labels.derive(Identities, lambda index: Identities.make(index.labels.pids, index.mask))
        rules = {"usual": 0} | ({"optimistic": BEHIND, "pessimistic": BEFORE} if self.tie_rules else {})
        return {f"single_shot, {name}": Case(labels.mask, identities, rule) for name, rule in rules.items()}

    def targets(self, block: QueryBlock) -> Sequence[Targets]:
        """Thresholds of each curve."""
        return [block.thresholds.items] * self.n_curves

    def reductions(self, block: QueryBlock) -> dict[str, ListBefore]:
        """Lists of the items before active positives, in the order of the curves."""
        cases = zip(self.cases(block.labels).items(), self.targets(block), strict=True)
        return {
            name: ListBefore(targets, case.mask, case.identities, self.shot, ties=case.rule)
            for (name, case), targets in cases
        }

    def merges(self, labels: JobLabels) -> Mapping[str, Merge]:
        """Joined lists."""
        return {
            name: partial(combine_lists, identities=case.identities, shot=self.shot)
            for name, case in self.cases(labels).items()
        }

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> Float64:
        """Curves of some queries."""
        query_row = np.arange(block.rows.start, block.rows.stop)
        lists = self.reductions(block).items()
        return np.stack([each.finish(merged[name], block.queries, query_row) for name, each in lists], axis=-1)

    @property
    def n_curves(self) -> int:
        """Number of curves of a query."""
        return 3 if self.tie_rules else 1

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """Lists and curves."""
        bytes_per_query = self.shot.query_bytes(_identity_sizes(sizes), sizes.per_query)
        return ExtraMemory(
            self.n_curves * bytes_per_query,
            values_per_query=self.n_curves * self.shot.max_rank,
            bytes_per_task=self.n_curves * ENTERING_BYTES,
        )


def _identity_sizes(sizes: JobSizes) -> NDArray[np.int64]:
    """Items of every gallery identity, junk of one query counted."""
    pids, counts = np.unique(sizes.gallery.pids, return_counts=True)
    return counts[~np.isin(pids, sizes.protocol.junk_pids)]
