"""Rows of eight-bit integers as columns."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

# Rows that are written together: a cache line of each column.
_LINE: Final = 64


def transpose_integers(integers: NDArray[np.int8], columns: NDArray[np.int8]) -> None:
    """Write rows, shape (n, dim), as columns, shape (dim, n)."""
    for start in range(0, len(integers), _LINE):
        columns[:, start : start + _LINE] = integers[start : start + _LINE].T
