"""Requests of memory that is read soon: a kernel that reads rows at random places would wait for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.instructions import write_out
from reid_dist.kernels.settings import inner_kernel, with_compiler

LINE = 64
"""Bytes that one request brings, on nearly all processors."""

# Lines of a row that are requested: the processor itself requests those that follow lines in use.
_FIRST_LINES = 4

_READ, _KEEP, _DATA = 0, 3, 1


def prefetch(values: NDArray[np.generic], place: int) -> None:
    """Request the cache line of an element of a C-ordered array, by its place among all elements."""


@inner_kernel
def request_row(row: NDArray[np.float32]) -> None:
    """Request the first cache lines of a row, at most; beyond its end, a request does nothing."""
    for line in range(_FIRST_LINES):
        prefetch(row, line * (LINE // 4))


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
