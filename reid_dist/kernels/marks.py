"""Places that a vectorised comparison marks with a byte, found eight bytes at a time: nearly all are 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.arrays import filled
from reid_dist.kernels.instructions import write_out
from reid_dist.kernels.settings import inner_kernel, with_compiler

_WORD = 8


def _has_mark(marks: NDArray[np.uint8], start: int) -> bool:
    """Whether one of eight bytes is not 0."""
    return bool(marks[start : start + _WORD].any())


@with_compiler
def _compare_words() -> None:
    """Compile `_has_mark` to one comparison; a view of the array takes five times as long to compile."""
    from llvmlite import ir
    from numba import types

    word = ir.IntType(8 * _WORD)

    def code(builder: Any, marks: Any, start: Any) -> Any:
        place = builder.bitcast(builder.gep(marks.data, [start]), word.as_pointer())
        return builder.icmp_unsigned("!=", builder.load(place, align=1), word(0))

    write_out(_has_mark, lambda marks, start: types.boolean, code)


@inner_kernel
def make_marks(n: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Marks of `n` places, 0, in whole words, and memory for the places that `marked_places` finds."""
    length = (n + _WORD - 1) // _WORD * _WORD
    return filled(np.empty(length, np.uint8), 0), np.empty(length + 1, np.int64)


@inner_kernel
def marked_places(marks: NDArray[np.uint8], places: NDArray[np.int64]) -> int:
    """Write the places of the marks that are 1, ascending, to `places`, and return their number; others are 0."""
    n = 0
    for start in range(0, len(marks), _WORD):
        if _has_mark(marks, start):
            for place in range(start, start + _WORD):
                # Written always, kept if it counts: no branch.
                places[n] = place
                n += int(marks[place])
    return n
