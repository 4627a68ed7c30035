"""Jobs: definitions of searches and evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

from reid_dist.core.fingerprint import fingerprint
from reid_dist.engine.distances import Distance
from reid_dist.engine.outputs import Output
from reid_dist.engine.plan import Plan
from reid_dist.engine.policy import Policy
from reid_dist.engine.scorers import Scorer
from reid_dist.relevance.protocols import Protocol
from reid_dist.stores import LabelledSet

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
