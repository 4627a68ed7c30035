"""Exact sums of float64 values, rounded once."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Below this number of values, `math.fsum` takes less time.
_FEWEST = 256
# Sums of values below it do not overflow on the way.
_LARGEST = 2.0**800


def exact_sum(values: NDArray[np.float64]) -> float:
    """Sum of values, shape (n,), float64: the float64 nearest to it, as of `math.fsum`, whatever their order.

    Values are split into multiples of a unit, whose sum is exact in float64, and rests, which are split by a smaller
    unit: AccSum of Rump, Ogita and Oishi, "Accurate floating-point summation", 2008.  Two units mostly do; `math.fsum`
    takes six times as long.

    Raises `ValueError` for infinities of both signs and `OverflowError` for a sum beyond float64, as `math.fsum`.
    """
    size = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if len(values) < _FEWEST or not size < _LARGEST:
        return math.fsum(values.tolist())
    # No value and no sum of values reaches 2**exponent; the unit is 2**(exponent - 52).
    bits = len(values).bit_length()
    exponent = math.frexp(size)[1] + bits
    sums, rest = [], values
    while rest.any():
        shift = math.ldexp(1.5, exponent)
        multiples = (rest + shift) - shift
        sums.append(float(multiples.sum()))
        rest = rest - multiples
        # A rest is at most half a unit.
        exponent += bits - 53
    return math.fsum(sums)
