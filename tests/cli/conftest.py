"""Small stores and finished runs on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.small_stores import save_stores

from reid_dist import FeatureSet, evaluate


@pytest.fixture
def threads(tmp_path: Path) -> Path:
    """A cluster file that needs no processes."""
    path = tmp_path / "threads.yaml"
    path.write_text("kind: threads\n")
    return path


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    """A query and a gallery store."""
    return save_stores(tmp_path)


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of a weak and of a strong model on the same labels, and of the strong one under another protocol."""
    rng = np.random.default_rng(8)
    centres, pids, camids = rng.standard_normal((12, 8)), rng.integers(0, 12, 90), rng.integers(0, 3, 90)
    folder = tmp_path_factory.mktemp("runs")
    for name, noise in (("weak", 2.0), ("strong", 0.7)):
        features = (centres[pids] + noise * rng.standard_normal((90, 8))).astype(np.float32)
        sides = [FeatureSet.from_arrays(features[at], pids[at], camids[at]) for at in (slice(30), slice(30, 90))]
        evaluate(*sides).save(folder / name)
    evaluate(*sides, protocol="no_cameras").save(folder / "unlike")
    return {name: folder / name for name in ("weak", "strong", "unlike")}
