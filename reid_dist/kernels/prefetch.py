"""Requests of memory that is read soon: a kernel that reads rows at random places would wait for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inlined_kernel, with_compiler

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
def _define() -> None:
    """Compile `prefetch` to LLVM's request of a cache line, which changes no memory and fails nowhere."""
    from llvmlite import ir
    from numba import extending, types

    # Untyped.
    array: Any = types.Array
    compile_as: Any = extending.lower_builtin
    type_as: Any = extending.type_callable
    number, pointer = ir.IntType(32), ir.PointerType()
    function = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])

    def request(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        first = context.make_array(kind)(context, builder, arguments[0]).data
        address = builder.gep(first, [arguments[1]], source_etype=context.get_data_type(kind.dtype))
        declared = builder.module.declare_intrinsic("llvm.prefetch", [pointer], function)
        builder.call(declared, [address, number(_READ), number(_KEEP), number(_DATA)])
        return context.get_dummy_value()

    type_as(prefetch)(lambda _: lambda values, place: types.none)
    compile_as(prefetch, array, types.Integer)(request)
