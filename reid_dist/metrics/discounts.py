"""Discounts of ranks, 1 / log2(r + 1), the same bits on every machine.

Logarithms of NumPy and of C libraries differ between processors in the last bit.  Those of `decimal` are correctly
rounded, and take some microseconds each: every rank is computed once a process.
"""

from __future__ import annotations

import decimal
import functools
from typing import Final

import numpy as np
from numpy.typing import NDArray

# More digits than a double has, so that the quotient is rounded once.
_CONTEXT: Final = decimal.Context(prec=40)


def discounts(ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Discounts of ranks from 1, shape (n,)."""
    distinct, place = np.unique(ranks, return_inverse=True)
    return np.array([_discount(rank) for rank in distinct.tolist()], np.float64)[place]


@functools.lru_cache(maxsize=1 << 16)
def _discount(rank: int) -> float:
    return float(_CONTEXT.divide(_CONTEXT.ln(decimal.Decimal(2)), _CONTEXT.ln(decimal.Decimal(rank + 1))))
