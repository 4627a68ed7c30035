"""Images by their names, and features of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reid_dist import FeatureSet

NAMES = ["0002_c1s1_000451_03.jpg", "-1_c3s2_012345_00.jpg", "0005_c2_f0046985.jpg", "0002_c4s6_000001_01.jpg",
         "0000_c6s3_111_07.jpg", "1501_c5s1_000002_00.jpg"]  # fmt: skip
PIDS, CAMIDS = [2, -1, 5, 2, 0, 1501], [1, 3, 2, 4, 6, 5]
FEATURES = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def assert_named(store: FeatureSet, names: list[str] = NAMES) -> None:
    order = [NAMES.index(Path(name).name) for name in names]
    np.testing.assert_array_equal(store.read(0, 6), FEATURES[order])
    assert store.pids.tolist() == [PIDS[at] for at in order]
    assert store.camids.tolist() == [CAMIDS[at] for at in order]
    assert store.image_paths.tolist() == names
    assert any("layout market1501" in note and "pids " in note for note in store.notes)


def write_features(folder: Path, names: Sequence[str], dim: int = 4) -> tuple[Path, Path]:
    """Features of as many rows as names, the first value of a row its number, and the list of names."""
    features = np.random.default_rng(7).standard_normal((len(names), dim)).astype(np.float32)
    features[:, 0] = 1 + np.arange(len(names))
    np.save(folder / "features.npy", features)
    (folder / "list.txt").write_text("".join(f"{name}\n" for name in names))
    return folder / "features.npy", folder / "list.txt"


def rows_of(store: FeatureSet) -> list[int]:
    """The rows of `write_features` that a store holds."""
    return [int(value) - 1 for value in store.read(0, store.n_rows)[:, 0]]
