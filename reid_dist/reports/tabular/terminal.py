"""Tables in a terminal, and as plain text of 80 columns.

No cell brings in control characters, and a log file gets neither colours nor characters that its encoding lacks.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Final, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from reid_dist.core.credentials import without_controls
from reid_dist.core.findings import WARNING
from reid_dist.reports.heading import Heading
from reid_dist.reports.tabular.table import Cell, Kind, Note, Table

BEST: Final = "*"
"""Mark of the best value of a column: plain text has no bold."""

CALM: Final = "cyan"
_ALARM: Final = "red"

_LOG_COLUMNS: Final = 80
_GAP: Final = 2
# Columns that a text takes at least; a longer one is folded.
_LEAST_TEXT: Final = 18
_STYLES: Final = {Kind.NAME: "bold", Kind.PROSE: "dim"}


class _TextConsole(Console):
    """A console on which text brings in no control characters; styles and rules are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(without_controls(segment.text), segment.style)


def print_parts(
    *parts: RenderableType | Table, file: IO[str] | None = None, accent: str = CALM, width: int = _LOG_COLUMNS
) -> None:
    """Print tables and texts below each other, on standard output when `file` is None.

    A file that is not a terminal gets plain text, `width` columns wide, and only characters that its encoding has.
    `accent` is the colour of the results of tables.
    """
    stream = sys.stdout if file is None else file
    if stream.isatty():
        console = _TextConsole(file=stream, highlight=False)
        console.print(Group(*_renderables(parts, console.width, accent)))
        return
    # A buffer of the stream's own encoding: rich then draws rules out of the characters that there are.
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=getattr(stream, "encoding", None) or "utf-8", errors="replace")
    console = _TextConsole(file=buffer, width=width, color_system=None, force_terminal=False)
    console.print(Group(*_renderables(parts, width, accent)))
    buffer.seek(0)
    stream.writelines(f"{line.rstrip()}\n" for line in buffer)


def print_headed(heading: Heading, tables: Sequence[Table], notes: str, file: IO[str] | None) -> None:
    """Print tables of a report below its heading and its warnings, with notes of a level as of `Table.with_notes`."""
    print_parts(*_headed(heading, tables, notes), file=file, accent=_accent(tables))


def _headed(heading: Heading, tables: Sequence[Table], notes: str) -> Iterator[RenderableType | Table]:
    title, *others = heading.lines
    # The word as well as the colour: a log file has no colours.
    warnings = (Text(f"{WARNING.upper()}: {text}", style=f"bold {_ALARM}") for text in _warnings(tables))
    yield Text("\n").join([Text(title, style="bold"), *map(Text, others), *warnings])
    for number, table in enumerate(tables):
        below = [note for note in table.with_notes(notes).notes if note.name != WARNING]
        yield replace(table, title=table.title if number else "", notes=below)


def _warnings(tables: Sequence[Table]) -> list[str]:
    return [str(note.text) for table in tables for note in table.notes if note.name == WARNING]


def _accent(tables: Sequence[Table]) -> str:
    return _ALARM if _warnings(tables) else CALM


def plain_text(*parts: RenderableType | Table, width: int = _LOG_COLUMNS) -> str:
    """Return tables and texts as plain text of at most so many columns."""
    stream = io.StringIO()
    print_parts(*parts, file=stream, width=width)
    return stream.getvalue()


def _renderables(parts: Iterable[RenderableType | Table], width: int, accent: str) -> Iterator[RenderableType]:
    for at, part in enumerate(parts):
        if isinstance(part, Table):
            if at and part.title:
                yield Text()
            yield from _of_table(part, width, accent)
        else:
            yield part


def _of_table(table: Table, width: int, accent: str) -> Iterator[RenderableType]:
    if table.title:
        yield Text(table.title, style="bold")
    if table.rows:
        yield from (_drawn(piece, accent) for piece in _pieces(list(_unfolded(table)), width))
    notes = [*([Note("the best value of its column", BEST)] if table.has_best else []), *table.notes]
    if notes:
        yield _notes(notes)


class _Shown(NamedTuple):
    """A column of text as it is printed; one of intervals belongs to the column before it."""

    head: str
    kind: Kind
    texts: Sequence[str]
    is_interval: bool = False

    @property
    def width(self) -> int:
        """Its least width, with the gap beside it."""
        widest = max(map(cell_len, (self.head, *self.texts)))
        return _GAP + (widest if self.kind.is_number else min(widest, _LEAST_TEXT))


def _unfolded(table: Table) -> Iterator[_Shown]:
    """Columns of texts: an interval takes a column of its own beside its value."""
    for column, cells in zip(table.shown, zip(*table.cells(), strict=True), strict=True):
        yield _Shown(column.full_head, column.kind, [*map(_marked, cells)])
        if any(cell.ends is not None for cell in cells):
            ends = ["-" if cell.ends is None else cell.ends.text for cell in cells]
            yield _Shown(table.interval_head, Kind.NUMBER, ends, is_interval=True)


def _marked(cell: Cell) -> str:
    return f"{BEST if cell.is_best else ''}{cell.text}{f' {cell.mark}' if cell.mark else ''}"


def _pieces(columns: Sequence[_Shown], width: int) -> Iterator[list[_Shown]]:
    """Split a table that is too wide by its columns; the first ones, up to one of numbers, begin each piece."""
    n_names = next((at for at, column in enumerate(columns) if column.kind.is_number), len(columns))
    names = [*columns[:n_names]]
    start = sum(column.width for column in names)
    piece: list[_Shown] = []
    used = start
    for at, column in enumerate(columns[n_names:], n_names):
        follows = columns[at + 1] if at + 1 < len(columns) and columns[at + 1].is_interval else None
        needed = column.width + (follows.width if follows is not None else 0)
        if piece and not column.is_interval and used + needed > width:
            yield [*names, *piece]
            piece, used = [], start
        piece.append(column)
        used += column.width
    yield [*names, *piece]


def _drawn(columns: Sequence[_Shown], accent: str) -> RichTable:
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for column in columns:
        drawn.add_column(
            # Text, not str: a name in square brackets is a name, not rich's markup.
            Text(column.head),
            justify="right" if column.kind.is_number else "left",
            no_wrap=column.kind.is_number,
            overflow="fold",
            style=accent if column.kind is Kind.RESULT else _STYLES.get(column.kind, ""),
        )
    for row in zip(*(column.texts for column in columns), strict=True):
        drawn.add_row(*map(Text, row))
    return drawn


def _notes(notes: Iterable[Note]) -> RichTable:
    """Names and folded texts in two columns."""
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for note in notes:
        grid.add_row(Text(note.name), Text(str(note.text)))
    return grid


def fact_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Return facts by name, below each other."""
    return Table(columns=(), rows=(), notes=[Note(text, name) for name, text in facts])
