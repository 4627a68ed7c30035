"""Pooling stage: tasks write blocks of pooled rows to a workspace, and a store is made of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import first_few
from reid_dist.engine.task_graph import Progress, TaskGraph
from reid_dist.errors import InputError, StoreError
from reid_dist.stages.neighbours import Resources
from reid_dist.stages.pooling.groups import RowGroups, share
from reid_dist.stages.pooling.job import PooledPlace, PoolJob, Recipe
from reid_dist.stages.pooling.plan import Cut, choose_cut
from reid_dist.stages.pooling.tasks import part_of, pool_task
from reid_dist.stores import FeatureSet, Stage
from reid_dist.stores.featureset import ranges_with
from reid_dist.stores.locks import in_turn

RowsShown = Callable[[int, int], None]
"""Called with rows read and rows to read, over all blocks of groups."""

_STAGE = "pooled"


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
    chosen = choose_cut(
        visible,
        groups,
        sums_bytes=sums_bytes,
        n_threads=where.n_threads,
        memory_per_thread=where.memory_per_thread,
    )
    stage = where.workspace.stage(_STAGE, recipe.identity, vars(chosen))
    with in_turn(stage.path, where.progress.warn):
        try:
            # An interrupted run may have used another cut; its finished parts are reused.
            cut = Cut(**{name: stage.description[name] for name in vars(chosen)})
            blocks = list(cut.blocks(groups.size))
            with job.writer(to) as writer:
                _compute(recipe, groups, stage, blocks, where, show)
                zero_groups: list[int] = []
                for block, (start, _) in enumerate(blocks):
                    rows = stage.read(part_of(block), "features")["features"]
                    zero_groups += (np.flatnonzero(~rows.any(axis=1)) + start).tolist()
                    writer.append(rows)
                if zero_groups and not job.allow_zero:
                    where.workspace.remove(stage)
                    raise InputError(_zero_groups(groups, zero_groups, recipe.method))
                writer.set_labels(job.labels)
        except BaseException:
            # Whatever else is wrong by now, the error on its way is the one to report.
            with contextlib.suppress(StoreError, OSError):
                if stage.is_empty:
                    where.workspace.remove(stage)
            raise
        where.workspace.remove(stage)
    return FeatureSet.open(to.uri)


def _compute(
    recipe: Recipe,
    groups: RowGroups,
    stage: Stage,
    blocks: list[tuple[int, int]],
    where: Resources,
    show: RowsShown | None,
) -> None:
    """Pool the blocks that a stage lacks."""
    done = stage.done()
    missing = {block: ends for block, ends in enumerate(blocks) if part_of(block) not in done}
    count: Callable[[int], None] | None = None
    if show is not None:
        rows = [
            sum(stop - start for start, stop in ranges_with(recipe.features, groups.rows_of(*ends)))
            for ends in missing.values()
        ]
        counter = _RowCounter(sum(rows), show)
        if where.client is None:
            count = counter.add
        else:
            where = replace(where, progress=_CountedTasks(where.progress, rows, counter))
    graph, at = TaskGraph(), fingerprint(stage.path)[:12]
    for block, ends in missing.items():
        key = f"pooling-{at}-{block}"
        graph.finals.append(graph.add(key, pool_task, recipe, stage, block, ends, count, stage="pooling"))
    where.run(graph)


def _zero_groups(groups: RowGroups, zero: list[int], method: str) -> str:
    rows = groups.rows_of(zero[0], zero[0] + 1)
    named = first_few(list(map(str, rows.tolist())), 10)
    return (
        f"the {method} of {share(len(zero), len(groups))} is a zero vector, which has no direction: the first is "
        f"{groups.name(zero[0])} (rows {named}); leave these rows out, or keep zero vectors (allow_zero=True, "
        "--allow-zero)"
    )


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
