"""Rows prepared for screening, and edges of the bands around thresholds.

Prepared rows need not be canonical.  They only have to stay within the rounding errors of
``reid_dist.engine.distances``: two roundings per element for scaled rows, one for centred rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bisection import first_at_least, first_at_most
from reid_dist.kernels.settings import kernel


@kernel
def scale_rows(rows: NDArray[np.float32], scale: NDArray[np.float64], first: int, out: NDArray[np.floating]) -> None:
    """Write ``rows * scale``, from element `first` on, to `out`, computed in float64 and rounded to the type of `out`.

    In float64 the scale of a row of subnormal numbers does not overflow, which it would in float32.
    """
    for i in range(rows.shape[0]):
        source = rows[i, first : first + out.shape[1]]
        target = out[i]
        factor = scale[i]
        for k in range(len(source)):
            target[k] = np.float64(source[k]) * factor


@kernel
def subtract_centre(
    rows: NDArray[np.float32], centre: NDArray[np.float32], first: int, out: NDArray[np.floating]
) -> None:
    """Write ``rows - centre``, from element `first` on, to `out`, computed in float64 and rounded to its type."""
    stop = first + out.shape[1]
    middle = centre[first:stop]
    for i in range(rows.shape[0]):
        source = rows[i, first:stop]
        target = out[i]
        for k in range(len(source)):
            target[k] = np.float64(source[k]) - np.float64(middle[k])


@kernel
def centred_squared_norms(rows: NDArray[np.float32], centre: NDArray[np.float32]) -> NDArray[np.float64]:
    """Squared norms of ``rows - centre`` in float64, shape (n,)."""
    norms = np.empty(rows.shape[0], np.float64)
    for i in range(rows.shape[0]):
        row = rows[i]
        total = 0.0
        for k in range(len(row)):
            difference = np.float64(row[k]) - np.float64(centre[k])
            total += difference * difference
        norms[i] = total
    return norms


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

    `query` holds the query of each value, shape (n,), sorted; `centre`, `epsilon` and `slope` are as in
    `reid_dist.engine.distances.Screen`.  `step` is the largest relative distance of adjacent numbers in the type of the
    tiles, and `tiny` the smallest positive one.  `lower` and `upper` have shape (n,).
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
            # Covers the roundings of these lines, in float64.
            half = slack + 2.0**-50 * (abs(middle) + abs(fall))
            near = value + half
            value -= half
            # A whole step outward exceeds the largest error of rounding to nearest.
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

    `query`, `column` and `value` have shape (n,); the others are as in `reid_dist.kernels.deciding.Bands`.
    """
    inside = 0
    for p in range(len(query)):
        i = query[p]
        stop = hidden_indptr[i + 1]
        place = first_at_least(hidden_column, hidden_indptr[i], stop, column[p])
        if place < stop and hidden_column[place] == column[p]:
            continue
        last = indptr[i + 1]
        threshold = first_at_most(lower, indptr[i], last, value[p])
        inside += int(threshold < last and value[p] <= upper[threshold])
    return inside
