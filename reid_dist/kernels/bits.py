"""Bits of float64 numbers, as integers and in arrays of float32: views compile through functions of NumPy's dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.instructions import write_out
from reid_dist.kernels.settings import with_compiler


def bits_of(number: float) -> int:
    """Bits of a float64 as those of an int64."""
    return int(np.float64(number).view(np.int64))


def from_bits(bits: int) -> float:
    """The float64 of some bits."""
    return float(np.int64(bits).view(np.float64))


def float64_at(values: NDArray[np.float32], place: int) -> float:
    """Element of a row of float64 that is given as float32, shape (2 n,), C order; `place` is from 0 to n - 1."""
    return float(values.view(np.float64)[place])


@with_compiler
def _write_out() -> None:
    from llvmlite import ir
    from numba import types

    integer, double = ir.IntType(64), ir.DoubleType()

    def at(builder: Any, values: Any, place: Any) -> Any:
        return builder.load(builder.gep(builder.bitcast(values.data, double.as_pointer()), [place]), align=4)

    write_out(bits_of, lambda number: types.int64, lambda builder, number: builder.bitcast(number, integer))
    write_out(from_bits, lambda bits: types.float64, lambda builder, bits: builder.bitcast(bits, double))
    write_out(float64_at, lambda values, place: types.float64, at)
