"""The keywords of public functions as a session, with its progress as bars in a terminal or a notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

from reid_dist.engine.checks import check_client, check_count
from reid_dist.engine.task_graph import Progress, Stopwatch
from reid_dist.errors import InputError
from reid_dist.stages.session import Session
from reid_dist.stores import Workspace

if TYPE_CHECKING:
    from distributed import Client

STAGE_TITLES = {
    "compile": "small jobs of every kind",
    "statistics": "statistics of gallery rows",
    "expansion": "new features",
    "neighbours": "neighbours of all items",
    "weights": "reciprocal neighbours",
    "means": "local expansion",
    "pairs": "distances of relevant pairs",
    "sweep": "tiles of the gallery",
    "verification": "exact thresholds",
}


class _Rate(ProgressColumn):
    """Tasks or rows per second, as rich counts them."""

    def render(self, task: Task) -> Text:
        return TaskProgressColumn.render_speed(task.finished_speed or task.speed)


def new_bars(*, transient: bool) -> Bars:
    """Progress bars on standard error, or in the output of a notebook cell; transient ones vanish at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Bars(*columns, _Rate(), TimeRemainingColumn(), console=Console(stderr=True), transient=transient)


class StageBars(Progress):
    """One bar per stage; a stage that runs again begins anew."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def start(self, totals: dict[str, int]) -> None:
        """Show the stages of a pass."""
        for stage, total in totals.items():
            if stage in self._tasks:
                self._bars.reset(self._tasks[stage], start=False, total=total)
            else:
                title = STAGE_TITLES.get(stage, stage)
                self._tasks[stage] = self._bars.add_task(title, start=False, total=total)

    def advance(self, stage: str) -> None:
        """Move the bar of a stage."""
        self._bars.start_task(self._tasks[stage])
        self._bars.advance(self._tasks[stage])


class _Counters(Protocol):
    """The two methods that the object of a caller needs."""

    def start(self, totals: dict[str, int]) -> None: ...

    def advance(self, stage: str) -> None: ...


Shown: TypeAlias = _Counters | bool | None
"""True for bars, False or None for nothing, or an object with `start` and `advance`, such as a `Progress`."""


class _Forwarded(Progress):
    """Object of a caller that has the two methods and no others."""

    def __init__(self, counters: _Counters) -> None:
        self._counters = counters

    def start(self, totals: dict[str, int]) -> None:
        """Pass the stages of a pass on."""
        self._counters.start(totals)

    def advance(self, stage: str) -> None:
        """Pass a finished task on."""
        self._counters.advance(stage)


@contextlib.contextmanager
def shown_progress(progress: Shown) -> Iterator[Progress]:
    """Progress as a context: bars go to standard error, or into the output of a notebook cell."""
    if progress is None or progress is False:
        yield Progress()
    elif progress is True:
        with new_bars(transient=False) as bars:
            yield StageBars(bars)
    elif isinstance(progress, Progress):
        yield progress
    elif hasattr(progress, "start") and hasattr(progress, "advance"):
        yield _Forwarded(progress)
    else:
        raise InputError(f"progress must be True, False, None or a Progress, found {type(progress).__name__}")


@contextlib.contextmanager
def begin_session(
    client: Client | None,
    workspace: str | PathLike[str] | None,
    progress: Shown,
    chunk_rows: int | None = None,
) -> Iterator[Session]:
    """Session of the keywords of a public function, checked; bars are shown while it lasts."""
    check_client(client)
    if chunk_rows is not None:
        check_count("chunk_rows", chunk_rows)
    place = None if workspace is None else Workspace.at(workspace)
    with shown_progress(progress) as shown:
        yield Session(client=client, workspace=place, chunk_rows=chunk_rows, progress=Stopwatch(shown))
