"""Arrays that lie uncompressed in a file: ``.npy``, ``.safetensors``, and members of most ``.npz`` and ``.pth``.

Members of an archive are compared with their CRC-32 once.

Rows are read with plain reads and not through a memory map that stays open: mapped pages count as memory of the
process until the kernel reclaims them, and the memory of ingest is bounded.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.source import RowArray

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_CHECKED_BYTES = 1 << 20


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


class BFloat16Rows(RowArray):
    """The upper halves of float32 numbers, widened exactly, as numpy has no bfloat16."""

    significant_bits = 8

    def __init__(self, halves: RowArray) -> None:
        super().__init__(halves.shape, np.dtype(np.float32))
        self._halves = halves

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        return (self._halves.read(start, stop).astype(np.uint32) << 16).view(np.float32)


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
