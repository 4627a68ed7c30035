"""Pooled rows as a stage, and the store that is made of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import first_few
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError
from reid_dist.stages.parts import Parts, RowStage, completed, turn
from reid_dist.stages.pooling.pooling_job import POOLINGS, PooledPlace, Pooling, PoolJob, PoolRecipe
from reid_dist.stages.pooling.row_groups import RowGroups, choose_cut, share
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet
from reid_dist.stores.featureset import ranges_with
from reid_dist.stores.kept_rows import KEPT_DTYPES, convert_rows

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Bytes of float64 rows that are processed at a time.
_WORK_BYTES = 4 << 20

RowsShown = Callable[[int, int], None]
"""Called with rows read and rows to read, over all blocks of groups."""


def write_pooled(
    job: PoolJob,
    visible: FeatureSet,
    to: PooledPlace,
    where: Resources,
    *,
    sums_bytes: int,
    show: RowsShown | None,
) -> FeatureSet:
    """Pool every group of rows into one row and write the store; finished parts of the workspace are reused.

    `visible` is the set in a place that all workers can read, and `sums_bytes` the memory for the sums of a task.
    """
    groups, recipe = job.groups, replace(job.recipe, features=visible)
    limits = {"n_threads": where.n_threads, "memory_per_thread": where.memory_per_thread}
    stage = Pooled(choose_cut(visible, groups, sums_bytes=sums_bytes, **limits), recipe, show)
    with turn(stage, where):
        with job.writer(to) as writer:
            parts = completed(stage, where)
            zero_groups: list[int] = []
            for block, some in enumerate(parts.blocks):
                rows = parts.block(block, "features")["features"]
                zero_groups += (np.flatnonzero(~rows.any(axis=1)) + some.start).tolist()
                writer.append(rows)
            if zero_groups and not job.allow_zero:
                where.workspace.remove(parts.stage)
                raise InputError(_zero_groups(groups, zero_groups, recipe.method))
            writer.set_labels(job.labels)
        where.workspace.remove(parts.stage)
    return FeatureSet.open(to.uri)


def _zero_groups(groups: RowGroups, zero: list[int], method: str) -> str:
    rows = groups.rows_of(zero[0], zero[0] + 1)
    named = first_few(list(map(str, rows.tolist())), 10)
    return (
        f"the {method} of {share(len(zero), len(groups))} is a zero vector, which has no direction: the first is "
        f"{groups.name(zero[0])} (rows {named}); leave these rows out, or keep zero vectors (allow_zero=True, "
        "--allow-zero)"
    )


# ---- the stage -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pooled(RowStage):
    """Pooled rows of groups; tasks call `count` with the number of rows after every piece of the set that is read."""

    kind: ClassVar[str] = "pooled"
    progress: ClassVar[str] = "pooling"

    recipe: PoolRecipe
    show: RowsShown | None = field(compare=False)
    count: Callable[[int], None] | None = field(default=None, compare=False)

    @property
    def identity(self) -> Any:
        """Content of the set, and all options."""
        options = {name: value for name, value in vars(self.recipe).items() if name != "features"}
        return [self.recipe.features.content_digest, options]

    def fill(self, parts: Parts, missing: Sequence[int], done: frozenset[str], where: Resources) -> None:
        """Pool the missing blocks, and show the rows that are read for them."""
        count = None
        if self.show is not None:
            features, groups = self.recipe.features, self.recipe.groups
            source = (groups.rows_of(some.start, some.stop) for some in map(parts.blocks.rows, missing))
            rows = [sum(stop - start for start, stop in ranges_with(features, each)) for each in source]
            counter = _RowCounter(sum(rows), self.show)
            if where.client is None:
                count = counter.add
            else:
                where = replace(where, progress=_CountedTasks(where.progress, rows, counter))
        super(Pooled, replace(self, show=None, count=count)).fill(parts, missing, done, where)

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Pool the groups of a block."""
        recipe, how, dtype = self.recipe, POOLINGS.get(self.recipe.method), KEPT_DTYPES[self.recipe.dtype]
        source = recipe.groups.rows_of(rows.start, rows.stop)
        weights, totals = recipe.weights(source, rows.start, rows.stop)
        accumulators = _accumulate(recipe, source, weights, rows, self.count)
        kept = np.empty(accumulators.shape, dtype)
        for cut in cut_rows(len(rows), max(1, _WORK_BYTES // (8 * recipe.features.dim))):
            some = slice(cut.start, cut.stop)
            pooled = how.finish(accumulators[some], totals[some, None])
            kept[some] = convert_rows(_unit_rows(pooled) if recipe.normalise else pooled, dtype, rows.start + cut.start)
        return {"features": kept}


def _accumulate(
    recipe: PoolRecipe,
    block_rows: Int64,
    weights: Float64 | None,
    some: RowRange,
    count: Callable[[int], None] | None,
) -> Float64:
    """Accumulators of a block of groups, (n_groups, dim) float64, over all their rows in row order.

    `block_rows` are these rows, ascending, and `weights` theirs, both (n_rows,).
    """
    features, groups, how = recipe.features, recipe.groups, POOLINGS.get(recipe.method)
    accumulators = np.full((len(some), features.dim), how.start)
    work_rows = max(1, _WORK_BYTES // (8 * features.dim))
    for start, stop in ranges_with(features, block_rows):
        low, high = np.searchsorted(block_rows, [start, stop])
        piece = features.read(start, stop)
        for at in range(low, high, work_rows):
            rows = block_rows[at : min(at + work_rows, high)]
            values = piece[rows - start].astype(np.float64)
            if recipe.normalise_rows:
                values = _unit_rows(values)
            if weights is not None:
                values *= weights[at : at + len(rows), None]
            _join(accumulators, groups.of_row[rows] - some.start, values, how)
        if count is not None:
            count(stop - start)
    return accumulators


def _join(accumulators: Float64, places: Int64, values: Float64, how: Pooling) -> None:
    """Join every row to the accumulator at its place, rows of one place in row order.

    The first rows of all places are joined at once, then the second ones, …: a fixed order within every place, which
    `numpy.add.reduceat` does not guarantee.
    """
    by_place = np.argsort(places, kind="stable")
    found, starts, sizes = np.unique(places[by_place], return_index=True, return_counts=True)
    fullest = np.argsort(-sizes, kind="stable")
    reaching = np.searchsorted(-sizes[fullest], -np.arange(sizes[fullest[0]]), "left")
    for number, count in enumerate(reaching):
        some = fullest[:count]
        to = found[some]
        accumulators[to] = how.join(accumulators[to], values[by_place[starts[some] + number]])


def _unit_rows(rows: Float64) -> Float64:
    """Rows scaled to length 1, (n, dim) float64; rows of zeros are unchanged."""
    length = np.sqrt(_squared_lengths(rows))
    return rows / np.where(length > 0, length, 1.0)[:, None]


def _squared_lengths(rows: Float64) -> Float64:
    """Sums of squares, shape (n,), float64: the right half of the terms is added to the left half until one remains.

    Elementwise additions give the same result on every machine, which `numpy.sum` over a row does not guarantee.
    """
    terms = rows * rows
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms[:, 0]


# ---- progress --------------------------------------------------------------------------------------------------------


class _RowCounter:
    """Rows read so far; several threads may count at a time."""

    def __init__(self, total: int, show: RowsShown) -> None:
        self._done, self._total, self._show = 0, total, show
        self._lock = threading.Lock()

    def add(self, rows: int) -> None:
        with self._lock:
            self._done += rows
            self._show(self._done, self._total)


class _CountedTasks(Progress):
    """Progress of a cluster, which reports the end of tasks alone: rows are counted in the order of the blocks."""

    def __init__(self, inner: Progress, rows: list[int], counter: _RowCounter) -> None:
        self._inner, self._rows, self._counter = inner, iter(rows), counter

    def start(self, totals: dict[str, int]) -> None:
        self._inner.start(totals)

    def advance(self, stage: str) -> None:
        self._inner.advance(stage)
        self._counter.add(next(self._rows))

    def warn(self, message: str) -> None:
        self._inner.warn(message)

    def compiling(self, words: str) -> None:
        self._inner.compiling(words)

    def compiled(self, began: float, ended: float) -> None:
        self._inner.compiled(began, ended)
