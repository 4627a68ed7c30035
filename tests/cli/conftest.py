"""Small stores on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet


@pytest.fixture
def threads(tmp_path: Path) -> Path:
    """A cluster file that needs no processes."""
    path = tmp_path / "threads.yaml"
    path.write_text("kind: threads\n")
    return path


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """A query and a gallery store."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((15, 24))

    def save(name: str, n: int) -> Path:
        pids = rng.integers(1, 16, n)
        features = (centres[pids - 1] + rng.standard_normal((n, 24))).astype(np.float32)
        FeatureSet.from_arrays(features, pids, rng.integers(0, 4, n)).save(str(tmp_path / name))
        return tmp_path / name

    return save("query.zarr", 40), save("gallery.zarr", 200)
