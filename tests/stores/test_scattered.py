"""Scattered rows are the rows, in their order, read by whole chunks and verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet
from reid_dist.errors import DamagedStoreError
from reid_dist.stores import featureset


@pytest.fixture
def stored(arrays, tmp_path):
    return FeatureSet.from_arrays(arrays.features, arrays.pids).save(tmp_path / "set.zarr", chunk_rows=32)


@pytest.mark.parametrize("read_bytes", [1, 7 * 4 * 70, 1 << 20])
def test_scattered_rows_are_the_rows(arrays, stored, monkeypatch, read_bytes) -> None:
    monkeypatch.setattr(featureset, "_READ_BYTES", read_bytes)
    rng = np.random.default_rng(1)
    for features in (stored, FeatureSet.from_arrays(arrays.features, arrays.pids)):
        for n_rows in (0, 1, 5, 300):
            rows = np.sort(rng.choice(300, n_rows, replace=False))
            blocks = [*featureset.read_scattered(features, rows), np.empty((0, 7), np.float32)]
            np.testing.assert_array_equal(np.concatenate(blocks), arrays.features[rows])
            for start, stop in featureset.ranges_with(features, rows):
                assert ((rows >= start) & (rows < stop)).any()
                assert not features.is_stored or (start % 32 == 0 and (stop % 32 == 0 or stop == 300))


def test_only_chunks_with_wanted_rows_are_read(stored, monkeypatch) -> None:
    monkeypatch.setattr(featureset, "_READ_BYTES", 1)
    chunk = Path(stored.uri) / "features" / "c" / "4" / "0"
    with chunk.open("r+b") as file:
        file.seek(50)
        file.write(b"damaged!")
    rows = np.array([0, 127, 160, 299])
    assert len(list(featureset.read_scattered(stored, rows))) == 4
    with pytest.raises(DamagedStoreError, match="features chunk 4"):
        list(featureset.read_scattered(stored, np.array([0, 128])))
