"""Rows of eight-bit integers as columns."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

# Rows that are written together: a cache line of each column.
_LINE: Final = 64


def transpose_integers(integers: NDArray[np.int8], columns: NDArray[np.int8]) -> None:
    """Write rows, shape (n, dim), as columns, shape (dim, n)."""
    n, dim = integers.shape
    # Rows at a distance of a power of two would share few lines of the nearest cache.
    part = np.empty((_LINE, dim + _LINE), np.int8)[:, :dim]
    for start in range(0, n, _LINE):
        stop = min(start + _LINE, n)
        part[: stop - start] = integers[start:stop]
        columns[:, start:stop] = part[: stop - start].T
