"""Rows of tensors: of one tensor, or of many small ones that are the rows of an array."""

from __future__ import annotations

import math
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.pickled_arrays import BFLOAT16, Refused, Tensor, interpret
from reid_dist.stores.importers.raw import BFloat16Rows, MemberRows, drain, items_spanned, offset_of
from reid_dist.stores.importers.source import HeldRows, RowArray, text_rows

_MOST_REPEATS = 16


class TensorRows(RowArray):
    """Tensors of one shape, (d,) or (), each of which is a row: views of storages, by key members of the archive."""

    def __init__(
        self, path: Path, members: dict[str, zipfile.ZipInfo], tensors: list[Tensor], dtype: np.dtype[Any]
    ) -> None:
        super().__init__((len(tensors), *tensors[0].shape), dtype)
        self._path, self._members, self._tensors = path, members, tensors
        self._offsets: dict[str, int] = {}
        self._lock = threading.Lock()
        for tensor in tensors:
            needed = (tensor.offset + items_spanned(tensor.shape, tensor.strides)) * dtype.itemsize
            if 0 not in tensor.shape and needed > members[tensor.storage.key].file_size:
                raise StoreError(
                    f"{path} is cut short: a tensor of shape {tensor.shape} needs {needed} bytes of its storage"
                )

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        tensors = self._tensors[start:stop]
        made = np.empty((len(tensors), *self.shape[1:]), dtype=self.dtype)
        with self._lock, self._path.open("rb") as file:
            self._check({tensor.storage.key for tensor in tensors})
            for at, tensor in enumerate(tensors):
                stride = tensor.strides[0] if tensor.strides else 1
                n_items = items_spanned(tensor.shape, tensor.strides)
                file.seek(self._offsets[tensor.storage.key] + tensor.offset * self.dtype.itemsize)
                items = np.frombuffer(file.read(n_items * self.dtype.itemsize), dtype=self.dtype)
                made[at] = items[:: max(1, stride)].reshape(tensor.shape) if stride else items[0]
        return made

    def _check(self, keys: set[str]) -> None:
        """Compare the CRC-32 of storages that were not read before."""
        unread = sorted(keys - self._offsets.keys())
        if not unread:
            return
        with zipfile.ZipFile(self._path) as archive:
            for key in unread:
                drain(archive, self._members[key].filename)
                self._offsets[key] = offset_of(self._path, self._members[key])


class Tensors:
    """Rows of the tensors of one file."""

    def __init__(self, path: Path, members: dict[str, zipfile.ZipInfo], root: str, order: str) -> None:
        self._path, self._members, self._root, self._order = path, members, root, order

    def rows_of(self, value: Any) -> RowArray | str:
        """Return the rows of a value, or the reason why it has none."""
        if isinstance(value, Tensor):
            return self._of_tensor(value) if value.shape else "a single value"
        if isinstance(value, np.ndarray):
            return HeldRows(value) if value.ndim else "a single value"
        if isinstance(value, Refused):
            return value.reason
        if isinstance(value, list | tuple):
            return self._of_list([interpret(item) for item in value])
        return "a single value" if isinstance(value, int | float) else f"a {type(value).__name__}"

    def number_of(self, value: Any) -> int | None:
        """Return the whole number that a value is; None for anything else."""
        if isinstance(value, Tensor | np.ndarray) and not value.shape:
            rows = self.stacked([value])
            value = None if rows is None else rows.whole()[0].item()
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _of_list(self, items: list[Any]) -> RowArray | str:
        kinds = {type(item) for item in items}
        if kinds == {str}:
            return HeldRows(text_rows(items, "a list"))
        if kinds and (kinds <= {int, float} or kinds == {bool}):
            return HeldRows(np.array(items))
        rows = self.stacked(items) if kinds else None
        if rows is not None:
            return rows
        return f"a list of {', '.join(sorted(kind.__name__ for kind in kinds)) or 'nothing'}"

    def stacked(self, items: list[Any]) -> RowArray | None:
        """Return tensors or arrays of one shape as rows; None where they are no such rows."""
        if all(isinstance(item, np.ndarray) for item in items):
            arrays: list[NDArray[Any]] = items
            if len({(array.shape, array.dtype) for array in arrays}) > 1 or arrays[0].ndim > 1:
                return None
            self._refuse_repeated(len(arrays), len({id(array) for array in arrays}))
            return HeldRows(np.stack(arrays))
        if all(type(item) in (int, float) for item in items):
            return HeldRows(np.array(items))
        if not all(isinstance(item, Tensor) for item in items):
            return None
        tensors: list[Tensor] = items
        if len({(tensor.shape, tensor.storage.code) for tensor in tensors}) > 1 or len(tensors[0].shape) > 1:
            return None
        code = tensors[0].storage.code
        self._refuse_repeated(len(tensors), len({(each.storage.key, each.offset) for each in tensors}))
        storages = {tensor.storage.key: self._member(tensor) for tensor in tensors}
        rows = TensorRows(self._path, storages, tensors, self._dtype(code))
        return BFloat16Rows(rows) if code == BFLOAT16 else rows

    def _refuse_repeated(self, n_rows: int, n_distinct: int) -> None:
        """Refuse rows that are the same few again and again, which take few bytes and make many."""
        if n_rows > _MOST_REPEATS * n_distinct:
            raise StoreError(f"{self._path} describes {n_rows} rows and holds {n_distinct} of them")

    def _dtype(self, code: str) -> np.dtype[Any]:
        return np.dtype(self._order + ("u2" if code == BFLOAT16 else code))

    def _of_tensor(self, tensor: Tensor) -> RowArray:
        dtype, member = self._dtype(tensor.storage.code), self._member(tensor)
        offset = tensor.offset * dtype.itemsize
        if math.prod(tensor.shape) * dtype.itemsize > member.file_size:
            raise StoreError(
                f"{self._path} is cut short, or expands a tensor to shape {tensor.shape}, which takes more numbers "
                f"than its storage {member.filename} holds; save it with .contiguous()"
            )
        rows = MemberRows(self._path, member, offset, tensor.shape, dtype, tensor.strides)
        return BFloat16Rows(rows) if tensor.storage.code == BFLOAT16 else rows

    def _member(self, tensor: Tensor) -> zipfile.ZipInfo:
        storage = self._members.get(f"{self._root}data/{tensor.storage.key}")
        if storage is None:
            raise StoreError(f"{self._path} is damaged: storage {tensor.storage.key[:80]} is missing")
        if storage.compress_type != zipfile.ZIP_STORED:
            raise StoreError(f"{self._path}: storage {storage.filename} is compressed, which torch never does")
        return storage
