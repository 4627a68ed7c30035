"""Synthetic feature sets in the shape of the public ones, for the demo, benchmarks and tests.

An identity is a random direction, a camera adds a direction of its own, a picture adds noise.  With growing noise the
relevant rows of a query move away from it, as with a worse model.  Pictures of real sets are not equally hard: with
`spread`, most of a query's relevant rows are near and some are far, which the noise alone does not give.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError


@dataclass(frozen=True)
class SyntheticSet:
    """One side: features (n, dim) float32, pids and camids (n,) int64."""

    features: NDArray[np.float32]
    pids: NDArray[np.int64]
    camids: NDArray[np.int64]


@dataclass(frozen=True)
class SyntheticShape:
    """Sizes of both sides; distractors (pid 0) and junk (pid -1) are part of the gallery.

    `noise` and `camera_shift` are lengths relative to an identity's direction; the noise of a row is
    ``noise * exp(spread * N(0, 1))``.
    """

    n_identity: int
    n_camera: int
    n_query: int
    n_gallery: int
    n_distractor: int
    n_junk: int
    dim: int
    noise: float
    camera_shift: float
    spread: float = 0.0

    def __post_init__(self) -> None:
        if self.n_distractor + self.n_junk > self.n_gallery:
            raise InputError(
                f"{self.n_distractor} distractors and {self.n_junk} junk rows do not fit {self.n_gallery} gallery rows"
            )
        if min(self.n_identity, self.n_camera, self.n_query, self.n_gallery, self.dim) < 1:
            raise InputError("a synthetic set needs at least one identity, camera, query, gallery row and dimension")


# Sizes of the public test split; the model is a middling one.
MARKET1501 = SyntheticShape(
    n_identity=750,
    n_camera=6,
    n_query=3368,
    n_gallery=19732,
    n_distractor=2798,
    n_junk=3819,
    dim=256,
    noise=1.6,
    camera_shift=0.6,
)


def make_sets(shape: SyntheticShape, seed: int = 0) -> tuple[SyntheticSet, SyntheticSet]:
    """Make query and gallery; the same shape and seed give the same rows."""
    rng = np.random.default_rng(seed)
    scale = np.float32(1.0 / np.sqrt(shape.dim))
    identities = rng.standard_normal((shape.n_identity, shape.dim), np.float32) * scale
    cameras = rng.standard_normal((shape.n_camera, shape.dim), np.float32) * (scale * np.float32(shape.camera_shift))

    def pictures(pids: NDArray[np.int64]) -> SyntheticSet:
        camids = rng.integers(0, shape.n_camera, len(pids))
        features = rng.standard_normal((len(pids), shape.dim), np.float32)
        features *= scale * np.float32(shape.noise)
        if shape.spread:
            features *= np.exp(shape.spread * rng.standard_normal((len(pids), 1), np.float32))
        known = pids > 0
        features[known] += identities[pids[known] - 1]
        # Each distractor and each junk row has a direction of its own.
        features[~known] += rng.standard_normal((int((~known).sum()), shape.dim), np.float32) * scale
        features += cameras[camids]
        return SyntheticSet(features, pids, camids)

    n_person = shape.n_gallery - shape.n_distractor - shape.n_junk
    gallery_pids = np.concatenate(
        [
            rng.integers(1, shape.n_identity + 1, n_person),
            np.zeros(shape.n_distractor, np.int64),
            np.full(shape.n_junk, -1, np.int64),
        ]
    )
    rng.shuffle(gallery_pids)
    query_pids = rng.integers(1, shape.n_identity + 1, shape.n_query)
    return pictures(query_pids), pictures(gallery_pids)
