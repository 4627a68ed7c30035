"""Arrays whose rows cannot be read where they are: decoded once, piece by piece, into a temporary file, and read there.

Compressed bytes can only be read from their beginning, and a compressed chunk only as a whole.  Where a row is spread
over all of them, as in Fortran order, every block of rows would decode the whole array anew.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import IO, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import byte_size
from reid_dist.core.system_calls import read_at
from reid_dist.core.temporary import unnamed_file
from reid_dist.errors import StoreError
from reid_dist.stores.importers.source import OpenRows

MOST_CHUNK_BYTES: Final = 512 << 20
"""Bytes of the largest chunk that is decoded."""

# Rows of chunks side by side that are held are not decoded again for the next block of rows.
_HELD_BYTES = 64 << 20

Box: TypeAlias = Callable[[slice, slice], NDArray[Any]]
"""Rows and columns of an array, (rows, columns); one of one dimension is a single column."""


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
        "make room, or set TMPDIR to a folder with room"
    )


class SpooledRows(OpenRows):
    """An array that comes in pieces of some rows and columns, which lie in the file one after the other.

    The pieces of the first rows come first, and of these the one of the first columns; each is in C order.  Axes beyond
    the second are columns in Fortran order.  `what` is its name in messages.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], piece: tuple[int, int], what: str) -> None:
        super().__init__(shape, dtype)
        self._piece, self._what = piece, what
        self._n_columns = math.prod(self.shape[1:])
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    @abstractmethod
    def _stream(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of all pieces, in blocks of any length."""

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


class ChunkedRows(SpooledRows):
    """An array of one or two dimensions in chunks, which are decoded whole, each of them once in ascending order.

    All that hold the same rows are held together, if they are small.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], chunk: tuple[int, ...], what: str) -> None:
        super().__init__(shape, dtype, (chunk[0], chunk[1] if len(chunk) > 1 else 1), what)
        self._holds = self._piece[0] * self._n_columns * dtype.itemsize <= _HELD_BYTES
        self._top = -1
        self._held: NDArray[Any] = np.empty((0, self._n_columns), dtype=dtype)

    @abstractmethod
    def _boxes(self) -> AbstractContextManager[Box]:
        """Open the array."""

    def _stream(self) -> Iterator[bytes | memoryview]:
        high, wide = self._piece
        with self._boxes() as box:
            for top in range(0, self.shape[0], high):
                for left in range(0, self._n_columns, wide):
                    part = box(slice(top, top + high), slice(left, left + wide))
                    yield np.ascontiguousarray(part, dtype=self.dtype).reshape(-1).view(np.uint8).data

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        if not self._holds:
            return super()._read(start, stop)
        high = self._piece[0]
        rows = np.empty((stop - start, self._n_columns), dtype=self.dtype)
        with self._lock, self._boxes() as box:
            for top in range(start - start % high, stop, high):
                if self._top != top:
                    self._held, self._top = box(slice(top, top + high), slice(0, self._n_columns)), top
                first, last = max(start - top, 0), min(stop - top, high)
                rows[top + first - start : top + last - start] = self._held[first:last]
        return rows.reshape(-1, *self.shape[1:])

    def close(self) -> None:
        """Forget what is held."""
        super().close()
        self._top, self._held = -1, self._held[:0].copy()
