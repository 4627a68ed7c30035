"""Sources in several files, such as one per rank or one per day: a folder or a glob of shards is read as one file.

Shards are in the order of their names, in which numbers count by value: ``part-2`` is before ``part-10``, and names
whose numbers have leading zeros are in the order that ``ls`` shows.  The rows are read one file after the other.
"""

from __future__ import annotations

import glob
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.file_rows import mapped_rows
from reid_dist.stores.importers.source import FORMATS, Format, RowArray, Source, open_source

_MARKERS: Final = ("_SUCCESS", "_metadata", "_common_metadata")
"""Files that writers of data sets leave beside the shards; so do hidden ones."""

_OF_ZARR: Final = ("zarr.json", ".zgroup", ".zarray", ".zattrs", "query.zarr", "gallery.zarr")
_NUM_QUERY: Final = "num_query"
_DIGITS: Final = re.compile(r"([0-9]+)")

_HELD_BYTES: Final = 64 << 20
"""Bytes of an array that is read into memory as a whole; a longer one is written to a temporary file and mapped."""


def natural_order(path: Path) -> tuple[tuple[object, ...], str]:
    """Key that sorts paths by name, in which numbers count by value."""
    # Every other part of the split is digits.  Those of other scripts are text: the like of ² is no number.
    parts = [
        tuple(int(text) if place % 2 else text for place, text in enumerate(_DIGITS.split(part))) for part in path.parts
    ]
    return tuple(parts), str(path)


def shard_files(path: Path) -> list[Path] | None:
    """Files of a folder or a glob, in their order; None for a folder that holds none, such as a Zarr group.

    Raises
    ------
    InputError
        If a glob matches no file, a folder is empty, or one of both holds something else than features of one format.
    """
    found = _of_folder(path) if path.is_dir() else glob_files(str(path))
    if found is not None:
        _refuse_others(path, found)
    return found


def glob_files(uri: str) -> list[Path]:
    """Files of a glob of any kind, in their order; InputError if there is none."""
    # `Path.glob` would go into hidden folders.
    found = _shards(Path(name) for name in set(glob.glob(uri, recursive=True)))  # noqa: PTH207
    if not found:
        raise InputError(
            f"no file matches {uri}; quote the pattern, so that the shell does not replace it, and check the directory"
        )
    return found


def _of_folder(path: Path) -> list[Path] | None:
    """Files of a folder of shards; None for one that is of Zarr, or in which no file is of a known format."""
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise StoreError(f"cannot read the directory {path}: {error.strerror}") from error
    if path.suffix.lower() == ".zarr" or not names.isdisjoint(_OF_ZARR):
        return None
    found = _shards(path / name for name in names)
    if not found:
        advice = "give a store, a file, or a directory of .npy, .npz or other shards"
        raise InputError(f"{path} is an empty directory; {advice}")
    return found if any(map(_format_name, found)) else None


def _shards(paths: Iterator[Path]) -> list[Path]:
    shown = [path for path in paths if path.name not in _MARKERS and not path.name.startswith(".")]
    return sorted(shown, key=natural_order)


def _format_name(path: Path) -> str | None:
    """Name of the format of a file by its suffix, None where that is not known, or the path is a folder."""
    suffix = path.suffix.lower()
    return None if path.is_dir() else next((each.name for each in FORMATS if suffix in each.suffixes), None)


def _refuse_others(uri: Path, files: Sequence[Path]) -> None:
    """Refuse folders and unknown files, which may be shards that are missing, and shards of several formats."""
    formats: dict[str | None, Path] = {}
    for path in files:
        formats.setdefault(_format_name(path), path)
    if (other := formats.get(None)) is not None:
        what = "a directory" if other.is_dir() else "of no known format"
        raise InputError(
            f"{uri} holds {other.name}, which is {what}; give a glob of only the shards, such as "
            f"{(uri if uri.is_dir() else other.parent) / '*.npz'}"
        )
    if len(formats) > 1:
        found = ", ".join(f"{path.name} ({name})" for name, path in formats.items())
        raise InputError(
            f"{uri} mixes formats: {found}; give a glob of only the shards, such as "
            f"{files[0].parent / f'*{files[0].suffix}'}"
        )


def open_shards(uri: str, files: Sequence[Path]) -> Source:
    """Open files as one source, which holds the arrays that each of them holds, one file after the other.

    Parameters
    ----------
    uri
        The folder or the glob.
    files
        At least one file, in the order of the rows.

    Raises
    ------
    InputError
        If files hold different arrays, or arrays of different types, dimensions or kinds of labels; the message names
        the file.
    StoreError
        If one of them cannot be read.
    """
    opened = {path: open_source(str(path)) for path in files}
    # A file without rows, as that of a rank that had no batch, need not know how many features there are.
    sources = {path: each for path, each in opened.items() if any(array.shape[0] for array in each.arrays.values())}
    sources = sources or opened
    first_path, first = next(iter(sources.items()))
    for path, source in sources.items():
        if _NUM_QUERY in source.arrays or _NUM_QUERY in source.values:
            raise InputError(
                f"{path} holds {_NUM_QUERY}, which is of one file and not of {counted(len(files), 'file')}; leave it "
                "out and give --num-query (num_query), or mark the rows with is_query"
            )
        if source.arrays.keys() != first.arrays.keys():
            raise InputError(
                f"{path} holds {_named(source)}, and {first_path.name} holds {_named(first)}; every file of one source "
                "must hold the same arrays"
            )
    arrays: dict[str, RowArray] = {
        name: JoinedRows(f"{name!r} of {uri}", {path: source.arrays[name] for path, source in sources.items()})
        for name in first.arrays
    }
    refused = {name: reason for source in sources.values() for name, reason in source.refused.items()}
    order = f"{files[0].name} to {files[-1].name}" if len(files) > 1 else files[0].name
    note = f"rows come from {counted(len(files), 'file')} in the order of their names: {order}"
    return Source(uri, arrays, refused, notes=(note,))


def _named(source: Source) -> str:
    return ", ".join(sorted(source.arrays)) or "no arrays"


class JoinedRows(RowArray):
    """Rows of one array of several files, one file after the other; `what` is its name in messages.

    A file is closed when the rows of the next one are read.
    """

    def __init__(self, what: str, parts: Mapping[Path, RowArray]) -> None:
        self._paths, self._parts = [*parts], [*parts.values()]
        first = self._parts[0]
        for path, part in parts.items():
            if _kind(part) != _kind(first):
                raise InputError(
                    f"{path} holds {_described(part)} in the place of {what}, and {self._paths[0].name} "
                    f"{_described(first)}; write all files alike"
                )
        self._edges = [0, *accumulate(part.shape[0] for part in self._parts)]
        # Of text, the longest of any file.
        dtype = max((part.dtype for part in self._parts), key=lambda dtype: dtype.itemsize)
        super().__init__((self._edges[-1], *first.shape[1:]), dtype)
        self.significant_bits = first.significant_bits
        self._what, self._at = what, 0

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        found = []
        # Of several files that begin at one row, all but the last are empty.
        for place in range(bisect_right(self._edges, start, hi=len(self._parts)) - 1, len(self._parts)):
            first, end = self._edges[place], self._edges[place + 1]
            if first >= stop:
                break
            if place != self._at:
                self._parts[self._at].close()
                self._at = place
            try:
                found.append(self._parts[place].read(max(start, first) - first, min(stop, end) - first))
            except StoreError as error:
                raise StoreError(f"{self._paths[place].name}: {error}", details=error.details) from error
        if not found:
            return self._parts[0].read(0, 0)
        return found[0] if len(found) == 1 else np.concatenate(found)

    def whole(self) -> NDArray[Any]:
        """Return the whole array; a large one of numbers as a memory map of a temporary file."""
        is_small = math.prod(self.shape) * self.dtype.itemsize <= _HELD_BYTES
        return super().whole() if is_small or self.dtype.kind not in "fiub" else mapped_rows(self, self._what)

    def close(self) -> None:
        """Close the file that was read last."""
        self._parts[self._at].close()


def _kind(part: RowArray) -> tuple[object, ...]:
    """What all parts of an array have in common; texts may be of any length."""
    dtype = part.dtype.newbyteorder("=")
    return part.shape[1:], dtype.kind if dtype.kind in "US" else dtype, part.significant_bits


def _described(part: RowArray) -> str:
    return f"{part.kind} of shape {part.shape}"


FORMATS.register(
    Format(
        "shards",
        "a directory, or a glob such as 'days/*.npz', of files of one format, in natural order of names (2 before 10)",
        "one file per rank or day",
        (),
        lambda path: open_shards(str(path), shard_files(path) or []),
        sniff=lambda path: not path.is_file() and shard_files(path) is not None,
    )
)
