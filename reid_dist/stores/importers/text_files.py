"""Text files: lists of labels or of file names, one per line, and tables of labels in ``.csv``."""

from __future__ import annotations

import codecs
import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.regular_files import read_regular, refuse_special
from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.stores.importers.shards import glob_files
from reid_dist.stores.importers.source import (
    FORMATS,
    Format,
    HeldRows,
    RowArray,
    Source,
    open_source,
    refuse_repeated,
    text_rows,
)
from reid_dist.stores.locations import canonical_uri, is_glob, local_path

_LABEL_HEADERS = ("pid", "pids", "camid", "camids", "label", "labels")
_NAMES_HEADERS = ("path", "paths", "name", "names", "file", "files", "filename", "filenames", "img_path", "image_path")

_BYTE_ORDER_MARKS = (
    # The one of UTF-32 begins with that of UTF-16.
    *((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF8, "utf-8-sig")),
    *((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")),
)


def file_of_labels(location: str | os.PathLike[str]) -> Path:
    """Return the path of a file of labels, which must be there."""
    path = local_path(canonical_uri(location))
    if not path.exists():
        raise StoreNotFoundError(f"no file with labels at {path}")
    refuse_special(path, path.stat().st_mode)
    if path.is_dir():
        raise StoreNotFoundError(f"no file with labels at {path}: it is a directory")
    return path


def files_of_labels(location: str | os.PathLike[str]) -> list[Path]:
    """Return the path of a file of labels, or those of a glob, in their order; see `shards`."""
    uri = canonical_uri(location)
    is_one = not is_glob(uri) or local_path(uri).exists()
    return [file_of_labels(each) for each in ([location] if is_one else glob_files(uri))]


def read_column(path: Path) -> NDArray[Any]:
    """Read the labels of an ``.npy`` file, (n,)."""
    with open_source(str(path), "npy") as opened:
        return opened.arrays["features"].column(path.name)


def read_text(path: Path) -> str:
    """Read a text in UTF-8, or in the encoding of its byte order mark."""
    data = read_regular(path)
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    if encoding.startswith("utf-8") and b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise InputError(f"{path} is no text in UTF-8: line {line} holds a zero byte; save it as UTF-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise InputError(
                f"{path} begins as {encoding} and is damaged at byte {error.start}; save it again"
            ) from None
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path} is no text in UTF-8: byte 0x{data[error.start]:02x} in line {line} has no meaning there; "
            "save it as UTF-8 (iconv -f LATIN1 -t UTF-8, if it is Latin-1)"
        ) from None


def read_records(path: Path) -> list[list[str]]:
    """Read lines of values between commas, those without any left out."""
    try:
        return [row for row in csv.reader(io.StringIO(read_text(path), newline="")) if row]
    except csv.Error as error:
        raise InputError(f"{path} is no list of labels: {error}") from None


def read_names(path: Path) -> NDArray[np.str_]:
    """Read one file name per line, (n,) text, read-only; a header such as ``path`` is left out."""
    lines = (line.strip() for line in read_text(path).split("\n"))
    names = [name for name in lines if name]
    if names and names[0].lower() in _NAMES_HEADERS:
        names = names[1:]
    found = text_rows(names, str(path))
    found.flags.writeable = False
    return found


def read_lines(path: Path) -> NDArray[np.str_]:
    """Read one label a line, without a header and without comments before the first label."""
    rows = read_records(path)
    while rows and rows[0][0].lstrip().startswith("#"):
        rows.pop(0)
    wide = next((number for number, row in enumerate(rows) if len(row) != 1), None)
    if wide is not None:
        raise InputError(f"{path} must hold one label per line; line {wide + 1} holds {len(rows[wide])}")
    texts = [row[0].strip() for row in rows]
    if texts and texts[0].lower() in _LABEL_HEADERS:
        texts = texts[1:]
    return text_rows(texts, str(path))


def _open_csv(path: Path) -> Source:
    rows = read_records(path)
    if not rows:
        raise InputError(f"{path} is empty; its first line must name the columns")
    header, *records = rows
    refuse_repeated(filter(None, map(str.strip, header)), f"{path} has the column")
    uneven = next((number for number, row in enumerate(records) if len(row) != len(header)), None)
    if uneven is not None:
        raise InputError(
            f"{path}: record {uneven + 1} has {len(records[uneven])} values, and the first line names {len(header)} "
            "columns"
        )
    columns = {name: [row[at].strip() for row in records] for at, name in enumerate(header)}
    arrays: dict[str, RowArray] = {name.strip(): HeldRows(text_rows(texts, name)) for name, texts in columns.items()}
    # The index of a data frame is a column without a name.
    arrays.pop("", None)
    return Source(str(path), arrays)


FORMATS.register(Format("csv", "labels, one column each, for --labels; no features", "RFC 4180", (".csv",), _open_csv))
