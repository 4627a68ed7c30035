"""Backends: what a block pair is computed with in one precision, as reductions call it.

A reduction names pairs, thresholds or levels, and what is visible; a backend adds what its values settle, and lists the
pairs that they leave open.  Products of these pairs need not be in the memory of this process.  Which backend serves
which need, and at what cost, is the table of `reid_dist.engine.reductions.costs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Screen
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.kernels.counting import count_tile
from reid_dist.kernels.deciding import Bands, OpenPairs
from reid_dist.kernels.impostors import Brackets, Screened, count_keys, split_tile
from reid_dist.kernels.symmetric import Side, collect_both, collect_rows
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]

Advance = tuple[int, int, int]
"""The first row of some pairs that was not added, and the numbers of open pairs and of values inside bands."""

Entering = Callable[[Tile], Advance]
"""Adds the values of some pairs."""


class Pairs(NamedTuple):
    """Pairs of some queries and columns of a block pair, less those that are hidden by label."""

    # Places in the block of queries, ascending, shape (n,), int64.
    queries: Int64
    columns: RowRange
    hidden: HiddenColumns | None = None


class Rest(NamedTuple):
    """What is left of some pairs to be added.

    A primitive ends before a row with which more than `limit` values lie inside bands, and before one whose open pairs
    may find no room.
    """

    # Receives pairs that values leave open, behind the first `n_open`.
    open: OpenPairs
    n_open: int
    # The first row to add.
    first: int
    limit: int


class Seen(NamedTuple):
    """Pairs that are counted as impostors, and the scale of their values; fields as of `Screened`, but the tile."""

    hidden_indptr: Int64
    hidden_column: Int64
    counted: NDArray[np.bool_]
    centre: NDArray[np.floating]
    scale: np.floating


class Backend(ABC):
    """Products of a block pair in one precision: those of a tile are in memory, unless methods are overridden."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._latest: tuple[Int64, RowRange, Tile] | None = None
        # The same without columns that are hidden, for the latest pairs.
        self._shown: tuple[Pairs, Tile] | None = None

    @abstractmethod
    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns; the next call overwrites them."""

    def tile(self, pairs: Pairs) -> Tile:
        """Products of some pairs, which are valid until others of this backend are read."""
        queries, columns, hidden = pairs
        if self._latest is None or self._latest[0] is not queries or self._latest[1] != columns:
            self._latest, self._shown = (queries, columns, self._multiply(queries, columns)), None
        found = self._latest[2]
        if hidden is None:
            return found
        if self._shown is None or self._shown[0] is not pairs:
            bias, bias_of = hidden.bias(found.bias[0], columns, queries)
            self._shown = pairs, found._replace(bias=bias, bias_of=bias_of)
        return self._shown[1]

    def error(self, pairs: Pairs) -> float:
        """Largest error of the values of some pairs, beyond that of the screen."""
        return float(self.tile(pairs).extra.max(initial=0.0))

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """Errors of the values of all queries, as some columns show them, shape (n_query,), rounded up."""
        return np.zeros(self.screen.shape[0], np.float32)

    def place(
        self, pairs: Pairs, bands: Bands, rest: Rest, counts: NDArray[np.int32], group_of: Int64, many: int | None
    ) -> Advance:
        """Count pairs by place and by group of columns; others as of `reid_dist.kernels.counting.count_tile`."""
        found: Advance = count_tile(self.tile(pairs), bands, counts, *rest, group_of, many)
        return found

    def enter(self, pairs: Pairs, take: Entering) -> Advance:
        """Give pairs that may lie before a threshold to `take`."""
        return take(self.tile(pairs))

    def split(
        self, pairs: Pairs, seen: Seen, brackets: Brackets, rest: Rest, below: Int64, tally: NDArray[np.int32]
    ) -> Advance:
        """Count pairs by brackets of distances; other arguments as of `reid_dist.kernels.impostors.split_tile`."""
        found: Advance = split_tile(Screened(self.tile(pairs), *seen), brackets, *rest, below, tally)
        return found

    def nearest(self, pairs: Pairs, side: Side) -> int:
        """Add pairs to the lists of their queries; return the number of values that were looked at singly."""
        return collect_rows(self.tile(pairs), side)

    def nearest_both_ways(self, pairs: Pairs, near: Side, far: Side) -> int:
        """Add pairs of different items to the lists of queries and of columns; return the same number."""
        return collect_both(self.tile(pairs), near, far)

    def histogram(self, pairs: Pairs, seen: Seen, counts: Int64, span: NDArray[np.uint32]) -> None:
        """Count pairs by the keys of their values."""
        count_keys(Screened(self.tile(pairs), *seen), counts, span)
