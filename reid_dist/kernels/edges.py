"""Edges of the bands around thresholds, and the number of pairs between them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import first_reached
from reid_dist.kernels.deciding import first_at_least
from reid_dist.kernels.settings import kernel


@kernel
def band_edges(
    query: NDArray[np.int64],
    falling: NDArray[np.float64],
    centre: NDArray[np.float64],
    epsilon: NDArray[np.float64],
    slope: float,
    step: float,
    tiny: float,
    lower: NDArray[np.floating],
    upper: NDArray[np.floating],
) -> None:
    """Write the edges around ``centre - slope * falling``, rounded outward to the type of the tiles.

    Parameters
    ----------
    query
        Query of each value, shape (n,), int64, sorted.
    falling
        Falling values, shape (n,), float64.
    centre, epsilon, slope
        As in `reid_dist.engine.distances.Screen`.
    step, tiny
        Relative distance of neighbouring numbers in the type of the tiles, at most, and the smallest of them.
    lower, upper
        Written to, shape (n,).
    """
    start = 0
    while start < len(query):
        # Query by query: the loop over the values of one query is vectorised.
        i = query[start]
        stop = start + 1
        while stop < len(query) and query[stop] == i:
            stop += 1
        far, low, high = falling[start:stop], lower[start:stop], upper[start:stop]
        middle, slack = centre[i], epsilon[i]
        for p in range(len(far)):
            fall = slope * far[p]
            value = middle - fall
            # Covers the roundings of these very lines, in float64.
            half = slack + 2.0**-50 * (abs(middle) + abs(fall))
            near = value + half
            value -= half
            # A whole step outward exceeds what rounding to nearest can take back.
            low[p] = value - (abs(value) * step + tiny)
            high[p] = near + (abs(near) * step + tiny)
        start = stop


@kernel
def count_in_bands(
    query: NDArray[np.int64],
    column: NDArray[np.int64],
    value: NDArray[np.floating],
    indptr: NDArray[np.int64],
    lower: NDArray[np.floating],
    upper: NDArray[np.floating],
    hidden_indptr: NDArray[np.int64],
    hidden_column: NDArray[np.int64],
) -> int:
    """Count the pairs whose screening values lie inside a band of their query; hidden pairs are excluded.

    Parameters
    ----------
    query, column, value
        Queries, columns and screening values of the pairs, shape (n,).
    indptr, lower, upper, hidden_indptr, hidden_column
        As in `reid_dist.kernels.counting.Bands`.
    """
    inside = 0
    for p in range(len(query)):
        i = query[p]
        stop = hidden_indptr[i + 1]
        place = first_at_least(hidden_column, hidden_indptr[i], stop, column[p])
        if place < stop and hidden_column[place] == column[p]:
            continue
        last = indptr[i + 1]
        threshold = first_reached(lower, value[p], indptr[i], last)
        inside += int(threshold < last and value[p] <= upper[threshold])
    return inside
