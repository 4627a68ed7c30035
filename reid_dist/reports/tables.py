"""Console tables: one style, without control characters in any cell, plain text of 80 columns in a log file."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import IO

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table

from reid_dist.core.credentials import without_controls

_LOG_COLUMNS = 80


class _TextConsole(Console):
    """A console on which text brings in no control characters; styles and rules are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(without_controls(segment.text), segment.style)


def value_table(first: str | None = None) -> Table:
    """Return an empty table with a rule below its heads; `first` is the head of a bold column of names."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    if first is not None:
        table.add_column(first, style="bold", no_wrap=True)
    return table


def fact_table() -> Table:
    """Return an empty table of two columns: names and folded text."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def print_parts(*parts: RenderableType, file: IO[str] | None = None) -> None:
    """Print tables and texts below each other, on standard output when `file` is None.

    A file that is not a terminal gets plain text, 80 columns wide, and only characters that its encoding has.
    """
    stream = sys.stdout if file is None else file
    if stream.isatty():
        _TextConsole(file=stream, highlight=False).print(Group(*parts))
        return
    # A buffer of the stream's own encoding: rich then draws rules out of the characters that there are.
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=getattr(stream, "encoding", None) or "utf-8", errors="replace")
    _TextConsole(file=buffer, width=_LOG_COLUMNS, color_system=None, force_terminal=False).print(Group(*parts))
    buffer.seek(0)
    stream.writelines(f"{line.rstrip()}\n" for line in buffer)
