"""``.pth`` and ``.pt`` without torch, and without running anything that is in them.

Such a file is a zip with a pickle that describes tensors and one uncompressed member per storage.  A pickle is a
program; this one is run by an unpickler that knows three things, a tensor, a storage and an ordered dict, and refuses
every other name, so that the worst a hostile file can do is to describe an impossible tensor.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.raw import BFloat16Rows
from reid_dist.stores.importers.source import FORMATS, Format, HeldRows, RowArray, Source
from reid_dist.stores.importers.zip_members import MemberRows

__all__ = ["TORCH"]

_BFLOAT16 = "bfloat16"
_STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "BFloat16Storage": _BFLOAT16,
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "u1",
}
_DEEPEST = 8


@dataclass(frozen=True)
class StorageType:
    """A class of storages, by the code of its numpy dtype."""

    code: str


@dataclass(frozen=True)
class Storage:
    """A storage: a member of the archive.

    Attributes
    ----------
    code
        Of the dtype.
    key
        Name of the member under ``data/``.
    """

    code: str
    key: str


@dataclass(frozen=True)
class Tensor:
    """A view of a storage.

    Attributes
    ----------
    storage
        Where its items lie.
    offset
        Of its first item, in items.
    shape, strides
        In items.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, Storage) or not all(type(number) is int and number >= 0 for number in numbers):
        raise StoreError("the file describes an impossible tensor")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


class TensorUnpickler(pickle.Unpickler):
    """Rebuilds containers of tensors; any name that could do more is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for.

        Raises
        ------
        InputError
            If it is not one of the three known things.
        """
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild_tensor
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _STORAGES:
            return StorageType(_STORAGES[name])
        raise InputError(
            f"the file refers to {module}.{name}, which is never loaded; "
            "save a dict of tensors and plain lists with torch.save"
        )

    def persistent_load(self, pid: Any) -> Storage:
        """Return a storage."""
        kind, storage_type, key, *_ = pid
        if kind != "storage" or not isinstance(storage_type, StorageType) or not isinstance(key, str):
            raise StoreError("the file describes an impossible storage")
        return Storage(storage_type.code, key)


def _tensor_rows(path: Path, storage: zipfile.ZipInfo, tensor: Tensor, dtype: np.dtype[Any]) -> MemberRows:
    """Rows of a tensor within its storage."""
    if storage.compress_type != zipfile.ZIP_STORED:
        raise StoreError(f"{path}: storage {storage.filename} is compressed, which torch never does")
    return MemberRows(path, storage, tensor.offset * dtype.itemsize, tensor.shape, dtype, tensor.strides)


def _named(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Walk through nested dicts: ``{"query": {"pids": …}}`` becomes ``query_pids``."""
    if isinstance(value, dict):
        if depth == _DEEPEST:
            raise InputError(f"{name!r} is nested more than {_DEEPEST} deep")
        for key, inner in value.items():
            yield from _named(inner, f"{name}_{key}" if name else str(key), depth + 1)
    else:
        yield name or "features", value


def _open_torch(path: Path) -> Source:
    if not zipfile.is_zipfile(path):
        raise StoreError(f"{path} is not a zip archive; files of torch before 1.6 must be saved again by a newer one")
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        program = next((name for name in members if name.endswith("data.pkl")), None)
        if program is None:
            raise StoreError(f"{path} is a zip archive without data.pkl; it was not written by torch.save")
        root = program.removesuffix("data.pkl")
        order = archive.read(root + "byteorder").decode() if root + "byteorder" in members else "little"
        content = TensorUnpickler(io.BytesIO(archive.read(program))).load()
    arrays: dict[str, RowArray] = {}
    refused: dict[str, str] = {}
    for name, value in _named(content, ""):
        made = _rows_of(path, value, members, root, ">" if order == "big" else "<")
        if isinstance(made, str):
            refused[name] = made
        else:
            arrays[name] = made
    return Source(str(path), arrays, refused)


def _rows_of(path: Path, value: Any, members: dict[str, zipfile.ZipInfo], root: str, order: str) -> RowArray | str:
    """Return the rows of a value, or the reason why it has none."""
    if isinstance(value, Tensor):
        member: Callable[[str], zipfile.ZipInfo | None] = members.get
        storage = member(f"{root}data/{value.storage.key}")
        if storage is None:
            raise StoreError(f"{path} is damaged: storage {value.storage.key} is missing")
        if not value.shape:
            return "a single value"
        if value.storage.code == _BFLOAT16:
            return BFloat16Rows(_tensor_rows(path, storage, value, np.dtype(order + "u2")))
        return _tensor_rows(path, storage, value, np.dtype(order + value.storage.code))
    if isinstance(value, list | tuple):
        kinds = {type(item) for item in value}
        if kinds and (kinds <= {int, float} or kinds == {str}):
            return HeldRows(np.array(value))
        return f"a list of {', '.join(sorted(kind.__name__ for kind in kinds)) or 'nothing'}"
    return f"a {type(value).__name__}"


TORCH = FORMATS.register(
    Format(
        "torch",
        "tensors of torch.save, read without torch and without unpickling anything else",
        "torch.save since 1.6",
        (".pth", ".pt"),
        _open_torch,
    )
)
