"""Tiles of products, and their rows as screening values.

A tile holds products of prepared rows: of float32 or float64 numbers, or of eight-bit integers.  A row of it becomes
screening values, larger is nearer, in a buffer that stays in the first-level cache; all that follows is the same for
products of every kind.  Values in eight bits differ from those of exact products by up to a number per query, *extra*;
one that it leaves undecided is *refined*: residuals are added, and it is off by *fine* at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inlined_kernel, inner_kernel
from reid_dist.kernels.quantising import FINER

# Flags that are looked at together.
_WORD = 8

# Columns between a request of a row and its use.
AHEAD = 3

_SHARE = np.float32(1.0 / FINER)


class Tile(NamedTuple):
    """Products of some queries and some gallery rows of a block pair."""

    # Shape (rows, columns), C order, int32, float32 or float64.  A screening value is ``(product - shift[c]) *
    # (scale[c] * factor[i]) - bias[kind, c]``, in the type of `scale`.
    products: NDArray[np.number]
    # Shapes (columns,) and (rows,), the first in the type of the products.
    shift: NDArray[np.number]
    scale: NDArray[np.floating]
    factor: NDArray[np.floating]
    # How far a value may be from that of exact products, shape (rows,); 0 for products of floating-point rows, whose
    # errors the bands of thresholds contain.
    extra: NDArray[np.floating]
    # How much less than `extra` the values of a column are off at least, shape (columns,).
    spared: NDArray[np.floating]
    # The same of a value that residuals were added to, shape (rows,).
    fine: NDArray[np.floating]
    # Integers of the rows and then of the residuals of all queries of the block, shape (n_query, 2 dim), and of the
    # columns, (columns, 2 dim), int8; without rows if none is refined.
    near: NDArray[np.int8]
    far: NDArray[np.int8]
    # Shape (kinds, columns); ``inf`` hides a column.  The kind of each row, shape (rows,), int64.
    bias: NDArray[np.floating]
    bias_of: NDArray[np.int64]
    # Place in its block of the query of each row, shape (rows,), int64, and of the first column.
    query: NDArray[np.int64]
    column_start: int
    # Screening values of single pairs that are not those of products: ``known[known_indptr[q]:known_indptr[q + 1]]`` of
    # query ``q`` in the columns ``known_column - first_known`` of the block, ascending.  None where products hold them.
    known_indptr: NDArray[np.int64]
    known_column: NDArray[np.int64]
    known: NDArray[np.float64]
    first_known: int


@inlined_kernel
def read_row(
    products: NDArray[np.number],
    shift: NDArray[np.number],
    scale: NDArray[np.floating],
    factor: np.floating,
    less: NDArray[np.floating],
    level: np.floating,
    least: np.floating,
    values: NDArray[np.floating],
) -> int:
    """Write the screening values of a row; return how many reach a level, or do not exceed `least` (NaN for none).

    `less` are the biases of the row; the others are fields of its tile, of the row where they have rows.
    """
    number, floating = products.dtype.type, values.dtype.type
    reached = np.int32(0)
    for c in range(len(values)):
        value = floating(number(products[c] - shift[c])) * (scale[c] * factor) - less[c]
        values[c] = value
        # Numba widens a sum of int32 otherwise, and LLVM its vectors.
        reached = np.int32(reached + np.int32((value >= level) | (value <= least)))
    return int(reached)


@inlined_kernel
def refined(
    product: np.int32, near: NDArray[np.int8], row: int, far: NDArray[np.int8], column: int, scale: np.float32
) -> np.float32:
    """Product of two rows with residuals, from that of their integers and their scale; no bias is subtracted.

    `near` and `far` are the fields of a tile: parts of them would be counted as references.
    """
    crossed, dim = np.int32(0), near.shape[1] // 2
    for k in range(dim):
        one = np.int32(near[row, k]) * np.int32(far[column, dim + k])
        crossed = np.int32(crossed + np.int32(one + np.int32(near[row, dim + k]) * np.int32(far[column, k])))
    return np.float32((np.float32(product) + np.float32(crossed) * _SHARE) * scale)


class Marks(NamedTuple):
    """Memory for the places of a row where a comparison holds."""

    # One byte per place, 0 or 1, and the same memory eight at a time.
    flags: NDArray[np.uint8]
    words: NDArray[np.uint64]
    # Places, with room for one more, int64.
    places: NDArray[np.int64]


@inner_kernel
def make_marks(n: int) -> Marks:
    """Allocate marks for rows of `n` values."""
    words = np.zeros(-(-n // (4 * _WORD)) * 4, np.uint64)
    return Marks(words.view(np.uint8), words, np.empty(n + 1, np.int64))


@inlined_kernel
def marked_places(marks: Marks) -> int:
    """Write the places whose flags are set, ascending, to `places`; return their number."""
    n, words = 0, marks.words
    # Most words are 0: four are looked at together.
    for group in range(0, len(words), 4):
        if words[group] | words[group + 1] | words[group + 2] | words[group + 3]:
            for word in range(group, group + 4):
                if words[word]:
                    for place in range(word * _WORD, word * _WORD + _WORD):
                        marks.places[n] = place
                        n += marks.flags[place]
    return n


@inlined_kernel
def mark_outside(values: NDArray[np.floating], level: np.floating, least: np.floating, marks: Marks) -> None:
    """Set the flags of the values that reach a level or do not exceed `least`, and clear the others."""
    flags = marks.flags
    for c in range(len(values)):
        flags[c] = np.uint8((values[c] >= level) | (values[c] <= least))
