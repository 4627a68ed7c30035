"""Small query and gallery stores on disk, as tests of commands and clusters take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reid_dist import FeatureSet


def save_stores(folder: Path, n_query: int = 40, n_gallery: int = 200, dim: int = 24) -> tuple[Path, Path]:
    """Write ``query.zarr`` and ``gallery.zarr``, of 15 identities under 4 cameras, and return their paths."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((15, dim))

    def save(name: str, n: int) -> Path:
        pids = rng.integers(1, 16, n)
        features = (centres[pids - 1] + rng.standard_normal((n, dim))).astype(np.float32)
        FeatureSet.from_arrays(features, pids, rng.integers(0, 4, n)).save(str(folder / name))
        return folder / name

    return save("query.zarr", n_query), save("gallery.zarr", n_gallery)
