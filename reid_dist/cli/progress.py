"""Progress on standard error: a line per stage with what is done, the rate and the time left.

On a terminal the lines are bars and move; elsewhere there is a line now and then and a final one per stage; with
``--log-json`` there are events.
"""

from __future__ import annotations

import contextlib
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from reid_dist.cli.events import EventLog, current_log
from reid_dist.clusters.compilation import Spans
from reid_dist.core.credentials import without_controls
from reid_dist.core.formatting import rough_duration
from reid_dist.engine.task_graph import Progress
from reid_dist.reports.words import metric_value

# Seconds: without a terminal, a line per stage at most this often; and an event.
_LINE_EVERY = 5.0
_EVENT_EVERY = 1.0

# A rate below this is shown with two digits.
_QUICK = 10.0

_TITLES = {
    "compile": "small jobs of every kind",
    "expansion": "averages with neighbours",
    "neighbours": "neighbours of all items",
    "weights": "reciprocal neighbours",
    "means": "local expansion",
    "pairs": "distances of relevant pairs",
    "sweep": "tiles of the gallery",
    "verification": "exact thresholds",
}

_UNEVEN = {"compile"}


@dataclass
class _Advance:
    """How far a stage has come.

    Attributes
    ----------
    title
        What it is, in words.
    total, done
        Tasks or rows.
    began
        When it began, by `time.monotonic`; None as long as nothing of it is done.
    seconds
        How long it had taken when `done` was last counted.
    shown
        When it was last printed.
    uneven
        Whether tasks differ so much that they have no common rate.
    """

    title: str
    total: int
    uneven: bool = False
    done: int = 0
    began: float | None = None
    seconds: float = 0.0
    shown: float = 0.0

    def leave_out(self, seconds: float) -> None:
        """Count as if it had begun later."""
        if self.began is not None:
            self.began += seconds

    def count(self, done: int, began: float) -> None:
        """Record what is done by now; `began` is the start unless an earlier one is recorded."""
        if self.began is None:
            self.began = self.shown = began
        self.done, self.seconds = done, time.monotonic() - self.began

    def is_due(self, every: float) -> bool:
        """Whether to print it: at intervals, and when it is done."""
        now = time.monotonic()
        if now - self.shown < every and self.done < self.total:
            return False
        self.shown = now
        return True

    @property
    def rate(self) -> float | None:
        """Tasks or rows a second; None before the first."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take at this rate."""
        return None if self.rate is None else (self.total - self.done) / self.rate

    @property
    def pace(self) -> str:
        """Rate and time left, in words."""
        if self.rate is None or self.left is None or self.uneven:
            return ""
        rate = f"{self.rate:,.0f}/s" if self.rate >= _QUICK else f"{self.rate:.2g}/s"
        return rate if self.done >= self.total else f"{rate}, {rough_duration(self.left)} left"

    def line(self, unit: str) -> str:
        """Everything, in words."""
        words = (f"{self.title}: {self.done}/{self.total} {unit}", f"{self.seconds:.1f} s", self.pace)
        return ", ".join(word for word in words if word)

    def facts(self) -> dict[str, float | None]:
        """Everything, in numbers."""
        return {
            "done": self.done,
            "total": self.total,
            "seconds": round(self.seconds, 3),
            "rate": None if self.rate is None else round(self.rate, 3),
            "eta_seconds": None if self.left is None else round(self.left, 3),
        }


class _Stages(Progress, ABC):
    """Counts of the stages of a pass; subclasses show them."""

    def __init__(self) -> None:
        self._stages: dict[str, _Advance] = {}
        self._latest = time.monotonic()
        self._compiled = Spans()
        self._notified = False

    def start(self, totals: dict[str, int]) -> None:
        self._stages = {
            stage: _Advance(_TITLES.get(stage, stage), total, stage in _UNEVEN) for stage, total in totals.items()
        }
        self._latest = time.monotonic()
        self.begun()

    def advance(self, stage: str) -> None:
        advance = self._stages[stage]
        # Stages of one pass wait for each other: a stage begins when the one before it last moved.
        advance.count(advance.done + 1, self._latest)
        self._latest = time.monotonic()
        self.moved(stage, advance)

    def warn(self, message: str) -> None:
        notify("warning", f"Warning: {message}", message=message)

    def compiling(self, words: str) -> None:
        if not self._notified:
            self._notified = True
            self.show_compilation(words)

    def compiled(self, began: float, ended: float) -> None:
        seconds = self._compiled.add(began, ended)
        self._latest += seconds
        for advance in self._stages.values():
            advance.leave_out(seconds)

    def begun(self) -> None:
        """Show that a pass has begun."""

    @abstractmethod
    def show_compilation(self, words: str) -> None:
        """Show that kernels are compiled, once."""

    @abstractmethod
    def moved(self, stage: str, advance: _Advance) -> None:
        """Show that a stage has moved."""


class _Bars(_Stages):
    """One bar per stage."""

    def __init__(self, shown: Bars, *, only_latest: bool = False) -> None:
        super().__init__()
        self._shown = shown
        self._only_latest = only_latest
        self._tasks: dict[str, TaskID] = {}

    def begun(self) -> None:
        for task in self._tasks.values() if self._only_latest else ():
            self._shown.remove_task(task)
        self._tasks = {
            stage: self._shown.add_task(each.title, total=each.total, pace="") for stage, each in self._stages.items()
        }

    def show_compilation(self, words: str) -> None:
        self._shown.console.print(words, highlight=False, soft_wrap=True)

    def moved(self, stage: str, advance: _Advance) -> None:
        self._shown.update(self._tasks[stage], completed=advance.done, pace=advance.pace)

    def warn(self, message: str) -> None:
        # Above the bars, which are drawn again.
        self._shown.console.print(without_controls(f"Warning: {message}"), markup=False, highlight=False)


class _Lines(_Stages):
    """Plain lines, for logs."""

    def __init__(self, *, ends: bool = True) -> None:
        super().__init__()
        self._ends = ends

    def show_compilation(self, words: str) -> None:
        _print(words)

    def moved(self, stage: str, advance: _Advance) -> None:
        if advance.is_due(_LINE_EVERY) and (self._ends or advance.done < advance.total):
            _print(advance.line("tasks"))


class _Events(_Stages):
    """Events, for programs."""

    def __init__(self, log: EventLog) -> None:
        super().__init__()
        self._log = log

    def show_compilation(self, words: str) -> None:
        self._log.write("compiling", message=words)

    def begun(self) -> None:
        for stage, each in self._stages.items():
            self._log.write("stage_started", stage=stage, title=each.title, total=each.total, unit="tasks")

    def moved(self, stage: str, advance: _Advance) -> None:
        if advance.is_due(_EVENT_EVERY):
            event = "progress" if advance.done < advance.total else "stage_done"
            self._log.write(event, stage=stage, unit="tasks", **advance.facts())


def _print(line: str) -> None:
    print(without_controls(line), file=sys.stderr, flush=True)


def notify(event: str, line: str, **facts: Any) -> None:
    """Report a single occurrence: an event with facts, or else a line."""
    log = current_log()
    if log is None:
        _print(line)
    else:
        log.write(event, **facts)


@contextlib.contextmanager
def bars() -> Iterator[Bars]:
    """Progress bars that vanish when they are done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as shown:
        yield shown


@contextlib.contextmanager
def stages() -> Iterator[Progress]:
    """Progress of the stages of an evaluation."""
    log = current_log()
    if log is not None:
        yield _Events(log)
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        with bars() as shown:
            yield _Bars(shown)


@contextlib.contextmanager
def points() -> Iterator[tuple[Progress, Callable[[int, int, str, Mapping[str, Any]], None]]]:
    """Progress of a parameter sweep: of the tasks of its evaluations, and a line for each of its points."""

    def line(done: int, total: int, name: str, row: Mapping[str, Any]) -> str:
        metric, value = next(iter(row["metrics"].items()))
        return f"point {done}/{total}: {name}, {metric} {metric_value(metric, value)}, {row['seconds']:.1f} s"

    def show(done: int, total: int, name: str, row: Mapping[str, Any]) -> None:
        facts = {"metrics": row["metrics"], "seconds": round(row["seconds"], 3)}
        notify("point", line(done, total, name, row), stage="points", done=done, total=total, point=name, **facts)

    log = current_log()
    if log is not None:
        yield _Events(log), show
    elif not sys.stderr.isatty():
        yield _Lines(ends=False), show
    else:
        with bars() as shown:
            yield _Bars(shown, only_latest=True), lambda *point: shown.console.print(line(*point), highlight=False)


@contextlib.contextmanager
def rows_progress() -> Iterator[Callable[[int, int, str], None]]:
    """Progress of reading rows: called with rows done, rows in all, and what is read."""
    log = current_log()
    advances: dict[str, _Advance] = {}
    latest = time.monotonic()

    def counted(done: int, total: int, what: str) -> _Advance:
        nonlocal latest
        advance = advances.get(what)
        # Both sides may be in one file, and are then read one after the other under one name.
        if advance is None or advance.total != total or done < advance.done or advance.done == total:
            advance = advances[what] = _Advance(what, total)
        advance.count(done, latest)
        latest = time.monotonic()
        return advance

    def event(done: int, total: int, what: str) -> None:
        advance = counted(done, total, what)
        if log is not None and advance.is_due(_EVENT_EVERY):
            name = "progress" if done < total else "stage_done"
            log.write(name, stage="rows", title=what, unit="rows", **advance.facts())

    def line(done: int, total: int, what: str) -> None:
        advance = counted(done, total, what)
        if advance.is_due(_LINE_EVERY):
            _print(advance.line("rows"))

    if log is not None:
        yield event
        return
    if not sys.stderr.isatty():
        yield line
        return
    with bars() as shown:
        tasks: dict[str, TaskID] = {}

        def show(done: int, total: int, what: str) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=total, pace="")
            shown.update(tasks[what], total=total, completed=done, pace=counted(done, total, what).pace)

        yield show
