"""SplitMix64: numbers that follow from a seed and a place alone, the same everywhere and in every version of numpy.

The finaliser is a bijection of 64-bit words, so two places of a stream never hold the same number.

References
----------
Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inner_kernel

Words = TypeVar("Words", np.uint64, NDArray[np.uint64])

LARGEST_SEED = 2**64 - 1
"""A seed is the state that a stream of 64-bit words starts at."""

# The increment of the stream.
_INCREMENT = 0x9E3779B97F4A7C15


def finalise(words: Words) -> Words:
    """Finaliser of the generator, for arrays in NumPy and for numbers in kernels; uint64, of the shape of `words`."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


finalise_one = inner_kernel(finalise)
"""`finalise` of one number."""


def stream_outputs(start: int | np.uint64 | NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Outputs `places`, counted from 0, of the streams that start at the states `start`; uint64.

    Both are broadcast: one state and places (n,) give outputs (n,).
    """
    # Unsigned words wrap around, as they should.
    words = (places.astype(np.uint64) + np.uint64(1)) * np.uint64(_INCREMENT) + np.asarray(start, np.uint64)
    return finalise(words)
