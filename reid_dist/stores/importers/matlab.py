"""``.mat``: version 5, and version 7.3, which is HDF5 (`reid_dist.stores.importers.hdf5_files`).

"MAT-File Format", The MathWorks.  A file of version 5 is a header of 128 bytes and one element per variable: a matrix,
or zlib data with one in it.  An element is a tag, of a type and a number of bytes, and data; the elements of a matrix
are its class, dimensions, name and values, and the values of a cell array are matrices.  Every type, size and shape is
compared with the bytes that are there.
"""

from __future__ import annotations

import math
import mmap
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.file_rows import RawRows, SpooledRows, fortran_strides, spooled
from reid_dist.stores.importers.hdf5_files import (
    LONGEST_TEXT,
    MOST_NESTED,
    is_hdf5,
    is_matlab,
    open_hdf5,
    read_nested_version_7,
    text_of_units,
)
from reid_dist.stores.importers.source import (
    FORMATS,
    ComputedRows,
    Format,
    RowArray,
    Source,
    begins_with,
    refuse_repeated,
    text_rows,
)

Buffer: TypeAlias = bytes | memoryview

_FILE_HEADER: Final = 128
_TAG = 8
_SMALL = 4
_MATRIX, _COMPRESSED = 14, 15
_INT8, _UINT8, _INT32, _UINT32, _UTF8 = 1, 2, 5, 6, 16
_FLAGS_BYTES = 8
_COMPLEX = 0x0800

_NUMBERS: Final[Mapping[int, str]] = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8",
}  # fmt: skip
_CHARACTERS: Final[Mapping[int, str]] = {1: "u1", 2: "u1", 3: "u2", 4: "u2", 16: "u1", 17: "u2", 18: "u4"}
_CLASSES: Final[Mapping[int, str]] = {
    1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse array", 6: "double", 7: "single", 8: "int8", 9: "uint8",
    10: "int16", 11: "uint16", 12: "int32", 13: "uint32", 14: "int64", 15: "uint64", 16: "function", 17: "opaque",
}  # fmt: skip
_NUMERIC: Final = range(6, 16)

_MOST_DIMENSIONS = 32
_LONGEST_NAME = 4096
# Class, dimensions and name, each with its tag, and the tag of the values.
_LONGEST_HEAD: Final = 4 * _TAG + _FLAGS_BYTES + 4 * _MOST_DIMENSIONS + _LONGEST_NAME + _TAG
_INFLATED_BYTES = 1 << 20
_PADDING = 8


class Tag(NamedTuple):
    """Type of an element, the place of its data, their number of bytes, and the place of the next element."""

    kind: int
    start: int
    n_bytes: int
    end: int


@dataclass(frozen=True)
class Matrix:
    """A matrix: `dtype` of its values as they are kept, which are `n_bytes` from byte `start` of its buffer.

    `kind` is the name of its class.  Values of cells are matrices; of classes that are not read, `dtype` is None.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic] | None = None
    is_utf8: bool = False
    is_complex: bool = False
    start: int = 0
    n_bytes: int = 0

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


_EMPTY = Matrix("", "double", (0, 0), np.dtype("f8"))


@dataclass(frozen=True)
class Variable:
    """A variable: the matrix, in the buffer of the file or of what its compressed bytes become, and their places.

    `start` and `n_bytes` are of the compressed bytes in the file, None where the matrix is in the file itself;
    `length` is of the buffer.
    """

    matrix: Matrix
    start: int | None
    n_bytes: int
    length: int


class Elements:
    """Reads the elements of one file; StoreError for bytes that are none."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            header = file.read(_FILE_HEADER)
        # Bytes of a word that is MI to its writer.
        order = {b"IM": "<", b"MI": ">"}.get(header[_FILE_HEADER - 2 :])
        if order is None or struct.unpack(f"{order}H", header[_FILE_HEADER - 4 : _FILE_HEADER - 2]) != (0x0100,):
            raise StoreError(
                f"{path} cannot be read as mat: its header is none of MATLAB's versions 5 and 7.3; save it again with "
                "-v7"
            )
        self._path, self._order = path, order
        self._word, self._two = struct.Struct(f"{order}I"), struct.Struct(f"{order}2I")

    def _damage(self, found: str) -> StoreError:
        return StoreError(f"{self._path} is damaged: {found}")

    def tag(self, buffer: Buffer, at: int, stop: int) -> Tag:
        """Read the tag of an element whose data end before `stop`; those of a matrix may be beyond the buffer."""
        if at + _TAG > min(stop, len(buffer)):
            raise self._damage(f"it ends within an element at byte {at}")
        kind, n_bytes = self._two.unpack_from(buffer, at)
        if kind >> 16:
            # A small element: type and number of bytes in one word, and the data behind it.
            tag = Tag(kind & 0xFFFF, at + _SMALL, kind >> 16, at + _TAG)
            if tag.n_bytes > _TAG - _SMALL:
                raise self._damage(f"a small element at byte {at} claims {tag.n_bytes} bytes")
            return tag
        start = at + _TAG
        if start + n_bytes > stop:
            raise self._damage(f"an element at byte {at} claims {n_bytes} bytes, and {max(0, stop - start)} are there")
        return Tag(kind, start, n_bytes, min(start + n_bytes + -n_bytes % _PADDING, stop))

    def _data(self, buffer: Buffer, tag: Tag, kinds: tuple[int, ...], longest: int, what: str) -> bytes:
        if tag.kind not in kinds or tag.n_bytes > longest or tag.start + tag.n_bytes > len(buffer):
            raise self._damage(f"{what} is of type {tag.kind} and {tag.n_bytes} bytes")
        return bytes(buffer[tag.start : tag.start + tag.n_bytes])

    def matrix(self, buffer: Buffer, outer: Tag) -> Matrix:
        """Read all of a matrix but its values, which may be beyond the buffer."""
        if outer.kind != _MATRIX:
            raise self._damage(f"an element of type {outer.kind} is in the place of a matrix")
        if not outer.n_bytes:
            return _EMPTY
        stop = outer.start + outer.n_bytes
        tag = self.tag(buffer, outer.start, stop)
        flags = self._data(buffer, tag, (_UINT32,), _FLAGS_BYTES, "the class of a matrix")
        if len(flags) != _FLAGS_BYTES:
            raise self._damage(f"the class of a matrix takes {len(flags)} bytes")
        word = self._word.unpack_from(flags)[0]
        number, is_complex = word & 0xFF, bool(word & _COMPLEX)
        if number not in _CLASSES:
            raise self._damage(f"a matrix is of the unknown class {number}")
        if _CLASSES[number] == "opaque":  # It has no dimensions.
            tag = self.tag(buffer, tag.end, stop)
            return Matrix(self._name(buffer, tag), _CLASSES[number], (), start=stop)
        tag = self.tag(buffer, tag.end, stop)
        lengths = self._data(buffer, tag, (_INT32, _UINT32), 4 * _MOST_DIMENSIONS, "the shape of a matrix")
        if len(lengths) % 4 or len(lengths) < 8:
            raise self._damage(f"the shape of a matrix takes {len(lengths)} bytes")
        shape = struct.unpack(f"{self._order}{len(lengths) // 4}i", lengths)
        if min(shape) < 0:
            raise self._damage(f"a matrix is of shape {shape}")
        tag = self.tag(buffer, tag.end, stop)
        made = Matrix(
            self._name(buffer, tag),
            _CLASSES[number],
            shape,
            is_complex=is_complex,
            start=tag.end,
            n_bytes=stop - tag.end,
        )
        return self._with_values(buffer, made, number, stop)

    def _name(self, buffer: Buffer, tag: Tag) -> str:
        name = self._data(buffer, tag, (_INT8, _UINT8, _UTF8), _LONGEST_NAME, "the name of a matrix")
        return name.decode("utf-8", "replace")

    def _with_values(self, buffer: Buffer, head: Matrix, number: int, stop: int) -> Matrix:
        """Add the place and type of the values, compared with the shape."""
        if head.kind == "cell" and head.size > head.n_bytes // _TAG:
            raise self._damage(f"{head.name[:80]!r} of shape {head.shape} cannot be in {head.n_bytes} bytes")
        types = _CHARACTERS if head.kind == "char" else _NUMBERS if number in _NUMERIC else {}
        if not types:
            return head
        if not head.size and not head.n_bytes:  # MATLAB writes no values of an empty text.
            return replace(head, dtype=np.dtype("u1"), start=stop, n_bytes=0)
        tag = self.tag(buffer, head.start, stop)
        if tag.kind not in types:
            raise self._damage(f"the values of {head.name[:80]!r}, a {head.kind}, are of the type {tag.kind}")
        dtype, is_utf8 = np.dtype(self._order + types[tag.kind]), tag.kind == _UTF8
        # Characters take one byte to four of UTF-8.
        fits = head.size <= tag.n_bytes <= 4 * head.size if is_utf8 else tag.n_bytes == head.size * dtype.itemsize
        if not fits:
            raise self._damage(
                f"{head.name[:80]!r} of shape {head.shape} and {dtype} cannot be in the {tag.n_bytes} bytes of its "
                "values"
            )
        return replace(head, dtype=dtype, is_utf8=is_utf8, start=tag.start, n_bytes=tag.n_bytes)

    def cells(self, buffer: Buffer, cell: Matrix) -> Iterator[Matrix]:
        """Read the matrices of a cell array as MATLAB numbers them, one after the other."""
        at, stop = cell.start, cell.start + cell.n_bytes
        for _ in range(cell.size):
            tag = self.tag(buffer, at, stop)
            yield self.matrix(buffer, tag)
            at = tag.end

    def variables(self, buffer: Buffer) -> Iterator[Variable]:
        """Read the variables of a file that is mapped; of compressed ones only as much as their values follow."""
        at = _FILE_HEADER
        while at < len(buffer):
            tag = self.tag(buffer, at, len(buffer))
            if tag.kind == _COMPRESSED:
                head = next(inflated(self._path, tag.start, tag.n_bytes, _LONGEST_HEAD), b"")
                outer = self.tag(head, 0, _TAG + 0xFFFFFFFF)
                found = Variable(self.matrix(head, outer), tag.start, tag.n_bytes, outer.start + outer.n_bytes)
            else:
                found = Variable(self.matrix(buffer, tag), None, tag.n_bytes, len(buffer))
            if found.matrix.name:  # What describes functions and objects has no name.
                yield found
            at = tag.start + tag.n_bytes if tag.start == at + _TAG else tag.end


def inflated(path: Path, start: int, n_bytes: int, block: int = _INFLATED_BYTES) -> Iterator[bytes]:
    """Decompress bytes of a file in blocks of bounded length; their checksum is compared at the end."""
    machine = zlib.decompressobj()
    try:
        with path.open("rb") as file:
            file.seek(start)
            while not machine.eof:
                data = machine.unconsumed_tail
                if not data:
                    data = file.read(min(_INFLATED_BYTES, n_bytes))
                    n_bytes -= len(data)
                made = machine.decompress(data, block)
                if made:
                    yield made
                elif not data and not machine.eof:
                    raise StoreError(f"{path} is cut short: compressed values in it break off")
    except zlib.error as error:
        raise StoreError(f"{path} is damaged: compressed values in it: {error}") from None


_IS_VERSION_5 = begins_with(b"MATLAB 5.0 MAT-file")


def _values_in_stream(path: Path, variable: Variable, start: int, what: str) -> Iterator[memoryview]:
    """Numbers or characters of a compressed variable, in Fortran order."""
    left, right = variable.matrix.start, variable.matrix.start + variable.matrix.n_bytes
    place = 0
    for block in inflated(path, start, variable.n_bytes):
        yield memoryview(block)[max(0, left - place) : max(0, right - place)]
        place += len(block)
    if place != variable.length:
        raise StoreError(f"{what} is damaged: its header claims {variable.length} bytes, and it holds {place}")


def _characters(values: RowArray, matrix: Matrix) -> RowArray:
    """Rows of a character matrix, padded with blanks to one length; `values` are its codes, or their UTF-8."""

    def read(start: int, stop: int) -> NDArray[Any]:
        if matrix.is_utf8:
            text = values.whole().tobytes().decode("utf-8")
            if len(text) != matrix.size:
                raise StoreError(f"{matrix.name} of shape {matrix.shape} has {len(text)} characters")
            codes = np.frombuffer(text.encode("utf-32-le"), "<u4").reshape(matrix.shape, order="F")[start:stop]
        else:
            codes = values.read(start, stop)
        return text_rows([_text_of(row).rstrip() for row in codes], matrix.name)

    return ComputedRows(matrix.shape[:1], np.dtype(np.str_), read, of=values)


def _text_of(codes: NDArray[Any]) -> str:
    if codes.dtype.itemsize < 4:
        return text_of_units(codes)
    return codes.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _cells(path: Path, variable: Variable) -> RowArray:
    """A cell array of texts or of single whole numbers, which are read on first use."""
    cell = variable.matrix

    @cache
    def texts() -> NDArray[np.str_]:
        elements = Elements(path)
        with _values_of(path, variable) as buffer:
            found = [
                _text_of_cell(buffer, each, f"cell {row} of {cell.name}")
                for row, each in enumerate(elements.cells(buffer, cell))
            ]
        # Cells of several columns count row by row, as arrays do.
        order = np.arange(cell.size).reshape(cell.shape, order="F").ravel().tolist()
        return text_rows([found[at] for at in order], cell.name)

    return ComputedRows((cell.size,), np.dtype(np.str_), lambda start, stop: texts()[start:stop])


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
        return _cells(path, variable)
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
        what = f"{path}: {matrix.name}"
        stream = partial(_values_in_stream, path, variable, variable.start, what)
        values = SpooledRows(shape, matrix.dtype, (shape[0], 1), what, stream)
    return _characters(values, matrix) if is_text else values


def read_nested_cells(path: Path, name: str) -> list[list[NDArray[Any]]]:
    """Matrices of a cell array of cell arrays, as MATLAB numbers both; StoreError for another form."""
    if is_hdf5(path):
        return read_nested_version_7(path, name)
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
