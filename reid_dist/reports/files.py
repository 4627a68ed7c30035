"""A report as a directory of files: either whole, or visibly not there.

Everything is first written, and flushed to the disk, under temporary names; only when all of it is down are the
files renamed, ``report.json`` last.  A directory that has a ``report.json`` is therefore whole, and a disk that
fills up half-way leaves behind what was there before.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.limits import refuse_long_names
from reid_dist.errors import (
    DamagedStoreError,
    IncompleteStoreError,
    InputError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)

DOCUMENT = "report.json"
PAGE = "report.html"
PER_QUERY = "per_query.npz"
PER_QUERY_PARQUET = "per_query.parquet"
TOPK = "topk.npz"
PICTURES = "pictures.json"
ALL = (PAGE, DOCUMENT, PER_QUERY, PER_QUERY_PARQUET, TOPK, PICTURES)

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+")

Arrays = Mapping[str, NDArray[Any]]
Writer = Callable[[IO[bytes]], object]
"""Writes the content of one file."""


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """What the files of one report hold.

    Attributes
    ----------
    document
        The content of ``report.json``.
    per_query
        The arrays of ``per_query.npz``, one value per query.
    topk
        The arrays of ``topk.npz``, or None where there is none.
    pictures
        The text of ``pictures.json``, or None where there is none.
    """

    document: dict[str, Any]
    per_query: dict[str, NDArray[Any]]
    topk: dict[str, NDArray[Any]] | None
    pictures: str | None


def refuse_occupied(directory: str | os.PathLike[str], *, otherwise: str = "or pass overwrite=True") -> Path:
    """Return the directory as a path if a report may be written there without touching anything.

    Parameters
    ----------
    directory
        The directory.
    otherwise
        What to do, except for choosing another one; empty for nothing.

    Raises
    ------
    InputError
        If ``directory`` is a URI: a report is written to a local directory.
    StoreExistsError
        If it holds anything.
    StoreError
        If it is a file or cannot be listed.
    """
    path = refuse_uri(directory)
    try:
        occupant = next(path.iterdir(), None)
    except FileNotFoundError:
        return path
    except OSError as error:
        raise StoreError(f"cannot use {path} as an output directory: {_reason(error)}") from error
    if occupant is not None:
        advice = f"choose another one{otherwise and f', {otherwise}'}"
        raise StoreExistsError(f"output directory {path} is not empty (it holds {occupant.name!r}); {advice}")
    return path


def report_writers(*, page: str, per_query: Arrays, topk: Arrays | None, pictures: str | None) -> dict[str, Writer]:
    """Return what writes the files of a report beside its document, by name.

    Parameters
    ----------
    page
        The text of ``report.html``.
    per_query
        One array per column, all of one length.  Written as ``per_query.npz``, and as ``per_query.parquet``
        where pyarrow is installed.
    topk
        The arrays of ``topk.npz``; None writes no such file.
    pictures
        The text of ``pictures.json``; None writes no such file.
    """
    writers: dict[str, Writer] = {PER_QUERY: lambda file: _write_npz(file, per_query)}
    if importlib.util.find_spec("pyarrow") is not None:
        writers[PER_QUERY_PARQUET] = lambda file: _write_parquet(file, per_query)
    if topk is not None:
        writers[TOPK] = lambda file: _write_npz(file, topk)
    if pictures is not None:
        writers[PICTURES] = lambda file: file.write(pictures.encode("ascii"))
    # "replace": a path that is not UTF-8 may occur in the page; it is shown there, never read back.
    writers[PAGE] = lambda file: file.write(page.encode("utf-8", "replace"))
    return writers


def write_together(path: Path, writers: Mapping[str, Writer], *, known: Sequence[str] = ()) -> None:
    """Write files under other names, then give them theirs; the last one marks that all are there.

    Parameters
    ----------
    path
        The directory; made when it is missing.
    writers
        What writes each file, by name; in this order they appear.
    known
        Names of files that belong to an older content: those without a writer are removed.

    Raises
    ------
    StoreError
        If they cannot be written; what was there before is then there still, or without its commit marker.
    """
    staged: dict[str, Path] = {}
    *others, marker = writers
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, write in writers.items():
            staged[name] = path / f".{name}.{secrets.token_hex(4)}.tmp"
            with staged[name].open("xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
        # The old commit marker is removed first: a mixture of two reports must not look whole.
        (path / marker).unlink(missing_ok=True)
        for name in known:
            if name not in staged:
                (path / name).unlink(missing_ok=True)
        for name in (*others, marker):
            staged[name].replace(path / name)
        _sync_directory(path)
    except OSError as error:
        raise StoreError(f"cannot write the report to {path}: {_reason(error)}; choose another directory") from error
    finally:
        if path.is_dir():
            for temporary in staged.values():
                temporary.unlink(missing_ok=True)


def written_files(directory: str | os.PathLike[str]) -> list[str]:
    """Names of the files of a report that are there, what people open first."""
    return [name for name in ALL if (Path(directory) / name).is_file()]


def read_document(directory: str | os.PathLike[str], name: str) -> dict[str, Any]:
    """Read the JSON document that marks a finished report.

    Raises
    ------
    StoreNotFoundError
        If it is missing.
    DamagedStoreError
        If it cannot be decoded.
    StoreError
        If it cannot be read.
    """
    path = refuse_uri(directory)
    text = _read(path, name)
    if text is None:
        raise StoreNotFoundError(f"no report in {path}: it has no {name}")
    try:
        document = json.loads(text)
    except ValueError as error:
        raise DamagedStoreError(f"{path / name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise DamagedStoreError(f"{path / name} holds a {type(document).__name__}, not a report")
    return document


def read_files(directory: str | os.PathLike[str], verify: Callable[[Mapping[str, Any], str], None]) -> ReportFiles:
    """Read the files of a report.

    Parameters
    ----------
    directory
        Where they are.
    verify
        Called with the document and what errors call it, before any other file is read; raises if it is not what was
        written.

    Raises
    ------
    StoreNotFoundError
        If the directory, or every file of a report, is missing.
    IncompleteStoreError
        If there are files of a report and no ``report.json``: its writer never finished.
    DamagedStoreError
        If a file is missing or cannot be decoded.
    StoreError
        If a file cannot be read.
    """
    path = refuse_uri(directory)
    if not (path / DOCUMENT).exists() and any((path / name).exists() for name in ALL):
        raise IncompleteStoreError(f"{path} has no {DOCUMENT}: the report was never finished; evaluate again")
    document = read_document(path, DOCUMENT)
    verify(document, f"report in {path}")
    per_query = _read_npz(path, PER_QUERY)
    topk = _read_npz(path, TOPK) if document.get("topk") is not None else None
    content = _read(path, PICTURES) if document.get("pictures") is not None else b""
    if content is None:
        raise DamagedStoreError(f"{path} has a {DOCUMENT} and no {PICTURES}; evaluate again")
    try:
        pictures = content.decode("ascii") or None
    except UnicodeDecodeError as error:
        raise DamagedStoreError(f"{path / PICTURES} cannot be decoded: {error}") from error
    return ReportFiles(document=document, per_query=per_query, topk=topk, pictures=pictures)


def pack_arrays(arrays: Arrays) -> bytes:
    """Return arrays as the bytes of an npz file; equal arrays give equal bytes."""
    file = BytesIO()
    _write_npz(file, arrays)
    return file.getvalue()


def unpack_arrays(content: bytes, where: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file.

    Parameters
    ----------
    content
        Its bytes.
    where
        What an error calls it.

    Raises
    ------
    DamagedStoreError
        If it cannot be decoded.
    """
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive:
            return {
                # The whole member is read first: its checksum is then verified before numpy parses the header.
                member.removesuffix(".npy"): np.lib.format.read_array(BytesIO(archive.read(member)), allow_pickle=False)
                for member in archive.namelist()
            }
    except (ValueError, KeyError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        # RuntimeError: raised by zipfile for a member that, by a flipped bit, is marked as encrypted or newer.
        raise DamagedStoreError(f"{where} cannot be decoded: {error}") from error


def refuse_uri(directory: str | os.PathLike[str]) -> Path:
    """Return a directory as a path.

    Raises
    ------
    InputError
        If it is a URI: a report is written to a local directory.  If a name in it is too long.
    """
    # Of two slashes a Path keeps one.
    scheme, colon, rest = os.fspath(directory).partition(":/")
    if colon and _SCHEME.fullmatch(scheme):
        raise InputError(f"a report is kept in a local directory, found the URI {scheme}://{rest.lstrip('/')}")
    refuse_long_names(directory)
    return Path(directory)


def _read(path: Path, name: str) -> bytes | None:
    """Return the bytes of a file, None where it is missing."""
    try:
        return (path / name).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path / name}: {_reason(error)}") from error


def _read_npz(path: Path, name: str) -> dict[str, NDArray[Any]]:
    content = _read(path, name)
    if content is None:
        raise DamagedStoreError(f"{path} has a {DOCUMENT} and no {name}; evaluate again")
    return unpack_arrays(content, str(path / name))


def _write_npz(file: IO[bytes], arrays: Arrays) -> None:
    # Not numpy.savez_compressed: it takes the names as keyword arguments, and a column may be called "file".
    # ZipInfo's fixed date also keeps the bytes equal from one run to the next.
    with zipfile.ZipFile(file, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def _write_parquet(file: IO[bytes], arrays: Arrays) -> None:
    # pyarrow is optional and slow to import, hence only here.
    import pyarrow
    import pyarrow.parquet

    def column(array: NDArray[Any]) -> Any:
        # Not pyarrow.array: it imports pandas where that is installed, which takes 0.3 s.
        if array.dtype.kind == "U":
            texts = [text.encode() for text in array.tolist()]
            kind, ends = pyarrow.string(), np.cumsum([0, *map(len, texts)], dtype=np.int32)
            parts: list[Any] = [ends, b"".join(texts)]
        elif array.dtype == np.bool_:
            kind, parts = pyarrow.bool_(), [np.packbits(array, bitorder="little")]
        else:
            kind, parts = pyarrow.from_numpy_dtype(array.dtype), [np.ascontiguousarray(array)]
        return pyarrow.Array.from_buffers(kind, len(array), [None, *map(pyarrow.py_buffer, parts)])

    pyarrow.parquet.write_table(pyarrow.table({name: column(array) for name, array in arrays.items()}), file)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
