"""Reads without Zarr, and reads of scattered rows: the same rows as by Zarr, and no damage is hidden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import DamagedStoreError
from reid_dist.stores import featureset
from reid_dist.stores.folders import LocalFolder
from reid_dist.stores.stored import StoreReader


def make(path: Path | str, n: int = 103, dim: int = 7, **options: object) -> tuple[StoreReader, np.ndarray]:
    rng = np.random.default_rng(n)
    dtype = np.dtype(options.pop("dtype", np.float32))
    features = rng.standard_normal((n, dim)).astype(dtype)
    FeatureSet.from_arrays(features, np.arange(n) % 5, np.arange(n) % 3).save(str(path), **options)
    return StoreReader.open(str(path)), features


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("chunk_rows", [1, 10, 50, 103])
def test_files_give_what_zarr_gives(tmp_path: Path, dtype: type, chunk_rows: int) -> None:
    rows, features = make(tmp_path / "s.zarr", chunk_rows=chunk_rows, dtype=dtype)
    last = -(-103 // chunk_rows) - 1
    by_zarr = zarr.open_array(tmp_path / "s.zarr" / "features", mode="r")
    for first, final in {(0, 0), (0, last), (last, last), (last // 2, last)}:
        start, stop = first * chunk_rows, min((final + 1) * chunk_rows, 103)
        found = rows.read(start, stop)
        assert (found.dtype, found.shape) == (by_zarr.dtype, (stop - start, 7))
        assert found.tobytes() == by_zarr[start:stop].tobytes() == features[start:stop].tobytes()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("options", [{"chunk_rows": 10}, {"chunk_rows": 103}])
def test_gather_gives_the_rows(place: str, dtype: type, options: dict[str, int]) -> None:
    rows, features = make(place, dtype=dtype, **options)
    for wanted in ([0], [102], [3, 9, 10, 11, 57, 100], list(range(103))):
        assert rows.read_rows(np.array(wanted)).tobytes() == features[wanted].tobytes()
    assert FeatureSet.open(place).read_rows(np.array([4, 90])).dtype == np.float32


def chunk_file(rows: StoreReader, chunk: int) -> Path:
    return Path(rows.uri) / "features" / "c" / str(chunk) / "0"


def change_row(file: Path, row: int, change: Callable[[np.ndarray], np.ndarray], dim: int = 7) -> None:
    """Write other numbers into one row of a chunk, in place: its size stays, and so does the checksum at its end."""
    with file.open("r+b") as opened:
        opened.seek(row * dim * 4)
        held = np.frombuffer(opened.read(dim * 4), np.float32)
        opened.seek(row * dim * 4)
        opened.write(change(held).astype(np.float32).tobytes())


@pytest.mark.parametrize("is_verified", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda row: -row,
        lambda row: row[::-1],
        lambda row: np.concatenate([row[:3], np.nextafter(row[3:4], np.float32(9)), row[4:]]),
        lambda row: row * np.array([-1, -1, 1, 1, 1, 1, 1], np.float32),
    ],
    ids=["negated", "reversed", "one unit in the last place", "two signs"],
)
def test_a_changed_row_is_never_returned(
    tmp_path: Path, is_verified: bool, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    rows, features = make(tmp_path / "s.zarr", chunk_rows=10)
    wanted = np.array([3, 34, 37, 71])
    if is_verified:
        assert rows.read_rows(np.array([30])).tobytes() == features[[30]].tobytes()
    change_row(chunk_file(rows, 3), 4, change)
    with pytest.raises(DamagedStoreError, match=r"features chunk 3 \(features/c/3/0\)"):
        rows.read_rows(wanted)
    np.testing.assert_array_equal(rows.read_rows(wanted[[0, 3]]), features[wanted[[0, 3]]])
    change_row(chunk_file(rows, 3), 4, lambda _: features[34])
    np.testing.assert_array_equal(rows.read_rows(wanted), features[wanted])


def test_rows_of_a_verified_chunk_are_read_singly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage to rows that are not wanted shows when the chunk is read first, and not when single rows are."""
    rows, features = make(tmp_path / "s.zarr", chunk_rows=50)
    rows.read_rows(np.array([1, 60]))
    change_row(chunk_file(rows, 0), 9, lambda row: -row)
    np.testing.assert_array_equal(rows.read_rows(np.array([8, 10])), features[[8, 10]])
    for read in (lambda: rows.read_rows(np.array([8, 9])), lambda: StoreReader.open(rows.uri).read_rows(np.array([8]))):
        with pytest.raises(DamagedStoreError, match="features chunk 0"):
            read()


def test_a_row_that_differs_once_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, features = make(tmp_path / "s.zarr", chunk_rows=50)
    wanted = np.array([1, 40, 60])
    rows.read_rows(wanted)
    gather, calls = LocalFolder.gather, []

    def unreliable(self: LocalFolder, name: str, *arguments: Any) -> np.ndarray | None:
        calls.append(name)
        found = gather(self, name, *arguments)
        return np.roll(found, 1, axis=0) if found is not None and len(found) > 1 else found

    monkeypatch.setattr(LocalFolder, "gather", unreliable)
    np.testing.assert_array_equal(rows.read_rows(wanted), features[wanted])
    assert calls == ["features/c/0/0", "features/c/1/0"]


def test_many_threads_read_single_rows_and_each_chunk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, features = make(tmp_path / "s.zarr", n=1000, chunk_rows=20)
    opened, open_file = Counter[str](), LocalFolder.open

    def counted(self: LocalFolder, name: str) -> Any:
        opened[name] += 1
        return open_file(self, name)

    monkeypatch.setattr(LocalFolder, "open", counted)
    rng = np.random.default_rng(0)
    wanted = [np.sort(rng.choice(1000, 300, replace=False)) for _ in range(32)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(rows.read_rows, wanted))
    for own, place in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(own, features[place])
    assert set(opened) == {f"features/c/{chunk}/0" for chunk in range(50)}
    assert set(opened.values()) == {1}


def test_threads_that_wait_for_a_damaged_chunk_all_see_the_damage(tmp_path: Path) -> None:
    rows, _ = make(tmp_path / "s.zarr", chunk_rows=50)
    change_row(chunk_file(rows, 0), 9, lambda row: -row)

    def damage(_: int) -> str:
        with pytest.raises(DamagedStoreError) as caught:
            rows.read_rows(np.array([3, 70]))
        return str(caught.value)

    with ThreadPoolExecutor(8) as pool:
        assert all("features chunk 0" in text for text in pool.map(damage, range(16)))


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
