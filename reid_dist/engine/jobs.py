"""Jobs: definitions of searches and evaluations, and the labels of their sets."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import Labels
from reid_dist.engine.distances import Distance
from reid_dist.engine.outputs.output import JobLabels, Output
from reid_dist.engine.plan import Plan
from reid_dist.engine.policy import Policy
from reid_dist.engine.scorers import Scorer
from reid_dist.relevance.assignment import GalleryIndex
from reid_dist.relevance.protocols import Protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.labels import join_item_ids, join_numbers

AnyOutput = TypeVar("AnyOutput", bound=Output[Any])


@dataclass(frozen=True)
class SearchJob:
    """Outputs of two sets that need no labels."""

    # The two sides.
    query: LabelledSet
    gallery: LabelledSet
    # Source of distances.
    scorer: Scorer
    # Division into tasks and tiles.
    plan: Plan
    # What is computed from one pass over the tiles, each of a class of its own.
    outputs: tuple[Output[Any], ...]
    # Progress stage of the tile tasks.
    tile_stage: str = "sweep"
    # Products that tiles are read from.
    policy: Policy = field(default_factory=Policy.in_force, kw_only=True)

    def __post_init__(self) -> None:
        if len({type(output) for output in self.outputs}) < len(self.outputs):
            raise AssertionError("results are reached by the class of their output")

    @property
    def distance(self) -> Distance:
        """Distance of the scorer."""
        return self.scorer.distance

    @property
    def labels(self) -> JobLabels:
        """Labels of both sets as outputs see them; a search has none."""
        return JobLabels()

    def output(self, kind: type[AnyOutput]) -> AnyOutput | None:
        """Output of a class; None if the job does not have it."""
        return next((output for output in self.outputs if type(output) is kind), None)

    @property
    def identity(self) -> str:
        """Identity of the computation: inputs by content and every field of every definition but plan and policy."""
        sets = [self.query.content_digest, self.gallery.content_digest, *self.scorer.identity]
        apart = ("query", "gallery", "scorer", "plan", "tile_stage", "policy")
        rest = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in apart}
        return fingerprint(sets, self.distance, rest)

    # Every tile task reads it.
    @cached_property
    def token(self) -> str:
        """Identity of the job including its plan."""
        return fingerprint(self.identity, self.plan)[:20]


@dataclass(frozen=True, kw_only=True)
class EvaluationJob(SearchJob):
    """Outputs of two sets under a protocol."""

    # Evaluation protocol that assigns relevance.
    protocol: Protocol
    # Whether row numbers serve as item ids; for a set without ids that is evaluated against itself.
    rows_are_items: bool = False
    # Labels (``"pids"``, ``"camids"``, ``"item_ids"``) encoded differently in the two sets and joined, and
    # ``"image_paths"`` where these serve as item ids.
    joined: tuple[str, ...] = ()

    # Labels of the job that this process computes, made once instead of once per task, and what they depend on.
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _current: ClassVar[tuple[tuple[Any, ...], JobLabels] | None] = None

    @property
    def label_sets(self) -> tuple[Labels, Labels]:
        """Labels of the two sets, as used by the protocol."""
        return joined_label_sets(self.query, self.gallery, self.joined, self.protocol, self.rows_are_items)

    @property
    def labels(self) -> JobLabels:
        """Labels of both sets, joined and sorted."""
        sets = self.query.content_digest, self.gallery.content_digest
        key = (*sets, self.rows_are_items, self.joined, self.protocol)
        with EvaluationJob._lock:
            current = EvaluationJob._current
            if current is None or current[0] != key:
                query, gallery = self.label_sets
                index = GalleryIndex(gallery, self.protocol, query.pids)
                labels = JobLabels(index, query, is_listed=self.protocol.is_listed)
                current = EvaluationJob._current = key, labels
            return current[1]


def joined_label_sets(
    query: LabelledSet, gallery: LabelledSet, joined: tuple[str, ...], protocol: Protocol, rows_are_items: bool
) -> tuple[Labels, Labels]:
    """Labels of two sets with a numbering common to both; see `EvaluationJob`."""
    wanted = (*protocol.label_columns, *protocol.grouping_columns)

    def labels(side: int) -> Labels:
        features = (query, gallery)[side]
        item_ids = np.arange(features.n_rows) if rows_are_items else features.item_ids
        if "item_ids" in joined and query.item_ids is not None and gallery.item_ids is not None:
            item_ids = join_item_ids(query.item_ids, gallery.item_ids)[side]
        if "image_paths" in joined and not rows_are_items:
            item_ids = features.image_paths
        pids, camids = features.pids, features.camids
        if "pids" in joined:
            pids = join_numbers(pids, features.pid_names, query.pid_names, gallery.pid_names)
        if "camids" in joined and camids is not None:
            camids = join_numbers(camids, features.camid_names, query.camid_names, gallery.camid_names)
        columns = {name: values for name, values in features.columns.items() if name in wanted}
        return Labels(pids, camids, item_ids, columns)

    return labels(0), labels(1)
