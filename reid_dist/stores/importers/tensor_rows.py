"""Many small tensors as the rows of one array."""

from __future__ import annotations

import math
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.pickled_arrays import Tensor
from reid_dist.stores.importers.source import RowArray
from reid_dist.stores.importers.zip_members import Part, drain_member, locate


class TensorRows(RowArray):
    """Tensors of one shape, (d,) or (), each of which is a row: views of storages, by key members of the archive."""

    def __init__(
        self, path: Path, members: dict[str, zipfile.ZipInfo], tensors: list[Tensor], dtype: np.dtype[Any]
    ) -> None:
        super().__init__((len(tensors), *tensors[0].shape), dtype)
        self._path, self._members, self._tensors = path, members, tensors
        self._parts: dict[str, Part] = {}
        self._checked: set[str] = set()
        self._lock = threading.Lock()
        for tensor in tensors:
            spans = [(length - 1) * stride for length, stride in zip(tensor.shape, tensor.strides, strict=True)]
            needed = (tensor.offset + sum(spans) + 1) * dtype.itemsize
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
                n_items = (math.prod(tensor.shape) - 1) * stride + 1 if math.prod(tensor.shape) else 0
                file.seek(self._parts[tensor.storage.key].offset + tensor.offset * self.dtype.itemsize)
                items = np.frombuffer(file.read(n_items * self.dtype.itemsize), dtype=self.dtype)
                made[at] = items[:: max(1, stride)].reshape(tensor.shape) if stride else items[0]
        return made

    def _check(self, keys: set[str]) -> None:
        """Compare the CRC-32 of storages that were not read before."""
        unread = sorted(keys - self._checked)
        if not unread:
            return
        with zipfile.ZipFile(self._path) as archive:
            for key in unread:
                drain_member(archive, self._path, self._members[key].filename)
                self._parts[key] = locate(self._path, self._members[key])
        self._checked |= set(unread)
