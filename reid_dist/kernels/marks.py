"""Places that a vectorised comparison marks with a byte, found eight bytes at a time: nearly all are 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.arrays import filled
from reid_dist.kernels.settings import inner_kernel, with_compiler

_WORD = 8


def _has_mark(marks: NDArray[np.uint8], start: int) -> bool:
    """Whether one of eight bytes is not 0."""
    return bool(marks[start : start + _WORD].any())


@with_compiler
def _compare_words() -> None:
    """Compile `_has_mark` to one comparison."""
    from numba import extending, types
    from numba.np import arrayobj

    # Untyped.
    intrinsic: Any = extending.intrinsic
    overload: Any = extending.overload
    make_array: Any = arrayobj.make_array

    def word(_: Any, values: Any, place: Any) -> Any:
        """Eight bytes as one number; a view of the array takes five times as long to compile."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = make_array(signature.args[0])(context, builder, arguments[0])
            pointer = context.get_value_type(types.uint64).as_pointer()
            return builder.load(builder.bitcast(builder.gep(array.data, [arguments[1]]), pointer), align=1)

        return types.uint64(values, place), generate

    load_word = intrinsic(word)
    overload(_has_mark)(lambda marks, start: lambda marks, start: load_word(marks, start) != 0)


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
