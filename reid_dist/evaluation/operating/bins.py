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
N_QUANTILES: Final = 20

MOST_EDGES: Final = _STEPS + 3 + N_QUANTILES
"""Edges of both kinds together, at most."""


def even_edges(known: Float64, times: float = 1.0) -> Float64:
    """Multiples of a round step, ascending, from at or below the least of some distances, (n,), some infinite.

    They go on to `times` the span of the distances.
    """
    known = known[np.isfinite(known)]
    low, high = float(known.min()), float(known.max())
    span = times * (high - low)
    if span == 0.0 or not math.isfinite(span) or not math.isfinite(low + span):
        return np.array([low])
    step = _round_step(span / _STEPS)
    first = math.floor(low / step)
    # A far offset leaves no room for steps.
    edges = np.unique(np.arange(first, first + math.ceil(span / step) + 2) * step)
    return edges if edges[0] <= low else np.union1d(edges, [low])


def _round_step(least: float) -> float:
    """The smallest number of one digit that is not below a number; 7 and 9 are left out."""
    power = math.floor(math.log10(least)) - 1
    steps = (float(f"{digit}e{power + more}") for more in range(4) for digit in (1, 2, 3, 4, 5, 6, 8))
    return next((step for step in steps if step >= least), least)


def quantile_edges(ascending: Float64, number: int = N_QUANTILES) -> Float64:
    """Order statistics of ascending distances, (n,), at even shares."""
    place = -(-np.arange(1, number + 1) * len(ascending) // number) - 1
    return np.unique(ascending[np.maximum(place, 0)])
