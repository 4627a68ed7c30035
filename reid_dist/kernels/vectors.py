"""Sums of the products of rows, in one definite order, in vector instructions that are written out.

Element ``i`` goes to lane ``i mod 32``, each lane adds its terms in ascending order, and the lanes are folded in halves
(0 with 16, 1 with 17, …; then 0 with 8, …).  The lanes are one vector, whose operations are those of its elements, each
rounded as IEEE 754 has it, on any processor.

LLVM finds vector instructions in loops as well, but looks for them in each kernel that a loop becomes a part of, and
keeps lanes that are an array in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import with_compiler

LANES: Final = 32
"""Partial sums, a power of two."""


def _summed(terms: NDArray[np.floating]) -> float:
    """Sum of terms in the order of this module, in their type."""
    lanes = np.zeros(LANES, terms.dtype)
    for start in range(0, len(terms), LANES):
        part = terms[start : start + LANES]
        lanes[: len(part)] += part
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return float(lanes[0])


def dot(x: NDArray[np.float32], y: NDArray[np.float32]) -> float:
    """Product of two rows, shape (dim,), in float64."""
    return _summed(x.astype(np.float64) * y)


def two_dots(x: NDArray[np.float32], y: NDArray[np.float32], z: NDArray[np.float32]) -> tuple[float, float]:
    """Products of a row with two others, those of `dot`; two rows are loaded at the same time."""
    return dot(x, y), dot(x, z)


def single_dot(x: NDArray[np.float32], y: NDArray[np.float32]) -> float:
    """Product of two rows, shape (dim,), in float32."""
    return _summed(x * y)


def two_single_dots(x: NDArray[np.float32], y: NDArray[np.float32], z: NDArray[np.float32]) -> tuple[float, float]:
    """Products of a row with two others, those of `single_dot`."""
    return single_dot(x, y), single_dot(x, z)


def squared_difference(x: NDArray[np.float32], y: NDArray[np.float32]) -> float:
    """Sum of the squared differences of two rows, shape (dim,), in float64."""
    difference = x.astype(np.float64) - y
    return _summed(difference * difference)


@with_compiler
def _write_out() -> None:
    from numba import types

    from reid_dist.kernels.vector_code import DOUBLE, SINGLE, write_out_sums

    # Untyped.
    two: Any = types.UniTuple
    number, numbers = types.float64, two(types.float64, 2)

    def products(builder: Any, rows: Sequence[Any]) -> list[Any]:
        return [builder.fmul(rows[0], other) for other in rows[1:]]

    def squares(builder: Any, rows: Sequence[Any]) -> list[Any]:
        difference = builder.fsub(*rows)
        return [builder.fmul(difference, difference)]

    write_out_sums(dot, lambda x, y: number, DOUBLE, products, run=LANES, n_sums=1)
    write_out_sums(two_dots, lambda x, y, z: numbers, DOUBLE, products, run=LANES, n_sums=2)
    write_out_sums(single_dot, lambda x, y: number, SINGLE, products, run=LANES, n_sums=1)
    write_out_sums(two_single_dots, lambda x, y, z: numbers, SINGLE, products, run=LANES, n_sums=2)
    write_out_sums(squared_difference, lambda x, y: number, DOUBLE, squares, run=LANES, n_sums=1)
