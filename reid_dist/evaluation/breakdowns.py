"""Breakdowns: the same per-query values by camera, identity or any label, by camera pair, and against gallery size.

Tables (JSON), one entry per group except where noted; None where a group has no valid query, but for groups of
queries (camera, identity, label) under a protocol that counts an invalid query as 0, whose means are 0 there:

``camera``, ``identity``, a label column
    ``camid``, ``pid`` or ``value`` of the group, ``n_query``, ``n_valid`` and every metric; ``mean_of_groups``: the
    mean of every metric over the groups that have it, each with the weight 1 (the macro mean, by identity).
``camera_pair``
    ``query_camid`` and ``gallery_camid``; ``n_valid`` and every metric as rows of query cameras with one entry per
    gallery camera.  A cell holds the metric with that camera's rows alone in the gallery.

Cameras and identities that were given as texts are texts in the tables: each set numbers its texts for itself, so that
numbers of two sets differ in meaning.

``gallery_size``
    ``order``, ``seed``, ``n_rows`` that have entered, and every metric.  Relevant and junk rows are always there; other
    rows enter in order.  (The first n rows of a gallery alone would be another curve.)

Where intervals are requested, ``intervals`` hold [low, high] in the place of every value of every metric, [None, None]
where fewer than two identities have a value: cluster bootstraps of the identities among the queries of a group, or of
all.  ``n_identities`` are those of a group with a query that counts.  Groups of one identity (``identity``) have none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Labels
from reid_dist.core.registry import unknown_name
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.output import Results
from reid_dist.engine.outputs.partitions import PartitionMetrics, Partitions
from reid_dist.errors import InputError
from reid_dist.metrics.confidence import bootstrap_intervals
from reid_dist.metrics.metric import exact_mean, parse_metric, rows_by_label
from reid_dist.reports.breakdown_tables import INTERVALS, MEAN_OF_GROUPS, N_IDENTITIES
from reid_dist.stores import LabelledSet
from reid_dist.stores.labels import given_labels

Float64 = NDArray[np.float64]

Ends = list[float | None]
"""Ends of an interval; None where the data do not determine it."""

_DEFAULT_STEPS = 10


def parse_breakdowns(names: Sequence[str] | None, columns: Sequence[str]) -> tuple[str, ...]:
    """Validate names of breakdowns: ``camera``, ``camera_pair``, ``identity``, ``gallery_size`` or a label column.

    Raises `UnknownNameError` for any other name.
    """
    known = ["camera", "camera_pair", "identity", "gallery_size", *columns]
    for name in names or ():
        if name not in known:
            raise unknown_name("breakdown", name, known)
    return tuple(dict.fromkeys(names or ()))


def gallery_sizes(requested: Sequence[float] | None, n_gallery: int) -> tuple[int, ...]:
    """Convert numbers of rows, or shares of the gallery, to ascending numbers of rows; the last is the whole gallery.

    Shares are floats up to 1.0; None means ten equal steps.  Raises `InputError` for a size of less than one row
    or more than the gallery.
    """
    if requested is None:
        requested = [step / _DEFAULT_STEPS for step in range(1, _DEFAULT_STEPS + 1)]
    sizes = {n_gallery}
    for size in requested:
        is_share = isinstance(size, float) and 0 < size <= 1
        # A share of a small gallery is at least one row.
        rows = max(1, round(size * n_gallery)) if is_share else size
        if not 1 <= rows <= n_gallery or int(rows) != rows:
            raise InputError(
                f"a gallery size is a whole number of rows from 1 to {n_gallery}, or a share such as 0.5, found "
                f"{size!r}"
            )
        sizes.add(int(rows))
    return tuple(sorted(sizes))


def make_breakdowns(
    names: tuple[str, ...],
    query: LabelledSet,
    values: Mapping[str, Float64],
    valid: NDArray[np.bool_],
    results: Results,
    job: EvaluationJob,
    *,
    level: float | None,
    seed: int,
) -> dict[str, dict[str, Any]]:
    """Tables by name; values are (n_query,) float64 with NaN for invalid queries, `valid` is (n_query,) bool.

    `level` is that of intervals, None for none, and `seed` that of their draws.
    """
    over_partitions: dict[str, dict[str, Any]] = {}
    means = _Means(query.pids, job.protocol.zero_for_invalid, level, seed)
    output, in_parts = job.output(PartitionMetrics), results.get(PartitionMetrics)
    if in_parts is not None and output is not None:
        if in_parts.by_camera is not None:
            over_partitions["camera_pair"] = _camera_pairs(in_parts.by_camera, job, output.metrics, means)
        if in_parts.by_size is not None:
            of_sizes = _gallery_sizes(in_parts.by_size, output.partitions, output.metrics, means)
            over_partitions["gallery_size"] = of_sizes
    alone = replace(means, level=None)
    return {
        name: over_partitions[name]
        if name in over_partitions
        else _by_label(_column(query, name), values, valid, alone if name == "identity" else means)
        for name in names
    }


@dataclass(frozen=True)
class _Means:
    """Values of metrics of some queries, from values and identities of all, shape (n_query,)."""

    pids: NDArray[np.int64]
    zero_for_invalid: bool
    # Of intervals, None for none, and of their draws.
    level: float | None
    seed: int

    def __call__(self, metric: str, values: Float64, rows: NDArray[np.intp] | slice) -> float:
        """Value of a metric of some rows; NaN where none of them counts."""
        return parse_metric(metric).mean(values[rows], self.pids[rows], zero_for_invalid=self.zero_for_invalid)

    def known(self, metric: str, values: Float64, rows: NDArray[np.intp] | slice) -> float | None:
        """The same; None where no row has a value."""
        return None if np.isnan(values[rows]).all() else _defined(self(metric, values, rows))

    def intervals(
        self, columns: Sequence[tuple[str, Float64]], rows: NDArray[np.intp] | slice
    ) -> tuple[list[Ends], int]:
        """Interval of each column of values of some rows, given with its metric, and the identities that count.

        An identity is drawn with all of its queries, of all columns alike.
        """
        if self.level is None:
            raise AssertionError("no intervals are requested")
        pids = self.pids[rows]
        averaged = {
            str(place): parse_metric(metric).averaged(values[rows], pids, zero_for_invalid=self.zero_for_invalid)
            for place, (metric, values) in enumerate(columns)
        }
        drawn = bootstrap_intervals(averaged, pids, level=self.level, seed=self.seed)
        ends = drawn.describe()["intervals"]
        return [ends[name] for name in averaged], drawn.n_units


@dataclass(frozen=True)
class _Column:
    """Labels of the queries, (n_query,) int64: their key in the table; `names` are texts of the numbers 1, 2, …."""

    key: str
    labels: NDArray[np.int64]
    names: tuple[str, ...] | None = None


def _column(query: LabelledSet, name: str) -> _Column:
    if name == "camera" and query.camids is not None:
        return _Column("camid", query.camids, query.camid_names)
    if name == "identity":
        return _Column("pid", query.pids, query.pid_names)
    return _Column("value", query.columns[name])


def _by_label(
    column: _Column,
    values: Mapping[str, Float64],
    valid: NDArray[np.bool_],
    means: _Means,
) -> dict[str, Any]:
    kinds, groups = rows_by_label(column.labels)
    by_group = {metric: np.array([means(metric, each, group) for group in groups]) for metric, each in values.items()}
    drawn: dict[str, Any] = {}
    if means.level is not None and values:
        found = [means.intervals([*values.items()], group) for group in groups]
        ends = {metric: [of_group[place] for of_group, _ in found] for place, metric in enumerate(values)}
        drawn = {N_IDENTITIES: [n_units for _, n_units in found], INTERVALS: ends}
    return {
        column.key: given_labels(kinds, column.names),
        "n_query": [len(group) for group in groups],
        "n_valid": [int(valid[group].sum()) for group in groups],
        **{metric: [_defined(mean) for mean in of_groups.tolist()] for metric, of_groups in by_group.items()},
        MEAN_OF_GROUPS: {metric: _defined(exact_mean(of_groups)) for metric, of_groups in by_group.items()},
        **drawn,
    }


@dataclass(frozen=True)
class _Cameras:
    """Cameras of a set in the order of the partitions: names or numbers, and the rows of each, ascending."""

    names: list[int] | list[str]
    rows: list[NDArray[np.intp]]


def _cameras(labels: Labels, labelled: LabelledSet) -> _Cameras:
    # As both sets number them together, where their cameras are texts; as the set itself does, for their names.
    joined, own = labels.camids, labelled.camids
    if joined is None or own is None:
        raise AssertionError("refused without cameras")
    rows = [np.flatnonzero(joined == camera) for camera in np.unique(joined)]
    return _Cameras(given_labels(own[[of[0] for of in rows]], labelled.camid_names), rows)


def _camera_pairs(found: Float64, job: EvaluationJob, metrics: tuple[str, ...], means: _Means) -> dict[str, Any]:
    """Table of values of shape (n_query, n_cameras, metrics)."""
    near, far = map(_cameras, job.label_sets, (job.query, job.gallery))
    return {
        "query_camid": near.names,
        "gallery_camid": far.names,
        "n_valid": [(~np.isnan(found[group, :, 0])).sum(axis=0).tolist() for group in near.rows],
        **_cells(found, metrics, means, near.rows),
    }


def _gallery_sizes(found: Float64, partitions: Partitions, metrics: tuple[str, ...], means: _Means) -> dict[str, Any]:
    """Table of values of shape (n_query, n_sizes, metrics)."""
    columns = _cells(found, metrics, means, [slice(None)])
    drawn = columns.pop(INTERVALS, None)
    return {
        "order": partitions.order,
        "seed": partitions.seed,
        "n_rows": list(partitions.sizes),
        **{metric: row for metric, (row,) in columns.items()},
        **({} if drawn is None else {INTERVALS: {metric: row for metric, (row,) in drawn.items()}}),
    }


def _cells(
    found: Float64, metrics: tuple[str, ...], means: _Means, groups: Sequence[NDArray[np.intp] | slice]
) -> dict[str, Any]:
    """Rows of cells by metric, one row for each group of queries, and their intervals where these are requested."""
    n = found.shape[1]
    columns: dict[str, Any] = {
        metric: [[means.known(metric, found[:, cell, place], group) for cell in range(n)] for group in groups]
        for place, metric in enumerate(metrics)
    }
    if means.level is None:
        return columns
    cells = [(metric, found[:, cell, place]) for place, metric in enumerate(metrics) for cell in range(n)]
    of_groups = [means.intervals(cells, group)[0] for group in groups]
    cuts = {metric: slice(place * n, (place + 1) * n) for place, metric in enumerate(metrics)}
    return {**columns, INTERVALS: {metric: [each[cut] for each in of_groups] for metric, cut in cuts.items()}}


def _defined(mean: float) -> float | None:
    return None if math.isnan(mean) else mean
