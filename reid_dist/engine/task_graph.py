"""Dask graphs as plain dictionaries, executed in threads of this process or on a cluster through its client.

The tasks are the same in both cases.  Tasks hold handles of stores and row ranges, never arrays of features.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dask.threaded
from dask.base import annotate, get_annotations
from dask.callbacks import Callback
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from reid_dist.core.address_space import more_memory
from reid_dist.core.clocks import steady_time
from reid_dist.core.model import RowRange
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.compilation_spans import Spans, compilation_of, report_to_scheduler
from reid_dist.engine.distances.devices import forget_rows
from reid_dist.engine.plan import DEFAULT_MEMORY, MERGED_AT_ONCE
from reid_dist.engine.policy import Policy
from reid_dist.engine.screened_pairs import ScreenedPairs, add_screened
from reid_dist.errors import ReidDistError, RunFailedError
from reid_dist.kernels.compilations import LISTENERS, compiled_spans

if TYPE_CHECKING:
    from distributed import Client

    from reid_dist.stores import Workspace


# Workers import this module with their tasks.
LISTENERS.append(report_to_scheduler)

# Without a span of its own, every evaluation gets a new one, and scheduler and workers keep statistics of each for as
# long as they run.
_SPAN = {"name": ("reid-dist",), "ids": ("reid-dist",)}

# Seconds to wait for running tasks after Ctrl-C.
_ENDS_WITHIN_S = 2.0


class Progress:
    """Progress without output; base class.  Stages are ``"pairs"``, ``"sweep"`` and ``"verification"``."""

    def start(self, totals: dict[str, int]) -> None:
        """Start with the number of tasks per stage, before the first task and before every further pass."""

    def advance(self, stage: str) -> None:
        """Count one finished task."""

    def warn(self, message: str) -> None:
        """Report a one-line warning during the run; here as a Python warning."""
        warnings.warn(message, stacklevel=2)

    def compiling(self, words: str) -> None:
        """Report the compilation of kernels in one line; called from any thread, possibly repeatedly."""

    def compiled(self, began: float, ended: float) -> None:
        """Record begin and end of a compilation, in seconds of `steady_time`; called from any thread, may overlap."""


class Stopwatch(Progress):
    """Progress that records the end of each stage and the times of compilation, and forwards to another progress."""

    def __init__(self, inner: Progress | None) -> None:
        self._inner = inner or Progress()
        self._last = time.perf_counter()
        self._done: dict[str, float] = {}
        self._there = Spans()

    def start(self, totals: dict[str, int]) -> None:
        """Record the start time, except for further passes."""
        if not self._done:
            self._last = time.perf_counter()
        self._inner.start(totals)

    def advance(self, stage: str) -> None:
        """Record the time of a finished task."""
        self._done[stage] = time.perf_counter()
        self._inner.advance(stage)

    def warn(self, message: str) -> None:
        """Forward a warning."""
        self._inner.warn(message)

    def compiling(self, words: str) -> None:
        """Forward the line about compilation."""
        self._inner.compiling(words)

    def compiled(self, began: float, ended: float) -> None:
        """Record and forward begin and end of a compilation."""
        self._there.add(began, ended)
        self._inner.compiled(began, ended)

    def timing(self, started: float, plan: tuple[float, float], metrics: float) -> dict[str, float]:
        """Seconds of the phases of an evaluation that ends now, each without the compilation of kernels.

        `started` and `metrics` are the start of the evaluation and of the computation of metrics, and `plan` begin and
        end of planning, in seconds of `time.perf_counter`.  The phases are ``plan``; ``compile`` if kernels were
        compiled; each stage, from the end of the one before; ``metrics``; and ``total``, including the compilation.
        """
        now = time.perf_counter()
        behind = steady_time() - now
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


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where and how tasks run."""

    # Client of a Dask cluster; None for threads of this process.
    client: Client | None
    # Threads of all workers together.
    n_threads: int
    # Receives the stages and each finished task.
    progress: Progress
    # Memory limit of one task, in bytes.
    memory_per_thread: int = DEFAULT_MEMORY
    # Keeps partial results, so that an interrupted job is resumed; None keeps them in memory.
    workspace: Workspace | None = None
    # Rows of a tile; None for the default.
    chunk_rows: int | None = None
    # Products that the jobs may read.
    policy: Policy = field(default_factory=Policy.in_force)
    # Pairs that tasks have read from products until now; see `note`.
    screened: ScreenedPairs = field(default_factory=dict, compare=False)

    def note(self, parts: Iterable[ScreenedPairs]) -> None:
        """Add pairs that tasks of a finished graph have read from products, for the report."""
        self.screened.update(add_screened([self.screened, *parts]))


@dataclass
class TaskGraph:
    """A Dask graph under construction: tasks by key, stages of those that progress counts, and final tasks in order."""

    tasks: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    stage_of: dict[str, str] = field(default_factory=dict)
    finals: list[str] = field(default_factory=list)

    def add(self, key: str, function: Callable[..., Any], *arguments: Any, stage: str | None = None) -> str:
        """Add a task; arguments that are keys, or lists of keys, are replaced by the results of those tasks."""
        self.tasks[key] = (function, *arguments)
        if stage is not None:
            self.stage_of[key] = stage
        return key

    def describe(self, key: str) -> str:
        """Describe a task by its stage and its rows or blocks."""
        kind = self.stage_of.get(key, key.split("-")[0])
        arguments = self.tasks[key][1:] if key in self.tasks else ()
        lists = (each if isinstance(each, list) else [each] for each in arguments)
        rows = [each for part in lists for each in part if isinstance(each, RowRange)]
        blocks = [str(each) for each in arguments if isinstance(each, int)]
        sides = ("query", "gallery") if len(rows) > 1 else ("query",)
        where = [f"{side} rows {each.start} to {each.stop - 1}" for side, each in zip(sides, rows, strict=False)]
        where += [f"block {' and '.join(blocks)}"] if blocks and not rows else []
        return f"task {key} ({', '.join([kind, *where])})"

    def add_tree(self, key: str, merge: Callable[..., Any], *arguments: Any, leaves: list[str]) -> str:
        """Merge results as they arrive, a few at a time, so that they do not accumulate in a worker's memory."""
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
    """Run a graph, in `n_threads` threads of this process or on a cluster; return the results of its final tasks.

    Raises `RunFailedError` if the cluster lost the job; the message gives the cause.
    """
    progress.start(dict(Counter(graph.stage_of.values())))
    with compilation_of(client, progress.compiling, progress.compiled):
        return _run_here(graph, n_threads, progress) if client is None else _run_there(graph, client, progress)


def _run_here(graph: TaskGraph, n_threads: int, progress: Progress) -> list[Any]:
    def finished(key: str, *_: Any) -> None:
        if key in graph.stage_of:
            progress.advance(graph.stage_of[key])

    try:
        with one_blas_thread(), Callback(posttask=finished), _threads(n_threads) as pool:
            return list(dask.threaded.get(graph.tasks, graph.finals, pool=pool))
    except ReidDistError:
        raise
    except MemoryError as error:
        raise RunFailedError(
            f"this process ran out of memory ({str(error) or 'no more is given to it'}): "
            + more_memory("choose a smaller --chunk-rows, or fewer threads")
        ) from error
    finally:
        # Memory of a GPU is left to what this process does next.
        forget_rows()


@contextlib.contextmanager
def _threads(n_threads: int) -> Iterator[ThreadPoolExecutor]:
    """Create a separate pool and wait for it: after a failed task, others may still write into the workspace.

    On Ctrl-C, tasks that have not begun are cancelled, and running tasks are waited for only briefly; incomplete files
    of a task are never read as complete.
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

    from reid_dist.clusters.failures import watched_tasks
    from reid_dist.clusters.versions import code_here, run_alike

    layer = "reid-dist"
    code = code_here()
    tasks = {key: (run_alike, code, client.id, *task) for key, task in graph.tasks.items()}
    whole = HighLevelGraph({layer: tasks}, {layer: set()})
    # A task may be both counted by progress and final: it has one future, which is kept.
    keys = list(dict.fromkeys([*graph.stage_of, *graph.finals]))
    with watched_tasks(client, graph.describe, progress.warn) as watch:
        # Unless the caller has a span.
        with contextlib.nullcontext() if "span" in get_annotations() else annotate(span=_SPAN):
            begun = client.compute([Delayed(key, whole, layer=layer) for key in keys], optimize_graph=False)
        futures = dict(zip(keys, begun, strict=True))
        finals = [futures[key] for key in graph.finals]
        kept = set(finals)
        stage_of = {futures[key]: stage for key, stage in graph.stage_of.items()}
        del futures, begun
        try:
            for future in as_completed(list(stage_of), raise_errors=False, loop=client.loop):
                if future.status != "finished":
                    # Raises the error of a failed task, or of one cancelled because the scheduler is gone.  Failed
                    # tasks are released below as well, as another attempt has tasks of the same keys.
                    future.result()
                stage = stage_of.pop(future)
                if future not in kept:
                    # Released at once, so that only the merge that depends on it holds it.
                    future.release()
                watch.advanced()
                progress.advance(stage)
            return list(client.gather(finals))
        finally:
            for future in [*stage_of, *finals]:
                future.release()
