"""A table as a value: columns, rows of cells, and notes, which every form of output renders alike.

A cell holds its text, and beside it what a form may show in its own way: an interval, whether it is the best of its
column, a mark, and the number itself for programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from reid_dist.core.findings import CAUTION, WARNING, Finding, lines_of
from reid_dist.core.formatting import shortened
from reid_dist.reports.words import interval, is_share, metric_value

_NOTE_LENGTH: Final = 200

SEVERITY_WORDS: Final = (WARNING, CAUTION, "note")
"""Names of notes that are findings."""


class Kind(Enum):
    """What a column holds, which decides on its alignment and style."""

    NAME = "name"
    """Names of the rows."""
    TEXT = "text"
    """Short texts."""
    NUMBER = "number"
    """Numbers, set to the right."""
    RESULT = "result"
    """Numbers that the table is about."""
    PROSE = "prose"
    """Sentences, which may take several lines."""
    FILE = "file"
    """Names of files, which may break after their separators, on pages with pictures of them."""
    DIGEST = "digest"
    """Digests, monospaced."""

    @property
    def is_number(self) -> bool:
        """Whether cells are set to the right."""
        return self in (Kind.NUMBER, Kind.RESULT)


Row: TypeAlias = "Sequence[Cell | str]"
"""Cells, of which a string is one of its own."""


class Column(NamedTuple):
    """One column: its head, its kind, and the unit of all its numbers, whose texts then have none.

    `is_detail` is that of a column for programs alone, which only CSV has.
    """

    head: str
    kind: Kind = Kind.NUMBER
    unit: str = ""
    is_detail: bool = False

    @property
    def full_head(self) -> str:
        """The head with the unit."""
        return f"{self.head} ({self.unit})" if self.unit else self.head


class Ends(NamedTuple):
    """An interval: its text, with brackets, and its ends."""

    text: str
    low: float
    high: float


class Cell(NamedTuple):
    """One cell.

    `value` is the number behind the text, None for a text alone; `mark` is a superscript; `link` the address of what
    the cell is about.  Pages also show `image`, a JPEG of it, and a colour of the strength `shade`, 0 to 1, behind it.
    """

    text: str
    value: float | None = None
    ends: Ends | None = None
    is_best: bool = False
    mark: str = ""
    link: str = ""
    image: bytes | None = None
    shade: float | None = None


class Note(NamedTuple):
    """A remark below a table: a string, or an object whose `str` is the text.

    `name` says what it is about; empty for a continuation of the note above it.  A note that is `needed` states what
    marks, intervals or verdicts of the table mean.
    """

    text: object
    name: str = "note"
    needed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Columns, rows of as many cells (a string is a cell of its own), and notes.

    Attributes
    ----------
    title
        Of the table; may be empty.
    columns, rows
        The first columns up to one of numbers name the row.
    notes
        Below the table.
    interval_head
        Head of the intervals of the cells, such as ``95% interval``.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""
    notes: Sequence[Note] = ()
    interval_head: str = "interval"

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row}")

    @property
    def shown(self) -> list[Column]:
        """The columns that are shown to people."""
        return [column for column in self.columns if not column.is_detail]

    def cells(self, *, detail: bool = False) -> Iterator[list[Cell]]:
        """Yield the cells of each row: those that are shown, or with those for programs."""
        for row in self.rows:
            yield [
                Cell(cell) if isinstance(cell, str) else cell
                for column, cell in zip(self.columns, row, strict=True)
                if detail or not column.is_detail
            ]

    def column(self, head: str) -> list[Cell]:
        """Return the cells of the column of a head."""
        place = [column.head for column in self.columns].index(head)
        return [row[place] for row in self.cells(detail=True)]

    @property
    def has_best(self) -> bool:
        """Whether a cell is the best of its column."""
        return any(cell.is_best for row in self.cells() for cell in row)

    def brief(self, most: int = 30, most_notes: int = 5) -> Table:
        """Return the first and last of many rows, and the first of many notes."""
        rows, notes = list(self.rows), list(self.notes)
        if len(rows) > most:
            half = most // 2
            left_out = [f"… {len(rows) - 2 * half:,} more", *("" for _ in self.columns[1:])]
            rows = [*rows[:half], left_out, *rows[-half:]]
        facts = [note for note in notes if note.name not in SEVERITY_WORDS]
        remarks = [
            note._replace(text=shortened(str(note.text), _NOTE_LENGTH)) for note in notes if note.name in SEVERITY_WORDS
        ]
        notes = [*facts, *remarks[:most_notes]]
        if len(remarks) > most_notes:
            notes.append(Note(f"{len(remarks) - most_notes} more in .notes", "notes"))
        return replace(self, rows=rows, notes=notes)

    def with_notes(self, level: str) -> Table:
        """Return the table with the notes of a level of `reid_dist.core.formatting.NOTE_LEVELS`."""
        kept = {"none": (), "short": [note for note in self.notes if note.needed], "full": self.notes}[level]
        return replace(self, notes=kept)


def notes_of(facts: Mapping[str, str] | Iterable[tuple[str, str]], findings: Iterable[Finding] = ()) -> list[Note]:
    """Return notes of facts by name and of findings, the gravest first; no table is read without its warnings."""
    pairs = facts.items() if isinstance(facts, Mapping) else facts
    found = (Note(text, word, word == WARNING) for word, text in lines_of(findings))
    return [*(Note(text, name) for name, text in pairs), *found]


def interval_head(level: float) -> str:
    """Return the head of intervals of a level."""
    return f"{100 * level:g}% interval"


def metric_cell(name: str, value: float, ends: Sequence[float | None] | None = None, text: str = "") -> Cell:
    """Return a value of a metric with its unit, and its interval; `text` in place of that of the value."""
    low, high = ends if ends is not None else (None, None)
    known = None if low is None or high is None else Ends(interval(name, (low, high)), low, high)
    return Cell(text or metric_value(name, value), value, known)


def metric_column(name: str) -> Column:
    """Return the column of a metric, whose unit is in its head."""
    return Column(name, Kind.NUMBER, "%" if is_share(name) else "")


def bare_cell(
    name: str, value: float, ends: tuple[float, float] | None = None, *, is_best: bool = False, mark: str = ""
) -> Cell:
    """Return a value of a metric for a column of `metric_column`: without its unit, a dash where it is not known."""
    known = None if ends is None else Ends(f"[{_bare(name, ends[0])}, {_bare(name, ends[1])}]", *ends)
    return Cell(_bare(name, value), value, known, is_best, mark)


def points_cell(difference: float, ends: tuple[float, float] | None = None) -> Cell:
    """Return a difference of shares in points, and its interval; zero has no sign, a small difference keeps its own."""
    known = None if ends is None else Ends(f"[{_points(ends[0])}, {_points(ends[1])}]", *ends)
    return Cell(_points(difference), difference, known)


def _points(difference: float) -> str:
    if math.isnan(difference):
        return "-"
    return "0.00" if difference == 0 else f"{100 * difference:+.2f}"


def _bare(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{100 * value:.2f}" if is_share(name) else f"{value:.6g}"
