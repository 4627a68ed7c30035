"""Synthetic sets of the benchmarks, in memory and as stores."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reid_dist import FeatureSet, Report
from reid_dist.stores import FeatureWriter
from reid_dist.stores.labels import make_labels
from reid_dist.stores.synthetic import SyntheticSet, SyntheticShape, make_sets

__all__ = [
    "BAD",
    "DIM",
    "EASY",
    "LONG_DIM",
    "N_CAMERA",
    "RANDOM",
    "TYPICAL",
    "Model",
    "feature_sets",
    "make_shape",
    "save_sets",
    "score",
    "with_elements",
    "write_sets",
]

DIM = 512
# As ResNet-50 writes them without an embedding layer.
LONG_DIM = 2048
N_CAMERA = 6
_WRITTEN_ROWS = 65_536


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


def with_elements(model: Model, dim: int) -> Model:
    """Model of rows of `dim` elements that scores about what another does with `DIM`: similarities vary less there."""
    return model._replace(noise=math.sqrt((1.0 + model.noise**2) * math.sqrt(dim / DIM) - 1.0))


def score(report: Report) -> str:
    """What a model scores, as its name in the benchmarks."""
    return ", ".join(f"{name} {100 * report.metrics[name]:.0f}%" for name in ("mAP", "mINP"))


def make_shape(
    n_query: float,
    n_gallery: float,
    model: Model = TYPICAL,
    per_identity: int = 20,
    camera_shift: float = 0.0,
    dim: int = DIM,
) -> SyntheticShape:
    """Sets of `dim` features without distractors and junk; at least 2 queries and 40 gallery rows."""
    rows = max(40, int(n_gallery))
    return SyntheticShape(
        n_identity=max(1, rows // per_identity),
        n_camera=N_CAMERA,
        n_query=max(2, int(n_query)),
        n_gallery=rows,
        n_distractor=0,
        n_junk=0,
        dim=dim,
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


def write_sets(
    folder: Path, n_query: int, n_gallery: int, model: Model = TYPICAL, *, dim: int, dtype: str = "float32"
) -> None:
    """Write ``query.zarr`` and ``gallery.zarr``, some 20 rows an identity, without holding them in memory."""
    n_identity = max(1, n_gallery // 20)
    rng = np.random.default_rng(0)
    identities = rng.standard_normal((n_identity, dim), np.float32)
    for side, n_rows in (("query", n_query), ("gallery", n_gallery)):
        pids = rng.integers(0, n_identity, n_rows)
        with FeatureWriter(folder / f"{side}.zarr", dim=dim, n_rows=n_rows, dtype=dtype) as writer:
            for start in range(0, n_rows, _WRITTEN_ROWS):
                own = pids[start : start + _WRITTEN_ROWS]
                noise = rng.standard_normal((len(own), dim), np.float32)
                noise *= model.noise * np.exp(model.spread * rng.standard_normal((len(own), 1), np.float32))
                writer.append(identities[own] + noise)
            writer.set_labels(make_labels(n_rows, pids, rng.integers(0, N_CAMERA, n_rows), None, None, None))


def _as_features(made: SyntheticSet) -> FeatureSet:
    return FeatureSet.from_arrays(made.features, made.pids, made.camids)
