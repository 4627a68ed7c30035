"""Tables as CSV, whose texts no spreadsheet evaluates."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from typing import IO, Final

from reid_dist.core.credentials import without_controls
from reid_dist.reports.tabular.table import Cell, Column, Table

# Beginnings of cells that spreadsheets evaluate; full-width forms are read as their ASCII counterparts.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# A dash for a missing value, and numbers, mean the same to a spreadsheet as to a reader.
_HARMLESS: Final = re.compile(r"-|-[0-9]+(\.[0-9]+)?")


def write_csv_table(columns: Sequence[str], rows: Iterable[Sequence[object]], file: IO[str]) -> None:
    """Write a header and rows; None is an empty cell, and every float reads back to the same bits.

    Control codes are removed from texts, and an apostrophe precedes what a spreadsheet would evaluate (OWASP, CSV
    Injection).
    """
    writer = csv.writer(file, lineterminator="\n")
    for row in (columns, *rows):
        writer.writerow([_cell(value) if isinstance(value, str) else value for value in row])


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the text that `write_csv_table` writes."""
    text = io.StringIO()
    write_csv_table(columns, rows, text)
    return text.getvalue()


def _cell(text: str) -> str:
    safe = without_controls(text)
    return f"'{safe}" if safe.startswith(_FORMULA) and not _HARMLESS.fullmatch(safe) else safe


def tables_csv(tables: Sequence[Table]) -> str:
    """Return tables under one header: their columns, and for several tables the title before them.

    A column is followed by the ends of its intervals, by whether a value is the best one and by its mark, where a cell
    has any of these.  Numbers have all of their digits, and shares are from 0 to 1.
    """
    several = len(tables) > 1
    rows = [
        {"table": table.title} | {name: value for part in parts for name, value in part.items()}
        for table in tables
        for parts in zip(*map(_column, table.columns, zip(*table.cells(detail=True), strict=True)), strict=True)
    ]
    heads = (name for table in tables for name in (column.head for column in table.columns))
    columns = dict.fromkeys(["table"] if several else [])
    for head in dict.fromkeys(heads):
        columns |= dict.fromkeys([head, *(name for name in _names(head)[1:] if any(name in row for row in rows))])
    return csv_table(list(columns), ([row.get(name) for name in columns] for row in rows))


def _names(head: str) -> list[str]:
    return [head, *(f"{head} {what}" for what in ("low", "high", "best", "mark"))]


def _column(column: Column, cells: Sequence[Cell]) -> list[dict[str, object]]:
    """Return the fields of every cell of a column: those of which a cell has something."""
    has_ends, has_best, has_marks = (
        any(each is not None for each in (cell.ends for cell in cells)),
        any(cell.is_best for cell in cells),
        any(cell.mark for cell in cells),
    )
    found = []
    for cell in cells:
        # A dash stands for what is not known, in texts too.
        value: object = ("" if cell.text == "-" else cell.text) if cell.value is None else cell.value
        low, high = (None, None) if cell.ends is None else cell.ends[1:]
        fields = [None if isinstance(each, float) and not math.isfinite(each) else each for each in (value, low, high)]
        more = [int(cell.is_best), cell.mark]
        kept = [True, has_ends, has_ends, has_best, has_marks]
        named = zip(_names(column.head), [*fields, *more], kept, strict=True)
        found.append({name: value for name, value, is_kept in named if is_kept})
    return found
