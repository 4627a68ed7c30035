"""Rows of arrays in files: read where they lie, or decoded once into a temporary file and read there.

Arrays lie uncompressed in ``.npy``, ``.safetensors``, and members of most ``.npz`` and ``.pth``.  Members of an
archive are compared with their CRC-32 once.  Rows are read with plain reads and not through a memory map that stays
open: mapped pages count as memory of the process until the kernel reclaims them, and the memory of ingest is bounded.

Compressed bytes can only be read from their beginning, and a compressed chunk only as a whole.  Where a row is spread
over all of them, as in Fortran order, every block of rows would decode the whole array anew, hence the temporary file.
"""

from __future__ import annotations

import math
import shutil
import struct
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import byte_size
from reid_dist.core.system_calls import read_at
from reid_dist.core.temporary import unnamed_file
from reid_dist.errors import StoreError
from reid_dist.stores.digests import bytes_of
from reid_dist.stores.importers.source import ComputedRows, RowArray

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_CHECKED_BYTES = 1 << 20

MOST_CHUNK_BYTES: Final = 512 << 20
"""Bytes of the largest chunk that is decoded."""

# Rows that are written to a temporary file together.
_SPOOLED_BYTES = 16 << 20

# Rows of chunks side by side that are held are not decoded again for the next block of rows.
_HELD_BYTES = 64 << 20

Blocks: TypeAlias = Generator[tuple[int, NDArray[Any]]]
"""Consecutive blocks of rows, each with its first row."""

Box: TypeAlias = Callable[[tuple[slice, ...]], NDArray[Any]]
"""Rows, and columns if there are any, of an array."""


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in items, of a C-contiguous array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def fortran_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in items, of an array in Fortran order."""
    return tuple(math.prod(shape[:axis]) for axis in range(len(shape)))


def items_spanned(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of items from the first to the last one of an array; strides are in items."""
    spans = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    return 0 if 0 in shape else sum(spans) + 1


class RawRows(RowArray):
    """An array within `n_bytes` of a file from byte `offset`; nothing else is ever read.  Strides are in items."""

    def __init__(
        self,
        path: Path,
        offset: int,
        n_bytes: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(shape, dtype)
        self._path, self._offset = path, offset
        self._strides = contiguous_strides(shape) if strides is None else strides
        if min((*self.shape, *self._strides, 0)) < 0 or dtype.hasobject or len(self._strides) != len(self.shape):
            raise StoreError(f"{path} describes an impossible array of shape {shape} with strides {strides}")
        needed = items_spanned(self.shape, self._strides) * dtype.itemsize
        if needed > n_bytes or offset < 0 or offset + needed > path.stat().st_size:
            raise StoreError(
                f"{path} is cut short: an array of shape {shape} and {dtype} needs {needed} bytes from byte {offset}"
            )
        self._is_contiguous = self._strides == contiguous_strides(self.shape) or needed == 0

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        if not self._is_contiguous:
            # The map lives as long as this call, and its pages with it.
            return np.array(self._mapped()[start:stop], order="C")
        row_items = math.prod(self.shape[1:])
        flat = np.fromfile(
            self._path,
            dtype=self.dtype,
            count=(stop - start) * row_items,
            offset=self._offset + start * row_items * self.dtype.itemsize,
        )
        return flat.reshape(-1, *self.shape[1:]) if flat.size else flat.reshape(0, *self.shape[1:])

    def whole(self) -> NDArray[Any]:
        """Return a memory map."""
        return self._mapped() if math.prod(self.shape) else self.read(0, self.shape[0])

    def _mapped(self) -> NDArray[Any]:
        n_items = items_spanned(self.shape, self._strides)
        flat = np.memmap(self._path, dtype=self.dtype, mode="r", offset=self._offset, shape=(n_items,))
        strides = tuple(stride * self.dtype.itemsize for stride in self._strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False)


def bfloat16_rows(halves: RowArray) -> RowArray:
    """Return the upper halves of float32 numbers as such, widened exactly, as numpy has no bfloat16."""

    def read(start: int, stop: int) -> NDArray[Any]:
        return (halves.read(start, stop).astype(np.uint32) << 16).view(np.float32)

    return ComputedRows(halves.shape, np.dtype(np.float32), read, significant_bits=8)


def offset_of(path: Path, member: zipfile.ZipInfo) -> int:
    """Return the offset of the bytes of a member without compression and encryption."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise StoreError(f"{path} is damaged: member {member.filename} is not at its place in the archive")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    return member.header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)


def drain(archive: zipfile.ZipFile, name: str) -> None:
    """Read a member of an open archive to its end, which compares its CRC-32."""
    try:
        with archive.open(name) as member:
            while member.read(_CHECKED_BYTES):
                pass
    except (zipfile.BadZipFile, EOFError) as error:
        raise StoreError(f"{archive.filename} is damaged: member {name}: {error}") from error


def _piece(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


class MemberRows(RawRows):
    """An array in an uncompressed member of an archive; its CRC-32 is compared on first use, and again in order.

    The array lies behind `skipped` bytes of the member.
    """

    def __init__(
        self,
        path: Path,
        member: zipfile.ZipInfo,
        skipped: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(path, offset_of(path, member) + skipped, member.file_size - skipped, shape, dtype, strides)
        self._member, self._crc = member.filename, member.CRC
        self._skipped, self._n_bytes = skipped, member.file_size
        self._checked = False
        # Row up to which the array was read in order, and the CRC-32 of what was read of the member.
        self._row, self._running = 0, 0

    def _check(self) -> None:
        if not self._checked:
            with zipfile.ZipFile(self._path) as archive:
                drain(archive, self._member)
            self._checked = True

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        self._check()
        rows = super()._read(start, stop)
        if self._is_contiguous and start in (0, self._row):
            self._compare(start, stop, rows)
        return rows

    def _compare(self, start: int, stop: int, rows: NDArray[Any]) -> None:
        """Add rows that are read in order to the CRC-32, and compare it at the last one: these bytes are used."""
        first = self._offset - self._skipped
        if start == 0:
            self._running = zlib.crc32(_piece(self._path, first, self._skipped))
        self._row, self._running = stop, zlib.crc32(np.ascontiguousarray(rows).view(np.uint8).data, self._running)
        if stop == self.shape[0]:
            n_read = self._skipped + math.prod(self.shape) * self.dtype.itemsize
            self._running = zlib.crc32(_piece(self._path, first + n_read, self._n_bytes - n_read), self._running)
            if self._running != self._crc:
                raise StoreError(f"{self._path} is damaged: member {self._member} was read with another CRC-32")

    def whole(self) -> NDArray[Any]:
        """Return a memory map."""
        self._check()
        return super().whole()


def too_large_chunks(chunk: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Return the words for chunks above `MOST_CHUNK_BYTES`."""
    return (
        f"chunks of {chunk}, {byte_size(math.prod(chunk) * dtype.itemsize)} each, which can only be decoded whole, and "
        f"{byte_size(MOST_CHUNK_BYTES)} at most are"
    )


def spooled(blocks: Iterable[bytes | memoryview], n_bytes: int, what: str) -> IO[bytes]:
    """Write blocks of so many bytes in all to a temporary file without a name, and return it; `what` is their name.

    StoreError if there is no room for them, or they are more or fewer.
    """
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if n_bytes > free:
        raise StoreError(_no_room(what, n_bytes, f"{byte_size(free)} are free there"))
    file, written = unnamed_file(), 0
    try:
        for block in blocks:
            written += len(block)
            if written > n_bytes:
                break
            try:
                file.write(block)
            except OSError as error:
                raise StoreError(_no_room(what, n_bytes, error.strerror or str(error))) from error
        if written != n_bytes:
            found = "more" if written > n_bytes else f"{written}"
            raise StoreError(f"{what} is damaged: its header claims {n_bytes} bytes, and it holds {found}")
        try:
            file.flush()
        except OSError as error:
            raise StoreError(_no_room(what, n_bytes, error.strerror or str(error))) from error
    except BaseException:
        # What its buffer still holds may find no room.
        with suppress(OSError):
            file.close()
        raise
    return file


def _no_room(what: str, n_bytes: int, why: str) -> str:
    return (
        f"{what} is decoded into a temporary file of {byte_size(n_bytes)} in {tempfile.gettempdir()}: {why}; "
        "make room, or set TMPDIR to a directory with room"
    )


def mapped_rows(rows: RowArray, what: str) -> NDArray[Any]:
    """Return an array as a memory map: of its file, or of a temporary one that rows are decoded into, some at a time.

    `what` is its name in messages.  StoreError if there is no room for a temporary file.
    """
    n_rows, width = rows.shape[0], math.prod(rows.shape[1:]) * rows.dtype.itemsize
    if isinstance(rows, RawRows) or not n_rows * width:
        return rows.whole()
    step = max(1, _SPOOLED_BYTES // width)
    blocks = (rows.read(start, min(start + step, n_rows)) for start in range(0, n_rows, step))
    with spooled((bytes_of(np.ascontiguousarray(block, rows.dtype)) for block in blocks), n_rows * width, what) as file:
        mapped: NDArray[Any] = np.memmap(file, dtype=rows.dtype, mode="r", shape=rows.shape)
    return mapped


class SpooledRows(RowArray):
    """An array that comes in pieces of some rows and columns, which lie in the file one after the other.

    The pieces of the first rows come first, and of these the one of the first columns; each is in C order.  Axes beyond
    the second are columns in Fortran order.  `what` is its name in messages, and `stream` yields the bytes of all
    pieces, in blocks of any length.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        piece: tuple[int, int],
        what: str,
        stream: Callable[[], Iterator[bytes | memoryview]],
    ) -> None:
        super().__init__(shape, dtype)
        self._piece, self._what, self._stream = piece, what, stream
        self._n_columns = math.prod(self.shape[1:])
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        with self._lock:
            if self._file is None:
                n_bytes = self.shape[0] * self._n_columns * self.dtype.itemsize
                self._file = spooled(self._stream(), n_bytes, self._what)
            file = self._file.fileno()
        rows = np.empty((stop - start, self._n_columns), dtype=self.dtype)
        for place, columns, first, last, offset in self._segments(start, stop):
            height, width = last - first, columns.stop - columns.start
            data = np.empty(height * width * self.dtype.itemsize, dtype=np.uint8)
            _fill(file, data.data, offset)
            rows[place : place + height, columns] = data.view(self.dtype).reshape(height, width)
        if len(self.shape) <= 2:
            return rows.reshape(-1, *self.shape[1:])
        return np.moveaxis(rows.reshape(-1, *self.shape[:0:-1]), 0, -1).T

    def _segments(self, start: int, stop: int) -> Iterator[tuple[int, slice, int, int, int]]:
        """Parts of pieces that hold some rows: place among these rows, columns, rows of the piece, and offset."""
        n_rows, (high, wide) = self.shape[0], self._piece
        for top in range(start - start % high, stop, high):
            height = min(high, n_rows - top)
            first, last = max(start - top, 0), min(stop - top, height)
            for left in range(0, self._n_columns, wide):
                width = min(wide, self._n_columns - left)
                items = top * self._n_columns + left * height + first * width
                yield top + first - start, slice(left, left + width), first, last, items * self.dtype.itemsize

    def close(self) -> None:
        """Close the file, which removes it; a later read decodes the array again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def _fill(file: int, target: memoryview, offset: int) -> None:
    """Read bytes of a file from an offset on."""
    filled = 0
    while filled < len(target):
        n_bytes = read_at(file, target[filled:], offset + filled)
        if not n_bytes:
            raise EOFError(f"a temporary file ends after {offset + filled} bytes")
        filled += n_bytes


class StreamedRows(RowArray):
    """An array that comes in blocks of rows in ascending order; going back opens it again.

    `blocks` yields them from the one that holds a given row, or from one before it, and closes the file at its end.
    With `seeks`, opening it again takes less time than blocks that are passed over.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], blocks: Callable[[int], Blocks], *, seeks: bool = False
    ) -> None:
        super().__init__(shape, dtype)
        self._open, self._seeks = blocks, seeks
        self._blocks: Blocks | None = None
        self._first, self._held = 0, np.empty((0, *shape[1:]), dtype)
        self._lock = threading.Lock()

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        parts, row = [self._held[:0]], start
        with self._lock:
            while row < stop:
                end = self._first + len(self._held)
                if self._first <= row < end:
                    parts.append(self._held[row - self._first : stop - self._first])
                    row += len(parts[-1])
                    continue
                if self._blocks is None or row < self._first or (self._seeks and row > end):
                    self._close()
                    self._blocks = self._open(row)
                self._first, self._held = next(self._blocks)
                if self._first + len(self._held) == self.shape[0]:
                    self._blocks.close()
                    self._blocks = None
        return np.concatenate(parts) if len(parts) != 2 else parts[1]

    def _close(self) -> None:
        if self._blocks is not None:
            self._blocks.close()
        self._blocks, self._first, self._held = None, 0, self._held[:0].copy()

    def close(self) -> None:
        """Close the file, and forget what is held."""
        with self._lock:
            self._close()


def chunked_rows(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    chunk: tuple[int, ...],
    what: str,
    boxes: Callable[[], AbstractContextManager[Box]],
) -> RowArray:
    """Return the rows of an array of one or two dimensions in chunks, each of which is decoded once in ascending order.

    Chunks are decoded whole.  All that hold the same rows are held together, if they are small; `boxes` opens the
    array.
    """
    high, wide = chunk[0], chunk[1] if len(chunk) > 1 else 1
    n_columns = math.prod(shape[1:])

    def bands(start: int) -> Blocks:
        with boxes() as box:
            for top in range(start - start % high, shape[0], high):
                yield top, np.asarray(box((slice(top, top + high), slice(0, n_columns))[: len(shape)]), dtype)

    def pieces() -> Iterator[memoryview]:
        with boxes() as box:
            for top in range(0, shape[0], high):
                for left in range(0, n_columns, wide):
                    part = box((slice(top, top + high), slice(left, left + wide))[: len(shape)])
                    yield np.ascontiguousarray(part, dtype=dtype).reshape(-1).view(np.uint8).data

    if high * n_columns * dtype.itemsize <= _HELD_BYTES:
        return StreamedRows(shape, dtype, bands, seeks=True)
    return SpooledRows(shape, dtype, (high, wide), what, pieces)
