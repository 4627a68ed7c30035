"""LLVM's instructions for the comparisons of `reid_dist.kernels.marks`.

Bits of lower places come first in memory: the processors that Numba serves are little-endian.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from llvmlite import ir
from numba import types

from reid_dist.kernels.instructions import ArrayOperand, Variable, loop, opaque, write_out

_types: Any = types

# Places that are compared together: one vector of float32 of the widest processors.
_LANES: Final = 16
_GROUP: Final = ir.IntType(_LANES)
_I32: Final = ir.IntType(32)
_I64: Final = ir.IntType(64)


def reaches(builder: Any, *pairs: tuple[Any, Any]) -> Any:
    """Whether the first number of one of some pairs is at least the second."""
    found = [builder.fcmp_ordered(">=", one, other) for one, other in pairs]
    passes = found[0]
    for each in found[1:]:
        passes = builder.or_(passes, each)
    return passes


Compare = Callable[[Any, Sequence[Any]], Any]
"""Truth values of a comparison, from LLVM's builder and its arguments: vectors, or numbers for a single place."""


def write_out_marks(function: Callable[..., object], compare: Compare) -> None:
    """Give a function its code, which marks where a comparison holds.

    Its arguments are arrays and numbers of the same comparison, in any order, and the marks.
    """

    def code(builder: Any, *arguments: Any) -> None:
        *given, marks = arguments
        groups = marks._replace(data=opaque(builder, marks.data), element=_GROUP)
        last = Variable(builder, _GROUP(0))

        def of_group(values: Sequence[Any], number: Any) -> None:
            found = builder.bitcast(compare(builder, values), _GROUP)
            builder.store(found, groups.address(builder, number), align=2)

        def of_one(values: Sequence[Any], number: Any) -> None:
            bit = builder.shl(builder.zext(compare(builder, values), _GROUP), builder.trunc(number, _GROUP))
            last.set(builder.or_(last.get(), bit))

        n_groups, rest = _for_all(builder, given, of_group, of_one)
        with builder.if_then(builder.icmp_unsigned("!=", rest, rest.type(0)), likely=False):
            builder.store(last.get(), groups.address(builder, n_groups), align=2)

    def no_result(*_: Any) -> Any:
        return _types.none

    # Numba passes as many arguments as the signature has.
    vars(no_result)["__signature__"] = inspect.signature(function)
    write_out(function, no_result, code)


def write_out_counts(function: Callable[..., object], result: Callable[..., Any], compares: Sequence[Compare]) -> None:
    """Give a function its code, which counts where each of some comparisons of its arguments holds.

    `result` is as in `write_out`.  Bits are counted: vectors of counts would take an operation more.
    """

    def code(builder: Any, *given: Any) -> Any:
        counts = [Variable(builder, _I64(0)) for _ in compares]

        def add(bits: Any, count: Variable) -> None:
            count.set(builder.add(count.get(), builder.zext(bits, _I64)))

        def of_group(values: Sequence[Any], _: Any) -> None:
            for compare, count in zip(compares, counts, strict=True):
                add(builder.ctpop(builder.bitcast(compare(builder, values), _GROUP)), count)

        def of_one(values: Sequence[Any], _: Any) -> None:
            for compare, count in zip(compares, counts, strict=True):
                add(compare(builder, values), count)

        _for_all(builder, given, of_group, of_one)
        return tuple(count.get() for count in counts)

    write_out(function, result, code)


def _for_all(
    builder: Any,
    given: Sequence[Any],
    of_group: Callable[[Sequence[Any], Any], None],
    of_one: Callable[[Sequence[Any], Any], None],
) -> tuple[Any, Any]:
    """Append code for all elements of some arrays: groups of lanes and their numbers, then the rest one by one.

    Both receive the values of all that is given, numbers as they are.  Returns the number of groups, and of the rest.
    """
    # Numbers are LLVM's values.
    is_array = [isinstance(each, ArrayOperand) for each in given]
    dim = next(each for each in given if isinstance(each, ArrayOperand)).shape[0]
    n = dim.type(_LANES)
    n_groups = builder.udiv(dim, n)
    whole = builder.mul(n_groups, n)
    rest = builder.sub(dim, whole)
    vectors = [None if array else _spread(builder, each) for array, each in zip(is_array, given, strict=True)]
    with loop(builder, n_groups) as number:
        start = builder.mul(number, n)
        values = [
            vector if vector is not None else _loaded(builder, each, start)
            for vector, each in zip(vectors, given, strict=True)
        ]
        of_group(values, number)
    with loop(builder, rest) as number:
        place = builder.add(whole, number)
        values = [
            builder.load(each.address(builder, place), typ=each.element) if array else each
            for array, each in zip(is_array, given, strict=True)
        ]
        of_one(values, number)
    return n_groups, rest


def _spread(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    kind = ir.VectorType(number.type, _LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _I32(0))
    return builder.shuffle_vector(
        one, ir.Constant(kind, ir.Undefined), ir.Constant(ir.VectorType(_I32, _LANES), [0] * _LANES)
    )


def _loaded(builder: Any, array: ArrayOperand, start: Any) -> Any:
    """Some elements of an array; rows may begin at any element."""
    return builder.load(array.address(builder, start), align=4, typ=ir.VectorType(array.element, _LANES))
