"""Backends: what a block pair is computed with in one precision, as reductions call it.

A reduction names pairs, thresholds or levels, and what is visible; a backend adds what its values settle, and lists the
pairs that they leave open.  Products of these pairs need not be in the memory of this process.  Which backend serves
which need, and at what cost, is the table of `reid_dist.engine.reductions.costs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Screen
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.kernels.canonical import PairRows
from reid_dist.kernels.deciding import Bands, OpenPairs, RankCounts
from reid_dist.kernels.impostors import Brackets, ByQuery
from reid_dist.kernels.placing import Placing
from reid_dist.kernels.symmetric import Side
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]

Entering = Callable[[Tile, Placing, int, int], tuple[int, int]]
"""Takes the values of some rows, what they are placed by, the first row and the largest number of open pairs."""


class Pairs(NamedTuple):
    """Pairs of some queries and columns of a block pair, less those that are hidden by label."""

    # Places in the block of queries, ascending, shape (n,), int64.
    queries: Int64
    columns: RowRange
    hidden: HiddenColumns | None = None


@dataclass(slots=True)
class PlacedCounts:
    """Counts by place and by group of columns, and pairs that values leave open, of all tiles of a block pair."""

    counts: RankCounts
    # Place of the group of each column among the counts, shape (columns,), int64; empty if all are of the first.
    group_of: Int64
    open: OpenPairs
    # As of `reid_dist.kernels.counting.count_tile`.
    many: int | None
    # Adds the first open pairs, by their number, to the counts.
    decide: Callable[[OpenPairs, int], None]
    n_open: int = 0

    def settle(self) -> None:
        """Decide all open pairs."""
        self.decide(self.open, self.n_open)
        self.n_open = 0


class Seen(NamedTuple):
    """Pairs that are counted as impostors, and the scale of their values; fields as of `Screened`, but the tile."""

    hidden_indptr: Int64
    hidden_column: Int64
    counted: NDArray[np.bool_]
    centre: NDArray[np.floating]
    scale: np.floating


class Backend(Protocol):
    """Products of a block pair in one precision.

    Primitives that take `first` and `limit` add rows of the pairs from that one on, until more than `limit` values are
    left open; they return the number of the first row that was not added, and of these values.
    """

    screen: Screen

    def prepare(self, columns: RowRange) -> None:
        """Prepare gallery rows, unless they are the latest."""

    def error(self, pairs: Pairs) -> float:
        """Largest error of the values of some pairs, beyond that of the screen."""

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """Errors of the values of all queries, as some columns show them, shape (n_query,), rounded up."""

    def place(self, pairs: Pairs, bands: Bands, into: PlacedCounts, first: int, limit: int) -> tuple[int, int]:
        """Count pairs by the thresholds that they lie between: settled ones in `into.counts`, others in `into.open`.

        `into.settle` makes room for more of these.
        """

    def enter(self, pairs: Pairs, by: Placing, take: Entering, first: int, limit: int) -> tuple[int, int]:
        """Give the rows that may lie before a threshold to `take`."""

    def nearest(self, pairs: Pairs, side: Side) -> int:
        """Add pairs to the lists of their queries; return the number of values that were looked at singly."""

    def nearest_both_ways(self, pairs: Pairs, near: Side, far: Side) -> int:
        """Add pairs of different items to the lists of queries and of columns; return the same number."""

    def histogram(self, pairs: Pairs, seen: Seen, counts: Int64, span: NDArray[np.uint32]) -> None:
        """Count pairs by the keys of their values."""

    def split(
        self,
        pairs: Pairs,
        seen: Seen,
        brackets: Brackets,
        rows: PairRows,
        first: int,
        limit: int,
        gaps: Int64,
        found: NDArray[np.float64],
        progress: Int64,
        by_query: ByQuery,
    ) -> int:
        """Count pairs by brackets of distances, from row `first` on; see `reid_dist.kernels.impostors.split_tile`."""
