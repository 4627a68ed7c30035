"""LLVM's instructions for the comparisons of `reid_dist.kernels.marks`.

Bits of lower places come first in memory: the processors that Numba serves are little-endian.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped

from reid_dist.kernels.instructions import write_out

_cgutils: Any = untyped
_types: Any = types

# Places that are compared together: one vector of float32 of the widest processors.
_LANES: Final = 16
_GROUP: Final = ir.IntType(_LANES)
_I32: Final = ir.IntType(32)


def reaches(builder: Any, *pairs: tuple[Any, Any]) -> Any:
    """Whether the first number of one of some pairs is at least the second."""
    found = [builder.fcmp_ordered(">=", one, other) for one, other in pairs]
    passes = found[0]
    for each in found[1:]:
        passes = builder.or_(passes, each)
    return passes


def write_out_marks(function: Callable[..., object], compare: Callable[[Any, Sequence[Any]], Any]) -> None:
    """Give a function its code, which marks where a comparison holds.

    Its arguments are arrays and numbers of the same comparison, in any order, and the marks.  `compare` returns truth
    values, from LLVM's builder and these arguments: vectors, or numbers for a single place.
    """

    def code(builder: Any, *arguments: Any) -> None:
        *given, marks = arguments
        # Numba's structures of arrays have data, numbers are LLVM's values.
        is_array = [hasattr(each, "data") for each in given]
        dim = _cgutils.unpack_tuple(builder, next(each for each in given if hasattr(each, "data")).shape)[0]
        groups = builder.bitcast(marks.data, _GROUP.as_pointer())
        n = dim.type(_LANES)
        n_groups = builder.udiv(dim, n)
        whole = builder.mul(n_groups, n)
        vectors = [None if array else _spread(builder, each) for array, each in zip(is_array, given, strict=True)]
        with _cgutils.for_range(builder, n_groups) as loop:
            start = builder.mul(loop.index, n)
            values = [
                vector if vector is not None else _loaded(builder, each.data, start)
                for vector, each in zip(vectors, given, strict=True)
            ]
            builder.store(builder.bitcast(compare(builder, values), _GROUP), builder.gep(groups, [loop.index]), align=2)
        with builder.if_then(builder.icmp_unsigned("!=", whole, dim), likely=False):
            last = _cgutils.alloca_once_value(builder, _GROUP(0))
            builder.store(_GROUP(0), last)
            with _cgutils.for_range(builder, builder.sub(dim, whole)) as loop:
                place = builder.add(whole, loop.index)
                values = [
                    builder.load(builder.gep(each.data, [place])) if array else each
                    for array, each in zip(is_array, given, strict=True)
                ]
                bit = builder.shl(builder.zext(compare(builder, values), _GROUP), builder.trunc(loop.index, _GROUP))
                builder.store(builder.or_(builder.load(last), bit), last)
            builder.store(builder.load(last), builder.gep(groups, [n_groups]), align=2)

    def no_result(*_: Any) -> Any:
        return _types.none

    # Numba passes as many arguments as the signature has.
    vars(no_result)["__signature__"] = inspect.signature(function)
    write_out(function, no_result, code)


def _spread(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    kind = ir.VectorType(number.type, _LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _I32(0))
    return builder.shuffle_vector(
        one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(_I32, _LANES), [0] * _LANES)
    )


def _loaded(builder: Any, data: Any, start: Any) -> Any:
    """Some elements of an array; rows may begin at any element."""
    kind = ir.VectorType(data.type.pointee, _LANES)
    return builder.load(builder.bitcast(builder.gep(data, [start]), kind.as_pointer()), align=4)
