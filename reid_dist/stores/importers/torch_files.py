"""``.pth`` and ``.pt`` without torch, and without running anything that is in them.

Such a file is a zip with a pickle that describes tensors and one uncompressed member per storage.  The pickle is read
as data (`reid_dist.stores.importers.pickled`); what it calls is recorded and not called.  Tensors, numpy arrays of
plain dtypes and lists become arrays, and all else is left out with its reason.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.named_rows import NamedRows, add_named_rows
from reid_dist.stores.importers.pickled import Entries, Pickled, read_pickle
from reid_dist.stores.importers.pickled_arrays import BFLOAT16, Refused, Tensor, interpret
from reid_dist.stores.importers.raw import BFloat16Rows
from reid_dist.stores.importers.source import (
    FORMATS,
    PICKLE_ADVICE,
    Format,
    HeldRows,
    RowArray,
    Source,
    starts_as_pickle,
    text_rows,
)
from reid_dist.stores.importers.tensor_rows import TensorRows
from reid_dist.stores.importers.zip_members import MemberRows

_DEEPEST = 8
_MOST_POSITIONS = 10
"""A longer tuple is a list of rows and not several arrays."""
_MOST_REPEATS = 16
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"


class _Walk:
    """Walks through nested dictionaries and tuples: ``{"query": {"pids": …}}`` becomes ``query_pids``.

    Containers may be shared, so that few bytes could describe more entries than there is time for; an honest file has
    no more of them than opcodes.
    """

    def __init__(self, content: Pickled) -> None:
        self._left = 4 * content.n_opcodes
        self.leaves: dict[str, Any] = {}
        self.named: list[NamedRows] = []
        self._visit(content.value, "", 0)

    def _visit(self, given: Any, name: str, depth: int) -> None:
        value = interpret(given)
        if (
            isinstance(value, list)
            and value
            and all(isinstance(interpret(item), Entries) for item in self._some(value))
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
        named = NamedRows.of(name, pairs)
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

    def _some(self, items: list[Any]) -> list[Any]:
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
            raise InputError(f"{path} {PICKLE_ADVICE}")
        raise StoreError(f"{path} is not a zip archive; files of torch before 1.6 must be saved again by a newer one")
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: member for member in archive.infolist()}
        program = next((name for name in members if name.endswith("data.pkl")), None)
        if program is None:
            raise StoreError(f"{path} is a zip archive without data.pkl; it was not written by torch.save")
        if members[program].compress_type != zipfile.ZIP_STORED:
            raise StoreError(f"{path}: {program} is compressed, which torch never does")
        root = program.removesuffix("data.pkl")
        order = archive.read(root + "byteorder").decode() if root + "byteorder" in members else "little"
        content = read_pickle(archive.read(program), str(path))
    tensors = _Tensors(path, members, root, ">" if order == "big" else "<")
    whole = interpret(content.value)
    if isinstance(whole, Refused):
        raise InputError(f"{path} cannot be read: it is {whole.reason}")
    walk = _Walk(content)
    arrays: dict[str, RowArray] = {}
    refused: dict[str, str] = {}
    values: dict[str, int] = {}
    add_named_rows(walk.named, tensors.stacked, arrays, refused)
    for name, value in walk.leaves.items():
        made = tensors.rows_of(value)
        if isinstance(made, str):
            refused[name] = made
        else:
            arrays[name] = made
        if (number := tensors.number_of(value)) is not None:
            values[name] = number
    return Source(str(path), arrays, refused, values=values)


class _Tensors:
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
        if code == BFLOAT16:
            return BFloat16Rows(TensorRows(self._path, storages, tensors, np.dtype(self._order + "u2")))
        return TensorRows(self._path, storages, tensors, np.dtype(self._order + code))

    def _refuse_repeated(self, n_rows: int, n_distinct: int) -> None:
        """Refuse rows that are the same few again and again, which take few bytes and make many."""
        if n_rows > _MOST_REPEATS * n_distinct:
            raise StoreError(f"{self._path} describes {n_rows} rows and holds {n_distinct} of them")

    def _of_tensor(self, tensor: Tensor) -> RowArray:
        if tensor.storage.code == BFLOAT16:
            return BFloat16Rows(self._rows(tensor, np.dtype(self._order + "u2")))
        return self._rows(tensor, np.dtype(self._order + tensor.storage.code))

    def _rows(self, tensor: Tensor, dtype: np.dtype[Any]) -> MemberRows:
        offset, member = tensor.offset * dtype.itemsize, self._member(tensor)
        if math.prod(tensor.shape) * dtype.itemsize > member.file_size:
            raise StoreError(
                f"{self._path} is cut short, or expands a tensor to shape {tensor.shape}, which takes more numbers "
                f"than its storage {member.filename} holds; save it with .contiguous()"
            )
        return MemberRows(self._path, member, offset, tensor.shape, dtype, tensor.strides)

    def _member(self, tensor: Tensor) -> zipfile.ZipInfo:
        find: Callable[[str], zipfile.ZipInfo | None] = self._members.get
        storage = find(f"{self._root}data/{tensor.storage.key}")
        if storage is None:
            raise StoreError(f"{self._path} is damaged: storage {tensor.storage.key[:80]} is missing")
        if storage.compress_type != zipfile.ZIP_STORED:
            raise StoreError(f"{self._path}: storage {storage.filename} is compressed, which torch never does")
        return storage


def _is_torch(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("data.pkl") for name in archive.namelist())


TORCH = FORMATS.register(
    Format(
        "torch",
        "tensors and numpy arrays of torch.save, also {file name: tensor}; read as data, nothing is unpickled",
        "torch.save since 1.6",
        (".pth", ".pt"),
        _open_torch,
        sniff=_is_torch,
    )
)
