"""Synthetic sets of the benchmarks, in memory and as stores."""

from __future__ import annotations

from pathlib import Path

from reid_dist import FeatureSet
from reid_dist.stores.synthetic import SyntheticSet, SyntheticShape, make_sets

__all__ = ["DIM", "GOOD", "N_CAMERA", "feature_sets", "make_shape", "save_sets"]

DIM = 512
N_CAMERA = 6
# Noise of a well-trained model.
GOOD = 1.3


def make_shape(
    n_query: float, n_gallery: float, noise: float = GOOD, per_identity: int = 20, camera_shift: float = 0.0
) -> SyntheticShape:
    """Sets of `DIM` features without distractors and junk; at least 2 queries and 40 gallery rows."""
    rows = max(40, int(n_gallery))
    return SyntheticShape(
        n_identity=max(1, rows // per_identity),
        n_camera=N_CAMERA,
        n_query=max(2, int(n_query)),
        n_gallery=rows,
        n_distractor=0,
        n_junk=0,
        dim=DIM,
        noise=noise,
        camera_shift=camera_shift,
    )


def feature_sets(shape: SyntheticShape) -> tuple[FeatureSet, FeatureSet]:
    """Query and gallery in memory."""
    query, gallery = make_sets(shape)
    return _as_features(query), _as_features(gallery)


def save_sets(folder: Path, shape: SyntheticShape) -> tuple[SyntheticSet, SyntheticSet]:
    """Write ``query.zarr`` and ``gallery.zarr``; return both sets."""
    sets = make_sets(shape)
    for side, each in zip(("query", "gallery"), sets, strict=True):
        _as_features(each).save(folder / f"{side}.zarr", overwrite=True)
    return sets


def _as_features(made: SyntheticSet) -> FeatureSet:
    return FeatureSet.from_arrays(made.features, made.pids, made.camids)
