"""The sets of the fixtures, opened."""

from __future__ import annotations

import numpy as np

from reid_dist import FeatureSet, LabelledRows

N_QUERY, N_GALLERY = 24, 120


def open_sets(data):
    return FeatureSet.open(data / "query.zarr"), FeatureSet.open(data / "gallery.zarr")


def open_labels(data):
    with np.load(data / "labels.npz") as arrays:
        return tuple(LabelledRows(arrays[f"{role}_pids"], arrays[f"{role}_camids"]) for role in ("query", "gallery"))
