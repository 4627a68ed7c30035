"""Partitions of the gallery: separate counts by camera, and by the size at which a row enters a growing gallery.

A rank is one plus the negatives before a positive, so separate counts per partition of the gallery give the ranks in
every union of partitions: the gallery of one camera (camera pairs), or a gallery of smaller size (distractor curve).
Both result from the same pass over the tiles that counts the whole gallery.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Labels, RankedQueries, Relevance, Targets
from reid_dist.core.numeric import is_number
from reid_dist.core.registry import did_you_mean
from reid_dist.engine.reductions import PartialCounts, add_counts, rank
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.kernels.splitmix import stream_outputs
from reid_dist.metrics.definitions import Metric

Int64 = NDArray[np.int64]

_DEFAULT_STEPS = 10


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


class GalleryPartitions:
    """The partition of every row of a gallery."""

    def __init__(self, parts: Partitions, labels: Labels) -> None:
        n_gallery = len(labels.pids)
        self.definition = parts
        self._n_sizes = parts.n_sizes
        # Partition of every row, shape (n_gallery,), int64: camera code times `Partitions.n_sizes` plus the index of
        # the size at which the row enters.
        self.group = np.zeros(n_gallery, np.int64)
        # Distinct camids, ascending, int64; empty without partitions by camera.
        self.cameras = np.empty(0, np.int64)
        if parts.sizes:
            place = np.arange(n_gallery) if parts.order == "stored" else seeded_order(parts.seed, n_gallery)
            self.group += np.searchsorted(np.array(parts.sizes), place, "right")
        if parts.cameras:
            if labels.camids is None:
                raise InputError("a breakdown by camera pair needs camids in the gallery")
            self.cameras, code = np.unique(labels.camids, return_inverse=True)
            self.group += code * self._n_sizes

    def camera_groups(self, camera: int) -> range:
        """Groups of a camera, given by its position in `cameras`."""
        return range(camera * self._n_sizes, (camera + 1) * self._n_sizes)

    def entered(self, groups: Sequence[int], size: int) -> list[int]:
        """Filter groups to those whose rows have entered at the size of index `size`."""
        return [group for group in groups if group % self._n_sizes <= size]


def seeded_order(seed: int, n: int) -> Int64:
    """Position of each of `n` rows in an order determined by the seed: a permutation of 0 … n - 1, int64.

    Rows are sorted by the outputs of the SplitMix64 stream that starts at the seed; row r has output r.
    """
    mixed = stream_outputs(seed, np.arange(n))
    place = np.empty(n, np.int64)
    place[np.argsort(mixed, kind="stable")] = np.arange(n)
    return place


def gallery_sizes(requested: Sequence[float] | None, n_gallery: int) -> tuple[int, ...]:
    """Convert numbers of rows, or shares of the gallery, to ascending numbers of rows; the last is the whole gallery.

    Shares are floats up to 1.0; None means ten equal steps.  Raises `InputError` for a size of less than one row
    or more than the gallery.
    """
    if requested is None:
        requested = [step / _DEFAULT_STEPS for step in range(1, _DEFAULT_STEPS + 1)]
    if not np.iterable(requested):
        raise InputError(f"gallery_sizes must be a list of numbers of rows or of shares, found {requested!r}")
    sizes = {n_gallery}
    for size in requested:
        is_share = isinstance(size, float | np.floating) and 0 < size <= 1
        # A share of a small gallery is at least one row.
        rows = max(1, round(size * n_gallery)) if is_share else size
        if not is_number(size) or not 1 <= rows <= n_gallery or int(rows) != rows:
            raise InputError(
                f"a gallery size is a whole number of rows from 1 to {n_gallery}, or a share such as 0.5, found "
                f"{size!r}"
            )
        sizes.add(int(rows))
    return tuple(sorted(sizes))


@dataclass(frozen=True, slots=True)
class PartValues:
    """Metrics of every query in partitions of the gallery."""

    # Shape (n_query, cameras, metrics), float64; NaN where a query has no positive in a camera.  None if not requested.
    by_camera: NDArray[np.float64] | None
    # Shape (n_query, sizes, metrics), float64.
    by_size: NDArray[np.float64] | None


def rank_in_partitions(
    relevance: Relevance,
    targets: Targets,
    counts: Mapping[int, PartialCounts],
    gallery: GalleryPartitions,
    metrics: Sequence[Metric],
) -> PartValues:
    """Rank a block of queries in every partition of the gallery, and compute metrics of the ranks.

    `counts` are counts over the whole gallery, by group of gallery rows.
    """

    def ranked(groups: Sequence[int]) -> RankedQueries:
        some = [counts[group] for group in groups if group in counts]
        return rank(relevance, targets, add_counts(some) if some else PartialCounts.zeros(len(targets.distance)))

    def values(ranks: RankedQueries) -> NDArray[np.float64]:
        return np.stack([metric.values(ranks) for metric in metrics], axis=-1)

    parts, everything = gallery.definition, sorted(counts)
    by_camera = by_size = None
    if parts.sizes:
        sizes = range(parts.n_sizes)
        by_size = np.stack([values(ranked(gallery.entered(everything, size))) for size in sizes], axis=1)
    if parts.cameras:
        code = gallery.group[targets.positive_row] // parts.n_sizes
        cameras = range(len(gallery.cameras))
        shape = (relevance.n_query, 0, len(metrics))
        found = [values(_only(ranked(gallery.camera_groups(camera)), code == camera)) for camera in cameras]
        by_camera = np.stack(found, axis=1) if found else np.empty(shape)
    return PartValues(by_camera, by_size)


def _only(ranks: RankedQueries, keep: NDArray[np.bool_]) -> RankedQueries:
    """Ranks of the positives in `keep`, with the other positives removed from the gallery; negatives are unchanged."""
    owner = np.repeat(np.arange(len(ranks.n_relevant)), ranks.n_relevant)
    number = np.arange(len(ranks.rank)) - np.repeat(ranks.indptr[:-1], ranks.n_relevant)
    indptr = np.zeros(len(ranks.indptr), np.int64)
    np.cumsum(np.bincount(owner[keep], minlength=len(indptr) - 1), out=indptr[1:])
    kept_number = np.arange(indptr[-1]) - np.repeat(indptr[:-1], np.diff(indptr))
    flat = ("tied", "tied_before", "row", "distance")
    return replace(
        ranks,
        indptr=indptr,
        rank=ranks.rank[keep] - number[keep] + kept_number,
        **{name: getattr(ranks, name)[keep] for name in flat},
    )


def parse_breakdowns(names: Sequence[str] | None, columns: Sequence[str]) -> tuple[str, ...]:
    """Validate names of breakdowns: ``camera``, ``camera_pair``, ``identity``, ``gallery_size`` or a label column.

    Raises `UnknownNameError` for any other name, and `InputError` for a value that is no list of names.
    """
    if names is None:
        return ()
    if isinstance(names, str):
        raise InputError(f"breakdowns must be a list of names, found the text {names!r}; write [{names!r}]")
    if not np.iterable(names):
        raise InputError(f"breakdowns must be a list of names such as 'camera', or None for none, found {names!r}")
    known = ["camera", "camera_pair", "identity", "gallery_size", *columns]
    for name in names:
        if name not in known:
            raise UnknownNameError(did_you_mean("breakdown", str(name), known))
    return tuple(dict.fromkeys(names))
