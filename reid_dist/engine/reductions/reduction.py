"""Reductions: computations over tiles whose partial results merge with one associative operation.

A reduction is a frozen value.  ``start`` returns an accumulator for one block of queries against one gallery block, the
tile loop passes it tiles, and ``result`` returns the partial result.  Partial results of different gallery blocks merge
in any order and grouping, by a function of them and of labels of the gallery alone: no merge needs thresholds.  The
tile loop is independent of the reductions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.reductions.costs import Need, Precision, serving
from reid_dist.engine.reductions.tiles import BlockPair, TileView

R_co = TypeVar("R_co", covariant=True)


class Accumulator(ABC, Generic[R_co]):
    """Accumulates the tiles of one block pair."""

    # What it reads pairs for.
    need: ClassVar[Need]

    @property
    @abstractmethod
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of the products of every query, shape (n_query,): a `Precision` each."""

    @abstractmethod
    def absorb(self, tile: TileView) -> None:
        """Add one tile; tiles of one query arrive in ascending order of columns."""

    @abstractmethod
    def result(self) -> R_co:
        """Partial result of the block pair."""


class Reduction(Protocol[R_co]):
    """A reduction of tiles to a small partial result."""

    # What it reads pairs for.
    need: ClassVar[Need]

    def start(self, pair: BlockPair) -> Accumulator[R_co]:
        """Make an accumulator for a block pair."""


def first_precisions(pair: BlockPair, accumulators: list[Accumulator[object]]) -> NDArray[np.uint8]:
    """First precision of every query for all accumulators, shape (n_query,), uint8.

    It is the widest that one of them prefers, or a wider one, where it does not serve the need of another.
    """
    own = [accumulator.precisions for accumulator in accumulators]
    first: NDArray[np.uint8] = np.maximum.reduce(own)
    for accumulator, each in zip(accumulators, own, strict=True):
        served = [serving(kind, accumulator.need, pair.table, known=pair.has_known) for kind in Precision]
        raised = np.maximum(served, [*Precision]).astype(np.uint8)
        first = np.where(each > Precision.NOTHING, raised[first], first)
    return first
