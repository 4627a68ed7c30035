"""Labels of the sets of a job; those of the current job are joined and sorted once per process."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from reid_dist.core.model import Labels
from reid_dist.engine.jobs import EvaluationJob, SearchJob
from reid_dist.engine.outputs import JobLabels
from reid_dist.relevance.assignment import GalleryIndex
from reid_dist.relevance.protocols import Protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.labels import join_item_ids, join_numbers


class _Current:
    """Labels of the current job, made once per process instead of once per task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Any, ...] | None = None
        self._labels = JobLabels()

    def of(self, job: EvaluationJob) -> JobLabels:
        """Labels of a job."""
        sets = job.query.content_digest, job.gallery.content_digest
        key = (*sets, job.rows_are_items, job.joined, job.protocol)
        with self._lock:
            if self._key != key:
                query, gallery = set_labels(job, job.query), set_labels(job, job.gallery)
                index = GalleryIndex(gallery, job.protocol, query.pids)
                self._labels, self._key = JobLabels(index, query, is_listed=job.protocol.is_listed), key
            return self._labels


_CURRENT = _Current()


def labels_of(job: SearchJob) -> JobLabels:
    """Labels of a job; a search has none."""
    return _CURRENT.of(job) if isinstance(job, EvaluationJob) else JobLabels()


def set_labels(job: EvaluationJob, features: LabelledSet) -> Labels:
    """Labels of one of the job's sets, as used by its protocol."""
    return joined_label_set(features, job.query, job.gallery, job.joined, job.protocol, job.rows_are_items)


def joined_label_set(
    features: LabelledSet,
    query: LabelledSet,
    gallery: LabelledSet,
    joined: tuple[str, ...],
    protocol: Protocol | None,
    rows_are_items: bool,
) -> Labels:
    """Labels of `features`, one of two sets, with a numbering common to both; see `EvaluationJob`."""
    item_ids = np.arange(features.n_rows) if rows_are_items else features.item_ids
    if "item_ids" in joined and query.item_ids is not None and gallery.item_ids is not None:
        item_ids = join_item_ids(query.item_ids, gallery.item_ids)[0 if features is query else 1]
    if "image_paths" in joined and not rows_are_items:
        item_ids = features.image_paths
    pids, camids = features.pids, features.camids
    if "pids" in joined:
        pids = join_numbers(pids, features.pid_names, query.pid_names, gallery.pid_names)
    if "camids" in joined and camids is not None:
        camids = join_numbers(camids, features.camid_names, query.camid_names, gallery.camid_names)
    wanted = () if protocol is None else (*protocol.label_columns, *protocol.grouping_columns)
    columns = {name: values for name, values in features.columns.items() if name in wanted} if wanted else {}
    return Labels(pids, camids, item_ids, columns)
