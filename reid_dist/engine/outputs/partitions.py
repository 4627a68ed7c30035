"""Metrics in partitions of the gallery: by camera, and by the size at which a row enters a growing gallery.

A rank is one plus the negatives before a positive, so separate counts per partition of the gallery give the ranks in
every union of partitions: the gallery of one camera (camera pairs), or a gallery of smaller size (distractor curve).
Both result from the same pass over the tiles that counts the whole gallery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Labels, RankedQueries
from reid_dist.engine.outputs.output import JobLabels, JobSizes, QueryBlock
from reid_dist.engine.outputs.ranks import COUNTS, CountingOutput
from reid_dist.engine.plan import MERGED_AT_ONCE, ExtraMemory
from reid_dist.engine.reductions.targets import rank, select
from reid_dist.errors import InputError
from reid_dist.kernels.splitmix import stream_outputs
from reid_dist.metrics.metric import parse_metric

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Partitions:
    """Definition of the partitions of a gallery."""

    # Whether rows are partitioned by camera.
    cameras: bool = False
    # Numbers of rows of a growing gallery, ascending; the last is the whole gallery.  Empty for a gallery of one size.
    sizes: tuple[int, ...] = ()
    # Whether rows enter in the ``stored`` order, or in an order determined by the seed alone.
    order: str = "stored"
    seed: int = 0

    @property
    def n_sizes(self) -> int:
        """Number of gallery sizes, 1 for a gallery that does not grow."""
        return max(1, len(self.sizes))

    def of_rows(self, labels: Labels) -> tuple[Int64, Int64]:
        """Partition of every row of a gallery, (n_gallery,), and its distinct camids, ascending; both int64.

        A partition is the place of the camera times `n_sizes` plus the index of the size at which the row enters.
        Without partitions by camera, there are no camids.
        """
        n_gallery, cameras = len(labels.pids), np.empty(0, np.int64)
        group = np.zeros(n_gallery, np.int64)
        if self.sizes:
            place = np.arange(n_gallery) if self.order == "stored" else seeded_order(self.seed, n_gallery)
            group += np.searchsorted(np.array(self.sizes), place, "right")
        if self.cameras:
            if labels.camids is None:
                raise InputError("a breakdown by camera pair needs camids in the gallery")
            cameras, code = np.unique(labels.camids, return_inverse=True)
            group += code * self.n_sizes
        return group, cameras


def seeded_order(seed: int, n: int) -> Int64:
    """Position of each of `n` rows in an order determined by the seed: a permutation of 0 … n - 1, int64.

    Rows are sorted by the outputs of the SplitMix64 stream that starts at the seed; row r has output r.
    """
    mixed = stream_outputs(seed, np.arange(n))
    place = np.empty(n, np.int64)
    place[np.argsort(mixed, kind="stable")] = np.arange(n)
    return place


@dataclass(frozen=True, slots=True)
class PartValues:
    """Metrics of every query in partitions of the gallery."""

    # Shape (n_query, cameras, metrics), float64; NaN where a query has no positive in a camera.  None if not requested.
    by_camera: NDArray[np.float64] | None
    # Shape (n_query, sizes, metrics), float64.
    by_size: NDArray[np.float64] | None


@dataclass(frozen=True)
class PartitionMetrics(CountingOutput[PartValues]):
    """Metrics of every query in partitions of the gallery, from separate counts of each."""

    partitions: Partitions
    # Names of metrics of ranks.
    metrics: tuple[str, ...]

    def row_groups(self, labels: JobLabels) -> Int64:
        """Partition of every row."""
        return self._rows(labels)[0]

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> PartValues:
        """Rank in every partition, and compute metrics of the ranks."""
        relevance, targets, counts = block.relevance, block.thresholds.items, merged[COUNTS]
        metrics = [parse_metric(name) for name in self.metrics]
        (group, cameras), n_sizes = self._rows(block.labels), self.partitions.n_sizes

        def ranked(parts: Iterable[int]) -> RankedQueries:
            return rank(relevance, targets, [counts[part] for part in parts])

        def values(ranks: RankedQueries) -> NDArray[np.float64]:
            return np.stack([metric.values(ranks) for metric in metrics], axis=-1)

        by_camera = by_size = None
        if self.partitions.sizes:
            entered = [[part for part in counts if part % n_sizes <= size] for size in range(n_sizes)]
            by_size = np.stack([values(ranked(parts)) for parts in entered], axis=1)
        if self.partitions.cameras:
            code, start = group[targets.positive_row] // n_sizes, targets.positive_start
            none, found = np.zeros(len(code), bool), []
            for camera in range(len(cameras)):
                alone = ranked(part for part in counts if part // n_sizes == camera)
                # The positives of other cameras are not there, as their negatives are not.
                found.append(values(select(alone, start, code == camera, none)))
            by_camera = np.stack(found, axis=1) if found else np.empty((relevance.n_query, 0, len(metrics)))
        return PartValues(by_camera, by_size)

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """Counts of every threshold by group, those that wait to be merged included, and the group of every row."""
        camids = sizes.gallery.camids if self.partitions.cameras else None
        n_cameras = 0 if camids is None else len(np.unique(camids))
        n_groups = max(1, n_cameras) * self.partitions.n_sizes
        counts = int(sizes.per_query * n_groups * 6 * (MERGED_AT_ONCE + 3))
        values = len(self.metrics) * (n_cameras + self.partitions.n_sizes)
        return ExtraMemory(counts, 24, values_per_query=values)

    def _rows(self, labels: JobLabels) -> tuple[Int64, Int64]:
        return labels.derive(self.partitions, lambda index: self.partitions.of_rows(index.labels))
