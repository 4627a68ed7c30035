"""``.mat``: version 5, and version 7.3, which is HDF5 (`reid_dist.stores.importers.hdf5_files`)."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.hdf5_files import (
    LONGEST_TEXT,
    MOST_NESTED,
    is_hdf5,
    is_matlab,
    open_hdf5,
    text_of_units,
)
from reid_dist.stores.importers.matlab_elements import Elements, Matrix, Variable, inflated
from reid_dist.stores.importers.raw import RawRows, fortran_strides
from reid_dist.stores.importers.source import (
    FORMATS,
    Format,
    OpenRows,
    RowArray,
    Source,
    begins_with,
    refuse_repeated,
    text_rows,
)
from reid_dist.stores.importers.spooled import SpooledRows, spooled

_IS_VERSION_5 = begins_with(b"MATLAB 5.0 MAT-file")


class CompressedColumns(SpooledRows):
    """Numbers or characters of a compressed variable, in Fortran order."""

    def __init__(
        self, path: Path, variable: Variable, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        super().__init__(shape, dtype, (shape[0], 1), f"{path}: {variable.matrix.name}")
        self._path, self._variable, self._start = path, variable, start

    def _stream(self) -> Iterator[bytes | memoryview]:
        left, right = self._variable.matrix.start, self._variable.matrix.start + self._variable.matrix.n_bytes
        place = 0
        for block in inflated(self._path, self._start, self._variable.n_bytes):
            yield memoryview(block)[max(0, left - place) : max(0, right - place)]
            place += len(block)
        if place != self._variable.length:
            raise StoreError(
                f"{self._what} is damaged: its header claims {self._variable.length} bytes, and it holds {place}"
            )


class Characters(OpenRows):
    """Rows of a character matrix, padded with blanks to one length; `codes` are its values, or their UTF-8."""

    def __init__(self, codes: RowArray, matrix: Matrix) -> None:
        super().__init__(matrix.shape[:1], np.dtype(np.str_))
        self._codes, self._matrix = codes, matrix

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        if self._matrix.is_utf8:
            text = self._codes.whole().tobytes().decode("utf-8")
            if len(text) != self._matrix.size:
                raise StoreError(f"{self._matrix.name} of shape {self._matrix.shape} has {len(text)} characters")
            codes = np.frombuffer(text.encode("utf-32-le"), "<u4").reshape(self._matrix.shape, order="F")[start:stop]
        else:
            codes = self._codes.read(start, stop)
        return text_rows([_text_of(row).rstrip() for row in codes], self._matrix.name)

    def close(self) -> None:
        """Close the values."""
        if isinstance(self._codes, OpenRows):
            self._codes.close()


def _text_of(codes: NDArray[Any]) -> str:
    if codes.dtype.itemsize < 4:
        return text_of_units(codes)
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


class Cells(RowArray):
    """A cell array of texts or of single whole numbers, which are read on first use."""

    def __init__(self, path: Path, variable: Variable) -> None:
        super().__init__((variable.matrix.size,), np.dtype(np.str_))
        self._path, self._variable = path, variable
        self._texts: NDArray[np.str_] | None = None
        self._lock = threading.Lock()

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        with self._lock:
            if self._texts is None:
                self._texts = self._load()
        return self._texts[start:stop]

    def _load(self) -> NDArray[np.str_]:
        elements, cell = Elements(self._path), self._variable.matrix
        with _values_of(self._path, self._variable) as buffer:
            texts = [
                _text_of_cell(buffer, each, f"cell {row} of {cell.name}")
                for row, each in enumerate(elements.cells(buffer, cell))
            ]
        # Cells of several columns count row by row, as arrays do.
        order = np.arange(cell.size).reshape(cell.shape, order="F").ravel().tolist()
        return text_rows([texts[at] for at in order], cell.name)


def _text_of_cell(buffer: memoryview, cell: Matrix, where: str) -> str:
    if not cell.size and cell.dtype is not None:
        return ""
    is_text = cell.kind == "char" and cell.size == cell.shape[-1] and cell.size <= LONGEST_TEXT
    if cell.dtype is not None and (is_text or (cell.kind != "char" and cell.size == 1 and not cell.is_complex)):
        if cell.is_utf8:
            return bytes(buffer[cell.start : cell.start + cell.n_bytes]).decode("utf-8").rstrip()
        values = _numbers(buffer, cell).ravel()
        if is_text:
            return _text_of(values).rstrip()
        if np.isfinite(values[0]) and values[0] == np.floor(values[0]):
            return str(int(values[0]))
    raise StoreError(f"{where} holds a MATLAB {cell.kind} of shape {cell.shape}; only text and whole numbers are read")


def _numbers(buffer: memoryview, matrix: Matrix) -> NDArray[Any]:
    values = np.frombuffer(bytes(buffer[matrix.start : matrix.start + matrix.n_bytes]), matrix.dtype)
    return values.reshape(matrix.shape, order="F")


@contextmanager
def _mapped(file: IO[bytes]) -> Iterator[memoryview]:
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages, memoryview(pages) as buffer:
        yield buffer


@contextmanager
def _values_of(path: Path, variable: Variable) -> Iterator[memoryview]:
    """The buffer that the matrix of a variable is in."""
    file: IO[bytes]
    if variable.start is None:
        file = path.open("rb")
    else:
        blocks = inflated(path, variable.start, variable.n_bytes)
        file = spooled(blocks, variable.length, f"{path}: {variable.matrix.name}")
    with file, _mapped(file) as buffer:
        yield buffer


def _variables(path: Path) -> dict[str, Variable]:
    """The variables of a file by name."""
    elements = Elements(path)
    with path.open("rb") as file, _mapped(file) as buffer:
        found = list(elements.variables(buffer))
    refuse_repeated((variable.matrix.name for variable in found), f"{path} holds")
    return {variable.matrix.name: variable for variable in found}


def _rows_of(path: Path, variable: Variable) -> RowArray | str:
    """The rows of a variable, or the reason why it has none."""
    matrix = variable.matrix
    if matrix.kind == "cell":
        return Cells(path, variable)
    if matrix.dtype is None or matrix.is_complex:
        return f"a {'complex ' if matrix.is_complex else ''}MATLAB {matrix.kind}"
    if not matrix.size:
        return "empty"
    is_text = matrix.kind == "char"
    if is_text and len(matrix.shape) != 2:
        return f"a MATLAB char of shape {matrix.shape}"
    shape = (matrix.n_bytes,) if matrix.is_utf8 else matrix.shape
    values: RowArray
    if variable.start is None:
        values = RawRows(path, matrix.start, matrix.n_bytes, shape, matrix.dtype, fortran_strides(shape))
    else:
        values = CompressedColumns(path, variable, variable.start, shape, matrix.dtype)
    return Characters(values, matrix) if is_text else values


def read_nested_version_5(path: Path, name: str) -> list[list[NDArray[Any]]]:
    """Matrices of a cell array of cell arrays, as MATLAB numbers both; StoreError for another form."""
    variable = _variables(path).get(name)
    if variable is None:
        raise StoreError(f"{path} holds no {name}")
    elements, found = Elements(path), []
    with _values_of(path, variable) as buffer:
        for first, inner in enumerate(_nested(elements, buffer, variable.matrix, name)):
            where = f"cell {first} of {name}"
            matrices = enumerate(_nested(elements, buffer, inner, where))
            found.append([_matrix(buffer, each, f"cell {second} of {where}") for second, each in matrices])
    return found


def _nested(elements: Elements, buffer: memoryview, cell: Matrix, where: str) -> Iterator[Matrix]:
    if cell.kind != "cell" and cell.size:
        raise StoreError(f"{where} is no cell array, but a MATLAB {cell.kind} of shape {cell.shape}")
    return elements.cells(buffer, cell)


def _matrix(buffer: memoryview, matrix: Matrix, where: str) -> NDArray[Any]:
    """Matrix of numbers, rows first."""
    unfit = matrix.dtype is None or matrix.is_complex or matrix.kind == "char" or len(matrix.shape) != 2
    if unfit or matrix.size > MOST_NESTED:
        raise StoreError(f"{where} holds a MATLAB {matrix.kind} of shape {matrix.shape}, and no matrix of numbers")
    return _numbers(buffer, matrix)


def _open_mat(path: Path) -> Source:
    if not is_hdf5(path):
        return Source.of(str(path), {name: _rows_of(path, held) for name, held in _variables(path).items()})
    return open_hdf5(path, notes=("read as plain HDF5, rows first: the file has no header or attributes of MATLAB",))


FORMATS.register(
    Format(
        "mat",
        "MATLAB files, version 5 and version 7.3",
        "MATLAB level 5 and HDF5",
        (".mat",),
        _open_mat,
        sniff=lambda path: _IS_VERSION_5(path) or (is_hdf5(path) and is_matlab(path)),
    )
)
