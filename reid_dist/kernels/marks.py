"""Places of a tile's row where a comparison holds: one bit each, set sixteen at a time, and read 64 at a time.

Nearly all bits are 0.  The comparisons are written out in vector instructions (`reid_dist.kernels.mark_code`): LLVM
finds these in loops as well, but then checks at every call that none of a dozen arrays overlap, and sets a byte each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.arrays import filled
from reid_dist.kernels.instructions import write_out
from reid_dist.kernels.settings import inner_kernel, with_compiler

_WORD: Final = 64

Values = NDArray[np.floating]
Marks = NDArray[np.uint64]


@inner_kernel
def make_marks(n: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Marks of `n` places, all 0, and memory for the places that `marked_places` finds."""
    return filled(np.empty((n + _WORD - 1) // _WORD, np.uint64), 0), np.empty(n + 1, np.int64)


def _lowest_bit(word: np.uint64) -> int:
    """Place of the lowest bit that is 1, of a word that has one."""
    number = int(word)
    return (number & -number).bit_length() - 1


@inner_kernel
def marked_places(marks: Marks, places: NDArray[np.int64]) -> int:
    """Write the places that are marked, ascending, to `places`, and return their number."""
    n = 0
    for number in range(len(marks)):
        word = marks[number]
        while word != 0:
            places[n] = number * _WORD + _lowest_bit(word)
            n += 1
            word &= word - np.uint64(1)
    return n


def _mark(passes: NDArray[np.bool_], marks: Marks) -> None:
    found = np.packbits(passes, bitorder="little")
    marks.view(np.uint8)[: len(found)] = found


def mark_values(values: Values, bias: Values, level: np.floating, lower_bound: np.floating, marks: Marks) -> None:
    """Mark values less a bias that reach a level, or that do not exceed a lower bound.

    Arrays have shape (n,), and marks as many places; all numbers have the type of the values.
    """
    mine = values - bias
    _mark((mine >= level) | (mine <= lower_bound), marks)


def mark_values_of_both(
    values: Values,
    bias: Values,
    level: np.floating,
    lower_bound: np.floating,
    own: np.floating,
    column_level: Values,
    column_lower_bound: Values,
    marks: Marks,
) -> None:
    """Do as `mark_values` does; values less another bias, `own`, are compared with the thresholds of columns."""
    mine, theirs = values - bias, values - own
    passes = (mine >= level) | (mine <= lower_bound)
    _mark(passes | (theirs >= column_level) | (theirs <= column_lower_bound), marks)


def mark_products(
    products: NDArray[np.int32],
    shift: NDArray[np.int32],
    scale: Values,
    span: Values,
    residual: Values,
    factor: np.floating,
    spread: np.floating,
    length: np.floating,
    bias: Values,
    level: np.floating,
    lower_bound: np.floating,
    marks: Marks,
) -> None:
    """Mark products of integers whose upper end reaches a level, or whose lower end does not exceed a lower bound.

    The ends lie around ``(products - shift) * (scale * factor)``, ``spread * span + length * residual`` away, and are
    less a bias.  Arrays have shape (n,), and marks as many places; numbers are float32, but for the integers.
    """
    value = (products - shift).astype(np.float32) * (scale * factor)
    error = spread * span + length * residual
    _mark((value + error - bias >= level) | (value - error - bias <= lower_bound), marks)


def mark_products_of_both(
    products: NDArray[np.int32],
    shift: NDArray[np.int32],
    scale: Values,
    span: Values,
    residual: Values,
    factor: np.floating,
    spread: np.floating,
    length: np.floating,
    bias: Values,
    level: np.floating,
    lower_bound: np.floating,
    own: np.floating,
    column_level: Values,
    column_lower_bound: Values,
    marks: Marks,
) -> None:
    """Do as `mark_products` does; ends less another bias, `own`, are compared with the thresholds of columns."""
    value = (products - shift).astype(np.float32) * (scale * factor)
    error = spread * span + length * residual
    upper, lower = value + error, value - error
    passes = (upper - bias >= level) | (lower - bias <= lower_bound)
    _mark(passes | (upper - own >= column_level) | (lower - own <= column_lower_bound), marks)


def mark_between(values: Values, lower: np.floating, upper: np.floating, marks: Marks) -> None:
    """Mark values that are at least `lower` and do not exceed `upper`."""
    _mark((values >= lower) & (values <= upper), marks)


def reached_and_passed(values: Values, lower: np.floating, upper: np.floating) -> tuple[int, int]:
    """Numbers of the values, shape (n,), that are at least `lower`, and that are above `upper`."""
    return int((values >= lower).sum()), int((values > upper).sum())


@with_compiler
def _write_out() -> None:
    from llvmlite import ir
    from numba import types

    from reid_dist.kernels.mark_code import reaches, write_out_counts, write_out_marks

    # Untyped.
    two: Any = types.UniTuple
    numbers = two(types.int64, 2)

    def lowest_bit(builder: Any, word: Any) -> Any:
        return builder.cttz(word, ir.IntType(1)(1))

    def of_values(builder: Any, given: Sequence[Any]) -> Any:
        values, bias, level, lower_bound = given
        mine = builder.fsub(values, bias)
        return reaches(builder, (mine, level), (lower_bound, mine))

    def of_both(builder: Any, given: Sequence[Any]) -> Any:
        values, bias, level, lower_bound, own, column_level, column_lower_bound = given
        mine, theirs = builder.fsub(values, bias), builder.fsub(values, own)
        return reaches(
            builder, (mine, level), (lower_bound, mine), (theirs, column_level), (column_lower_bound, theirs)
        )

    def between(builder: Any, given: Sequence[Any]) -> Any:
        values, lower, upper = given
        return builder.and_(builder.fcmp_ordered(">=", values, lower), builder.fcmp_ordered("<=", values, upper))

    def ends(builder: Any, given: Sequence[Any]) -> tuple[Any, Any]:
        products, shift, scale, span, residual, factor, spread, length = given
        value = builder.fmul(builder.sitofp(builder.sub(products, shift), scale.type), builder.fmul(scale, factor))
        error = builder.fadd(builder.fmul(spread, span), builder.fmul(length, residual))
        return builder.fadd(value, error), builder.fsub(value, error)

    def of_products(builder: Any, given: Sequence[Any]) -> Any:
        upper, lower = ends(builder, given[:8])
        bias, level, lower_bound = given[8:]
        return reaches(builder, (builder.fsub(upper, bias), level), (lower_bound, builder.fsub(lower, bias)))

    def of_products_of_both(builder: Any, given: Sequence[Any]) -> Any:
        upper, lower = ends(builder, given[:8])
        bias, level, lower_bound, own, column_level, column_lower_bound = given[8:]
        return reaches(
            builder,
            (builder.fsub(upper, bias), level),
            (lower_bound, builder.fsub(lower, bias)),
            (builder.fsub(upper, own), column_level),
            (column_lower_bound, builder.fsub(lower, own)),
        )

    write_out(_lowest_bit, lambda word: types.int64, lowest_bit)
    write_out_marks(mark_values, of_values)
    write_out_marks(mark_values_of_both, of_both)
    write_out_marks(mark_between, between)
    write_out_marks(mark_products, of_products)
    write_out_marks(mark_products_of_both, of_products_of_both)
    write_out_counts(
        reached_and_passed,
        lambda values, lower, upper: numbers,
        [
            lambda builder, given: builder.fcmp_ordered(">=", given[0], given[1]),
            lambda builder, given: builder.fcmp_ordered(">", given[0], given[2]),
        ],
    )
