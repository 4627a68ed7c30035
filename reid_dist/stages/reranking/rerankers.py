"""Definitions of re-rankings: what every one states, their registry, and specs with their parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.parameters import Parameter
from reid_dist.core.registry import Registry, unknown_name
from reid_dist.core.specs import Call, Value, call_text, parse_spec
from reid_dist.engine.checks import check_sets
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import ExtraMemory
from reid_dist.errors import InputError
from reid_dist.stages.method_parameters import check_parameters, parameters_of

if TYPE_CHECKING:
    from reid_dist.engine.scorers import Scorer
    from reid_dist.stages.reranking.reranked_scorer import CandidateList
    from reid_dist.stages.session import Resources
    from reid_dist.stores import FeatureSet

BYTES_PER_ENTRY = 12
"""Bytes of an entry of a sparse row."""

MOST_BLOCK_ROWS = 16384
"""Largest number of rows of a block, for rows that are longer than those of neighbour lists."""

# A smaller weight is lost in the rounding of the mixed distance.
_LEAST_WEIGHT = 1e-9


@dataclass(frozen=True)
class Choice:
    """A named choice in which published programs differ, with its texts for reports and lists."""

    name: str
    summary: str
    source: str


@dataclass(frozen=True, slots=True)
class RowSizes:
    """Sparse rows of a stage of a re-ranking: expected entries of a row, and the most that it can have."""

    name: str
    expected: float
    most: float


@dataclass(frozen=True)
class Reranking(ABC):
    """A re-ranking with its parameters, which are the fields of a subclass.

    Attributes
    ----------
    name, summary, source
        Registered name, one-line description and reference, for help texts and reports.
    choices
        Values of the parameter ``variant``; None without one.
    kept
        Kinds of stages that the workspace keeps besides the neighbour lists.
    most_block_rows
        Largest number of rows of a block of these stages.
    nests
        Whether the first argument is a re-ranking.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    choices: ClassVar[Registry[Any] | None] = None
    kept: ClassVar[tuple[str, ...]]
    most_block_rows: ClassVar[int] = MOST_BLOCK_ROWS
    nests: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_parameters(self)
        weight = getattr(self, "lambda_value", None)
        if weight is not None and 0 < weight < _LEAST_WEIGHT:
            raise InputError(
                f"lambda_value of {self.name} must be 0 or at least {_LEAST_WEIGHT!r}, found {weight!r}: below that "
                "the weight is lost in rounding"
            )

    @property
    @abstractmethod
    def n_listed(self) -> int:
        """Length of the neighbour lists, the item itself counted."""

    @property
    @abstractmethod
    def shared(self) -> tuple[Any, ...]:
        """Values that determine the first stage after the lists; re-rankings that agree in them share this stage."""

    @property
    @abstractmethod
    def choice(self) -> Choice:
        """Definition of the variant, or of the re-ranking if there is only one."""

    @property
    def per_query_scale(self) -> str | None:
        """Why distances of different queries have no common scale; None if they have one."""
        return None

    @property
    def gallery_alone(self) -> bool:
        """Whether the graph holds the gallery alone, and each query is placed in it separately."""
        return False

    @abstractmethod
    def graph_distance(self, requested: Distance) -> Distance:
        """Distance that orders the lists; `InputError` if the re-ranking is not defined under the requested one."""

    @abstractmethod
    def row_sizes(self, n_items: int) -> tuple[RowSizes, ...]:
        """Rows of the stages for each of `n_items`, in the order of the stages."""

    @property
    def n_stages(self) -> int:
        """Number of stages after the lists."""
        return len(self.row_sizes(self.n_listed))

    def kept_bytes(self, n_items: int) -> float:
        """Expected bytes that the stages keep of each of `n_items`."""
        return sum(BYTES_PER_ENTRY * each.expected + 8 for each in self.row_sizes(n_items))

    def held(self, n_items: int, n_gallery: int) -> ExtraMemory:
        """Memory that rows and scored pairs take in the tile loop: known pairs of a query, entries read and joined."""
        entries = sum(each.expected for each in self.row_sizes(n_gallery)[-1:])
        return ExtraMemory(64 * self.known_pairs(n_gallery), int(2 * BYTES_PER_ENTRY * entries))

    def known_pairs(self, n_gallery: int) -> int:
        """Expected number of gallery items whose distance to a query is computed singly."""
        return n_gallery

    def warnings(self, n_items: int) -> tuple[str, ...]:
        """What makes a re-ranking of so many items costly or pointless."""
        if self.n_listed <= n_items // 2:
            return ()
        return (
            f"lists of {self.n_listed} hold most of the {n_items} items, so that nearly every pair of items is "
            "compared singly; take fewer neighbours",
        )

    @abstractmethod
    def scorer(self, query: FeatureSet, gallery: FeatureSet, distance: Distance, where: Resources) -> Scorer:
        """Run all stages, readable by all workers, and return the scorer of the re-ranked distances."""

    @abstractmethod
    def candidate_distances(self, items: CandidateList, requested: Distance) -> NDArray[np.float64]:
        """Re-ranked distances of a query, which is the first of a few items in memory, and each other item."""

    def compared_features(self, dim: int) -> int:
        """Features of the rows that the tile loop compares, from those of a row of the sets."""
        return dim

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of all parameters."""
        return asdict(self)

    def describe(self) -> dict[str, Any]:
        """Report entries: name, every parameter, and the definition of the variant."""
        return {
            "name": self.name,
            **self.parameters,
            "definition": self.choice.summary,
            "source": self.choice.source,
        }

    def __str__(self) -> str:
        return call_text(self.name, self.parameters)

    def _refuse_unless_cosine(self, requested: Distance) -> None:
        if requested.name != "cosine":
            raise InputError(
                f"{self.name} is defined by cosine similarities, found the distance {requested.name!r}; use cosine, or "
                "k_reciprocal, which takes every distance"
            )


@dataclass(frozen=True)
class Definition:
    """Entry of the registry: a re-ranking with its texts."""

    made: type[Reranking]

    @property
    def name(self) -> str:
        """Registered name."""
        return self.made.name

    @property
    def summary(self) -> str:
        """One-line description, with the parameters."""
        within = ["SPEC"] if self.made.nests else []
        return f"{self.made.summary}; {', '.join([*within, *self.parameters])}"

    @property
    def source(self) -> str:
        """Reference."""
        return self.made.source

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """What the values of the parameters may be, by name."""
        return parameters_of(self.made)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Variants, named as they are written in a spec."""
        found = () if self.made.choices is None else tuple(self.made.choices)
        return tuple(Choice(f"{self.name}(variant={each.name})", each.summary, each.source) for each in found)


RERANKERS: Registry[Definition] = Registry(
    "re-ranker", [f"reid_dist.stages.reranking.{module}" for module in ("ecn", "gnn", "k_reciprocal", "top")]
)


def register(made: type[Reranking]) -> type[Reranking]:
    """Add a re-ranking to the registry."""
    RERANKERS.register(Definition(made))
    return made


def parse_rerank(spec: str | Reranking) -> Reranking:
    """Parse a re-ranking such as ``k_reciprocal(k1=20,k2=6,lambda_value=0.3,variant=zhong)``."""
    return spec if isinstance(spec, Reranking) else make_rerank(read_call(spec))


def read_call(spec: str) -> Call:
    """Read the spec of a re-ranking."""
    calls = parse_spec("re-ranking", spec, nested=True)
    if len(calls) > 1:
        raise InputError(f"one re-ranking at a time, found {spec!r}")
    return calls[0]


def make_rerank(call: Call) -> Reranking:
    """Make a re-ranking from its name and some of its parameters, with defaults for the others."""
    definition = RERANKERS.get(call.name)
    for given in call.values:
        if given not in definition.parameters:
            raise unknown_name(f"parameter of {call.name}", given, definition.parameters)
    made: Any = definition.made
    if definition.made.nests != (call.within is not None):
        raise InputError(
            f"{call.name} takes no re-ranking within it, found {call.within.name!r}"
            if call.within is not None
            else f"{call.name} takes a re-ranking first, such as {call.name}(k_reciprocal); found none"
        )
    found: Reranking = made(*(() if call.within is None else (make_rerank(call.within),)), **call.values)
    return found


def declared_in(call: Call) -> dict[str, Parameter]:
    """What the values of the parameters of a call and of those within it may be, by name."""
    within = {} if call.within is None else declared_in(call.within)
    return {**RERANKERS.get(call.name).parameters, **within}


def with_values(call: Call, values: Mapping[str, Value]) -> Call:
    """Give values to the call that has the parameter, or to one within it."""
    own = RERANKERS.get(call.name).parameters
    here = {name: value for name, value in values.items() if name in own}
    rest = {name: value for name, value in values.items() if name not in own}
    within = None if call.within is None else with_values(call.within, rest)
    return replace(call, values={**call.values, **here}, within=within)


def rerank_scorer(
    query: FeatureSet, gallery: FeatureSet, distance: Distance, spec: Reranking, where: Resources
) -> Scorer:
    """Run all stages of a re-ranking of two sets, readable by all workers, and return its scorer.

    Raises `InputError` for rows of zeros, if the graph depends on directions and the distance does not.
    """
    check_sets(query, gallery, spec.graph_distance(distance))
    return spec.scorer(query, gallery, distance, where)
