"""Cut of the groups of a pooling into blocks, one for each task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.stages.pooling.groups import RowGroups
from reid_dist.stores import FeatureSet
from reid_dist.stores.featureset import rows_read_at_once

Int64 = NDArray[np.int64]

# Bytes of source rows of a task: few enough to occupy all threads and to lose little at a kill, and so many that the
# chunks at the ends of a block, which are read for its neighbour as well, count for little.
_LEAST_BYTES, _MOST_BYTES = 128 << 20, 256 << 20
_TASKS_PER_THREAD = 4

# Blocks are as long as the sums allow where shorter ones would read more than this share again.
_READ_AGAIN = 0.15

# Share of the memory of a task for the sums; pooled rows and their file take as much again.
_SUMS_SHARE = 0.25


@dataclass(frozen=True)
class Cut:
    """Rule by which groups are cut into blocks: at most `most_groups`, and about `block_rows` rows of the source."""

    most_groups: int
    block_rows: int

    def blocks(self, sizes: Int64) -> Iterator[tuple[int, int]]:
        """First group and end of every block, for groups of these sizes, shape (n_groups,)."""
        # Groups of a block have their last rows, group by group, between two multiples of `block_rows`.
        place = (np.cumsum(sizes) - 1) // self.block_rows
        ends = np.append(np.flatnonzero(np.diff(place)) + 1, len(sizes))
        start = 0
        for end in ends.tolist():
            while start < end:
                stop = min(end, start + self.most_groups)
                yield start, stop
                start = stop


def choose_cut(
    features: FeatureSet, groups: RowGroups, *, sums_bytes: int, n_threads: int, memory_per_thread: int
) -> Cut:
    """Choose a cut: short blocks where groups are contiguous, long ones where every block reads most of the set.

    `sums_bytes` limits the float64 sums of a block, ``8 * dim`` bytes for each group.
    """
    n_rows, row_bytes = features.n_rows, features.dim * features.dtype.itemsize
    limit = min(sums_bytes, int(memory_per_thread * _SUMS_SHARE))
    most_groups = max(1, limit // (8 * features.dim))
    longest = Cut(most_groups, n_rows)
    allowed = (1 + _READ_AGAIN) * rows_to_read(features, groups, longest)
    wanted = n_rows * row_bytes // (_TASKS_PER_THREAD * n_threads)
    block_rows = max(1, min(max(wanted, _LEAST_BYTES), _MOST_BYTES) // row_bytes)
    while block_rows < n_rows:
        cut = Cut(most_groups, block_rows)
        if rows_to_read(features, groups, cut) <= allowed:
            return cut
        block_rows *= 2
    return longest


def rows_to_read(features: FeatureSet, groups: RowGroups, cut: Cut) -> int:
    """Rows that all blocks of a cut read together."""
    step = rows_read_at_once(features)
    n_pieces = -(-features.n_rows // step)
    starts = np.array([start for start, _ in cut.blocks(groups.size)], np.int64)
    block = np.searchsorted(starts, np.arange(len(groups)), side="right") - 1
    pieces = np.unique(block[groups.of_row] * n_pieces + np.arange(features.n_rows) // step) % n_pieces
    return int(np.minimum(step, features.n_rows - pieces * step).sum())
