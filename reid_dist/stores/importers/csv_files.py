"""``.csv``: labels by the names of their columns, without features."""

from __future__ import annotations

from pathlib import Path

from reid_dist.errors import InputError
from reid_dist.stores.importers.source import FORMATS, Format, HeldRows, RowArray, Source, text_rows
from reid_dist.stores.importers.text_files import read_records

__all__ = ["CSV"]


def _open_csv(path: Path) -> Source:
    rows = read_records(path)
    if not rows:
        raise InputError(f"{path} is empty; its first line must name the columns")
    header, *records = rows
    uneven = next((number for number, row in enumerate(records) if len(row) != len(header)), None)
    if uneven is not None:
        raise InputError(
            f"{path}: record {uneven + 1} has {len(records[uneven])} values, and the first line names {len(header)} "
            "columns"
        )
    arrays: dict[str, RowArray] = {
        name.strip(): HeldRows(text_rows([row[at].strip() for row in records], name)) for at, name in enumerate(header)
    }
    # The index of a data frame is a column without a name.
    arrays.pop("", None)
    return Source(str(path), arrays)


CSV = FORMATS.register(
    Format("csv", "labels, one column each, for --labels; no features", "RFC 4180", (".csv",), _open_csv)
)
