"""Small sets with everything that a set can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Arrays:
    """The arrays of a set, as a caller would hold them."""

    features: np.ndarray
    pids: np.ndarray
    camids: np.ndarray
    item_ids: np.ndarray
    image_paths: np.ndarray

    def __len__(self) -> int:
        return len(self.features)

    def labels(self) -> dict[str, Any]:
        return {
            "pids": self.pids, "camids": self.camids, "item_ids": self.item_ids, "image_paths": self.image_paths
        }  # fmt: skip


def make_arrays(n: int = 300, dim: int = 7, seed: int = 0, dtype: str = "float32") -> Arrays:
    rng = np.random.default_rng(seed)
    return Arrays(
        rng.standard_normal((n, dim)).astype(dtype),
        rng.integers(-1, 20, n),
        rng.integers(0, 6, n),
        np.array([f"item-{i:04d}-é" for i in rng.permutation(n)]),
        np.array([f"images/{i:06d}.jpg" for i in range(n)]),
    )
