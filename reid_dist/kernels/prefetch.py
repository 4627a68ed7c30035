"""Requests of memory that is read soon: a kernel that reads rows at random places would wait for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.instructions import write_out
from reid_dist.kernels.settings import inlined_kernel, with_compiler

LINE = 64
"""Bytes that one request brings, on nearly all processors."""

# Lines of a row of floating-point numbers that are requested: the processor itself requests those that follow.
_FIRST_LINES = 4

_READ, _KEEP, _DATA = 0, 3, 1


def prefetch(values: NDArray[np.generic], place: int) -> None:
    """Request the cache line of an element of a C-ordered array, by its place among all elements."""


@inlined_kernel
def request_row(rows: NDArray[np.number], row: int) -> None:
    """Request the first cache lines of a row, at most; beyond the end of all rows, a request does nothing."""
    for line in range(_FIRST_LINES):
        prefetch(rows, row * rows.shape[1] + line * (LINE // rows.itemsize))


@inlined_kernel
def request_integers(rows: NDArray[np.int8], row: int) -> None:
    """Request all cache lines of a row."""
    for place in range(0, rows.shape[1], LINE):
        prefetch(rows, row * rows.shape[1] + place)


@with_compiler
def _request_lines() -> None:
    """Compile `prefetch` to LLVM's request of a cache line, which changes no memory and fails nowhere."""
    from llvmlite import ir
    from numba import types

    number, pointer = ir.IntType(32), ir.PointerType()
    kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])

    def code(builder: Any, values: Any, place: Any) -> None:
        request = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        builder.call(request, [values.address(builder, place), number(_READ), number(_KEEP), number(_DATA)])

    write_out(prefetch, lambda values, place: types.none, code)
