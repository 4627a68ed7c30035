"""Reads without Zarr, and reads of scattered rows: the same rows as by Zarr, and no damage is hidden."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import DamagedStoreError
from reid_dist.stores import featureset
from reid_dist.stores.stored import StoredRows, open_stored


def make(path: Path | str, n: int = 103, dim: int = 7, **options: object) -> tuple[StoredRows, np.ndarray]:
    rng = np.random.default_rng(n)
    dtype = np.dtype(options.pop("dtype", np.float32))
    features = rng.standard_normal((n, dim)).astype(dtype)
    FeatureSet.from_arrays(features, np.arange(n) % 5, np.arange(n) % 3).save(str(path), **options)
    return open_stored(str(path)), features


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("chunk_rows", [1, 10, 50, 103])
def test_files_give_what_zarr_gives(tmp_path: Path, dtype: type, chunk_rows: int) -> None:
    rows, features = make(tmp_path / "s.zarr", chunk_rows=chunk_rows, dtype=dtype)
    last = -(-103 // chunk_rows) - 1
    for first, final in {(0, 0), (0, last), (last, last), (last // 2, last)}:
        by_file = rows._read_files(first, final)
        by_zarr = rows._read_by_zarr(first, final)
        assert (by_file.dtype, by_file.shape) == (by_zarr.dtype, by_zarr.shape)
        assert by_file.tobytes() == by_zarr.tobytes()
        stop = min((final + 1) * chunk_rows, 103)
        assert by_file.tobytes() == features[first * chunk_rows : stop].tobytes()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("options", [{"chunk_rows": 10}, {"chunk_rows": 103}, {"chunk_rows": 10, "shard_rows": 30}])
def test_gather_gives_the_rows(place: str, dtype: type, options: dict[str, int]) -> None:
    rows, features = make(place, dtype=dtype, **options)
    for wanted in ([0], [102], [3, 9, 10, 11, 57, 100], list(range(103))):
        assert rows.read_unverified(np.array(wanted)).tobytes() == features[wanted].tobytes()
    assert FeatureSet(rows).read_unverified(np.array([4, 90])).dtype == np.float32


def test_a_row_that_changed_between_gather_and_read_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gathered rows are not verified when they are fetched, but by the tile loop."""
    rows, _ = make(tmp_path / "s.zarr", chunk_rows=10)
    gallery = FeatureSet(rows)
    honest = evaluate(gallery, gallery, protocol="no_cameras").result_digest
    read_unverified = StoredRows.read_unverified

    def unreliable(self: StoredRows, wanted: np.ndarray) -> np.ndarray:
        found = read_unverified(self, wanted).copy()
        found[len(found) // 2, 0] += 1
        return found

    monkeypatch.setattr(StoredRows, "read_unverified", unreliable)
    with pytest.raises(DamagedStoreError, match="read with other features than before"):
        evaluate(gallery, gallery, protocol="no_cameras")
    monkeypatch.undo()
    assert evaluate(gallery, gallery, protocol="no_cameras").result_digest == honest


def test_a_chunk_swapped_for_another_valid_one_ends_the_run(tmp_path: Path) -> None:
    make(tmp_path / "s.zarr", chunk_rows=10)
    folder = tmp_path / "s.zarr" / "features" / "c"
    one, two = folder / "2" / "0", folder / "3" / "0"
    held = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(held)
    gallery = FeatureSet.open(tmp_path / "s.zarr")
    with pytest.raises(DamagedStoreError, match=r"features chunk [23]"):
        evaluate(gallery, gallery, protocol="no_cameras")


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
            unit = 32 if features.is_stored else 1
            for start, stop in featureset.ranges_with(features, rows[::-1]):
                assert start % unit == 0
                assert stop % unit == 0 or stop == 300
                # Neither the first nor the last chunk is read for nothing.
                assert {start // unit, (stop - 1) // unit} <= set((rows // unit).tolist())


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
