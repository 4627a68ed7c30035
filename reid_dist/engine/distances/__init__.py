"""Distances: the canonical definition of each, and its screening."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from numpy.typing import DTypeLike

from reid_dist.core.registry import Registry
from reid_dist.engine.distances.screening import (
    CentredScreen,
    GivenScreen,
    RescoredScreen,
    Screen,
    UnitScreen,
    UnweightedScreen,
    Values,
)
from reid_dist.kernels.canonical import COSINE, EUCLIDEAN, GIVEN, SQEUCLIDEAN, PairRows

__all__ = ["DISTANCES", "GIVEN_DISTANCE", "Distance", "Screen", "Values"]


@dataclass(frozen=True)
class Distance:
    """A distance between feature rows.

    Attributes
    ----------
    name, summary, source
        Registered name, one-line description and reference, for help texts and reports.
    definition
        Formula, as printed in reports.
    kind
        Number that selects the distance in kernels.
    screen
        Class that screens tiles.
    squared
        Whether the screening value falls with the square of the distance.
    needs_length
        Whether the distance of a zero row is undefined.
    """

    name: str
    summary: str
    source: str
    definition: str
    kind: int
    screen: Callable[..., Screen]
    squared: bool = False
    needs_length: bool = False

    @property
    def sees_length(self) -> bool:
        """Whether the distance depends on the lengths of rows, not on their directions alone."""
        return self.kind in (EUCLIDEAN, SQEUCLIDEAN)

    def screen_pairs(self, pairs: PairRows, dtype: DTypeLike) -> Screen:
        """Screen of a block pair with products of a dtype, re-ranked or not."""
        if pairs.rescoring.active and pairs.rescoring.weight == 0.0:
            return UnweightedScreen(pairs)
        screen = self.screen(pairs, dtype)
        return RescoredScreen(screen, pairs) if pairs.rescoring.active else screen

    def describe(self) -> dict[str, str]:
        """Return name, definition and source for a report."""
        return {"name": self.name, "definition": self.definition, "source": self.source}


DISTANCES: Registry[Distance] = Registry("distance")

COSINE_DISTANCE = DISTANCES.register(
    Distance(
        name="cosine",
        summary="1 - cosine similarity; exactly 0 for equal rows",
        source="the usual choice of ReID evaluation code since Zheng et al., ICCV 2015",
        definition="1 - xy / sqrt(xx * yy), sums in float64 in a fixed order",
        kind=COSINE,
        screen=UnitScreen,
        needs_length=True,
    )
)
EUCLIDEAN_DISTANCE = DISTANCES.register(
    Distance(
        name="euclidean",
        summary="length of the difference, features as they are",
        source="Euclid; torchreid's and fast-reid's `euclidean` is its square, here `sqeuclidean`",
        definition="sqrt(sum (x - y)^2), sums in float64 in a fixed order",
        kind=EUCLIDEAN,
        screen=CentredScreen,
        squared=True,
    )
)
SQEUCLIDEAN_DISTANCE = DISTANCES.register(
    Distance(
        name="sqeuclidean",
        summary="squared length of the difference, features as they are",
        source="scipy.spatial.distance.sqeuclidean",
        definition="sum (x - y)^2, sums in float64 in a fixed order",
        kind=SQEUCLIDEAN,
        screen=CentredScreen,
    )
)

# Not registered: the distance of precomputed blocks, not defined for features.
GIVEN_DISTANCE = Distance(
    name="given",
    summary="distances from a block that was computed elsewhere",
    source="the block",
    definition="as given; float64, smaller is nearer",
    kind=GIVEN,
    screen=GivenScreen,
)
