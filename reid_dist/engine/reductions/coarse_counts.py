"""Counts for ranks from products of eight-bit integers; the counts are those of `CountNearer`.

A threshold whose band lies among many negatives opens many pairs, which take longer than a product of float32.  Queries
are therefore left to other products when the share of their pairs that are opened is large: to products with residuals
where these are fast, or to float32, whose bands are narrower, if the share is very large.
"""

from __future__ import annotations

import threading
from copy import copy
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, Targets
from reid_dist.core.segments import take_segments
from reid_dist.engine.distances.quantised import QuantisedProducts
from reid_dist.engine.reductions.bands import ScreenedTargets
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.coarse import slack_of
from reid_dist.engine.reductions.counts import CountNearer, GroupedCounts, partial_counts
from reid_dist.engine.reductions.screens import RescoredScreen
from reid_dist.kernels.coarse import Factors, UpperEnds
from reid_dist.kernels.coarse_counting import CoarseTile, count_coarse
from reid_dist.kernels.deciding import RankCounts, ScreenedTile

Int64 = NDArray[np.int64]

# Share of opened pairs, per element, from which products of float32 are faster.
_MOST_OPENED_PER_ELEMENT = 1.0 / 8192.0


class _PlainQueries:
    """Queries of recent blocks that were left to other products, by their thresholds, for other gallery blocks.

    They change no result: a process that knows none finds them again.
    """

    _MOST_BLOCKS: ClassVar[int] = 64

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[NDArray[np.bool_], bool]] = {}

    def of(self, targets: Targets) -> NDArray[np.bool_] | None:
        """Whether each query is left to other products, shape (n_query,); None for an unknown block."""
        known = self._find(targets)
        return None if known is None else known[0]

    def take_residuals(self, targets: Targets) -> bool:
        """Whether these products may be those with residuals, which is assumed for an unknown block."""
        known = self._find(targets)
        return known is None or known[1]

    def _find(self, targets: Targets) -> tuple[NDArray[np.bool_], bool] | None:
        with self._lock:
            return self._known.get(self._key(targets))

    def share_of(self, targets: Targets) -> float:
        """Share of the queries with thresholds; 0 for an unknown block."""
        known, n_valid = self.of(targets), int((np.diff(targets.indptr) > 0).sum())
        return 0.0 if known is None else int(known.sum()) / max(1, n_valid)

    def keep(self, targets: Targets, plain: Int64, *, residuals: bool) -> None:
        """Remember the queries of a block, and whether their products may be those with residuals."""
        found = np.zeros(len(targets.indptr) - 1, np.bool_)
        found[plain] = True
        with self._lock:
            while len(self._known) >= self._MOST_BLOCKS:
                del self._known[next(iter(self._known))]
            self._known[self._key(targets)] = found, residuals

    @staticmethod
    def _key(targets: Targets) -> bytes:
        # Sizes come first: a key that blocks of other sizes share would give queries that this one lacks.
        sizes = np.array([len(targets.indptr), targets.indptr[-1]])
        step = max(1, len(targets.distance) // 256)
        return sizes.tobytes() + targets.indptr[::64].tobytes() + targets.distance[::step].tobytes()


PLAIN_QUERIES = _PlainQueries()


class CoarseCounts:
    """Counts of a block pair."""

    def __init__(
        self, reduction: CountNearer, query: FeatureBlock, gallery: FeatureBlock, products: QuantisedProducts
    ) -> None:
        self._reduction, self._gallery = reduction, gallery
        mirrored, screen = products.plain.mirrored(), copy(products.plain)
        if query.reranked is not None:
            screen = RescoredScreen(products.plain, pair_rows(reduction.distance, query, gallery))
        self._known = np.empty(0)
        # Queries that need no products, int64.
        self.spared = np.empty(0, np.int64)
        screen.epsilon = screen.epsilon + slack_of(mirrored)
        self._bias, self._own = mirrored.column_bias, products.queries.factors
        targets = reduction.targets
        self._thresholds = ScreenedTargets(targets, reduction.mask, reduction.distance, query, gallery, screen)
        if isinstance(screen, RescoredScreen):
            self._known = screen.known
            self.spared = np.flatnonzero(~screen.needs_product(self._thresholds.lower_bound))
        sizes = len(targets.distance), len(targets.distance), len(targets.positive_row)
        self._counts = RankCounts(*(np.zeros(size, np.int32) for size in sizes))
        # The number of each query, -1 for one that is not counted.
        self._number = np.arange(len(query))
        self._crowded = np.zeros(len(query), np.int32)
        self._share = _MOST_OPENED_PER_ELEMENT * query.features.shape[1]
        # Whether queries for which products of float32 are faster are left out.
        self.is_limited = False
        self._open: tuple[Factors, ScreenedTile, int] | None = None

    def count_only(self, queries: Int64) -> None:
        """Count only some queries of further tiles."""
        self._number[:] = -1
        self._number[queries] = queries

    def take_crowded(self) -> tuple[Int64, int]:
        """Return the queries that were left out, int64, and the number of their opened pairs, and forget them."""
        crowded, opened = np.flatnonzero(self._crowded), int(self._crowded.sum())
        self._crowded[:] = 0
        return crowded, opened

    def open(self, columns: RowRange, factors: Factors) -> None:
        """Begin the tiles of some gallery rows, of which `factors` are given."""
        screened = self._thresholds.without_values(columns, self._bias[columns.start : columns.stop])
        most = int(self._share * len(columns)) if self.is_limited else len(columns)
        self._open = factors, screened, most

    @property
    def biases(self) -> tuple[NDArray[np.floating], Int64]:
        """Biases of the gallery rows, ``inf`` for hidden ones, shape (kinds, n), and the kind of each query."""
        _, screened, _ = self._opened()
        return screened.bias, screened.bias_of

    def absorb(self, tile: NDArray[np.int32], queries: Int64, ends: UpperEnds) -> None:
        """Add the products of some queries and the gallery rows; `ends` receives those of the tile."""
        other, screened, most = self._opened()
        products = CoarseTile(tile, self._number[queries], self._own, other, self._known)
        count_coarse(products, screened, self._counts, most, self._crowded, ends)

    def _opened(self) -> tuple[Factors, ScreenedTile, int]:
        if self._open is None:
            raise AssertionError("gallery rows come before their tiles")
        return self._open

    def add(self, queries: Int64, counts: GroupedCounts) -> None:
        """Add counts of some queries and some other gallery rows."""
        targets = self._reduction.targets
        indptr, threshold = take_segments(targets.indptr, queries)
        positive = take_segments(targets.positive_indptr, queries)[1]
        own = counts[self._gallery.group]
        nearer = own.near.astype(np.int32)
        # Counts are kept apart by threshold until the end.
        nearer[1:] -= own.near[:-1]
        first = indptr[:-1][np.diff(indptr) > 0]
        nearer[first] = own.near[first]
        self._counts.near[threshold] += nearer
        self._counts.tied[threshold] += own.tied.dense(len(threshold)).astype(np.int32)
        self._counts.before[positive] += own.before.dense(len(positive)).astype(np.int32)

    def result(self) -> GroupedCounts:
        """Return the counts of the block pair."""
        reduction = self._reduction
        return {self._gallery.group: partial_counts(self._counts, reduction.targets, len(reduction.mask.junk_row))}
