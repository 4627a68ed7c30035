"""Sums of the products of rows, in one definite order.

Element ``i`` goes to lane ``i mod 32``, each lane adds its terms in ascending order, and the lanes are folded in halves
(0 with 16, 1 with 17, …; then 0 with 8, …).  Every operation is rounded as IEEE 754 has it, on any processor.

The lanes are an array of fixed size on the stack: where no index of it is known at run time alone, LLVM keeps it in
vector registers.  Elements of rows are reached through pointers: references to arrays are counted, which takes as long
as a short sum.  Numba defines both for extensions alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inlined_kernel, with_compiler

LANES: Final = 32
"""Partial sums, a power of two."""

# Elements of one turn of the loop.  With one of each lane, LLVM would write out the loop over the lanes before it looks
# for vectors.
_TURN: Final = 2 * LANES

Number = type[np.float32] | type[np.float64]
Row = NDArray[np.float32]


@inlined_kernel
def dot(x: Row, y: Row) -> float:
    """Product of two rows, shape (dim,), C order, in float64."""
    return _sum_of(_product, np.float64, _elements(x), _elements(y), len(x))


@inlined_kernel
def single_dot(x: Row, y: Row) -> float:
    """Product of two rows, shape (dim,), C order, in float32."""
    return _sum_of(_product, np.float32, _elements(x), _elements(y), len(x))


@inlined_kernel
def squared_difference(x: Row, y: Row) -> float:
    """Sum of the squared differences of two rows, shape (dim,), C order, in float64."""
    return _sum_of(_squared_difference, np.float64, _elements(x), _elements(y), len(x))


@inlined_kernel
def _product(x: Any, y: Any) -> Any:
    return x * y


@inlined_kernel
def _squared_difference(x: Any, y: Any) -> Any:
    return (x - y) * (x - y)


@inlined_kernel
def _sum_of(term: Callable[[Any, Any], Any], number: Number, x: Row, y: Row, dim: int) -> float:
    """Sum of the terms of two rows, element by element, each converted to `number`."""
    lanes = _zeros(number)
    n_turns = dim // _TURN
    for turn in range(n_turns):
        i, j = turn * _TURN, turn * _TURN + LANES
        for k in range(LANES):
            lanes[k] = (lanes[k] + term(number(x[i + k]), number(y[i + k]))) + term(number(x[j + k]), number(y[j + k]))
    if n_turns * _TURN < dim:
        # Lanes that are chosen at run time stay in memory: these are others.
        ends = _zeros(number)
        for k in range(LANES):
            ends[k] = lanes[k]
        for i in range(n_turns * _TURN, dim):
            ends[i % LANES] += term(number(x[i]), number(y[i]))
        for k in range(LANES):
            lanes[k] = ends[k]
    for k in range(16):
        lanes[k] += lanes[k + 16]
    for k in range(8):
        lanes[k] += lanes[k + 8]
    for k in range(4):
        lanes[k] += lanes[k + 4]
    return float((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))


def _zeros(number: Number) -> NDArray[Any]:
    """Lanes of 0."""
    return np.zeros(LANES, number)


def _elements(row: Row) -> Row:
    """Elements of a row by their places, from 0 on."""
    return row


@with_compiler
def _define() -> None:
    """Compile `_zeros` to an array on the stack, and `_elements` to the pointer that an array holds."""
    from llvmlite import ir
    from numba import extending, types

    # Untyped.
    compile_as: Any = extending.lower_builtin
    type_as: Any = extending.type_callable
    array: Any = types.Array
    number_class: Any = types.NumberClass
    pointer: Any = types.CPointer

    def on_the_stack(context: Any, builder: Any, signature: Any, _: Any) -> Any:
        kind = ir.ArrayType(context.get_value_type(signature.return_type.dtype), LANES)
        # Once for all calls within a kernel.
        with builder.goto_entry_block():
            place = builder.alloca(kind)
        builder.store(kind(None), place)
        return builder.bitcast(place, context.get_value_type(signature.return_type))

    def pointer_of(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.args[0].layout != "C":
            raise TypeError(f"sums read rows in C order, not {signature.args[0]}")
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    type_as(_zeros)(lambda _: lambda number: pointer(number.dtype))
    type_as(_elements)(lambda _: lambda row: pointer(row.dtype))
    compile_as(_zeros, number_class)(on_the_stack)
    compile_as(_elements, array)(pointer_of)
