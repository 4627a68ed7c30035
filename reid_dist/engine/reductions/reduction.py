"""Reductions: computations over tiles whose partial results merge with one associative operation.

A reduction is a value.  ``start`` gives a copy that accumulates one block of queries against one gallery block: the
tile loop passes it tiles, and ``result`` returns the partial result.  Partial results of different gallery blocks merge
in any order and grouping, by a function of them and of labels of the gallery alone: no merge needs thresholds.  The
tile loop is independent of the reductions.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.reductions.costs import Need, Precision
from reid_dist.engine.reductions.tile_products import BlockPair, TileView

R_co = TypeVar("R_co", covariant=True)


class Reduction(ABC, Generic[R_co]):
    """A reduction of tiles to a small partial result; subclasses are dataclasses."""

    # What it reads pairs for.
    need: Need
    # The block pair that is accumulated.
    _pair: BlockPair

    def start(self, pair: BlockPair) -> Self:
        """Return a copy that accumulates the tiles of a block pair."""
        begun = copy.copy(self)
        begun._pair = pair
        begun._begin(pair)
        return begun

    @abstractmethod
    def _begin(self, pair: BlockPair) -> None:
        """Prepare for the tiles of a block pair."""

    @property
    def precisions(self) -> NDArray[np.uint8]:
        """First precision of the products of every query, shape (n_query,): a `Precision` each."""
        return np.full(len(self._pair.query), Precision.PLAIN, np.uint8)

    @abstractmethod
    def absorb(self, tile: TileView) -> None:
        """Add one tile; tiles of one query arrive in ascending order of columns."""

    @abstractmethod
    def result(self) -> R_co:
        """Partial result of the block pair."""
