"""The only builder of Dask graphs.

Data flow of an evaluation, per block of queries ``q`` (gallery blocks ``g``)::

    judge(q) ─┬─ relevant(q, g) for every g ── targets(q) ─┬─ sweep(q, g) for every g ── merge in a tree ── rank(q)
              └───────────────────────────────────────────┘

A search for neighbours is the same without targets.  Tasks hold handles of stores and row ranges, never arrays of
features; what flows between them is labels, thresholds, counts and lists.  A graph is a plain dictionary: this process
runs it with threads, a cluster through its client, and both get the same tasks.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import dask.threaded
import numpy as np
from dask.callbacks import Callback
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from reid_dist.distances import Distance
from reid_dist.errors import DamagedStoreError, ReidDistError, RunFailedError
from reid_dist.fingerprint import fingerprint
from reid_dist.kernels.canonical import PairRows, pair_distances, squared_norms
from reid_dist.model import Judgement, Labels, Neighbours, RankedQueries, RowRange, Targets, cut_rows
from reid_dist.plan import MERGED_AT_ONCE, Plan
from reid_dist.protocols import GalleryIndex, Protocol, judge
from reid_dist.reductions import (
    CountNearer,
    FeatureBlock,
    KeepNearest,
    Reduction,
    make_targets,
    pair_rows,
    rank,
    relevant_places,
)
from reid_dist.stores import FeatureSet
from reid_dist.sweep import sweep

if TYPE_CHECKING:
    from distributed import Client

Texts = tuple[str, ...] | None

__all__ = ["Job", "Progress", "Result", "gallery_index", "run", "set_labels"]

# Gallery rows that a task holds at once for the distances of relevant pairs.
_PEEKED_ROWS = 8192


class Progress:
    """Told of finished tasks; this one keeps quiet.  Stages are ``"pairs"`` and ``"sweep"``."""

    def start(self, totals: dict[str, int]) -> None:
        """Take the number of tasks per stage, before the first begins."""

    def advance(self, stage: str) -> None:
        """Take note of one finished task."""


@dataclass(frozen=True)
class Job:
    """What is computed, and how.

    Attributes
    ----------
    query, gallery
        Handles of the two sets.
    distance, plan
        The distance, and how the job is cut.
    protocol
        With one, ranks are computed; without, neighbours alone.
    topk
        Neighbours listed per query, 0 for none.
    own_first
        Whether query row i is gallery row i and heads its own list.
    rows_are_items
        Whether row numbers stand in for item ids; for a set without ids that is evaluated against itself.
    joined
        Labels (``"pids"``, ``"camids"``) that were texts, numbered apart in the two sets, and are matched by text.
    """

    query: FeatureSet
    gallery: FeatureSet
    distance: Distance
    plan: Plan
    protocol: Protocol | None = None
    topk: int = 0
    own_first: bool = False
    rows_are_items: bool = False
    joined: tuple[str, ...] = ()

    @property
    def token(self) -> str:
        """Identity of the job: inputs by content, and every field of every definition."""
        sets = [(each.uri, each.content_digest) for each in (self.query, self.gallery)]
        return fingerprint(
            sets, self.distance, self.plan, self.protocol, self.topk, self.own_first, self.rows_are_items
        )[:20]

    def reductions(self, targets: Targets | None) -> list[Reduction[Any]]:
        """What the sweep computes, in the order of its partial results."""
        reductions: list[Reduction[Any]] = []
        if targets is not None:
            reductions.append(CountNearer(targets, gallery_index(self).junk_row, self.distance))
        if self.topk:
            reductions.append(KeepNearest(self.topk, self.own_first, self.distance))
        return reductions


@dataclass(frozen=True)
class Result:
    """What came out; None for what was not asked for."""

    ranked: RankedQueries | None
    neighbours: Neighbours | None


class _IndexCache:
    """The sorted labels of the gallery at hand, made once per process and not once per task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Any, ...] | None = None
        self._index: GalleryIndex | None = None

    def get(self, job: Job) -> GalleryIndex:
        key = (job.gallery.content_digest, job.rows_are_items, job.joined and job.query.content_digest)
        with self._lock:
            if self._index is None or self._key != key:
                self._index = GalleryIndex(set_labels(job, job.gallery))
                self._key = key
            return self._index


_INDEX = _IndexCache()


def gallery_index(job: Job) -> GalleryIndex:
    """Return the sorted labels of the job's gallery."""
    return _INDEX.get(job)


def set_labels(job: Job, features: FeatureSet) -> Labels:
    """Labels of one of the job's sets, as its protocol sees them."""
    item_ids = np.arange(features.n_rows) if job.rows_are_items else features.item_ids
    pids, camids = features.pids, features.camids
    if "pids" in job.joined:
        pids = _join(pids, features.pid_names, job.query.pid_names, job.gallery.pid_names)
    if "camids" in job.joined and camids is not None:
        camids = _join(camids, features.camid_names, job.query.camid_names, job.gallery.camid_names)
    return Labels(pids, camids, item_ids)


def _join(numbers: NDArray[np.int64], own: Texts, query: Texts, gallery: Texts) -> NDArray[np.int64]:
    """Number labels anew by the texts of both sets; what is not positive (junk) stays."""
    every = np.array(sorted({*(query or ()), *(gallery or ())}))
    table = np.searchsorted(every, np.array(own or ())) + 1
    return np.where(numbers > 0, table[np.maximum(numbers, 1) - 1], numbers)


@lru_cache(maxsize=1)
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    """One BLAS thread per worker thread: more would fight for the same cores."""
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield


def _read(features: FeatureSet, rows: RowRange) -> FeatureBlock:
    block = features.read(rows.start, rows.stop)
    norm = squared_norms(block)
    if not np.isfinite(norm).all():
        row = rows.start + int(np.flatnonzero(~np.isfinite(norm))[0])
        raise DamagedStoreError(f"row {row} of {features.uri} is not finite; run `reid-dist check` on it")
    return FeatureBlock(rows, block, norm)


# ---- tasks: module functions of handles, ranges and small values -----------------------------------------------------


def _judge_task(job: Job, rows: RowRange) -> Judgement:
    if job.protocol is None:
        raise AssertionError("a search for neighbours judges nobody")
    return judge(job.protocol, set_labels(job, job.query).take(rows), gallery_index(job))


def _relevant_task(
    job: Job, rows: RowRange, gallery_rows: RowRange, judgement: Judgement
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Canonical distances of the positives in a range of gallery rows: their places in the judgement, and distances.

    The rows are fetched alone, unverified; the sweep reads all of them verified, and compares.
    """
    place, owner = relevant_places(judgement, gallery_rows)
    if not len(place):
        return place, np.empty(0)
    wanted, position = np.unique(judgement.relevant_row[place], return_inverse=True)
    query = _read(job.query, rows)
    parts = []
    for start in range(0, len(wanted), _PEEKED_ROWS):
        features = job.gallery.peek(wanted[start : start + _PEEKED_ROWS])
        mine = np.flatnonzero((position >= start) & (position < start + _PEEKED_ROWS))
        pairs = PairRows(job.distance.kind, query.features, features, query.norm, squared_norms(features))
        parts.append((place[mine], pair_distances(pairs, owner[mine], position[mine] - start)))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _targets_task(judgement: Judgement, parts: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]) -> Targets:
    return make_targets(judgement, parts)


def _sweep_task(job: Job, rows: RowRange, gallery_rows: RowRange, targets: Targets | None) -> list[Any]:
    with _one_blas_thread():
        query, gallery = _read(job.query, rows), _read(job.gallery, gallery_rows)
        return sweep(query, gallery, job.distance, job.plan.tile, job.reductions(targets))


def _merge_task(job: Job, targets: Targets | None, partials: Sequence[list[Any]]) -> list[Any]:
    columns = zip(*partials, strict=True)
    return [reduction.combine(column) for reduction, column in zip(job.reductions(targets), columns, strict=True)]


def _final_task(
    job: Job, rows: RowRange, judgement: Judgement | None, targets: Targets | None, merged: list[Any]
) -> Result:
    parts = list(merged)
    ranked = None
    if judgement is not None and targets is not None:
        ranked = rank(judgement, targets, parts.pop(0))
    neighbours = parts.pop(0) if parts else None
    if neighbours is not None and job.own_first:
        block = _read(job.query, rows)
        place = np.arange(len(rows))
        own = pair_distances(pair_rows(job.distance, block, block), place, place)
        neighbours = KeepNearest(job.topk, True, job.distance).finish(neighbours, rows, own)
    return Result(ranked, neighbours)


# ---- the graph -------------------------------------------------------------------------------------------------------


@dataclass
class _Graph:
    """A Dask graph under construction: tasks by key, the keys that progress counts, and the final ones in order."""

    tasks: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    stages: dict[str, list[str]] = field(default_factory=dict)
    finals: list[str] = field(default_factory=list)

    def add(self, key: str, function: Callable[..., Any], *arguments: Any, stage: str | None = None) -> str:
        """Add a task; arguments that are keys, or lists of keys, stand for the results of those tasks."""
        self.tasks[key] = (function, *arguments)
        if stage is not None:
            self.stages.setdefault(stage, []).append(key)
        return key

    def add_tree(self, key: str, merge: Callable[..., Any], *arguments: Any, leaves: list[str]) -> str:
        """Merge results as they come, a few at a time, so that they do not gather in a worker's memory."""
        level = 0
        while True:
            groups = [leaves[start : start + MERGED_AT_ONCE] for start in range(0, len(leaves), MERGED_AT_ONCE)]
            leaves = [
                self.add(f"{key}-{level}-{place}", merge, *arguments, group) for place, group in enumerate(groups)
            ]
            if len(leaves) == 1:
                return leaves[0]
            level += 1


def _build(job: Job) -> _Graph:
    graph = _Graph()
    gallery_blocks = list(enumerate(cut_rows(job.plan.gallery.n_rows, job.plan.gallery_block)))
    # Pairs are few: their tasks take several blocks each, and still keep all threads busy.
    blocks_per_task = max(1, len(gallery_blocks) // (2 * job.plan.n_threads))
    pair_rows_per_task = blocks_per_task * job.plan.gallery_block
    for block, rows in enumerate(cut_rows(job.plan.query.n_rows, job.plan.query_block)):
        at = f"{job.token}-{block}"
        judgement = targets = None
        if job.protocol is not None:
            judgement = graph.add(f"judge-{at}", _judge_task, job, rows)
            parts = [
                graph.add(f"relevant-{at}-{place}", _relevant_task, job, rows, cut, judgement, stage="pairs")
                for place, cut in enumerate(cut_rows(job.plan.gallery.n_rows, pair_rows_per_task))
            ]
            targets = graph.add(f"targets-{at}", _targets_task, judgement, parts)
        partials = [
            graph.add(f"sweep-{at}-{place}", _sweep_task, job, rows, cut, targets, stage="sweep")
            for place, cut in gallery_blocks
        ]
        merged = graph.add_tree(f"merge-{at}", _merge_task, job, targets, leaves=partials)
        graph.finals.append(graph.add(f"final-{at}", _final_task, job, rows, judgement, targets, merged))
    return graph


def run(job: Job, client: Client | None, progress: Progress | None = None) -> Result:
    """Compute a job, here with threads or on a cluster.

    Parameters
    ----------
    job
        What to compute.
    client
        A `distributed.Client`, or None for this process.
    progress
        Told of finished tasks.

    Raises
    ------
    RunFailedError
        If the cluster lost the job; the message says how.
    """
    graph = _build(job)
    progress = progress or Progress()
    progress.start({stage: len(keys) for stage, keys in graph.stages.items()})
    results = _run_here(graph, job.plan.n_threads, progress) if client is None else _run_there(graph, client, progress)
    ranked = [result.ranked for result in results if result.ranked is not None]
    nearest = [result.neighbours for result in results if result.neighbours is not None]
    return Result(
        RankedQueries.concatenate(ranked) if ranked else None,
        Neighbours(*(np.concatenate([getattr(part, name) for part in nearest]) for name in ("index", "distance")))
        if nearest
        else None,
    )


def _run_here(graph: _Graph, n_threads: int, progress: Progress) -> list[Result]:
    stage_of = {key: stage for stage, keys in graph.stages.items() for key in keys}

    def finished(key: str, *_: Any) -> None:
        if key in stage_of:
            progress.advance(stage_of[key])

    with _one_blas_thread(), Callback(posttask=finished):
        return list(dask.threaded.get(graph.tasks, graph.finals, num_workers=n_threads))


def _run_there(graph: _Graph, client: Client, progress: Progress) -> list[Result]:
    from distributed import KilledWorker, as_completed
    from distributed.client import FutureCancelledError

    layer = "reid-dist"
    whole = HighLevelGraph({layer: graph.tasks}, {layer: set()})
    watched = [(stage, key) for stage, keys in graph.stages.items() for key in keys]
    keys = [key for _, key in watched] + graph.finals
    futures = client.compute([Delayed(key, whole, layer=layer) for key in keys], optimize_graph=False)
    stage_of = {future: stage for future, (stage, _) in zip(futures, watched, strict=False)}
    finals = futures[len(watched) :]
    del futures
    try:
        for future in as_completed(list(stage_of), raise_errors=False):
            stage = stage_of.pop(future)
            if future.status == "error":
                future.result()
            # Released at once: the merge that needs it holds it, and nobody else should.
            future.release()
            progress.advance(stage)
        return list(client.gather(finals))
    except ReidDistError:
        raise
    except KilledWorker as error:
        raise RunFailedError(
            f"a worker died {error.allowed_failures + 1} times on task {error.task}; the usual reason is memory: give "
            "workers more of it, or choose a smaller chunk_rows"
        ) from error
    except FutureCancelledError as error:
        raise RunFailedError(f"the scheduler went away or dropped the run: {error}") from error
    finally:
        for future in [*stage_of, *finals]:
            future.release()
