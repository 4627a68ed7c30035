"""A report as a directory of files: either complete, or without its commit marker.

All files are first written, and flushed to the disk, under temporary names; then they are renamed, the document last.
A directory that has the document is therefore complete, and a disk that fills up leaves the previous files in place.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.address_space import address_space
from reid_dist.core.limits import refuse_unusable_path
from reid_dist.core.optional_packages import import_extra
from reid_dist.core.regular_files import read_regular
from reid_dist.core.temporary import draft_of
from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreExistsError

DOCUMENT = "report.json"
PAGE = "report.html"
PER_QUERY = "per_query.npz"
PER_QUERY_PARQUET = "per_query.parquet"
TOPK = "topk.npz"
PICTURES = "pictures.json"
BESIDE = (PER_QUERY, PER_QUERY_PARQUET, TOPK, PICTURES)
"""Files of the report of an evaluation beside its document and page."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+")

Arrays = Mapping[str, NDArray[Any]]
Writer = Callable[[IO[bytes]], object]
"""Writes the content of one file."""


def refuse_occupied(directory: str | os.PathLike[str], *, otherwise: str = "or pass overwrite=True") -> Path:
    """Return the directory as a path; refuse one that holds anything, with `otherwise` as a second way out."""
    path = refuse_uri(directory)
    try:
        occupant = next(path.iterdir(), None)
    except FileNotFoundError:
        occupant = None
    except OSError as error:
        raise StoreError(f"cannot use {path} as an output directory ({_reason(error)}); choose another one") from error
    if occupant is not None:
        advice = f"choose another one{otherwise and f', {otherwise}'}"
        raise StoreExistsError(f"output directory {path} is not empty (it holds {occupant.name!r}); {advice}")
    refuse_unwritable(path)
    return path


def refuse_unwritable(directory: Path) -> None:
    """Refuse a directory in which nothing can be written, or made, before any work."""
    why = unwritable(directory)
    if why is not None:
        raise StoreError(f"cannot write to {directory}: {why}; choose another directory")


def unwritable(directory: Path) -> str | None:
    """Why nothing can be written, or made, in a directory, which may be missing; None where it can."""
    place = next((each for each in (directory, *directory.absolute().parents) if each.exists()), directory)
    if os.access(place, os.W_OK | os.X_OK):
        return None
    if not place.is_dir():
        return os.strerror(errno.ENOTDIR)
    return os.strerror(errno.EROFS if os.statvfs(place).f_flag & os.ST_RDONLY else errno.EACCES)


def same_directory(one: Path, other: Path) -> bool:
    """Whether two paths are one directory that exists."""
    return one.is_dir() and other.is_dir() and one.samefile(other)


def write_together(path: Path, writers: Mapping[str, Writer], *, known: Sequence[str] = ()) -> None:
    """Write the files of a directory, by name and in this order; the last one is the commit marker.

    If they cannot be written, the previous files are still there, or the commit marker is not.  Files named in
    `known` that have no writer are removed.
    """
    staged: dict[str, Path] = {}
    *others, marker = writers
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name, write in writers.items():
            staged[name] = draft_of(path / name)
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
        for temporary in staged.values():
            # What could not be written cannot be removed either, and there is nothing to remove.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def refuse_existing(path: Path, option: str = "--output") -> None:
    """Refuse a file that exists, or that cannot be written, before any work; `option` is the one that names it."""
    if path.exists():
        raise StoreExistsError(f"{path} is there already; choose another {option}")
    if (why := unwritable(path.parent)) is not None:
        raise StoreError(f"cannot write {path}: {why}; choose another {option}")


def write_or_refuse(path: Path, content: str | bytes) -> None:
    """Write a new file, whole or not at all; refuse one that exists."""
    refuse_existing(path)
    encoded = content.encode("utf-8", "replace") if isinstance(content, str) else content
    try:
        write_together(path.parent, {path.name: lambda file: file.write(encoded)})
    except StoreError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise StoreError(f"cannot write {path}: {cause.strerror or error}; choose another --output") from None


def read_bytes(path: Path, name: str) -> bytes | None:
    """Return the bytes of a file of a directory, None where it is missing."""
    try:
        return read_regular(path / name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path / name}: {_reason(error)}") from error


def unpack_arrays(content: bytes, where: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of an npz file by name; errors call it `where`."""
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
    """Return a directory as a path; refuse a URI, and a path that no file system takes."""
    # Of two slashes a Path keeps one.
    scheme, colon, rest = os.fspath(directory).partition(":/")
    if colon and _SCHEME.fullmatch(scheme):
        raise InputError(
            f"a report is kept in a local directory, found the URI {scheme}://{rest.lstrip('/')}; give a path"
        )
    refuse_unusable_path(directory)
    return Path(directory)


def prepare_parquet() -> None:
    """Import what `write_parquet` needs, if it is installed."""
    # Within a limit of addresses, kernels that are loaded meanwhile may take those that were free.
    if address_space() is None:
        with contextlib.suppress(ImportError):
            importlib.import_module("pyarrow.parquet")


def write_parquet(arrays: Arrays, file: IO[bytes]) -> None:
    """Write arrays as the columns of a parquet file."""
    # pyarrow is optional and slow to import, hence only here.
    pyarrow, parquet = (import_extra(name, "parquet", PER_QUERY_PARQUET) for name in ("pyarrow", "pyarrow.parquet"))

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

    parquet.write_table(pyarrow.table({name: column(array) for name, array in arrays.items()}), file)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
