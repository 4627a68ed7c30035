"""Arrays that lie uncompressed in a file: ``.npy``, ``.safetensors``, and members of most ``.npz`` and ``.pth``.

Rows are read with plain reads and not through a memory map that stays open: mapped pages count as memory of the
process until the kernel reclaims them, and the memory of ingest is bounded.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.source import RowArray


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in items, of a C-contiguous array."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def fortran_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in items, of an array in Fortran order."""
    return tuple(math.prod(shape[:axis]) for axis in range(len(shape)))


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
        spans = [(length - 1) * stride for length, stride in zip(self.shape, self._strides, strict=True)]
        needed = 0 if 0 in self.shape else (sum(spans) + 1) * dtype.itemsize
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
        spans = [(length - 1) * stride for length, stride in zip(self.shape, self._strides, strict=True)]
        flat = np.memmap(self._path, dtype=self.dtype, mode="r", offset=self._offset, shape=(sum(spans) + 1,))
        strides = tuple(stride * self.dtype.itemsize for stride in self._strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False)


class BFloat16Rows(RowArray):
    """The upper halves of float32 numbers, widened exactly, as numpy has no bfloat16."""

    def __init__(self, halves: RowArray) -> None:
        super().__init__(halves.shape, np.dtype(np.float32))
        self._halves = halves

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        return (self._halves.read(start, stop).astype(np.uint32) << 16).view(np.float32)
