"""HDF5 of any name: plain files with rows first, and MATLAB version 7.3, whose arrays are transposed.

Datasets are reached by hard links alone, and none whose values lie in another file is read: a link, external storage
or a virtual dataset could make us read any file of this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import StoreError
from reid_dist.stores.importers.file_rows import MOST_CHUNK_BYTES, Box, chunked_rows, too_large_chunks
from reid_dist.stores.importers.source import (
    FORMATS,
    ComputedRows,
    Format,
    RowArray,
    Source,
    begins_with,
    require,
    text_rows,
)

_MAGIC = b"\x89HDF\r\n\x1a\n"
_MATLAB_CLASS = "MATLAB_class"
_MATLAB_HEAP = "#refs#"
_EXTRA = "mat"
_DEEPEST = 8
LONGEST_TEXT = 65_536
MOST_NESTED = 2**20
_COLUMNS = "columns"
# What filters may add to a chunk that they cannot make smaller, beside an eighth of it.
_FILTER_BYTES = 4096


def is_hdf5(path: Path) -> bool:
    """Whether a file is HDF5: its magic may be at 0, 512, 1024, 2048, … (MATLAB writes 512 bytes before it)."""
    size = path.stat().st_size
    with path.open("rb") as file:
        position = 0
        while position < size:
            file.seek(position)
            if file.read(len(_MAGIC)) == _MAGIC:
                return True
            position = max(512, position * 2)
    return False


def is_matlab(path: Path) -> bool:
    """Whether MATLAB wrote an HDF5 file: by the header before its magic, by attributes, or by its heap of cells."""
    if begins_with(b"MATLAB 7.3 MAT-file")(path):
        return True
    with require("h5py", _EXTRA).File(path, "r") as file:
        if _MATLAB_HEAP in file:
            return True
        return any(_MATLAB_CLASS in node.attrs for _, node in _children(file) if not isinstance(node, str))


def _children(group: Any) -> Iterator[tuple[str, Any]]:
    """Names and members of a group; the reason in place of what is not followed."""
    h5py = require("h5py", _EXTRA)
    for name in group:
        if name.startswith("#"):  # MATLAB's own heap of cells, and what describes its objects.
            continue
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            yield name, group[name]
        else:
            yield name, "a link, which is not followed"


def _elsewhere(dataset: Any) -> str | None:
    """Why the values of a dataset are not read from this file alone; None if they are."""
    return "kept in another file, which is not followed" if dataset.external or dataset.is_virtual else None


def _unwritten(dataset: Any, n_bytes: int) -> str | None:
    """Why values of a dataset, in a file of some bytes, are not those that were written; None if they are.

    HDF5 makes up what was never written, of any size.
    """
    if dataset.chunks is None:
        stored = dataset.id.get_storage_size() + (dataset.id.get_offset() or 0)
        never = not stored
    else:
        stored = dataset.id.get_storage_size()
        total = math.prod(-(-length // chunk) for length, chunk in zip(dataset.shape, dataset.chunks, strict=True))
        never = total > dataset.id.get_num_chunks()
        if never and stored:
            missing = total - dataset.id.get_num_chunks()
            return f"missing {missing} of its {counted(total, 'chunk', separator='')}, which were never written"
    if never:
        return "missing all of its values, which were never written"
    return f"cut short: it takes {stored} bytes of a file of {n_bytes}" if stored > n_bytes else None


def _chunk_to_decode(dataset: Any, transposed: bool) -> tuple[int, ...] | None:
    """Shape of the chunks of a dataset, rows first, which are decoded whole; None if they can be read in part."""
    if dataset.chunks is None or dataset.ndim > 2 or not dataset.id.get_create_plist().get_nfilters():
        return None
    return tuple(dataset.chunks[::-1] if transposed else dataset.chunks)


def _opened(file: Any, names: tuple[str, ...]) -> Any:
    """Open a dataset, checked as at first: the file may be another by now."""
    h5py = require("h5py", _EXTRA)
    node, reason = file, None
    for name in names:
        if not isinstance(node, h5py.Group) or not isinstance(node.get(name, getlink=True), h5py.HardLink):
            reason = "missing"
            break
        node = node[name]
    reason = reason or _elsewhere(node)
    if reason is not None:
        raise StoreError(f"{'/'.join(names)} cannot be read: it is {reason}")
    return node


def _largest_chunk(dataset: Any) -> int:
    """Bytes that the largest chunk of a dataset takes in the file."""
    sizes = [0]
    dataset.id.chunk_iter(lambda chunk: sizes.append(max(sizes.pop(), chunk.size)))
    return sizes[0]


RowsReader: TypeAlias = Callable[[str, Any, int, int], NDArray[Any]]
"""Reads rows of a dataset by its name, for errors, and their range."""


def _rows_of(
    path: Path, names: tuple[str, ...], shape: tuple[int, ...], dtype: np.dtype[Any], rows: RowsReader
) -> RowArray:
    """Rows of a dataset; the file is open only while it is read."""

    def read(start: int, stop: int) -> NDArray[Any]:
        with require("h5py", _EXTRA).File(path, "r") as file:
            return rows(names[-1], _opened(file, names), start, stop)

    return ComputedRows(shape, dtype, read)


def _numbers(transposed: bool, name: str, dataset: Any, start: int, stop: int) -> NDArray[Any]:
    return np.ascontiguousarray(dataset[..., start:stop].T if transposed else dataset[start:stop])


def _texts(name: str, dataset: Any, start: int, stop: int) -> NDArray[Any]:
    """Texts of a plain file: of variable or of fixed length."""
    rows = np.asarray(dataset[start:stop]).ravel().tolist()
    return text_rows([row.decode("utf-8") if isinstance(row, bytes) else str(row) for row in rows], name)


def _characters(name: str, dataset: Any, start: int, stop: int) -> NDArray[Any]:
    """Rows of a character matrix of MATLAB, padded with blanks to one length."""
    return text_rows([text_of_units(row).rstrip() for row in np.atleast_2d(dataset[..., start:stop].T)], name)


def _cells(name: str, dataset: Any, start: int, stop: int) -> NDArray[Any]:
    """Cells of MATLAB: references to texts or to single whole numbers."""
    references = enumerate(dataset[()].ravel()[start:stop], start)
    return text_rows([_text(dataset.file, each, f"cell {row} of {name}") for row, each in references], name)


def _text(file: Any, reference: Any, where: str) -> str:
    if not reference:
        return ""
    cell = _cell(file, reference, where)
    if cell.attrs.get("MATLAB_empty", 0) or not cell.size:
        return ""
    is_text = (_class_of(cell) or "char") == "char"
    if cell.dtype.kind not in "uif" or cell.size > (LONGEST_TEXT if is_text else 1):
        raise StoreError(f"{where} holds {cell.dtype} of shape {cell.shape}; only text and whole numbers are read")
    values = np.asarray(cell[()]).T.ravel()
    if is_text:
        return text_of_units(values).rstrip()
    if values[0] != np.floor(values[0]):
        raise StoreError(f"{where} holds {values[0]}; only text and whole numbers are read")
    return str(int(values[0]))


def _chunks(
    path: Path,
    names: tuple[str, ...],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    transposed: bool,
    chunk: tuple[int, ...],
) -> RowArray:
    """A dataset in compressed chunks."""

    @contextmanager
    def boxes() -> Iterator[Box]:
        with require("h5py", _EXTRA).File(path, "r") as file:
            dataset = _opened(file, names)
            yield lambda places: dataset[places[::-1]].T if transposed else dataset[places]

    return chunked_rows(shape, dtype, chunk, f"{path}: {'/'.join(names)}", boxes)


def read_nested_version_7(path: Path, name: str) -> list[list[NDArray[Any]]]:
    """Matrices of a MATLAB cell array of cell arrays, as MATLAB numbers both; `StoreError` for another form."""
    with require("h5py", _EXTRA).File(path, "r") as file:
        found = []
        for first, reference in enumerate(_references(_opened(file, (name,)), name)):
            where = f"cell {first} of {name}"
            inner = _references(_cell(file, reference, where), where)
            found.append([_matrix(file, each, f"cell {second} of {where}") for second, each in enumerate(inner)])
        return found


def _cell(file: Any, reference: Any, where: str) -> Any:
    """Dataset of a reference, held in this file."""
    cell = file[reference] if reference else None
    reason = _elsewhere(cell) if isinstance(cell, require("h5py", _EXTRA).Dataset) else "no array"
    if reason is not None:
        raise StoreError(f"{where} cannot be read: it is {reason}")
    return cell


def _references(dataset: Any, where: str) -> list[Any]:
    """References of a cell array, none for an empty one."""
    h5py = require("h5py", _EXTRA)
    if dataset.attrs.get("MATLAB_empty", 0):
        return []
    if h5py.check_ref_dtype(dataset.dtype) is not h5py.Reference or dataset.size > MOST_NESTED:
        raise StoreError(f"{where} is no cell array, but {dataset.dtype} of shape {dataset.shape}")
    found: list[Any] = dataset[()].ravel().tolist()
    return found


def _matrix(file: Any, reference: Any, where: str) -> NDArray[Any]:
    """Matrix of numbers of a reference, rows first."""
    cell = _cell(file, reference, where)
    if cell.attrs.get("MATLAB_empty", 0):
        return np.empty((0, 0))
    if cell.dtype.kind not in "uif" or cell.ndim != 2 or cell.size > MOST_NESTED:
        raise StoreError(f"{where} holds {cell.dtype} of shape {cell.shape}, and no matrix of numbers")
    return np.asarray(cell[()]).T


def text_of_units(codes: NDArray[Any]) -> str:
    """Text of UTF-16 units; half a surrogate pair stays, and is refused where texts become labels."""
    if codes.size and (codes.min() < 0 or codes.max() > 0xFFFF):
        raise StoreError("a text holds numbers that are no characters")
    return codes.astype("<u2").tobytes().decode("utf-16-le", "surrogatepass")


def _fewer_bits(dataset: Any) -> int | None:
    """Significant bits of floats such as bfloat16, which are widened when they are read; None for all others."""
    if dataset.dtype.kind != "f":
        return None
    # Sign, place and size of the exponent, place and size of the mantissa, whose first bit is not written.
    bits = int(dataset.id.get_type().get_fields()[-1]) + 1
    return bits if bits <= np.finfo(dataset.dtype).nmant else None


def _class_of(dataset: Any) -> str:
    found = dataset.attrs.get(_MATLAB_CLASS, b"")
    return found.decode("ascii", "replace") if isinstance(found, bytes) else str(found)


def open_hdf5(path: Path, *, notes: tuple[str, ...] = ()) -> Source:
    """Open any HDF5 file, with `notes` if it is not of MATLAB; ``query/features`` is ``query_features``."""
    transposed = is_matlab(path)
    listing = _Listing(path, transposed)
    with require("h5py", _EXTRA).File(path, "r") as file:
        listing.visit(file, ())
    return replace(Source.of(str(path), listing.found, listing.values), notes=() if transposed else notes)


class _Listing:
    """Arrays of one file, reasons in the place of those that are not read, and single values."""

    def __init__(self, path: Path, transposed: bool) -> None:
        self._path, self._transposed = path, transposed
        self._seen: set[int] = set()
        self.found: dict[str, RowArray | str] = {}
        self.values: dict[str, int] = {}

    def visit(self, group: Any, names: tuple[str, ...]) -> None:
        h5py = require("h5py", _EXTRA)
        # A group can hold itself, and can be held many times.
        address = h5py.h5o.get_info(group.id).addr
        if address in self._seen:
            return
        self._seen.add(address)
        for child, node in _children(group):
            path = (*names, child)
            if isinstance(node, h5py.Group) and len(path) < _DEEPEST:
                self.visit(node, path)
            elif isinstance(node, h5py.Group):
                self._add(path, f"a group nested {_DEEPEST} deep")
            elif isinstance(node, h5py.Dataset):
                made = self._array(path, node)
                self._add(path, made)
                if made == "a single value" and node.dtype.kind in "iu":
                    self.values[_flat(path)] = int(node[()])
            else:
                self._add(path, node if isinstance(node, str) else "no array")

    def _add(self, names: tuple[str, ...], made: RowArray | str) -> None:
        name = _flat(names)
        if isinstance(made, RowArray) and isinstance(self.found.get(name), RowArray):
            name = "/".join(names)
            made = f"a second array of this name, {name}"
        if isinstance(made, RowArray) or name not in self.found:
            self.found[name] = made

    def _array(self, names: tuple[str, ...], dataset: Any) -> RowArray | str:
        """The rows of a dataset, or the reason why it has none."""
        h5py = require("h5py", _EXTRA)
        reason = _elsewhere(dataset)
        if reason is not None:
            return reason
        shape, dtype = dataset.shape, dataset.dtype
        if shape is None or (self._transposed and dataset.attrs.get("MATLAB_empty", 0)):
            return "empty"
        if not shape:
            return "a single value"
        reason = _unwritten(dataset, self._path.stat().st_size) if dataset.size else None
        if reason is not None:
            return reason
        text = np.dtype(np.str_)
        if self._transposed and h5py.check_ref_dtype(dtype) is h5py.Reference:
            return _rows_of(self._path, names, (dataset.size,), text, _cells)
        if self._transposed and _class_of(dataset) == "char":
            return _rows_of(self._path, names, (shape[-1],), text, _characters)
        if h5py.check_string_dtype(dtype) is not None and dataset.size == max(shape):
            if len(shape) > 1 and shape[0] != dataset.size:
                return f"{dtype} of shape {shape}"
            return _rows_of(self._path, names, (dataset.size,), text, _texts)
        if dtype.kind not in "fiub":
            return f"{dtype} of shape {shape}"
        rows_first, chunk = shape[::-1] if self._transposed else shape, _chunk_to_decode(dataset, self._transposed)
        if chunk is None:
            made: RowArray = _rows_of(self._path, names, rows_first, dtype, partial(_numbers, self._transposed))
        else:
            n_bytes, stored = math.prod(chunk) * dtype.itemsize, _largest_chunk(dataset)
            if stored > n_bytes + n_bytes // 8 + _FILTER_BYTES:
                # The filters would decode all that is there, which may be a thousand times as much.
                return f"damaged: a chunk of {n_bytes} bytes takes {stored}"
            if n_bytes > MOST_CHUNK_BYTES:
                return f"in {too_large_chunks(dataset.chunks, dtype)} (h5repack makes smaller ones)"
            made = _chunks(self._path, names, rows_first, dtype, self._transposed, chunk)
        made.significant_bits = _fewer_bits(dataset)
        return made


def _flat(names: tuple[str, ...]) -> str:
    """Names joined by ``_``; those of label columns keep their ``columns/``."""
    *groups, name = names
    joined = "_".join(groups)
    return f"{joined}/{name}" if groups and groups[-1] == _COLUMNS else "_".join((*groups, name))


FORMATS.register(
    Format(
        "hdf5",
        "HDF5 with one row per item along the first axis, recognised by content, not by suffix; "
        "groups are prefixes (query/features)",
        "The HDF Group",
        (".h5", ".hdf5", ".hdf", ".he5"),
        open_hdf5,
        sniff=lambda path: is_hdf5(path) and not is_matlab(path),
    )
)
