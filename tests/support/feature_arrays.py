"""Small sets with everything that a set can hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reid_dist.stores import FeatureSet
from reid_dist.stores.sparse import GraphPiece

SIDES = ("query", "gallery")


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


def in_memory(arrays: Arrays) -> FeatureSet:
    return FeatureSet.from_arrays(arrays.features, **arrays.labels())


def model_arrays(seed: int, sizes: tuple[int, int] = (30, 50), dim: int = 7) -> dict[str, np.ndarray]:
    """What a model's test script saves: features, identities and cameras of both sides."""
    held: dict[str, np.ndarray] = {}
    for role, n in zip(SIDES, sizes, strict=True):
        arrays = make_arrays(n, dim, seed=seed + n)
        held |= {f"{role}_f": arrays.features, f"{role}_label": arrays.pids, f"{role}_cam": arrays.camids}
    return held


def save_model(path: Path, seed: int, sizes: tuple[int, int] = (30, 50), dim: int = 7, **changed: np.ndarray) -> Path:
    """Write `model_arrays`, some of them changed, to an archive."""
    np.savez(path, **(model_arrays(seed, sizes, dim) | changed))
    return path


def make_piece(n: int, k: int) -> GraphPiece:
    """A graph of n items with one entry in each row."""
    lists = np.zeros((n, k), np.int32), np.zeros((n, k))
    return GraphPiece(np.arange(n + 1), np.arange(n, dtype=np.int32), np.ones(n), *lists)
