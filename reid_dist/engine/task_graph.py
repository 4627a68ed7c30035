"""Dask graphs as plain dictionaries: this process runs one with threads, a cluster through its client.

Both get the same tasks.  Tasks hold handles of stores and row ranges, never arrays of features.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dask.threaded
from dask.callbacks import Callback
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from reid_dist.clusters.compilation import Spans, compilation_of, report_to_scheduler
from reid_dist.clusters.failures import cluster_failures
from reid_dist.core.model import RowRange
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.plan import MERGED_AT_ONCE
from reid_dist.errors import ReidDistError, RunFailedError
from reid_dist.kernels.settings import compiled_spans, listen

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Progress", "Stopwatch", "TaskGraph", "execute"]

# Workers import this module with their tasks.
listen(report_to_scheduler)

# Seconds that tasks have to end after Ctrl-C.
_ENDS_WITHIN_S = 2.0


class Progress:
    """Told of finished tasks; this one keeps quiet.  Stages are ``"pairs"``, ``"sweep"`` and ``"verification"``."""

    def start(self, totals: dict[str, int]) -> None:
        """Take the number of tasks per stage, before the first begins; again for every further pass over the sets."""

    def advance(self, stage: str) -> None:
        """Take note of one finished task."""

    def warn(self, message: str) -> None:
        """Take note of what the user should know while the run goes on, in one line; here a Python warning."""
        warnings.warn(message, stacklevel=2)

    def compiling(self, words: str) -> None:
        """Take the line about kernels that are being compiled, from any thread and possibly again and again."""

    def compiled(self, began: float, ended: float) -> None:
        """Take begin and end of a compilation, in seconds of `time.time`, from any thread; some overlap."""


class Stopwatch(Progress):
    """Passes progress on and notes when the last task of each stage was done, and when kernels were compiled."""

    def __init__(self, inner: Progress | None) -> None:
        self._inner = inner or Progress()
        self._last = time.perf_counter()
        self._done: dict[str, float] = {}
        self._there = Spans()

    def start(self, totals: dict[str, int]) -> None:
        """Start the clock, unless this is a further pass."""
        if not self._done:
            self._last = time.perf_counter()
        self._inner.start(totals)

    def advance(self, stage: str) -> None:
        """Take note of one finished task."""
        self._done[stage] = time.perf_counter()
        self._inner.advance(stage)

    def warn(self, message: str) -> None:
        """Pass a warning on."""
        self._inner.warn(message)

    def compiling(self, words: str) -> None:
        """Pass the line on."""
        self._inner.compiling(words)

    def compiled(self, began: float, ended: float) -> None:
        """Keep the span of a compilation, and pass it on."""
        self._there.add(began, ended)
        self._inner.compiled(began, ended)

    def timing(self, started: float, plan: tuple[float, float], metrics: float) -> dict[str, float]:
        """Seconds of the phases of an evaluation that ends now, each without the compilation of kernels in it.

        Parameters
        ----------
        started, metrics
            When the evaluation began, and the computation of its metrics; of `time.perf_counter` like all times here.
        plan
            Begin and end of planning.

        Returns
        -------
        ``plan``; ``compile`` where kernels were compiled; each stage, from the end of the one before; ``metrics``;
        ``total``, which includes the compilation.
        """
        now = time.perf_counter()
        behind = time.time() - now
        compiled = Spans((began - behind, ended - behind) for began, ended in [*self._there.all(), *compiled_spans()])
        spans = {"plan": plan}
        for stage, done in sorted(self._done.items(), key=lambda item: item[1]):
            spans[stage] = (self._last, done)
            self._last = done
        spans["metrics"] = (metrics, now)
        # The clocks of other machines may differ by more than a stage takes.
        seconds = {
            name: max(0.0, ended - began - compiled.within(began, ended)) for name, (began, ended) in spans.items()
        }
        whole = compiled.within(started, now)
        return {**({"compile": whole} if whole else {}), **seconds, "total": now - started}


@dataclass
class TaskGraph:
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

    def describe(self, key: str) -> str:
        """Say what a task does: its stage, and the rows or blocks that it is given."""
        stages = [stage for stage, keys in self.stages.items() if key in keys]
        kind = stages[0] if stages else key.split("-")[0]
        arguments = self.tasks[key][1:] if key in self.tasks else ()
        rows = [each for each in arguments if isinstance(each, RowRange)]
        blocks = [str(each) for each in arguments if isinstance(each, int)]
        sides = ("query", "gallery") if len(rows) > 1 else ("query",)
        where = [f"{side} rows {each.start} to {each.stop - 1}" for side, each in zip(sides, rows, strict=False)]
        where += [f"block {' and '.join(blocks)}"] if blocks and not rows else []
        return f"task {key} ({', '.join([kind, *where])})"

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


def execute(graph: TaskGraph, client: Client | None, n_threads: int, progress: Progress) -> list[Any]:
    """Run a graph, here with threads or on a cluster.

    Parameters
    ----------
    graph
        The tasks.
    client
        A `distributed.Client`, or None for this process.
    n_threads
        Threads of this process.
    progress
        Told of finished tasks.

    Returns
    -------
    The results of the final tasks, in order.

    Raises
    ------
    RunFailedError
        If the cluster lost the job; the message says how.
    """
    progress.start({stage: len(keys) for stage, keys in graph.stages.items()})
    with compilation_of(client, progress.compiling, progress.compiled):
        return _run_here(graph, n_threads, progress) if client is None else _run_there(graph, client, progress)


def _run_here(graph: TaskGraph, n_threads: int, progress: Progress) -> list[Any]:
    stage_of = {key: stage for stage, keys in graph.stages.items() for key in keys}

    def finished(key: str, *_: Any) -> None:
        if key in stage_of:
            progress.advance(stage_of[key])

    try:
        with one_blas_thread(), Callback(posttask=finished), _threads(n_threads) as pool:
            return list(dask.threaded.get(graph.tasks, graph.finals, pool=pool))
    except ReidDistError:
        raise
    except MemoryError as error:
        raise RunFailedError(
            f"this process ran out of memory ({error or 'no more is given to it'}): choose a smaller --chunk-rows, or "
            "fewer threads"
        ) from error


@contextlib.contextmanager
def _threads(n_threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of its own, waited for: where a task fails, others are still writing into the workspace.

    On Ctrl-C no task begins any more, and those that run have a moment to end, for whoever interrupts wants it to end
    now; what a task has half done is never taken for the whole.
    """
    pool = ThreadPoolExecutor(n_threads)
    try:
        yield pool
    except KeyboardInterrupt:
        ending = threading.Thread(target=pool.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        ending.start()
        ending.join(_ENDS_WITHIN_S)
        raise
    except BaseException:
        pool.shutdown()
        raise
    pool.shutdown()


def _run_there(graph: TaskGraph, client: Client, progress: Progress) -> list[Any]:
    from distributed import as_completed

    layer = "reid-dist"
    whole = HighLevelGraph({layer: graph.tasks}, {layer: set()})
    stage_of_key = {key: stage for stage, keys in graph.stages.items() for key in keys}
    # A task may be watched and final at once: it has one future, and that is kept.
    keys = list(dict.fromkeys([*stage_of_key, *graph.finals]))
    with cluster_failures(client, graph.describe):
        futures = dict(
            zip(
                keys,
                client.compute([Delayed(key, whole, layer=layer) for key in keys], optimize_graph=False),
                strict=True,
            )
        )
        finals = [futures[key] for key in graph.finals]
        kept = set(finals)
        stage_of = {futures[key]: stage for key, stage in stage_of_key.items()}
        del futures
        try:
            for future in as_completed(list(stage_of), raise_errors=False, loop=client.loop):
                if future.status != "finished":
                    # Failed, or cancelled because the scheduler is gone: it says which.  What failed is released below
                    # as well, for another attempt has tasks of the same keys.
                    future.result()
                stage = stage_of.pop(future)
                if future not in kept:
                    # Released at once: the merge that needs it holds it, and nobody else should.
                    future.release()
                progress.advance(stage)
            return list(client.gather(finals))
        finally:
            for future in [*stage_of, *finals]:
                future.release()
