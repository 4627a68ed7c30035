"""What is computed from tiles: partial results of gallery blocks that merge with one associative operation.

A reduction is a frozen value.  ``start`` gives an accumulator for one block of queries against one gallery block, the
sweep feeds it tiles, ``result`` takes the partial out, and ``combine`` merges partials of different gallery blocks in
any order and grouping.  The sweep does not know which reductions it feeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.distances import Distance, Screen
from reid_dist.kernels.canonical import PairRows
from reid_dist.model import RowRange

__all__ = ["Accumulator", "FeatureBlock", "Reduction", "Tile", "pair_rows"]


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """Consecutive feature rows in memory.

    Attributes
    ----------
    rows
        Which rows of their set they are.
    features
        Shape (len(rows), dim), float32, C order.
    norm
        Canonical squared norms, shape (len(rows),), float64.
    """

    rows: RowRange
    features: NDArray[np.float32]
    norm: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tile:
    """Screening values of some queries against some gallery rows.

    Attributes
    ----------
    values
        Shape (n_query, n_column), float32; larger is nearer, once the bias is taken off.
    bias
        Shape (n_column,).
    query_start
        Position of the first query in the block of queries.
    column_start
        Position of the first column in the gallery block.
    """

    values: NDArray[np.floating]
    bias: NDArray[np.floating]
    query_start: int
    column_start: int


P = TypeVar("P")
R_co = TypeVar("R_co", covariant=True)


class Accumulator(Protocol[R_co]):
    """Takes the tiles of one block pair."""

    def absorb(self, tile: Tile) -> None:
        """Take one tile; tiles of one query come in ascending order of columns."""

    def result(self) -> R_co:
        """Partial result of the block pair."""


class Reduction(Protocol[P]):
    """A way to reduce tiles to something small."""

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> Accumulator[P]:
        """Make an accumulator for a block pair."""

    def combine(self, partials: Sequence[P]) -> P:
        """Merge partials of different gallery blocks; associative and commutative."""


def pair_rows(distance: Distance, query: FeatureBlock, gallery: FeatureBlock) -> PairRows:
    """Both blocks as the kernels take them."""
    return PairRows(distance.kind, query.features, gallery.features, query.norm, gallery.norm)
