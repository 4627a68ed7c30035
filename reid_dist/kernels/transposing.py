"""Rows of eight-bit integers as columns, in squares of vector instructions that are written out."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.instructions import write_out
from reid_dist.kernels.settings import kernel, with_compiler

_SIDE: Final = 16
# Elements of a row that are read one after the other.
_LINE: Final = 64


def transpose_square(
    source: NDArray[np.int8], begin: int, stride: int, target: NDArray[np.int8], place: int, width: int
) -> None:
    """Transpose 16 x 16 elements.

    `begin` and `stride` are the first of the elements and the distance of two rows in the memory of `source`, `place`
    and `width` the same in `target`; both are in C order.
    """
    given, into = source.reshape(-1), target.reshape(-1)
    for k in range(_SIDE):
        last = begin + k + (_SIDE - 1) * stride
        into[place + k * width : place + k * width + _SIDE] = given[begin + k : last + 1 : stride]


@kernel
def transpose_integers(integers: NDArray[np.int8], columns: NDArray[np.int8]) -> None:
    """Write rows, shape (n, dim), as columns, shape (dim, n)."""
    n, dim = integers.shape
    whole_rows, whole = n // _SIDE * _SIDE, dim // _SIDE * _SIDE
    for first in range(0, whole, _LINE):
        last = min(first + _LINE, whole)
        for i in range(0, whole_rows, _SIDE):
            for k in range(first, last, _SIDE):
                transpose_square(integers, i * dim + k, dim, columns, k * n + i, n)
    for i in range(n):
        row = integers[i]
        for k in range(whole if i < whole_rows else 0, dim):
            columns[k, i] = row[k]


@with_compiler
def _write_out() -> None:
    from llvmlite import ir
    from numba import types

    byte, place_type = ir.IntType(8), ir.IntType(32)
    vector = ir.VectorType(byte, _SIDE)

    def mask(first: int) -> Any:
        """Elements of two vectors in turn, from one on."""
        places = [first + step // 2 + _SIDE * (step % 2) for step in range(_SIDE)]
        return ir.Constant(ir.VectorType(place_type, _SIDE), places)

    def at(builder: Any, array: Any, place: Any) -> Any:
        return builder.bitcast(builder.gep(array.data, [place]), vector.as_pointer())

    def code(builder: Any, source: Any, begin: Any, stride: Any, target: Any, place: Any, width: Any) -> None:
        def places(first: Any, step: Any) -> list[Any]:
            found = [first]
            for _ in range(_SIDE - 1):
                found.append(builder.add(found[-1], step))
            return found

        rows = [builder.load(at(builder, source, one), align=1) for one in places(begin, stride)]
        half = _SIDE // 2
        # Rows that lie half of all rows apart, element by element in turn: after four times, rows are columns.
        for _ in range(4):
            pairs = [*zip(rows[:half], rows[half:], strict=True)]
            rows = [builder.shuffle_vector(*pair, mask(first)) for pair in pairs for first in (0, half)]
        for row, one in zip(rows, places(place, width), strict=True):
            builder.store(row, at(builder, target, one), align=1)

    write_out(transpose_square, lambda source, begin, stride, target, place, width: types.none, code)
