"""Groups of rows to pool, their cut into blocks, one for each task, and the labels of pooled rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.registry import unknown_name
from reid_dist.core.segments import segment_offsets
from reid_dist.errors import InputError
from reid_dist.relevance.protocols import JUNK_PID
from reid_dist.stages.parts import Blocks, Latest
from reid_dist.stores import FeatureSet
from reid_dist.stores.featureset import rows_read_at_once
from reid_dist.stores.kept_rows import Offenders
from reid_dist.stores.labels import Labels, make_labels

if TYPE_CHECKING:
    from typing import Self

Int64 = NDArray[np.int64]

CamidRule = Literal["keep", "drop"]
"""Treatment of camids: ``keep`` refuses groups of several cameras; ``drop`` omits camids from the pooled set."""

PID_CAMID = "pid_camid"
ITEM_ID = "item_id"

_DISTRACTOR_PID = 0

# Bytes of source rows of a task: few enough to occupy all threads and to lose little at a kill, and so many that the
# chunks at the ends of a block, which are read for its neighbour as well, count for little.
_LEAST_BYTES, _MOST_BYTES = 128 << 20, 256 << 20
_TASKS_PER_THREAD = 4

# Blocks are as long as the sums allow where shorter ones would read more than this share again.
_READ_AGAIN = 0.15

# Share of the memory of a task for the sums; pooled rows and their file take as much again.
_SUMS_SHARE = 0.25


@dataclass(frozen=True)
class RowGroups:
    """Groups of the rows of a feature set by the label `by`, numbered by first appearance.

    `of_row` is the group of every row, shape (n,); `first_row`, `size` and `label` are the first row, the number of
    rows and the label value of every group, shape (n_groups,).
    """

    by: str
    of_row: Int64
    first_row: Int64
    size: Int64
    label: NDArray[np.generic]

    def __len__(self) -> int:
        return len(self.first_row)

    def mixed(self, values: NDArray[np.generic]) -> Int64:
        """Rows whose value, shape (n,), differs from that of the first row of their group; ascending, int64."""
        return np.flatnonzero(values != values[self.first_row][self.of_row])

    @cached_property
    def _in_order(self) -> tuple[Int64, Int64]:
        """All rows group by group, shape (n,), and where each group begins there, shape (n_groups + 1,)."""
        return np.argsort(self.of_row, kind="stable"), segment_offsets(self.size)

    def rows_of(self, start: int, stop: int) -> Int64:
        """Rows of the groups from `start` to `stop` (exclusive), ascending, int64."""
        rows, ends = self._in_order
        return np.sort(rows[ends[start] : ends[stop]])

    def name(self, group: int) -> str:
        """Name of a group in error messages."""
        return f"{self.by} {self.label[group].item()!r}"


_LATEST: Latest[RowGroups] = Latest()
forget_groups = _LATEST.forget


def latest_groups(features: FeatureSet, by: str) -> RowGroups:
    """Groups of `group_rows`, which this process keeps for the latest set: every task of a pooling needs them."""
    return _LATEST.get((features.content_digest, by), lambda: group_rows(features, by))


def group_rows(features: FeatureSet, by: str) -> RowGroups:
    """Group the rows of a set by a label, of which every value is a group (-1 included); features are not read.

    `by` is a label column, ``"pid_camid"`` (identity and camera, labelled ``"PID_CAMID"``) or ``"item_id"``; the last
    two take precedence over columns of these names.
    """
    if by == PID_CAMID:
        return _by_pid_camid(features)
    if by == ITEM_ID:
        if features.item_ids is None:
            raise InputError(f"{features.uri} has no item ids to pool by; give item_ids, or pool by another label")
        return _grouped(by, features.item_ids)
    columns = features.columns
    if by not in columns:
        raise unknown_name("label to pool by", str(by), [*columns, PID_CAMID, ITEM_ID])
    return _grouped(by, columns[by])


def _by_pid_camid(features: FeatureSet) -> RowGroups:
    if features.camids is None:
        raise InputError(f"{features.uri} has no camids, so {PID_CAMID!r} is no label of its rows; give camids")
    junk = Offenders.of(np.flatnonzero(features.pids == JUNK_PID))
    if junk:
        raise InputError(
            f"pid {JUNK_PID} marks junk, so its rows are no group of {PID_CAMID!r}: found it in {junk}; leave these "
            f"rows out (ingest --drop-pid {JUNK_PID}), or pool by a label column such as 'tracklet'"
        )
    _, pid_place = np.unique(features.pids, return_inverse=True)
    camids, camid_place = np.unique(features.camids, return_inverse=True)
    # Positions in the sorted labels, not the labels themselves: these may be any 64-bit integers.
    groups = _grouped(PID_CAMID, pid_place.astype(np.int64) * len(camids) + camid_place)
    first = groups.first_row
    texts = [f"{p}_{c}" for p, c in zip(features.pids[first].tolist(), features.camids[first].tolist(), strict=True)]
    return RowGroups(PID_CAMID, groups.of_row, first, groups.size, np.array(texts, dtype=np.str_))


def _grouped(by: str, values: NDArray[np.generic]) -> RowGroups:
    labels, first, place, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return RowGroups(by, number[place], first[order].astype(np.int64), counts[order].astype(np.int64), labels[order])


def pooled_labels(features: FeatureSet, groups: RowGroups, camids: CamidRule) -> tuple[Labels, list[str]]:
    """Labels of the pooled rows, and a note on each label of the set that is omitted.

    Raises `InputError` if a group holds several identities, or several cameras under ``"keep"``.
    """
    _refuse_mixed(
        groups,
        features.pids,
        ("identities", "pid"),
        "pool by a label within which the identity is one, or correct the labels",
    )
    notes = []
    kept_camids = features.camids
    if kept_camids is not None and camids == "drop":
        kept_camids = None
        notes.append("pooling left out the camids, as requested")
    if kept_camids is not None:
        _refuse_mixed(
            groups,
            kept_camids,
            ("cameras", "camid"),
            "its pooled row has none: pool by a label that keeps cameras apart, or leave cameras out (camids='drop', "
            "--drop-camids)",
        )
    columns = {}
    for name, values in features.columns.items():
        mixed = groups.mixed(values)
        if mixed.size:
            n_mixed = len(np.unique(groups.of_row[mixed]))
            notes.append(f"pooling dropped the column {name!r}: {share(n_mixed, len(groups))} hold several values")
        else:
            columns[name] = values[groups.first_row]
    if groups.by == PID_CAMID and (features.pids == _DISTRACTOR_PID).any():
        notes.append(f"pid {_DISTRACTOR_PID}, by custom that of distractors, was pooled like any other identity")
    first = groups.first_row
    paths = features.image_paths
    held = features.labels
    labels = make_labels(
        len(groups),
        features.pids[first],
        None if kept_camids is None else kept_camids[first],
        groups.label,
        columns,
        None if paths is None else paths[first],
        {
            name: held[name]
            for name, of in (("pid_names", features.pids), ("camid_names", kept_camids))
            if of is not None and name in held
        },
    )
    return labels, notes


def _refuse_mixed(groups: RowGroups, values: Int64, words: tuple[str, str], advice: str) -> None:
    """Refuse groups with several values of a label, whose plural and name are `words`; shows the first such group."""
    mixed = groups.mixed(values)
    if not mixed.size:
        return
    of_mixed = groups.of_row[mixed]
    group = int(of_mixed.min())
    first, row = int(groups.first_row[group]), int(mixed[of_mixed == group][0])
    several, name = words
    raise InputError(
        f"{groups.name(group)} holds several {several}: {name} {values[first]} in row {first} and {name} "
        f"{values[row]} in row {row} (so in {share(len(np.unique(of_mixed)), len(groups))}); {advice}"
    )


def share(n_some: int, n_groups: int) -> str:
    """Text for a number of groups out of all."""
    return f"{n_some:,} of {n_groups:,} groups"


# ---- the cut ---------------------------------------------------------------------------------------------------------


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
