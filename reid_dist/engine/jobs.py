"""Jobs: definitions of searches and evaluations, and the results of a block of queries."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import Neighbours, RankedQueries
from reid_dist.engine.distances import Distance
from reid_dist.engine.outputs.partitions import Partitions, PartValues
from reid_dist.engine.plan import Plan
from reid_dist.engine.reductions import ImpostorHistogram, SingleShot
from reid_dist.engine.scorers import Scorer
from reid_dist.engine.screened_pairs import ScreenedPairs
from reid_dist.metrics.definitions import METRICS
from reid_dist.relevance.groups import Collapse
from reid_dist.relevance.protocols import Protocol
from reid_dist.stores import LabelledSet


@dataclass(frozen=True)
class SearchJob:
    """Search for the nearest gallery rows of every query."""

    # The two sides.
    query: LabelledSet
    gallery: LabelledSet
    # Source of distances.
    scorer: Scorer
    # Division into tasks and tiles.
    plan: Plan
    # Neighbours listed per query, 0 for none.
    topk: int

    @property
    def distance(self) -> Distance:
        """Distance of the scorer."""
        return self.scorer.distance

    @property
    def tile_stage(self) -> str:
        """Progress stage of the tile tasks."""
        return "sweep"

    @property
    def identity(self) -> str:
        """Identity of the computation: inputs by content and every field of every definition, without the plan."""
        sets = [self.query.content_digest, self.gallery.content_digest, *self.scorer.identity]
        apart = ("query", "gallery", "scorer", "plan")
        rest = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in apart}
        return fingerprint(sets, self.distance, rest, self.plan.bracket_counts)

    # Every tile task reads it.
    @cached_property
    def token(self) -> str:
        """Identity of the job including its plan."""
        return fingerprint(self.identity, self.plan)[:20]


@dataclass(frozen=True, kw_only=True)
class EvaluationJob(SearchJob):
    """Evaluation of a ranking under a protocol."""

    # Evaluation protocol that assigns relevance.
    protocol: Protocol
    # Protocols that are ranked from one pass; `protocol` is then `reid_dist.engine.outputs.protocol_ranks.EVERY_ROW`.
    variants: tuple[Protocol, ...] = ()
    topk: int = 0
    # Whether row numbers serve as item ids; for a set without ids that is evaluated against itself.
    rows_are_items: bool = False
    # Labels (``"pids"``, ``"camids"``, ``"item_ids"``) encoded differently in the two sets and joined, and
    # ``"image_paths"`` where these serve as item ids.
    joined: tuple[str, ...] = ()
    # Partitions of the gallery, and metrics computed in every partition.
    parts: Partitions | None = None
    part_metrics: tuple[str, ...] = ()
    # Whether the nearest visible gallery row of every query is computed, for open-set metrics.
    probes: bool = False
    # Number of nearest negatives that are listed for every query, also for those with relevant rows; 0 for none.
    nearest_negatives: int = 0
    # Whether negatives are counted for ranks; otherwise, ranks are those without any negative.
    counts_negatives: bool = True
    # Number of the nearest positives of every query that are ranked, and those tied with the last; None for all.
    n_ranked: int | None = None
    # Whether a histogram of the distances of all impostors is computed, for verification.
    impostors: bool = False
    # Edges ``lo, hi, lo, hi, …`` of brackets of distances.  With any, impostors are counted exactly around them, and
    # nothing else is computed.
    brackets: tuple[float, ...] = ()
    # Whether impostors are also counted by query around the brackets.
    brackets_by_query: bool = False
    # Definition of the single-shot CMC; None if not requested.
    single_shot: SingleShot | None = None
    # Whether the single-shot CMC is also computed with every tie decided for, and against, the positives.
    tie_rules: bool = False

    @property
    def collapse(self) -> Collapse | None:
        """Definition of a ranking by group, if groups of gallery items are ranked."""
        return None if self.protocol.collapse is None else Collapse.parse(self.protocol.collapse)

    @property
    def ranks_items(self) -> bool:
        """Whether some metrics rank single items."""
        return self.collapse is None or bool(self.collapse.families)

    @property
    def first_group_alone(self) -> bool:
        """Whether the metrics that rank groups need the rank of the first relevant group only."""
        collapse = self.collapse
        stems = () if collapse is None else collapse.families
        return bool(stems) and all(family.first_alone for family in METRICS if family.stem in stems)

    @property
    def assigns_all(self) -> bool:
        """Whether a result covers all queries, including those without positives."""
        return self.probes or self.impostors or bool(self.brackets)

    @property
    def tile_stage(self) -> str:
        """Progress stage of the tile tasks."""
        return "verification" if self.brackets else "sweep"


@dataclass(frozen=True)
class Probes:
    """Queries of open-set search."""

    # Nearest gallery rows that are not junk, of queries that are not mated, or nearest negatives of every query.
    nearest: Neighbours
    # As in `Relevance`.
    mated: NDArray[np.bool_]
    # Identities of all queries and of the gallery, int64; None for a block.
    pids: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    @property
    def nearest_kept(self) -> NDArray[np.float64]:
        """Distance of the first of `nearest`, shape (n_query,), float64; infinite without such a row."""
        return self.nearest.distance[:, 0]


@dataclass(frozen=True)
class BlockResult:
    """Results of an evaluation for a block of queries; None for results that were not requested."""

    # Ranks of the positives; of the relevant groups, if every metric ranks groups.
    ranked: RankedQueries
    # The nearest gallery rows, junk included.
    neighbours: Neighbours | None
    # Metrics in partitions of the gallery.
    in_parts: PartValues | None
    probes: Probes | None
    # ``CMC_single_shot`` at every rank, shape (n_query, max_rank, rules), float64; NaN for invalid queries.  The first
    # rule of ties is the usual one; on request the optimistic and the pessimistic one follow.  Without ranks if not
    # requested.  Where several protocols are ranked, there is one such curve for each of the single-shot ones instead.
    single_shot: NDArray[np.float64]
    # Histogram of the distances of all impostors.
    impostors: ImpostorHistogram | None
    # Ranks of the relevant groups, if some metrics rank groups and others items; of the first one of each query, if
    # these metrics need no other.
    grouped: RankedQueries | None = None
    # Ranks under each of several protocols.
    variants: tuple[RankedQueries, ...] = ()
    # Pairs by kind of product.
    screened: ScreenedPairs = field(default_factory=dict)
