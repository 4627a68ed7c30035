"""Pooling: one row per group of rows that share a label, for video benchmarks and multi-query evaluation.

A tracklet of MARS is one item whose feature is the mean (or the element-wise maximum) of the features of its frames,
scaled to length 1.  The multi-query setting of Market-1501 does the same with all images of an identity under one
camera, on the query side.  Here pooling is a stage before the evaluation: it reads a feature set and writes another.

Groups and their sizes follow from labels, before any feature is read.  Groups are numbered in the order of their first
rows and cut into blocks whose float64 accumulators fit a fixed number of bytes; for each block, a task reads the pieces
of the set that hold its rows once, in row order, and writes a part of the workspace.  A set with contiguous groups is
cut into short blocks, which many threads share, and is read about once; one with scattered groups is read once per
block, is cut into as few blocks as the accumulators allow, and is never held in memory as a whole.

Every group is summed in float64 by one addition per row, in row order, and squared lengths are folded in a fixed tree
of elementwise additions: the result is a function of rows, labels and options, and has the same bytes whatever the
chunks of the source, the size of the blocks and the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import first_few
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.core.registry import Registry
from reid_dist.engine.task_graph import Progress, Stopwatch
from reid_dist.errors import InputError
from reid_dist.stages.parts import Parts, RowStage, completed, turn
from reid_dist.stages.row_groups import (
    RowGroups,
    choose_cut,
    forget_groups,
    latest_groups,
    share,
)
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet, FeatureWriter
from reid_dist.stores.featureset import ranges_with
from reid_dist.stores.kept_rows import KEPT_DTYPES, convert_rows
from reid_dist.stores.labels import Labels
from reid_dist.stores.layout import chunk_length

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Bytes of float64 rows that are processed at a time.
_WORK_BYTES = 4 << 20

RowsShown = Callable[[int, int], None]
"""Called with rows read and rows to read, over all blocks of groups."""


@dataclass(frozen=True)
class Pooling:
    """Pooling method: an elementwise reduction of rows.

    Attributes
    ----------
    name, summary, source
        Texts for lists of methods.
    start
        Initial value of every element of an accumulator.
    join
        Combines accumulators and rows, both (n, dim) float64, into accumulators, element by element.
    finish
        Converts accumulators, (n, dim) float64, and sums of weights, (n, 1) float64, into pooled rows.
    weighs
        Whether rows may have weights, by which they are multiplied; without any, each has the weight 1.
    """

    name: str
    summary: str
    source: str
    start: float
    join: Callable[[Float64, Float64], Float64]
    finish: Callable[[Float64, Float64], Float64]
    weighs: bool = False


POOLINGS: Registry[Pooling] = Registry("pooling method")

POOLINGS.register(
    Pooling(
        "mean",
        "arithmetic mean of the rows of a group",
        "Zheng et al., ECCV 2016 (MARS); multi-query of Zheng et al., ICCV 2015 (Market-1501)",
        start=0.0,
        join=lambda sums, rows: sums + rows,
        finish=lambda sums, weight: sums / weight,
        weighs=True,
    )
)
POOLINGS.register(
    Pooling(
        "max",
        "largest value of each dimension over the rows of a group",
        "Zheng et al., ECCV 2016 (MARS)",
        start=-np.inf,
        join=lambda largest, rows: np.maximum(largest, rows),
        # The maximum of +0 and -0 depends on the processor; adding zero gives +0.
        finish=lambda largest, _: largest + 0.0,
    )
)


@dataclass(frozen=True, kw_only=True)
class PoolRecipe:
    """All that pooled rows depend on; `dtype` is the name of the dtype in which they are kept.

    Rows of a group that share `media`, a label column, are pooled first; None where every row is a medium.
    """

    features: FeatureSet
    by: str
    method: str
    normalise: bool
    normalise_rows: bool
    dtype: str
    media: str | None = None

    @classmethod
    def options(cls) -> list[str]:
        """Names of the options that pooled rows depend on."""
        return [each.name for each in fields(cls) if each.name != "features"]

    @property
    def groups(self) -> RowGroups:
        """Groups of the rows."""
        return latest_groups(self.features, self.by)

    def weights(self, rows: Int64, first: int, end: int) -> tuple[Float64 | None, Float64]:
        """Weights of all rows of the groups from `first` to `end` (exclusive), and the sums of weights by group.

        Shape (n_rows,), None for equal weights, and shape (n_groups,).  A row weighs one over the rows of its medium.
        """
        groups = self.groups
        if self.media is None:
            return None, groups.size[first:end].astype(np.float64)
        _, medium = np.unique(self.features.columns[self.media][rows], return_inverse=True)
        n_media = int(medium.max()) + 1
        pairs, place, size = np.unique(
            (groups.of_row[rows] - first) * n_media + medium, return_inverse=True, return_counts=True
        )
        return 1.0 / size[place], np.bincount(pairs // n_media, minlength=end - first).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class PooledPlace:
    """Where the new store goes, and how it is laid out; None for the usual sizes."""

    uri: str
    chunk_rows: int | None
    overwrite: bool


@dataclass(frozen=True, kw_only=True)
class PoolJob:
    """A pooling with the labels of the pooled rows, and notes on labels that are left out.

    `options` are all options by name, and `recorded` those that the new store describes its pooling by.
    """

    recipe: PoolRecipe
    groups: RowGroups
    labels: Labels
    notes: list[str]
    options: Mapping[str, Any]
    recorded: Mapping[str, Any]

    @property
    def allow_zero(self) -> bool:
        """Whether pooled rows of zeros are kept."""
        return bool(self.options["allow_zero"])

    def chunk_rows(self, to: PooledPlace) -> int:
        """Rows per chunk of the new store; `InputError` for a number that is not positive."""
        row_bytes = self.recipe.features.dim * KEPT_DTYPES[self.recipe.dtype].itemsize
        return chunk_length(row_bytes, len(self.groups), to.chunk_rows)

    def spec(self, to: PooledPlace) -> dict[str, Any]:
        """All that the new store depends on, by name."""
        return {
            "source": self.recipe.features.content_digest,
            **self.options,
            "chunk_rows": self.chunk_rows(to),
        }

    def writer(self, to: PooledPlace) -> FeatureWriter:
        """Begin the new store."""
        of, features = self.recipe, self.recipe.features
        scaled = ", scaled to length 1" if of.normalise else ""
        rows = "rows of length 1" if of.normalise_rows else "rows"
        of_media = "" if of.media is None else f" of the means by {of.media}"
        summary = (
            f"pooled by {of.by}: {of.method}{of_media} of {features.n_rows:,} {rows} into {len(self.groups):,}{scaled}"
        )
        return FeatureWriter(
            to.uri,
            dim=features.dim,
            n_rows=len(self.groups),
            dtype=of.dtype,
            chunk_rows=to.chunk_rows,
            allow_zero=self.allow_zero,
            overwrite=to.overwrite,
            notes=[*features.notes, summary, *self.notes],
            source={
                "uri": features.uri,
                "content_digest": features.content_digest,
                "pooling": dict(self.recorded),
                "spec": self.spec(to),
            },
        )


# ---- the store -------------------------------------------------------------------------------------------------------


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
    forget_groups()
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
        options = {name: getattr(self.recipe, name) for name in PoolRecipe.options()}
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


class _CountedTasks(Stopwatch):
    """Progress of a cluster, which reports the end of tasks alone: rows are counted in the order of the blocks."""

    def __init__(self, inner: Progress, rows: list[int], counter: _RowCounter) -> None:
        super().__init__(inner)
        self._rows, self._counter = iter(rows), counter

    def advance(self, stage: str) -> None:
        super().advance(stage)
        self._counter.add(next(self._rows))
