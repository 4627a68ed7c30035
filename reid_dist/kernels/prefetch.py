"""Requests of memory that is read soon: a kernel that reads rows at random places would wait for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.np import arrayobj
from numpy.typing import NDArray

# Untyped.
_intrinsic: Any = extending.intrinsic
_overload: Any = extending.overload
_make_array: Any = arrayobj.make_array

LINE = 64
"""Bytes that one request brings, on nearly all processors."""

_READ, _KEEP, _DATA = 0, 3, 1


def _request(_: Any, values: Any, place: Any) -> Any:
    """LLVM's request of the cache line of an element, which changes no memory and fails nowhere."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = _make_array(signature.args[0])(context, builder, arguments[0])
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        request = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), pointer)
        builder.call(request, [address, number(_READ), number(_KEEP), number(_DATA)])
        return context.get_dummy_value()

    return types.void(values, place), generate


_prefetch: Any = _intrinsic(_request)


def prefetch(values: NDArray[np.generic], place: int) -> None:
    """Request the cache line of an element of a C-ordered array, by its place among all elements."""


# The same, compiled.
_overload(prefetch)(lambda values, place: lambda values, place: _prefetch(values, place))
