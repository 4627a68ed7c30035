"""The only builder of Dask graphs.

Data flow of an evaluation, per block of queries ``q`` (gallery blocks ``g``)::

    judge(q) ─┬─ relevant(q, g) for every g ── targets(q) ─┬─ sweep(q, g) for every g ── merge in a tree ── final(q)
              └───────────────────────────────────────────┘

A search for neighbours is the same without targets.  Tasks hold handles of stores and row ranges, never arrays of
features; what flows between them is labels, thresholds, counts and lists.  A graph is a plain dictionary: this process
runs it with threads, a cluster through its client, and both get the same tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dask.threaded
import numpy as np
from dask.callbacks import Callback
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from reid_dist.errors import ReidDistError, RunFailedError
from reid_dist.ground_truth import GroundTruth
from reid_dist.model import Neighbours, RankedQueries, cut_rows
from reid_dist.parts import PartValues
from reid_dist.plan import MERGED_AT_ONCE
from reid_dist.reductions import add_bracket_counts, add_histograms
from reid_dist.tasks import (
    BlockAnswer,
    Job,
    curves_task,
    final_task,
    judge_listed_task,
    judge_task,
    merge_task,
    one_blas_thread,
    relevant_task,
    sweep_task,
    targets_task,
)

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Progress", "Stopwatch", "run"]

# Queries of which one task makes single-shot curves.
_CURVES_AT_ONCE = 256


class Progress:
    """Told of finished tasks; this one keeps quiet.  Stages are ``"pairs"``, ``"sweep"`` and ``"verification"``."""

    def start(self, totals: dict[str, int]) -> None:
        """Take the number of tasks per stage, before the first begins; again for every further pass over the sets."""

    def advance(self, stage: str) -> None:
        """Take note of one finished task."""


class Stopwatch(Progress):
    """Passes progress on and notes when the last task of each stage was done."""

    def __init__(self, inner: Progress | None) -> None:
        self._inner = inner or Progress()
        self._last = time.perf_counter()
        self._done: dict[str, float] = {}

    def start(self, totals: dict[str, int]) -> None:
        """Start the clock, unless this is a further pass."""
        if not self._done:
            self._last = time.perf_counter()
        self._inner.start(totals)

    def advance(self, stage: str) -> None:
        """Take note of one finished task."""
        self._done[stage] = time.perf_counter()
        self._inner.advance(stage)

    def stages(self) -> dict[str, float]:
        """Seconds from the end of one stage to the end of the next."""
        timing = {}
        for stage, done in sorted(self._done.items(), key=lambda item: item[1]):
            timing[stage] = done - self._last
            self._last = done
        return timing


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


def _build(job: Job, truth: GroundTruth | None) -> _Graph:
    graph = _Graph()
    gallery_blocks = list(enumerate(cut_rows(job.plan.gallery.n_rows, job.plan.gallery_block)))
    # Pairs are few: their tasks take several blocks each, and still keep all threads busy.
    blocks_per_task = max(1, len(gallery_blocks) // (2 * job.plan.n_threads))
    pair_rows_per_task = blocks_per_task * job.plan.gallery_block
    for block, rows in enumerate(cut_rows(job.plan.query.n_rows, job.plan.query_block)):
        at = f"{job.token}-{block}"
        judgement = targets = None
        if truth is not None:
            judgement = graph.add(f"judge-{at}", judge_listed_task, job, truth.take(rows))
        elif job.protocol is not None:
            judgement = graph.add(f"judge-{at}", judge_task, job, rows)
        if job.ranks:
            parts = [
                graph.add(f"relevant-{at}-{place}", relevant_task, job, rows, cut, judgement, stage="pairs")
                for place, cut in enumerate(cut_rows(job.plan.gallery.n_rows, pair_rows_per_task))
            ]
            targets = graph.add(f"targets-{at}", targets_task, judgement, parts)
        # The sweep takes the judgement only where something looks at all queries, not at those with positives alone.
        seen = judgement if job.judges_all else None
        partials = [
            graph.add(f"sweep-{at}-{place}", sweep_task, job, rows, cut, seen, targets, stage=job.sweep_stage)
            for place, cut in gallery_blocks
        ]
        merged = graph.add_tree(f"merge-{at}", merge_task, job, seen, targets, leaves=partials)
        # Single-shot curves take real work after the merge: several tasks share it.
        pieces = list(enumerate(cut_rows(len(rows), _CURVES_AT_ONCE))) if job.single_shot is not None else []
        curves = [
            graph.add(f"curves-{at}-{place}", curves_task, job, rows, targets, merged, cut) for place, cut in pieces
        ]
        graph.finals.append(graph.add(f"final-{at}", final_task, job, rows, judgement, targets, merged, curves))
    return graph


def run(
    job: Job, client: Client | None, progress: Progress | None = None, truth: GroundTruth | None = None
) -> BlockAnswer:
    """Compute a job, here with threads or on a cluster.

    Parameters
    ----------
    job
        What to compute.
    client
        A `distributed.Client`, or None for this process.
    progress
        Told of finished tasks.
    truth
        Who is relevant to whom, where the protocol does not say it by labels.

    Returns
    -------
    The answers of all blocks of queries, as one.

    Raises
    ------
    RunFailedError
        If the cluster lost the job; the message says how.
    """
    graph = _build(job, truth)
    progress = progress or Progress()
    progress.start({stage: len(keys) for stage, keys in graph.stages.items()})
    results = _run_here(graph, job.plan.n_threads, progress) if client is None else _run_there(graph, client, progress)
    return _concatenate(job, results)


def _concatenate(job: Job, blocks: list[BlockAnswer]) -> BlockAnswer:
    """Put blocks of queries together, in order."""

    def parts(name: str) -> list[Any]:
        return [getattr(block, name) for block in blocks if getattr(block, name) is not None]

    def join(of: list[Any], name: str) -> Any:
        pieces = [getattr(each, name) for each in of]
        return None if pieces[0] is None else np.concatenate(pieces)

    ranked, nearest, in_parts = parts("ranked"), parts("neighbours"), parts("in_parts")
    flat = {name: parts(name) for name in ("nearest_kept", "mated", "single_shot")}
    impostors, bracketed = parts("impostors"), parts("bracketed")
    return BlockAnswer(
        ranked=RankedQueries.concatenate(ranked) if ranked else None,
        neighbours=Neighbours(join(nearest, "index"), join(nearest, "distance")) if nearest else None,
        in_parts=PartValues(join(in_parts, "by_camera"), join(in_parts, "by_size")) if in_parts else None,
        **{name: np.concatenate(pieces) if pieces else None for name, pieces in flat.items()},
        impostors=add_histograms(impostors) if impostors else None,
        bracketed=add_bracket_counts(bracketed, job.plan.bracket_counts) if bracketed else None,
    )


def _run_here(graph: _Graph, n_threads: int, progress: Progress) -> list[BlockAnswer]:
    stage_of = {key: stage for stage, keys in graph.stages.items() for key in keys}

    def finished(key: str, *_: Any) -> None:
        if key in stage_of:
            progress.advance(stage_of[key])

    with one_blas_thread(), Callback(posttask=finished):
        return list(dask.threaded.get(graph.tasks, graph.finals, num_workers=n_threads))


def _run_there(graph: _Graph, client: Client, progress: Progress) -> list[BlockAnswer]:
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
