"""The single-gallery-shot CMC of seeded draws: how often few identities come before the drawn positive.

One repeat draws one kept item of every gallery identity for every query, its own identity's among its positives.  Which
item is a function of (seed, repeat, query row, pid) and of labels alone (see `reid_dist.kernels.draws`): two models
that are compared with one seed are compared on the same galleries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.distances import Distance, Screen
from reid_dist.kernels.draws import Draws, draw_states, draw_tile, drawn_items, identity_states
from reid_dist.kernels.placing import ScreenedTile
from reid_dist.model import GalleryMask, Targets
from reid_dist.reductions.bands import ScreenedTargets
from reid_dist.reductions.base import FeatureBlock, Tile
from reid_dist.reductions.counts import CROWDED
from reid_dist.reductions.identities import Identities
from reid_dist.reductions.single_shot import SingleShot

__all__ = ["CountDrawn"]

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CountDrawn:
    """Count, in repeated draws, the identities that come before the drawn positive.

    A partial result is the counts, shape (n_query, n_draws), int32, none above `SingleShot.max_rank`.

    Attributes
    ----------
    targets, mask, distance, identities
        As in `ListBefore`.
    shot
        Number of draws, seed and largest rank.
    """

    targets: Targets
    mask: GalleryMask
    distance: Distance
    identities: Identities
    shot: SingleShot

    def start(self, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> _Drawing:
        """Make an accumulator for a block pair."""
        return _Drawing(self, query, gallery, screen)

    def combine(self, partials: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
        """Add counts, up to the most that matters."""
        total = np.zeros(partials[0].shape, np.int64)
        for partial in partials:
            total += partial
        return np.minimum(total, self.shot.max_rank).astype(np.int32)

    def finish(self, merged: NDArray[np.int32]) -> Float64:
        """Return ``CMC_single_shot`` at every rank, shape (n_query, max_rank), float64; NaN without positives."""
        n_query, n_draws = merged.shape
        valid = np.diff(self.targets.positive_indptr) > 0
        # Column k holds the draws in which k identities came before.
        column = merged + np.arange(n_query)[:, None] * (self.shot.max_rank + 1)
        counts = np.bincount(column.reshape(-1), minlength=n_query * (self.shot.max_rank + 1))
        within = np.cumsum(counts.reshape(n_query, -1)[:, :-1], axis=1)
        return np.where(valid[:, None], within / n_draws, np.nan)

    def draw(self, query_row: Int64) -> Draws:
        """Draw the positives of a block of queries.

        Parameters
        ----------
        query_row
            Rows of the queries in their set, shape (n_query,), int64.
        """
        n_draws = self.shot.n_draws or 0
        start = self.targets.positive_indptr
        n_positive = np.diff(start)
        valid = np.flatnonzero(n_positive)
        own = self.identities.of_queries(self.targets)[valid]
        with np.errstate(over="ignore"):
            # Unsigned numbers wrap around, as they shall.
            state = draw_states(np.uint64(self.shot.seed % 2**64), query_row, n_draws)
            drawn = drawn_items(state[valid], self.identity_state[own], n_positive[valid])
        # Items are numbered by gallery row, which is one order whatever the distances.
        owner = np.repeat(np.arange(len(n_positive)), n_positive)
        by_row = np.lexsort((self.targets.positive_row, owner)) - np.repeat(start[:-1], n_positive)
        place = np.zeros(state.shape, np.int64)
        place[valid] = by_row[start[valid, None] + drawn]
        return Draws(state, place, np.zeros(state.shape, np.int32))

    @property
    def identity_state(self) -> NDArray[np.uint64]:
        """Random state of each identity, from its pid."""
        with np.errstate(over="ignore"):
            return identity_states(self.identities.pid.astype(np.uint64))


class _Drawing:
    """Accumulator of `CountDrawn`."""

    def __init__(self, reduction: CountDrawn, query: FeatureBlock, gallery: FeatureBlock, screen: Screen) -> None:
        self._reduction = reduction
        targets, identities = reduction.targets, reduction.identities
        self._thresholds = ScreenedTargets(targets, reduction.mask, reduction.distance, query, gallery, screen)
        self._table = identities.table(targets)
        self._identity_of = identities.of_row[gallery.numbers]
        self._item_of = identities.item_of_row[gallery.numbers]
        self._state = reduction.identity_state
        self._draws = reduction.draw(query.numbers)

    def absorb(self, tile: Tile) -> None:
        """Count one tile; the rest of one whose bands are too crowded is screened again in float64."""
        done = self._count(self._thresholds.screened(tile), tile, 0, int(CROWDED * tile.values.size) + 64)
        if done < len(tile.values):
            self._count(self._thresholds.screened_in_float64(tile, done), tile, done, tile.values.size)

    def _count(self, screened: ScreenedTile, tile: Tile, first: int, limit: int) -> int:
        column = slice(tile.column_start, tile.column_start + tile.values.shape[1])
        with np.errstate(over="ignore"):
            return draw_tile(
                screened,
                tile.query_start + first,
                self._identity_of[column],
                self._item_of[column],
                self._state,
                self._table,
                self._reduction.shot.max_rank,
                self._draws,
                limit,
            )

    def result(self) -> NDArray[np.int32]:
        """Counts of the block pair."""
        return self._draws.before
