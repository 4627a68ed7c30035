"""Tables as CSV, whose texts no spreadsheet evaluates."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import IO, Final

from reid_dist.core.credentials import without_controls

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


def _cell(text: str) -> str:
    safe = without_controls(text)
    return f"'{safe}" if safe.startswith(_FORMULA) and not _HARMLESS.fullmatch(safe) else safe
