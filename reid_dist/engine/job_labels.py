"""Labels of the sets of a job, and values derived from those of the gallery, once per process."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from reid_dist.core.model import Labels
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.partitions import GalleryPartitions
from reid_dist.engine.outputs.protocol_ranks import GalleryVariants
from reid_dist.engine.reductions import Identities
from reid_dist.relevance.assignment import GalleryIndex
from reid_dist.relevance.groups import GroupIndex
from reid_dist.relevance.protocols import Protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.labels import join_item_ids, join_numbers


@dataclass(frozen=True)
class _Gallery:
    index: GalleryIndex
    parts: GalleryPartitions | None
    identities: Identities | None
    groups: GroupIndex | None
    variants: GalleryVariants | None


class _GalleryCache:
    """Values derived from the labels of the current gallery, computed once per process instead of once per task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Any, ...] | None = None
        self._gallery: _Gallery | None = None

    def get(self, job: EvaluationJob) -> _Gallery:
        drawn = job.single_shot is not None
        sets = job.query.content_digest, job.gallery.content_digest
        key = (*sets, job.rows_are_items, job.joined, job.protocol, job.variants, job.parts, drawn)
        with self._lock:
            if self._gallery is None or self._key != key:
                labels = set_labels(job, job.gallery)
                index = GalleryIndex(labels, job.protocol, set_labels(job, job.query).pids)
                parts = None if job.parts is None else GalleryPartitions(job.parts, labels)
                identities = Identities.make(labels.pids, index.mask) if drawn and not job.variants else None
                collapse = job.collapse
                groups = None if collapse is None else GroupIndex(labels, collapse.label, index.mask)
                variants = GalleryVariants(job.variants, index, drawn=drawn) if job.variants else None
                self._gallery, self._key = _Gallery(index, parts, identities, groups, variants), key
            return self._gallery


GALLERY_LABELS = _GalleryCache()


def gallery_index(job: EvaluationJob) -> GalleryIndex:
    """Return the sorted labels of the job's gallery."""
    return GALLERY_LABELS.get(job).index


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
