"""Rows made ready for screening: scaled to unit length, or moved by a common centre.

What is computed here need not be canonical.  It only has to stay within the rounding errors that
``reid_dist.engine.distances`` counts: two roundings per element for scaled rows, one for centred rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
