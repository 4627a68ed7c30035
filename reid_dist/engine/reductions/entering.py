"""Pairs before thresholds, entered one by one: what the single-shot CMC and a ranking by group have in common.

Both keep *entries*, each of which is one integer: a place among the positives of a query above, and the number of an
identity or of a group in the low bits.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Targets
from reid_dist.engine.plan import OPEN_BYTES
from reid_dist.engine.reductions.backends import Advance, Backend, Pairs, Rest
from reid_dist.engine.reductions.bands import PlacingTiles
from reid_dist.engine.reductions.counts import place_starts
from reid_dist.engine.reductions.tiles import BlockPair
from reid_dist.kernels.deciding import APART, Bands, OpenPairs
from reid_dist.kernels.placing import PlacedPairs, place_pairs
from reid_dist.kernels.tiles import Tile

R = TypeVar("R")

# Pairs that are entered together: they stay in the cache of a core.
_TOGETHER = 2**15

ENTERING_BYTES = OPEN_BYTES + 24 * _TOGETHER
"""Memory of open and of placed pairs, per task."""


def number_bits(n: int) -> int:
    """Low bits of an entry that hold one of `n` numbers."""
    return max(1, (n - 1).bit_length())


def entry_type(bits: int, n_places: int) -> np.dtype[np.signedinteger]:
    """Smallest type of entries of so many places, one of none included."""
    return np.dtype(np.int32 if (n_places + 1) << bits <= np.iinfo(np.int32).max else np.int64)


class EnteringTiles(PlacingTiles[R]):
    """Gives all pairs that come before a threshold to `_enter_placed`, with the numbers of their columns."""

    def __init__(
        self, targets: Targets, mask: GalleryMask, pair: BlockPair, ties: int, number_of: NDArray[np.int32]
    ) -> None:
        super().__init__(targets, mask, pair, ties)
        self._number_of = number_of
        # First place of each query, and their number at the end.
        self._start = place_starts(targets) if ties == APART else targets.positive_indptr
        # The thresholds of each query end here; those from here on need no pairs.
        self._stop = targets.indptr[1:]
        n = _TOGETHER + pair.gallery_rows
        self._placed = PlacedPairs(
            np.empty(_TOGETHER, np.int64),
            np.empty(_TOGETHER + 1, np.int64),
            np.empty(n, np.int32),
            np.empty(n, np.int32),
        )

    @abstractmethod
    def _enter_placed(self, placed: PlacedPairs) -> None:
        """Add pairs that are at their places."""

    def _place(self, backend: Backend, pairs: Pairs, bands: Bands, rest: Rest) -> Advance:
        placed, number_of = self._placed, self._number_of[pairs.columns.start : pairs.columns.stop]

        def take(tile: Tile) -> Advance:
            first, n_open, inside = rest.first, rest.n_open, 0
            while True:
                first, n_open, more, n = place_pairs(
                    tile,
                    bands,
                    rest.open,
                    n_open,
                    first,
                    rest.limit - inside,
                    self._stop,
                    self._ties,
                    number_of,
                    placed,
                )
                inside += more
                self._enter_placed(placed._replace(query=placed.query[:n]))
                # Unless it is for want of room for placed pairs that the kernel ends, it ends for good.
                if n < len(placed.query) and placed.start[n] <= _TOGETHER:
                    return first, n_open, inside

        return backend.enter(pairs, take)

    def _enter(self, decided: OpenPairs) -> None:
        place = decided.place - self._start[decided.query]
        rows = np.arange(len(place) + 1)
        number = self._number_of[decided.column]
        self._enter_placed(PlacedPairs(decided.query, rows, number, place.astype(np.int32)))
