"""Rows of several models read as one: unit rows times roots of weights, however they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, fuse
from reid_dist.errors import InputError

DIMS = (3, 5, 2)


def models(n: int) -> list[FeatureSet]:
    rng = np.random.default_rng(0)
    pids, camids = rng.integers(1, 9, n), rng.integers(0, 3, n)
    return [FeatureSet.from_arrays(rng.standard_normal((n, dim)).astype(np.float32), pids, camids) for dim in DIMS]


def test_rows_are_unit_rows_times_roots_of_weights(tmp_path: Path) -> None:
    parts = models(40)
    stored = [part.save(tmp_path / f"{place}.zarr", chunk_rows=7) for place, part in enumerate(parts)]
    expected = np.concatenate(
        [
            np.sqrt(weight) * rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
            for weight, rows in zip((0.3, 0.5, 0.2), (part.read(0, 40) for part in parts), strict=True)
        ],
        axis=1,
    )
    scattered = np.array([0, 6, 7, 30, 39])
    for own, *others in (parts, stored):
        made = fuse(own, list(zip(others, (0.5, 0.2), strict=True)))
        np.testing.assert_allclose(made.read(0, 40), expected, rtol=1e-6)
        np.testing.assert_array_equal(made.read(5, 23), made.read(0, 40)[5:23])
        np.testing.assert_array_equal(made.read_rows(scattered), made.read(0, 40)[scattered])


def test_one_other_label_is_refused() -> None:
    own, other, _ = models(12)
    pids = other.pids.copy()
    pids[7] += 1
    moved = FeatureSet.from_arrays(other.read(0, 12), pids, other.camids)
    with pytest.raises(InputError, match="other pids, row 7 being the first"):
        fuse(own, [(moved, 0.5)])
