"""Edges of bins of distances, from exact distances that do not depend on tiles.

Two kinds together: round numbers at even steps, which show where both kinds of pairs lie, and quantiles of the genuine
distances, which are dense where the probability of a match changes, however few distances lie there.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

_STEPS: Final = 40
_QUANTILES: Final = 20

MOST_EDGES: Final = _STEPS + 3 + _QUANTILES
"""Edges of both kinds together, at most."""


def even_edges(genuine: Float64, nearest: Float64) -> Float64:
    """Multiples of a round step, ascending, from at or below the nearest pair.

    `genuine`, (n,), are the distances of all genuine pairs; `nearest`, (n_query,), those of the nearest negatives,
    infinite where there is none.  The span is twice that of both, as other impostors lie beyond.
    """
    known = np.concatenate([genuine, nearest[np.isfinite(nearest)]])
    low, high = float(known.min()), float(known.max())
    span = 2.0 * (high - low)
    if span == 0.0 or not math.isfinite(span) or not math.isfinite(low + span):
        return np.array([low])
    step = _round_step(span / _STEPS)
    first = math.floor(low / step)
    # A far offset leaves no room for steps.
    edges = np.unique(np.arange(first, first + math.ceil(span / step) + 2) * step)
    return edges if edges[0] <= low else np.union1d(edges, [low])


def _round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below a number."""
    power = math.floor(math.log10(least)) - 1
    steps = (float(f"{digit}e{power + more}") for more in range(4) for digit in (1, 2, 5))
    return next((step for step in steps if step >= least), least)


def quantile_edges(genuine: Float64) -> Float64:
    """Order statistics of ascending genuine distances, (n,), at even shares."""
    place = -(-np.arange(1, _QUANTILES + 1) * len(genuine) // _QUANTILES) - 1
    return np.unique(genuine[np.maximum(place, 0)])
