"""Breakdowns: the same per-query values by camera, identity or any label, by camera pair, and against gallery size.

Tables (JSON), one entry per group unless said otherwise; None where a group has no valid query:

``camera``, ``identity``, a label column
    ``camid``, ``pid`` or ``value`` of the group, ``n_query``, ``n_valid`` and every metric.
``camera_pair``
    ``query_camid`` and ``gallery_camid``; ``n_valid`` and every metric as rows of query cameras with one entry per
    gallery camera.  A cell holds the metric with that camera's rows alone in the gallery.
``gallery_size``
    ``order``, ``seed``, ``n_rows`` that have entered, and every metric.  Relevant and junk rows are always there; other
    rows enter in order.  (The first n rows of a gallery alone would be another curve.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.metrics import exact_mean
from reid_dist.parts import PartValues
from reid_dist.stores import LabelledSet
from reid_dist.tasks import Job, set_labels

__all__ = ["Breakdowns", "make_breakdowns"]

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Breakdowns:
    """Which tables are wanted.

    Attributes
    ----------
    names
        Of the tables.
    """

    names: tuple[str, ...]


def make_breakdowns(
    wanted: Breakdowns,
    query: LabelledSet,
    values: Mapping[str, Float64],
    valid: NDArray[np.bool_],
    in_parts: PartValues | None,
    job: Job,
    *,
    zero_for_invalid: bool,
) -> dict[str, dict[str, Any]]:
    """Make tables of per-query values.

    Parameters
    ----------
    wanted
        Which tables.
    query
        The query set.
    values
        Of every query by metric, NaN where it is invalid; shape (n_query,), float64.
    valid
        Which queries have positives, shape (n_query,), bool.
    in_parts
        Metrics in parts of the gallery, where tables need them.
    job
        What was computed.
    zero_for_invalid
        Whether an invalid query counts as 0.
    """
    tables: dict[str, dict[str, Any]] = {}
    for name in wanted.names:
        if name == "camera_pair":
            tables[name] = _camera_pairs(in_parts, job, zero_for_invalid)
        elif name == "gallery_size":
            tables[name] = _gallery_sizes(in_parts, job, zero_for_invalid)
        else:
            labels, key = _labels(query, name)
            tables[name] = _by_label(key, labels, values, valid, zero_for_invalid)
    return tables


def _labels(query: LabelledSet, name: str) -> tuple[NDArray[np.int64], str]:
    if name == "camera" and query.camids is not None:
        return query.camids, "camid"
    if name == "identity":
        return query.pids, "pid"
    return query.columns[name], "value"


def _by_label(
    key: str,
    labels: NDArray[np.int64],
    values: Mapping[str, Float64],
    valid: NDArray[np.bool_],
    zero_for_invalid: bool,
) -> dict[str, Any]:
    kinds, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    groups = np.split(order, np.cumsum(counts)[:-1])
    return {
        key: kinds.tolist(),
        "n_query": counts.tolist(),
        "n_valid": [int(valid[group].sum()) for group in groups],
        **{metric: [_mean(each[group], zero_for_invalid) for group in groups] for metric, each in values.items()},
    }


def _camera_pairs(in_parts: PartValues | None, job: Job, zero_for_invalid: bool) -> dict[str, Any]:
    if in_parts is None or in_parts.by_camera is None:
        raise AssertionError("asked for, hence computed")
    # As both sets number them together, where their cameras are texts.
    near, far = (set_labels(job, each).camids for each in (job.query, job.gallery))
    if near is None or far is None:
        raise AssertionError("refused without cameras")
    gallery_camids = np.unique(far).tolist()
    cameras = np.unique(near)
    groups = [np.flatnonzero(near == camera) for camera in cameras]
    columns = range(len(gallery_camids))
    found = in_parts.by_camera
    return {
        "query_camid": cameras.tolist(),
        "gallery_camid": gallery_camids,
        "n_valid": [[int((~np.isnan(found[group, camera, 0])).sum()) for camera in columns] for group in groups],
        **{
            metric: [[_mean(found[group, camera, place], zero_for_invalid) for camera in columns] for group in groups]
            for place, metric in enumerate(job.part_metrics)
        },
    }


def _gallery_sizes(in_parts: PartValues | None, job: Job, zero_for_invalid: bool) -> dict[str, Any]:
    if in_parts is None or in_parts.by_size is None or job.parts is None:
        raise AssertionError("asked for, hence computed")
    found = in_parts.by_size
    return {
        "order": job.parts.order,
        "seed": job.parts.seed,
        "n_rows": list(job.parts.sizes),
        **{
            metric: [_mean(found[:, size, place], zero_for_invalid) for size in range(found.shape[1])]
            for place, metric in enumerate(job.part_metrics)
        },
    }


def _mean(values: Float64, zero_for_invalid: bool) -> float | None:
    """Mean of a group; None where no query in it is valid."""
    mean = exact_mean(values, zero_for_invalid=zero_for_invalid)
    return None if math.isnan(mean) or np.isnan(values).all() else mean
