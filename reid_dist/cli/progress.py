"""Progress on standard error: bars on a terminal, a line now and then elsewhere, and events with ``--log-json``.

Lines and events hold what is done, the rate and the time left.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.progress import TaskID

from reid_dist.cli.events import current_log
from reid_dist.core.credentials import without_controls
from reid_dist.core.formatting import rough_duration
from reid_dist.engine.compilation_spans import Spans
from reid_dist.engine.task_graph import Progress
from reid_dist.evaluation.sessions import STAGE_TITLES, StageBars, new_bars
from reid_dist.reports.words import metric_value

# Shortest time between two lines, and between two events, of a stage, in seconds.
_LINE_EVERY_S = 5.0
_EVENT_EVERY_S = 1.0

# A lower rate has two digits.
_QUICK = 10.0

# Stages whose tasks differ so much that they have no common rate.
_UNEVEN = {STAGE_TITLES["compile"]}


@dataclass
class _Advance:
    """Tasks or rows of a stage that are done, and the seconds since it began (None before the first of them)."""

    title: str
    total: int
    done: int = 0
    began: float | None = None
    seconds: float = 0.0
    shown: float = 0.0

    def count(self, done: int, began: float) -> None:
        """Record what is done by now; `began` is the start unless an earlier one is recorded."""
        if self.began is None:
            self.began = self.shown = began
        self.done, self.seconds = done, time.monotonic() - self.began

    @property
    def is_done(self) -> bool:
        return self.done >= self.total

    def is_due(self, every_s: float) -> bool:
        """Whether to show it: at intervals, and when it is done."""
        now = time.monotonic()
        if now - self.shown < every_s and not self.is_done:
            return False
        self.shown = now
        return True

    @property
    def rate(self) -> float | None:
        """Tasks or rows per second; None before the first."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds left at this rate."""
        return None if self.rate is None else (self.total - self.done) / self.rate

    def line(self, unit: str) -> str:
        """Text of a line."""
        words = [f"{self.title}: {self.done}/{self.total} {unit}", f"{self.seconds:.1f} s"]
        if self.rate is not None and self.left is not None and self.title not in _UNEVEN:
            words.append(f"{self.rate:,.0f}/s" if self.rate >= _QUICK else f"{self.rate:.2g}/s")
            words += [] if self.is_done else [f"{rough_duration(self.left)} left"]
        return ", ".join(words)

    def facts(self) -> dict[str, float | None]:
        """Numbers of an event."""
        return {
            "done": self.done,
            "total": self.total,
            "seconds": round(self.seconds, 3),
            "rate": None if self.rate is None else round(self.rate, 3),
            "eta_seconds": None if self.left is None else round(self.left, 3),
        }


def _print(line: str) -> None:
    print(without_controls(line), file=sys.stderr, flush=True)


def notify(event: str, line: str, **facts: Any) -> None:
    """Report a single occurrence: an event with facts, or else a line."""
    log = current_log()
    if log is None:
        _print(line)
    else:
        log.write(event, **facts)


def _show(advance: _Advance, unit: str, *, ends: bool = True, **facts: str) -> None:
    """Show an advance if it is due: as an event, or as a line; without `ends`, none for a stage that is done."""
    log = current_log()
    if not advance.is_due(_LINE_EVERY_S if log is None else _EVENT_EVERY_S):
        return
    if log is not None:
        log.write("stage_done" if advance.is_done else "progress", **facts, unit=unit, **advance.facts())
    elif ends or not advance.is_done:
        _print(advance.line(unit))


class _Shown(Progress):
    """Progress whose messages are shown, one about compilation at most."""

    _notified = False

    def show(self, event: str, line: str, **facts: Any) -> None:
        """Show a single occurrence."""
        notify(event, line, **facts)

    def warn(self, message: str) -> None:
        self.show("warning", f"Warning: {message}", message=message)

    def compiling(self, words: str) -> None:
        if not self._notified:
            self._notified = True
            self.show("compiling", words, message=words)


def messages() -> Progress:
    """Progress of which messages alone are shown, beside that of rows."""
    return _Shown()


class _Log(_Shown):
    """Stages as lines or events; the time of compilations is left out."""

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends
        self._stages: dict[str, _Advance] = {}
        self._latest = time.monotonic()
        self._compiled = Spans()

    def start(self, totals: dict[str, int]) -> None:
        self._stages = {stage: _Advance(STAGE_TITLES.get(stage, stage), total) for stage, total in totals.items()}
        self._latest = time.monotonic()
        if (log := current_log()) is None:
            return
        for stage, each in self._stages.items():
            log.write("stage_started", stage=stage, title=each.title, total=each.total, unit="tasks")

    def advance(self, stage: str) -> None:
        advance = self._stages[stage]
        # Stages of one pass wait for each other: a stage begins when the one before it last moved.
        advance.count(advance.done + 1, self._latest)
        self._latest = time.monotonic()
        _show(advance, "tasks", ends=self._ends, stage=stage)

    def compiled(self, began: float, ended: float) -> None:
        seconds = self._compiled.add(began, ended)
        self._latest += seconds
        for advance in self._stages.values():
            if advance.began is not None:
                advance.began += seconds


class _Bars(_Shown, StageBars):
    """Bars, with messages above them."""

    def show(self, event: str, line: str, **facts: Any) -> None:
        self._bars.console.print(without_controls(line), markup=False, highlight=False, soft_wrap=True)


def _is_terminal() -> bool:
    return current_log() is None and sys.stderr.isatty()


@contextlib.contextmanager
def stages(*, ends: bool = True) -> Iterator[_Shown]:
    """Progress of the stages of an evaluation; without `ends`, no line for a stage that is done."""
    if not _is_terminal():
        yield _Log(ends=ends)
        return
    with new_bars(transient=True) as shown:
        yield _Bars(shown)


@contextlib.contextmanager
def points() -> Iterator[tuple[Progress, Callable[[int, int, str, Mapping[str, Any]], None]]]:
    """Progress of a parameter sweep: of the tasks of its evaluations, and a line for each of its points."""
    with stages(ends=False) as progress:

        def show(done: int, total: int, name: str, row: Mapping[str, Any]) -> None:
            metric, value = next(iter(row["metrics"].items()))
            line = f"point {done}/{total}: {name}, {metric} {metric_value(metric, value)}, {row['seconds']:.1f} s"
            facts = {"metrics": row["metrics"], "seconds": round(row["seconds"], 3)}
            progress.show("point", line, stage="points", done=done, total=total, point=name, **facts)

        yield progress, show


@contextlib.contextmanager
def rows_progress() -> Iterator[Callable[[int, int, str], None]]:
    """Progress of reading rows: called with rows done, rows in all, and the name of what is read."""
    if _is_terminal():
        with new_bars(transient=True) as shown:
            tasks: dict[str, TaskID] = {}

            def move(done: int, total: int, what: str) -> None:
                if what not in tasks:
                    tasks[what] = shown.add_task(what, total=total)
                shown.update(tasks[what], total=total, completed=done)

            yield move
        return
    advances: dict[str, _Advance] = {}
    latest = time.monotonic()

    def count(done: int, total: int, what: str) -> None:
        nonlocal latest
        advance = advances.get(what)
        # Both sides may be in one file, and are then read one after the other under one name.
        if advance is None or advance.total != total or done < advance.done or advance.is_done:
            advance = advances[what] = _Advance(what, total)
        advance.count(done, latest)
        latest = time.monotonic()
        _show(advance, "rows", stage="rows", title=what)

    yield count
