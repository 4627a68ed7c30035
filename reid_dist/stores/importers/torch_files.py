"""``.pth`` and ``.pt`` without torch, and without running anything that is in them.

Such a file is a zip with a pickle that describes tensors and one uncompressed member per storage.  The pickle is read
as data (`reid_dist.stores.importers.pickled`); what it calls is recorded and not called.  Tensors, numpy arrays of
plain dtypes and lists become arrays, and all else is left out with its reason.
"""

from __future__ import annotations

import math
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.file_rows import MemberRows, bfloat16_rows, drain, items_spanned, offset_of
from reid_dist.stores.importers.names import is_customary
from reid_dist.stores.importers.pickled import BFLOAT16, Entries, Refused, Tensor, interpret, read_pickle
from reid_dist.stores.importers.source import (
    FORMATS,
    Format,
    HeldRows,
    RowArray,
    Source,
    members_of,
    pickle_refusal,
    starts_as_pickle,
    text_rows,
    zip_names,
)

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
            if 0 not in tensor.shape and needed > members[tensor.key].file_size:
                raise StoreError(
                    f"{path} is cut short: a tensor of shape {tensor.shape} needs {needed} bytes of its storage"
                )

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        tensors = self._tensors[start:stop]
        made = np.empty((len(tensors), *self.shape[1:]), dtype=self.dtype)
        with self._lock, self._path.open("rb") as file:
            self._check({tensor.key for tensor in tensors})
            for at, tensor in enumerate(tensors):
                stride = tensor.strides[0] if tensor.strides else 1
                n_items = items_spanned(tensor.shape, tensor.strides)
                file.seek(self._offsets[tensor.key] + tensor.offset * self.dtype.itemsize)
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
            items = [interpret(item) for item in value]
            kinds = sorted({type(item).__name__ for item in items})
            return self.stacked(items) or f"a list of {', '.join(kinds) or 'nothing'}"
        return "a single value" if isinstance(value, int | float) else f"a {type(value).__name__}"

    def number_of(self, value: Any) -> int | None:
        """Return the whole number that a value is; None for anything else."""
        if isinstance(value, Tensor | np.ndarray) and not value.shape:
            rows = self.stacked([value])
            value = None if rows is None else rows.whole()[0].item()
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def stacked(self, items: list[Any]) -> RowArray | None:
        """Return texts, numbers, or tensors or arrays of one shape, as rows; None where they are no such rows."""
        kinds = set(map(type, items))
        if kinds == {str}:
            return HeldRows(text_rows(items, "a list"))
        if kinds == {bool} or (kinds and kinds <= {int, float}):
            return HeldRows(np.array(items))
        if kinds and all(isinstance(item, np.ndarray) for item in items):
            arrays: list[NDArray[Any]] = items
            if len({(array.shape, array.dtype) for array in arrays}) > 1 or arrays[0].ndim > 1:
                return None
            self._refuse_repeated(len(arrays), len({id(array) for array in arrays}))
            return HeldRows(np.stack(arrays))
        if kinds != {Tensor}:
            return None
        tensors: list[Tensor] = items
        if len({(tensor.shape, tensor.code) for tensor in tensors}) > 1 or len(tensors[0].shape) > 1:
            return None
        code = tensors[0].code
        self._refuse_repeated(len(tensors), len({(each.key, each.offset) for each in tensors}))
        storages = {tensor.key: self._member(tensor) for tensor in tensors}
        rows = TensorRows(self._path, storages, tensors, self._dtype(code))
        return bfloat16_rows(rows) if code == BFLOAT16 else rows

    def _refuse_repeated(self, n_rows: int, n_distinct: int) -> None:
        """Refuse rows that are the same few again and again, which take few bytes and make many."""
        if n_rows > _MOST_REPEATS * n_distinct:
            raise StoreError(f"{self._path} describes {n_rows} rows and holds {n_distinct} of them")

    def _dtype(self, code: str) -> np.dtype[Any]:
        return np.dtype(self._order + ("u2" if code == BFLOAT16 else code))

    def _of_tensor(self, tensor: Tensor) -> RowArray:
        dtype, member = self._dtype(tensor.code), self._member(tensor)
        offset = tensor.offset * dtype.itemsize
        if math.prod(tensor.shape) * dtype.itemsize > member.file_size:
            raise StoreError(
                f"{self._path} is cut short, or expands a tensor to shape {tensor.shape}, which takes more numbers "
                f"than its storage {member.filename} holds; save it with .contiguous()"
            )
        rows = MemberRows(self._path, member, offset, tensor.shape, dtype, tensor.strides)
        return bfloat16_rows(rows) if tensor.code == BFLOAT16 else rows

    def _member(self, tensor: Tensor) -> zipfile.ZipInfo:
        storage = self._members.get(f"{self._root}data/{tensor.key}")
        if storage is None:
            raise StoreError(f"{self._path} is damaged: storage {tensor.key[:80]} is missing")
        if storage.compress_type != zipfile.ZIP_STORED:
            raise StoreError(f"{self._path}: storage {storage.filename} is compressed, which torch never does")
        return storage


_DEEPEST = 8
_MOST_POSITIONS = 10
"""A longer tuple is a list of rows and not several arrays."""
_FEATURES = "features"
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"


@dataclass(frozen=True)
class _NamedRows:
    """A dictionary from file name to row, as open-reid saves it: vectors, hence features, or single numbers.

    Its own name is empty if it is the file itself.
    """

    name: str
    rows: Mapping[str, Any]
    is_vectors: bool


def _named_rows(name: str, pairs: Mapping[str, Any]) -> _NamedRows | None:
    """Recognize such a dictionary: values of one shape, and no key that customarily names an array."""
    shapes = {_shape(value) for value in pairs.values()}
    shape = shapes.pop() if len(shapes) == 1 else None
    if shape is None or len(shape) > 1 or (not shape and not all("." in key for key in pairs)):
        return None
    return None if any(is_customary(key) for key in pairs) else _NamedRows(name, pairs, bool(shape))


def _shape(value: Any) -> tuple[int, ...] | None:
    """Shape of a vector of floating numbers, or of a number; None for anything else."""
    if isinstance(value, Tensor):
        floating = value.code == BFLOAT16 or value.code.startswith("f")
        return value.shape if floating or not value.shape else None
    if isinstance(value, np.ndarray):
        return value.shape if value.dtype.kind == "f" or not value.shape else None
    return () if type(value) in (int, float) else None


def _named_arrays(named: list[_NamedRows], tensors: Tensors) -> dict[str, RowArray | str]:
    """Make features with the names of their rows, and labels under the same names in the same order."""
    found: dict[str, RowArray | str] = {}
    orders: list[list[str]] = []
    vectors = [each for each in named if each.is_vectors]
    for each in vectors:
        # The features of ``{"query": {name: tensor}}`` are ``query_features``; of ``{"query_features": …}`` likewise.
        own = is_customary(each.name)
        alone = "" if len(vectors) == 1 else each.name
        features = each.name if own else "_".join(part for part in (alone, _FEATURES) if part)
        prefix = each.name[: each.name.rfind("_") + 1] if own else features.removesuffix(_FEATURES)
        rows = tensors.stacked(list(each.rows.values()))
        if rows is None:
            found[features] = "a dictionary of tensors of differing kinds"
            continue
        found[features] = rows
        found[f"{prefix}image_paths"] = HeldRows(text_rows(list(each.rows), "names"))
        orders.append(list(each.rows))
    for each in named:
        if each.is_vectors:
            continue
        order = next((names for names in orders if each.rows.keys() == set(names)), list(each.rows))
        rows = tensors.stacked([each.rows[name] for name in order])
        found[each.name or "values"] = rows or "a dictionary of numbers of differing kinds"
    return found


class _Walk:
    """Walks through nested dictionaries and tuples: ``{"query": {"pids": …}}`` becomes ``query_pids``.

    Containers may be shared, so that few bytes could describe more entries than there is time for; a file of torch.save
    has no more of them than opcodes.
    """

    def __init__(self, content: Any, n_opcodes: int) -> None:
        self._left = 4 * n_opcodes
        self.leaves: dict[str, Any] = {}
        self.named: list[_NamedRows] = []
        self._visit(content, "", 0)

    def _visit(self, given: Any, name: str, depth: int) -> None:
        value = interpret(given)
        if (
            isinstance(value, list)
            and value
            and all(isinstance(interpret(item), Entries) for item in self._counted(value))
        ):
            value = self._transposed(value) or value
        if isinstance(value, Entries):
            self._visit_entries(value, name, depth)
        elif isinstance(value, tuple) and len(value) <= _MOST_POSITIONS and not _are_scalars(value):
            positions = Entries([(f"item{at}", item) for at, item in enumerate(value)])
            self._visit_entries(positions, name, depth)
        else:
            # A list is looked through item by item when its rows are made.
            self._count(len(value) if isinstance(value, list | tuple) else 1)
            self.leaves[name or "features"] = value

    def _visit_entries(self, entries: Entries, name: str, depth: int) -> None:
        if depth == _DEEPEST:
            self.leaves[name] = Refused(f"nested more than {_DEEPEST} deep")
            return
        pairs = dict(self._pairs(entries))
        named = _named_rows(name, pairs)
        if named is not None:
            self.named.append(named)
            return
        for key, value in pairs.items():
            self._visit(value, f"{name}_{key}" if name else key, depth + 1)

    def _pairs(self, entries: Entries) -> Iterator[tuple[str, Any]]:
        self._count(len(entries.pairs))
        for key, value in entries.pairs:
            if not isinstance(key, str | int | float) or (isinstance(key, int) and abs(key) >= 2**63):
                continue
            yield str(key), interpret(value)

    def _counted(self, items: list[Any]) -> list[Any]:
        self._count(len(items))
        return items

    def _transposed(self, records: list[Any]) -> Entries | None:
        """A list of dictionaries with the same keys as one dictionary of lists; None where keys differ."""
        rows = [dict(self._pairs(interpret(record))) for record in records]
        if any(row.keys() != rows[0].keys() for row in rows):
            return None
        return Entries([(key, [row[key] for row in rows]) for key in rows[0]])

    def _count(self, entries: int) -> None:
        self._left -= entries + 1
        if self._left < 0:
            raise StoreError("the file describes more entries than it holds; it was not written by torch.save")


def _are_scalars(values: tuple[Any, ...]) -> bool:
    return all(isinstance(interpret(value), str | int | float) for value in values)


def _open_torch(path: Path) -> Source:
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            begins = file.read(len(_LEGACY))
        if starts_as_pickle(begins) and begins != _LEGACY:
            raise pickle_refusal(path)
        raise StoreError(f"{path} is not a zip archive; files of torch before 1.6 must be saved again by a newer one")
    with zipfile.ZipFile(path) as archive:
        members = members_of(archive)
        program = next((name for name in members if name.endswith("data.pkl")), None)
        if program is None:
            raise StoreError(f"{path} is a zip archive without data.pkl; it was not written by torch.save")
        if members[program].compress_type != zipfile.ZIP_STORED:
            raise StoreError(f"{path}: {program} is compressed, which torch never does")
        root = program.removesuffix("data.pkl")
        order = archive.read(root + "byteorder").decode() if root + "byteorder" in members else "little"
        content, n_opcodes = read_pickle(archive.read(program), str(path))
    tensors = Tensors(path, members, root, ">" if order == "big" else "<")
    whole = interpret(content)
    if isinstance(whole, Refused):
        raise InputError(f"{path} cannot be read: it is {whole.reason}")
    walk = _Walk(content, n_opcodes)
    found = _named_arrays(walk.named, tensors)
    for name, value in walk.leaves.items():
        made = tensors.rows_of(value)
        if name not in found or not isinstance(made, str):
            found[name] = made
    numbers = {name: tensors.number_of(value) for name, value in walk.leaves.items()}
    return Source.of(str(path), found, {name: number for name, number in numbers.items() if number is not None})


FORMATS.register(
    Format(
        "torch",
        "tensors and numpy arrays of torch.save, also {file name: tensor}; read as data, nothing is unpickled",
        "torch.save since 1.6",
        (".pth", ".pt"),
        _open_torch,
        sniff=lambda path: any(name.endswith("data.pkl") for name in zip_names(path)),
    )
)
