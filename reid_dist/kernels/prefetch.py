"""Requests of memory that is read soon: a kernel that reads rows at random places would wait for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import with_compiler

LINE = 64
"""Bytes that one request brings, on nearly all processors."""

_READ, _KEEP, _DATA = 0, 3, 1


def prefetch(values: NDArray[np.generic], place: int) -> None:
    """Request the cache line of an element of a C-ordered array, by its place among all elements."""


@with_compiler
def _request_lines() -> None:
    """Compile `prefetch` to LLVM's request of a cache line, which changes no memory and fails nowhere."""
    from llvmlite import ir
    from numba import extending, types
    from numba.np import arrayobj

    # Untyped.
    intrinsic: Any = extending.intrinsic
    overload: Any = extending.overload
    make_array: Any = arrayobj.make_array

    def request(_: Any, values: Any, place: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = make_array(signature.args[0])(context, builder, arguments[0])
            number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
            declared = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
            address = builder.bitcast(builder.gep(array.data, [arguments[1]]), pointer)
            builder.call(declared, [address, number(_READ), number(_KEEP), number(_DATA)])
            return context.get_dummy_value()

        return types.void(values, place), generate

    requested = intrinsic(request)
    overload(prefetch)(lambda values, place: lambda values, place: requested(values, place))
