"""Synthetic sets of the benchmarks, in memory and as stores."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reid_dist import FeatureSet, Report
from reid_dist.stores.synthetic import SyntheticSet, SyntheticShape, make_sets

__all__ = [
    "BAD",
    "DIM",
    "EASY",
    "N_CAMERA",
    "RANDOM",
    "TYPICAL",
    "Model",
    "feature_sets",
    "make_shape",
    "save_sets",
    "score",
]

DIM = 512
N_CAMERA = 6


class Model(NamedTuple):
    """Noise of a synthetic model's features, and how much it differs between rows: see `SyntheticShape`."""

    noise: float
    spread: float = 0.0


# A model as they are published, one with few hard rows, and one whose rows are all hard; the benchmarks print what each
# scores on the set at hand.
TYPICAL = Model(1.5, 0.5)
EASY = Model(1.5, 0.3)
BAD = Model(3.0)
RANDOM = Model(1e4)


def score(report: Report) -> str:
    """What a model scores, as its name in the benchmarks."""
    return ", ".join(f"{name} {100 * report.metrics[name]:.0f} %" for name in ("mAP", "mINP"))


def make_shape(
    n_query: float, n_gallery: float, model: Model = TYPICAL, per_identity: int = 20, camera_shift: float = 0.0
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
        noise=model.noise,
        spread=model.spread,
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
