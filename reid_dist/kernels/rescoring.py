"""Known distances put into tiles, and distances converted to screening values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.canonical import PairRows, mix, on_screen_scale
from reid_dist.kernels.compiled import kernel


@kernel
def falling_values(
    rows: PairRows, query: NDArray[np.int64], distance: NDArray[np.float64], side: float
) -> NDArray[np.float64]:
    """Apply `on_screen_scale` to many distances; shapes (n,)."""
    falling = np.empty(len(distance))
    for place in range(len(distance)):
        falling[place] = on_screen_scale(rows, query[place], distance[place], side)
    return falling


@kernel
def mixed_values(
    weight: float,
    squares: bool,
    scale: NDArray[np.float64],
    distance: NDArray[np.float64],
    jaccard: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Mix many distances with Jaccard distances, as `mix` does one; shapes (n,)."""
    mixed = np.empty(len(distance))
    for place in range(len(distance)):
        mixed[place] = mix(weight, squares, scale[place], distance[place], jaccard[place])
    return mixed


@kernel
def known_values(
    rows: PairRows, centre: NDArray[np.float64], slope: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Screening values of given distances; or, where graph distances are given, what they add to plain ones.

    Returns the values, shape (n,), and the largest absolute value of each query, shape (n_query,).
    """
    rescoring = rows.rescoring
    first = rescoring.indptr[0]
    known = np.empty(rescoring.indptr[-1] - first, np.float64)
    largest = np.zeros(len(centre), np.float64)
    for i in range(len(centre)):
        for place in range(rescoring.indptr[i], rescoring.indptr[i + 1]):
            given = rescoring.value[place]
            if rescoring.mixed:
                change = (1.0 - rescoring.weight) / rescoring.weight * (given - rescoring.apart)
                value = -slope * change * rescoring.scale[i]
            else:
                value = centre[i] - slope * on_screen_scale(rows, i, given, 0.0)
            known[place - first] = value
            largest[i] = max(largest[i], abs(value))
    return known, largest


@kernel
def put_values(
    query: NDArray[np.int64],
    indptr: NDArray[np.int64],
    column: NDArray[np.int64],
    value: NDArray[np.float64],
    column_start: int,
    bias: NDArray[np.floating],
    limit: NDArray[np.float64],
    tile: NDArray[np.floating],
) -> None:
    """Write known screening values into a tile, with the bias added that is subtracted later; or add to those there.

    Values of query ``query[i]``, the tile's row ``i``, are ``indptr[query[i]]:indptr[query[i] + 1]``, columns
    ascending; `bias` has shape (columns,).  They are added, up to the limit of each query, unless `limit` is empty.
    """
    adds = len(limit) > 0
    for i in range(tile.shape[0]):
        q = query[i]
        place = first_at_least(column, indptr[q], indptr[q + 1], column_start)
        while place < indptr[q + 1] and column[place] < column_start + tile.shape[1]:
            c = column[place] - column_start
            tile[i, c] = min(tile[i, c] + value[place], limit[q]) if adds else value[place] + bias[c]
            place += 1
