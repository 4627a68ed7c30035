"""Bits of float64 numbers, as integers and in arrays of float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import inner_kernel


@inner_kernel
def bits_of(number: float) -> int:
    """Bits of a float64 as those of an int64."""
    return int(np.float64(number).view(np.int64))


@inner_kernel
def from_bits(bits: int) -> float:
    """The float64 of some bits."""
    return float(np.int64(bits).view(np.float64))


@inner_kernel
def float64_at(values: NDArray[np.float32], place: int) -> float:
    """Element of a row of float64 that is given as float32, shape (2 n,), C order; `place` is from 0 to n - 1."""
    return float(values.view(np.float64)[place])
