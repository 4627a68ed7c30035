"""Progress on standard error: a bar per stage on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from reid_dist.reports import Report
from reid_dist.reports.words import metric_value
from reid_dist.task_graph import Progress

__all__ = ["bars", "points", "rows_progress", "stages"]

# Without a terminal, a line per stage at most this often, in seconds.
_LINE_EVERY = 10.0

_TITLES = {
    "expansion": "averages with neighbours",
    "neighbours": "neighbours of all items",
    "weights": "reciprocal neighbours",
    "means": "local expansion",
    "pairs": "distances of relevant pairs",
    "sweep": "sweep over the gallery",
    "verification": "exact thresholds",
}


@contextlib.contextmanager
def bars() -> Iterator[Bars]:
    """Progress bars that vanish when they are done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as shown:
        yield shown


class _Bars(Progress):
    """One bar per stage."""

    def __init__(self, shown: Bars, *, only_latest: bool = False) -> None:
        self._shown = shown
        self._only_latest = only_latest
        self._tasks: dict[str, TaskID] = {}

    def start(self, totals: dict[str, int]) -> None:
        for task in self._tasks.values() if self._only_latest else ():
            self._shown.remove_task(task)
        self._tasks = {
            stage: self._shown.add_task(_TITLES.get(stage, stage), total=total) for stage, total in totals.items()
        }

    def advance(self, stage: str) -> None:
        self._shown.advance(self._tasks[stage])


class _Lines(Progress):
    """Plain lines, for logs."""

    def __init__(self, *, ends: bool = True) -> None:
        self._ends = ends
        self._totals: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._began = self._printed = time.monotonic()

    def start(self, totals: dict[str, int]) -> None:
        self._totals, self._done = totals, {}
        self._began = self._printed = time.monotonic()

    def advance(self, stage: str) -> None:
        done = self._done[stage] = self._done.get(stage, 0) + 1
        now = time.monotonic()
        if now - self._printed < _LINE_EVERY and not (self._ends and done == self._totals[stage]):
            return
        self._printed = now
        title = _TITLES.get(stage, stage)
        print(f"{title}: {done}/{self._totals[stage]} tasks, {now - self._began:.1f} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def stages() -> Iterator[Progress]:
    """Progress of the stages of an evaluation."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with bars() as shown:
        yield _Bars(shown)


@contextlib.contextmanager
def points() -> Iterator[tuple[Progress, Callable[[int, int, str, Report], None]]]:
    """Progress of a sweep: of the tasks of its evaluations, and a line for each of its points."""

    def line(done: int, total: int, name: str, report: Report) -> str:
        metric, value = next(iter(report.metrics.items()))
        return f"point {done}/{total}: {name}, {metric} {metric_value(metric, value)}, {report.timing['total']:.1f} s"

    if not sys.stderr.isatty():
        yield (
            _Lines(ends=False),
            lambda *point: print(line(*point), file=sys.stderr, flush=True),
        )
        return
    with bars() as shown:
        yield _Bars(shown, only_latest=True), lambda *point: shown.console.print(line(*point), highlight=False)


@contextlib.contextmanager
def rows_progress() -> Iterator[Callable[[int, int, str], None]]:
    """Progress of reading rows: called with rows done, rows in all, and what is read."""
    if sys.stderr.isatty():
        with bars() as shown:
            tasks: dict[str, TaskID] = {}

            def show(done: int, total: int, what: str) -> None:
                if what not in tasks:
                    tasks[what] = shown.add_task(what, total=total)
                shown.update(tasks[what], completed=done)

            yield show
        return
    printed: dict[str, float] = {}

    def line(done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if done == total or now - printed.setdefault(what, now) >= _LINE_EVERY:
            printed[what] = now
            print(f"{what}: {done}/{total} rows", file=sys.stderr, flush=True)

    yield line
