"""Nearest and farthest items of a block among itself."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.tile_loop import run_symmetric_tiles
from reid_dist.kernels.canonical import read_only, squared_norms


@pytest.mark.parametrize("screen", ["float32", "int8"])
@pytest.mark.parametrize("n_labels", [1, 2, 6])
def test_items_of_one_label_are_in_no_list_of_each_other(
    n_labels: int, screen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first items of a tile are of one label: most are nearer than all that is listed, and some are farther."""
    if screen == "int8":
        pytest.importorskip("onnxruntime")
    monkeypatch.setenv("REID_DIST_SCREEN", screen)
    k, rng = 3, np.random.default_rng(n_labels)
    label = np.repeat(np.arange(n_labels), 360 // n_labels)
    # Small integers, whose squared distances are exact.
    rows = rng.integers(-2, 3, (360, 5)) + 40 * label[:, None]
    rows[::90, -1] += 900
    features = read_only(rows.astype(np.float32))
    block = FeatureBlock(np.arange(100, 460), features, squared_norms(features), label=label)
    (found,) = run_symmetric_tiles(block, None, DISTANCES.get("sqeuclidean"), 128, k, policy=Policy.in_force())

    exact = ((rows[:, None] - rows) ** 2).sum(axis=2)
    for i, row in enumerate(exact):
        others = np.flatnonzero(label != label[i])
        nearest = sorted(others.tolist(), key=lambda j, row=row: (row[j], j))[:k]
        missing = k - len(nearest)
        assert found.index[i].tolist() == [100 + j for j in nearest] + [-1] * missing
        assert found.distance[i].tolist() == [float(row[j]) for j in nearest] + [np.inf] * missing
        assert found.farthest[i] == row[others].max(initial=0)
