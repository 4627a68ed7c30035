"""The keywords of public functions: options in signatures and docstrings, and a session with its progress as bars."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, ForwardRef, TypeAlias, TypeVar

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

from reid_dist.core.parameters import Parameter
from reid_dist.engine.checks import check_client, check_count
from reid_dist.engine.task_graph import Progress, Stopwatch
from reid_dist.errors import InputError
from reid_dist.evaluation.options import EvaluationOptions, option_table
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
    "passes": "passes over the gallery",
}


# Seconds between two drawings of bars in a notebook cell, and the characters of a line.
_CELL_EVERY_S: Final = 0.2
_CELL_WIDTH: Final = 100


class _Rate(ProgressColumn):
    """Tasks or rows per second, as rich counts them."""

    def render(self, task: Task) -> Text:
        return TaskProgressColumn.render_speed(task.finished_speed or task.speed)


def new_bars(*, transient: bool) -> Bars:
    """Progress bars on standard error, or in the output of a notebook cell; transient ones vanish at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # In a notebook, rich's own bars are a widget, and without ipywidgets they warn whenever they are drawn.
    kind = _CellBars if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None else Bars
    return kind(*columns, _Rate(), TimeRemainingColumn(), console=console, transient=transient)


class _CellBars(Bars):
    """Bars as text in the output of a notebook cell, which is replaced as they move; never transient."""

    def __init__(self, *columns: ProgressColumn | str, console: Console, transient: bool) -> None:
        super().__init__(*columns, console=console, transient=transient, disable=True)
        self._handle: Any = None
        self._next = 0.0

    def start(self) -> None:
        """Show the bars."""
        from IPython.display import display

        self._handle = display(self._drawn(), raw=True, display_id=True)

    def stop(self) -> None:
        """Show the bars as they are in the end."""
        self._handle.update(self._drawn(), raw=True)

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Move a bar, and show it some times a second."""
        super().advance(task_id, advance)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _CELL_EVERY_S
            self._handle.update(self._drawn(), raw=True)

    def _drawn(self) -> dict[str, str]:
        console = Console(file=io.StringIO(), width=_CELL_WIDTH, force_jupyter=False, color_system=None)
        with console.capture() as captured:
            console.print(self.get_renderable())
        return {"text/plain": captured.get()}


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


Shown: TypeAlias = Progress | bool | None
"""True for bars, False or None for nothing, or a `Progress`."""


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


# ---- signatures ------------------------------------------------------------------------------------------------------

# Width of a docstring without its indentation.
_WIDTH: Final = 116

F = TypeVar("F", bound=Callable[..., Any])

# The entry of a docstring that is replaced by all options.
_ENTRY: Final = re.compile(r"^\*\*options(?:\n +.*)+", re.MULTILINE)


def lists_options(
    keys: type = EvaluationOptions, *, evaluation: str | None = None, before: Mapping[str, Parameter] | None = None
) -> Callable[[F], F]:
    """Show the options of an evaluation in signature and docstring of a function that takes ``**options``.

    `keys` is the TypedDict of the options; those that `evaluation` does not compute are left out.  `before` are other
    keyword arguments by name, None by default.
    """
    shown = {name: option for name, option in option_table(keys).items() if evaluation not in option.refused_by}
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in before or ()]
    named += [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=_annotation(keys, name),
        )
        for name, option in shown.items()
    ]

    def apply(function: F) -> F:
        # Python 3.13 removes the indentation of docstrings, earlier versions do not.
        signature, doc = inspect.signature(function), inspect.cleandoc(function.__doc__ or "")
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        n_positional = sum(each.kind is not each.KEYWORD_ONLY for each in own)
        parameters = [*own[:n_positional], *named, *own[n_positional:]]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]

        def entries(_: re.Match[str]) -> str:
            """Documentation of the options; one that has an entry of its own keeps that."""
            words = {name: each.help for name, each in (before or {}).items()}
            words |= {name: each.doc or each.help for name, each in shown.items()}
            return "\n".join(
                f"{name}\n{_wrapped(text, 4 * ' ')}" for name, text in words.items() if f"\n{name}\n" not in doc
            )

        function.__doc__ = _ENTRY.sub(entries, doc)
        return function

    return apply


def _annotation(keys: type, name: str) -> Any:
    """Type of an option; a forward reference as its text."""
    found = keys.__annotations__[name].__origin__
    return found.__forward_arg__ if isinstance(found, ForwardRef) else found


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
