"""``.npy`` and ``.npz``; never a pickle."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.file_rows import Blocks, MemberRows, RawRows, SpooledRows, StreamedRows, fortran_strides
from reid_dist.stores.importers.source import (
    FORMATS,
    Format,
    RowArray,
    Source,
    begins_with,
    members_of,
    zip_names,
)

_BLOCK_BYTES = 1 << 20
_OBJECTS = "an object array, which would have to be unpickled and is never read; save it as text or numbers (.astype)"


class NpyHeader(NamedTuple):
    """The header of an ``.npy`` stream, `n_bytes` long; strides in items, None for C order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    n_bytes: int


def read_npy_header(stream: IO[bytes]) -> NpyHeader:
    """Read the header of an ``.npy`` stream."""
    version = npy_format.read_magic(stream)
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version} of the .npy format holds no plain arrays")
    shape, fortran, dtype = readers[version](stream)
    return NpyHeader(shape, dtype, fortran_strides(shape) if fortran else None, stream.tell())


def _open_npy(path: Path) -> Source:
    with path.open("rb") as file:
        header = read_npy_header(file)
    if header.dtype.hasobject:
        raise InputError(f"{path} is an object array, which would have to be unpickled and is never read")
    n_bytes = path.stat().st_size - header.n_bytes
    array = RawRows(path, header.n_bytes, n_bytes, header.shape, header.dtype, header.strides)
    return Source(str(path), {"features": array})


def _rows_of_stream(path: Path, member: str, header: NpyHeader, _: int) -> Blocks:
    """Rows of a compressed array of an ``.npz`` in C order, which can only be read from the first one."""
    n_rows, row_bytes = header.shape[0], math.prod(header.shape[1:]) * header.dtype.itemsize
    high = max(1, _BLOCK_BYTES // max(1, row_bytes))
    with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        stream.read(header.n_bytes)
        for top in range(0, n_rows, high):
            n_bytes = min(high, n_rows - top) * row_bytes
            data = stream.read(n_bytes)
            if len(data) < n_bytes:
                raise StoreError(f"{path} is cut short: {member} ends after {top * row_bytes + len(data)} bytes")
            if top + high >= n_rows:
                # Reading past the last row makes zipfile compare the CRC-32.
                stream.read(1)
            yield top, np.frombuffer(data, header.dtype).reshape(-1, *header.shape[1:])


def _bytes_of_stream(path: Path, member: str, n_header: int) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        stream.read(n_header)
        # The last read, which finds nothing, makes zipfile compare the CRC-32.
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _refuse_other_length(path: Path, member: zipfile.ZipInfo, header: NpyHeader) -> None:
    """Refuse an array that takes other bytes than its member has."""
    needed = math.prod(header.shape) * header.dtype.itemsize
    if min((*header.shape, 0)) < 0 or header.n_bytes + needed != member.file_size:
        raise StoreError(
            f"{path} is damaged: an array of shape {header.shape} and {header.dtype} takes {needed} bytes, and "
            f"{member.filename} holds {member.file_size - header.n_bytes}"
        )


def _open_npz(path: Path) -> Source:
    found: dict[str, RowArray | str] = {}
    values: dict[str, int] = {}
    with zipfile.ZipFile(path) as archive:
        for filename, member in members_of(archive).items():
            name = filename.removesuffix(".npy")
            if name == filename:
                continue
            reason = None
            with archive.open(member) as stream:
                header = read_npy_header(stream)
                if header.dtype.hasobject:
                    reason = _OBJECTS
                elif header.dtype.kind not in "fiubUS":
                    reason = f"an array of {header.dtype}"
                elif not header.shape:
                    reason = "a single value"
                    if header.dtype.kind in "iu":
                        values[name] = int(np.frombuffer(stream.read(header.dtype.itemsize), header.dtype)[0])
            if not header.dtype.hasobject:
                _refuse_other_length(path, member, header)
            if reason is not None:
                found[name] = reason
            elif member.compress_type == zipfile.ZIP_STORED:
                found[name] = MemberRows(path, member, header.n_bytes, header.shape, header.dtype, header.strides)
            elif header.strides is None or sum(length > 1 for length in header.shape) <= 1:
                rows = partial(_rows_of_stream, path, filename, header)
                found[name] = StreamedRows(header.shape, header.dtype, rows)
            else:
                # The first row of an array in Fortran order ends where the array ends.
                stored = partial(_bytes_of_stream, path, filename, header.n_bytes)
                piece = (header.shape[0], 1)
                found[name] = SpooledRows(header.shape, header.dtype, piece, f"{path}: {filename}", stored)
    return Source.of(str(path), found, values)


FORMATS.register(
    Format(
        "npy",
        "one numpy array; identities come from --pids-file, --names or --labels",
        "numpy.lib.format",
        (".npy",),
        _open_npy,
        sniff=begins_with(npy_format.MAGIC_PREFIX),
    )
)
FORMATS.register(
    Format(
        "npz",
        "named numpy arrays, compressed or not; read as a stream",
        "numpy.savez",
        (".npz",),
        _open_npz,
        sniff=lambda path: any(name.endswith(".npy") for name in zip_names(path)),
    )
)
