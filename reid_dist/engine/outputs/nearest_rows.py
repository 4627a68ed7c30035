"""Nearest gallery rows of every query: all rows, or negatives alone for open-set search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Neighbours
from reid_dist.engine.outputs.output import Float64, JobSizes, Merge, Output, QueryBlock
from reid_dist.engine.plan import MERGED_AT_ONCE, ExtraMemory
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.surroundings import KeepNearest, Surroundings, merge_surroundings

_ROWS, _NEGATIVES = "nearest", "negatives"

# Bytes per query and nearest negative: candidates, and lists that wait to be merged.
_NEGATIVE_BYTES = 1200


@dataclass(frozen=True)
class NearestRows(Output[Neighbours]):
    """The nearest gallery rows of every query, junk included."""

    stored: ClassVar[tuple[type, ...]] = (Surroundings,)
    merged_by: ClassVar[Mapping[str, Merge]] = {_ROWS: merge_surroundings}

    # Length of the lists.
    k: int

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Lists."""
        # Positives are gallery rows as well.
        reach = None if block.known is None else block.known.items.reach(self.k)
        return {_ROWS: KeepNearest(self.k, reach=reach)}

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> Neighbours:
        """Lists."""
        return Neighbours(merged[_ROWS].index, merged[_ROWS].distance)

    @property
    def memory(self) -> ExtraMemory:
        """Candidates during the tile loop, then lists that wait to be merged, and twice those being sorted."""
        entry = 16
        waiting = entry * self.k * (2 * MERGED_AT_ONCE + 4)
        return ExtraMemory((2 * self.k + 64) * 12 + waiting, values_per_query=entry // 8 * self.k)

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """The lists."""
        return self.memory


@dataclass(frozen=True)
class Probes:
    """Queries of open-set search."""

    # Nearest gallery rows that are not junk, of queries that are not mated, or nearest negatives of every query.
    nearest: Neighbours
    # As in `Relevance`.
    mated: NDArray[np.bool_]
    # Identity of every query, shape (n_query,), and of the rows of `nearest`, any where there is none; int64.
    pid: NDArray[np.int64]
    nearest_pid: NDArray[np.int64]

    @property
    def nearest_kept(self) -> Float64:
        """Distance of the first of `nearest`, shape (n_query,), float64; infinite without such a row."""
        return self.nearest.distance[:, 0]


@dataclass(frozen=True)
class NearestNegatives(Output[Probes]):
    """The nearest negatives of every query, for open-set metrics."""

    reads_relevance: ClassVar[bool] = True
    stored: ClassVar[tuple[type, ...]] = (Surroundings,)
    merged_by: ClassVar[Mapping[str, Merge]] = {_NEGATIVES: merge_surroundings}

    # Number of negatives that are listed; 0 for the nearest visible row of queries that are not mated.
    n: int = 0

    def reductions(self, block: QueryBlock) -> Mapping[str, Reduction[Any]]:
        """Lists without rows that are hidden."""
        hidden, mask = block.relevance.hidden, block.labels.mask
        nearest = KeepNearest(max(1, self.n), hidden, mask, drops_single_rows=self.n > 0)
        return {_NEGATIVES: nearest}

    def finish(self, block: QueryBlock, merged: Mapping[str, Any]) -> Probes:
        """Lists with the identities that metrics compare."""
        nearest = Neighbours(merged[_NEGATIVES].index, merged[_NEGATIVES].distance)
        pids, own = block.labels.index.labels.pids, block.labels.query.take(block.rows).pids
        return Probes(nearest, block.relevance.mated, own, pids[nearest.index])

    def extra_memory(self, sizes: JobSizes) -> ExtraMemory:
        """Lists."""
        return ExtraMemory(_NEGATIVE_BYTES * max(1, self.n))
