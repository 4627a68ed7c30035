"""Rows prepared for screening, and edges of the bands around thresholds.

Prepared rows need not be canonical.  They only have to stay within the rounding errors of
``reid_dist.engine.distances``: two roundings per element for scaled rows, one for centred rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import place_among
from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.compiled import kernel
from reid_dist.kernels.deciding import Bands


@kernel
def prepare_rows(
    rows: NDArray[np.float32], origin: NDArray[np.float64], factor: NDArray[np.float64], out: NDArray[np.floating]
) -> None:
    """Write ``(rows - origin) * factor`` to `out`, computed in float64 and rounded to its type.

    In float64 the factor of a row of subnormal numbers does not overflow, which it would in float32.
    """
    for i in range(rows.shape[0]):
        source = rows[i]
        target = out[i]
        scale = factor[i]
        for k in range(len(source)):
            target[k] = (np.float64(source[k]) - origin[k]) * scale


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
    values: NDArray[np.floating],
    column: NDArray[np.int64],
    extra: NDArray[np.floating],
    bands: Bands,
    inside: NDArray[np.float64],
) -> None:
    """Add the number of values of each query that lie inside one of its bands; hidden pairs are excluded.

    `values` are screening values, shape (n_query, n), of the columns `column`, shape (n,); bands are wider by `extra`,
    shape (n_query,), on either side, and `inside` has shape (n_query,).
    """
    for i in range(values.shape[0]):
        lower = bands.lower[bands.indptr[i] : bands.indptr[i + 1]]
        upper = bands.upper[bands.indptr[i] : bands.indptr[i + 1]]
        hidden = bands.hidden_column[bands.hidden_indptr[i] : bands.hidden_indptr[i + 1]]
        for c in range(len(column)):
            threshold = place_among(lower, values[i, c] + extra[i])
            if threshold < len(lower) and values[i, c] - extra[i] <= upper[threshold]:
                place = first_at_least(hidden, 0, len(hidden), column[c])
                inside[i] += int(place == len(hidden) or hidden[place] != column[c])
