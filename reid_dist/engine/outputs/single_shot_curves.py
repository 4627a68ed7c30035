"""The single-gallery-shot CMC of every query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.outputs.output import Float64, GalleryLabels, JobSizes, Merge, Output, QueryBlock
from reid_dist.engine.plan import Besides
from reid_dist.engine.reductions import Identities, ListBefore, ListedItems, Reduction, SingleShot, combine_lists
from reid_dist.kernels.deciding import BEFORE, BEHIND


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

    def lists(self, block: QueryBlock) -> dict[str, ListBefore]:
        """Reductions, in the order of the curves."""
        items, mask, distance = block.thresholds.items, block.gallery.mask, block.scorer.distance
        return {
            name: ListBefore(items, mask, distance, identities, self.shot, self._rules[name])
            for name, identities in self.identities(block.gallery).items()
        }

    def identities(self, gallery: GalleryLabels) -> dict[str, Identities]:
        """Identities of the gallery for each of the reductions."""
        known = gallery.derive(Identities, lambda index: Identities.make(index.labels.pids, index.mask))
        return dict.fromkeys(self._rules, known)

    @property
    def _rules(self) -> dict[str, int]:
        rules = {"single_shot": 0}
        return rules | (
            {"single_shot, optimistic": BEHIND, "single_shot, pessimistic": BEFORE} if self.tie_rules else {}
        )

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Lists of the items before active positives."""
        return self.lists(block)

    def merges(self, gallery: GalleryLabels) -> Mapping[str, Merge]:
        """Joined lists."""
        return {
            name: partial(combine_lists, identities=identities, shot=self.shot)
            for name, identities in self.identities(gallery).items()
        }

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> Float64:
        """Curves of some queries."""
        query_row = np.arange(block.rows.start, block.rows.stop)
        lists = self.lists(block).items()
        return np.stack([each.finish(merged[name], block.queries, query_row) for name, each in lists], axis=-1)

    def join(self, parts: Sequence[Float64]) -> Float64:
        """Concatenate."""
        return np.concatenate(parts)

    @property
    def n_curves(self) -> int:
        """Number of curves of a query."""
        return len(self._rules)

    def besides(self, sizes: JobSizes) -> Besides:
        """Lists and curves."""
        bytes_per_query = self.shot.query_bytes(_identity_sizes(sizes), sizes.per_query)
        return Besides(self.n_curves * bytes_per_query, values_per_query=self.n_curves * self.shot.max_rank)


def _identity_sizes(sizes: JobSizes) -> NDArray[np.int64]:
    """Items of every gallery identity, junk of one query counted."""
    pids, counts = np.unique(sizes.gallery.pids, return_counts=True)
    return counts[~np.isin(pids, sizes.protocol.junk_pids)]
