"""Cut of the groups of a pooling into blocks, one for each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.stages.parts import Blocks
from reid_dist.stages.pooling.row_groups import RowGroups
from reid_dist.stores import FeatureSet
from reid_dist.stores.featureset import rows_read_at_once

if TYPE_CHECKING:
    from typing import Self

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
class GroupBlocks(Blocks):
    """Cut of groups into blocks of `block_rows` groups at most, by the ends of the blocks."""

    stops: tuple[int, ...]

    @classmethod
    def of(cls, sizes: Int64, most_groups: int, source_rows: int) -> GroupBlocks:
        """Cut groups of these sizes into blocks of at most `most_groups`, and of about `source_rows` rows."""
        return cls(len(sizes), most_groups, tuple(_stops(sizes, most_groups, source_rows)))

    def __len__(self) -> int:
        return len(self.stops)

    def rows(self, block: int) -> RowRange:
        """Groups of a block."""
        return RowRange(self.stops[block - 1] if block else 0, self.stops[block])

    def holding(self, rows: Int64) -> Int64:
        """Block of each of some groups."""
        return np.searchsorted(self.stops, rows, side="right")

    def adopted(self, description: Mapping[str, Any]) -> Self:
        """The cut that a pooling was begun with."""
        return replace(super().adopted(description), stops=tuple(description["stops"]))


def _stops(sizes: Int64, most_groups: int, source_rows: int) -> Iterator[int]:
    """Ends of the blocks of groups of these sizes, shape (n_groups,)."""
    # Groups of a block have their last rows, group by group, between two multiples of `source_rows`.
    place = (np.cumsum(sizes) - 1) // source_rows
    start = 0
    for end in np.append(np.flatnonzero(np.diff(place)) + 1, len(sizes)).tolist():
        yield from range(start + most_groups, end, most_groups)
        yield end
        start = end


def choose_cut(
    features: FeatureSet, groups: RowGroups, *, sums_bytes: int, n_threads: int, memory_per_thread: int
) -> GroupBlocks:
    """Choose a cut: short blocks where groups are contiguous, long ones where every block reads most of the set.

    `sums_bytes` limits the float64 sums of a block, ``8 * dim`` bytes for each group.
    """
    n_rows, row_bytes = features.n_rows, features.dim * features.dtype.itemsize
    limit = min(sums_bytes, int(memory_per_thread * _SUMS_SHARE))
    most_groups = max(1, limit // (8 * features.dim))
    longest = GroupBlocks.of(groups.size, most_groups, n_rows)
    allowed = (1 + _READ_AGAIN) * rows_to_read(features, groups, longest)
    wanted = n_rows * row_bytes // (_TASKS_PER_THREAD * n_threads)
    block_rows = max(1, min(max(wanted, _LEAST_BYTES), _MOST_BYTES) // row_bytes)
    while block_rows < n_rows:
        cut = GroupBlocks.of(groups.size, most_groups, block_rows)
        if rows_to_read(features, groups, cut) <= allowed:
            return cut
        block_rows *= 2
    return longest


def rows_to_read(features: FeatureSet, groups: RowGroups, cut: GroupBlocks) -> int:
    """Rows that all blocks of a cut read together."""
    step = rows_read_at_once(features)
    n_pieces = -(-features.n_rows // step)
    pieces = np.unique(cut.holding(groups.of_row) * n_pieces + np.arange(features.n_rows) // step) % n_pieces
    return int(np.minimum(step, features.n_rows - pieces * step).sum())
