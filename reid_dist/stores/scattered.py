"""Scattered rows of a set, read whole chunks at a time, hence verified, and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from reid_dist.stores.featureset import FeatureSet
from reid_dist.stores.rows import FeatureArray

__all__ = ["ranges_with", "read_scattered"]

# Whole chunks are read together up to so many bytes; one chunk that is longer is read as it is.
_READ_BYTES = 16 << 20


def ranges_with(features: FeatureSet, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut a set into ranges that are cheap to read, and return those that hold some of the rows.

    Parameters
    ----------
    features
        The set.
    rows
        Row numbers in any order, shape (n,), int64.

    Returns
    -------
    Start and stop (exclusive) of each range, ascending; of whole chunks where the set is stored.
    """
    row_bytes = features.dim * features.dtype.itemsize
    unit = features.chunk_rows if features.is_stored else 1
    step = unit * max(1, _READ_BYTES // (unit * row_bytes))
    return [(place * step, min((place + 1) * step, features.n_rows)) for place in np.unique(rows // step).tolist()]


def read_scattered(features: FeatureSet, rows: NDArray[np.int64]) -> Iterator[FeatureArray]:
    """Read scattered rows, block by block.

    Parameters
    ----------
    features
        The set.
    rows
        Ascending row numbers, shape (n,), int64.

    Yields
    ------
    (some, dim) in the dtype in which features are kept; the blocks together are the rows in their order.

    Raises
    ------
    DamagedStoreError
        If a chunk is missing or not what was written.
    """
    for start, stop in ranges_with(features, rows):
        low, high = np.searchsorted(rows, [start, stop])
        yield features.read_raw(start, stop)[rows[low:high] - start]
