"""SplitMix64: numbers that follow from a seed and a place alone, the same everywhere and in every version of numpy.

The finaliser is a bijection of 64-bit words, so two places of a stream never hold the same number.

References
----------
Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LARGEST_SEED = 2**64 - 1
"""A seed is the state that a stream of 64-bit words starts at."""

# The increment of the stream, and shifts and factors of its finaliser.
_INCREMENT = 0x9E3779B97F4A7C15
_FINALISER = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31


def stream_outputs(start: int, places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Outputs `places`, (n,), counted from 0, of the stream that starts at the state `start`; (n,) uint64."""
    # Unsigned words wrap around, as they should.
    words = (places.astype(np.uint64) + np.uint64(1)) * np.uint64(_INCREMENT) + np.uint64(start)
    for shift, factor in _FINALISER:
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(_LAST_SHIFT))
