"""A sample of the rows of a set: a few runs of rows, as rows of an identity usually follow each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.stores import FeatureSet
from reid_dist.stores.featureset import read_scattered
from reid_dist.stores.kept_rows import FeatureArray

# Rows that are read: a few runs, and their bytes as float64.
_RUNS, _RUN_ROWS, _MOST_BYTES = 16, 1024, 1 << 23


def sampled_rows(n_rows: int, dim: int) -> NDArray[np.int64]:
    """Rows of a few runs spread over the set, or all rows; ascending."""
    run_rows = max(1, min(_RUN_ROWS, _MOST_BYTES // (8 * dim * _RUNS)))
    if n_rows <= _RUNS * run_rows:
        return np.arange(n_rows)
    starts = np.linspace(0, n_rows - run_rows, _RUNS).astype(np.int64)
    return np.unique((starts[:, np.newaxis] + np.arange(run_rows)).ravel())


def read_sampled(features: FeatureSet, rows: NDArray[np.int64]) -> FeatureArray:
    """Read rows of a sample, (n, dim); a chunk that holds several runs is read once."""
    return np.concatenate([*read_scattered(features, rows), np.empty((0, features.dim), features.dtype)])


def unit_vectors(rows: FeatureArray) -> NDArray[np.float64]:
    """Rows of length 1; rows of zeros as they are."""
    units: NDArray[np.float64] = rows.astype(np.float64)
    length = np.sqrt(np.einsum("ij,ij->i", units, units))
    units /= np.where(length > 0, length, 1.0)[:, np.newaxis]
    return units
