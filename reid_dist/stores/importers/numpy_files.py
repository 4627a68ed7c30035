"""``.npy`` and ``.npz``; never a pickle."""

from __future__ import annotations

import math
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.file_rows import MemberRows, RawRows, SpooledRows, fortran_strides
from reid_dist.stores.importers.source import (
    FORMATS,
    Format,
    OpenRows,
    RowArray,
    Source,
    begins_with,
    members_of,
    zip_names,
)

_SKIPPED_BYTES = 1 << 20
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


class DeflatedMember(OpenRows):
    """A compressed array of an ``.npz`` in C order, read as a stream; going back starts it again."""

    def __init__(self, path: Path, member: zipfile.ZipInfo, header: NpyHeader) -> None:
        super().__init__(header.shape, header.dtype)
        self._path, self._member, self._header = path, member.filename, header
        self._stream: IO[bytes] | None = None
        self._position = 0
        self._lock = threading.Lock()

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        with self._lock:
            stream = self._stream_at(start * row_bytes)
            data = self._take(stream, (stop - start) * row_bytes)
            if stop == self.shape[0]:
                # Reading past the last row makes zipfile compare the CRC-32.
                stream.read(1)
                self.close()
        return np.frombuffer(data, dtype=self.dtype).reshape(-1, *self.shape[1:])

    def _stream_at(self, position: int) -> IO[bytes]:
        if self._stream is None or self._position > position:
            self.close()
            with zipfile.ZipFile(self._path) as archive:
                self._stream = archive.open(self._member)
            self._stream.read(self._header.n_bytes)
            self._position = 0
        while self._position < position:
            self._take(self._stream, min(_SKIPPED_BYTES, position - self._position))
        return self._stream

    def close(self) -> None:
        """Close the stream."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _take(self, stream: IO[bytes], n_bytes: int) -> bytearray:
        data = bytearray()
        while len(data) < n_bytes:
            more = stream.read(n_bytes - len(data))
            if not more:
                raise StoreError(f"{self._path} is cut short: {self._member} ends after {self._position} bytes")
            data += more
            self._position += len(more)
        return data


class DeflatedColumns(SpooledRows):
    """A compressed array of an ``.npz`` in Fortran order: its first row ends where it ends."""

    def __init__(self, path: Path, member: zipfile.ZipInfo, header: NpyHeader) -> None:
        super().__init__(header.shape, header.dtype, (header.shape[0], 1), f"{path}: {member.filename}")
        self._path, self._member, self._n_header = path, member.filename, header.n_bytes

    def _stream(self) -> Iterator[bytes | memoryview]:
        with zipfile.ZipFile(self._path) as archive, archive.open(self._member) as stream:
            stream.read(self._n_header)
            # The last read, which finds nothing, makes zipfile compare the CRC-32.
            while block := stream.read(_SKIPPED_BYTES):
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
                found[name] = DeflatedMember(path, member, header)
            else:
                found[name] = DeflatedColumns(path, member, header)
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
