"""Two sides with identities to find, in memory and on S3."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from s3_server import Bucket

from reid_dist import FeatureSet

Sides: TypeAlias = tuple[FeatureSet, FeatureSet]


def make_sides() -> Sides:
    centres = np.random.default_rng(9).standard_normal((20, 16))

    def side(n: int, seed: int) -> FeatureSet:
        rng = np.random.default_rng(seed)
        pids = rng.integers(0, 20, n)
        features = (centres[pids] + rng.standard_normal((n, 16))).astype(np.float32)
        return FeatureSet.from_arrays(features, pids + 1, rng.integers(0, 5, n))

    return side(60, 1), side(400, 2)


def store_sides(sides: Sides, bucket: Bucket) -> Sides:
    query, gallery = sides
    return query.save(bucket.uri("query.zarr"), chunk_rows=25), gallery.save(bucket.uri("gallery.zarr"), chunk_rows=30)
