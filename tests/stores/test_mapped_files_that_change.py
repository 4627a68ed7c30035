"""Files that readers and callers map: whatever was checked is what is used, or the change is refused."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist import FeatureSet, fuse, ingest
from reid_dist.errors import DamagedStoreError, StoreError
from reid_dist.stores.distance_block import DistanceBlock
from reid_dist.stores.featureset import with_cameras
from reid_dist.stores.opening import open_features

N, DIM = 60, 8
FEATURES = np.random.default_rng(1).standard_normal((N, DIM)).astype(np.float32)
PIDS = np.arange(N) % 7
NAMES = np.array([f"{pid:04d}_{row:04d}.jpg" for row, pid in enumerate(PIDS)])


def overwrite(path: Path, old: bytes, new: bytes) -> None:
    """Put other bytes into a file, in place, where these are."""
    content = path.read_bytes()
    assert old in content
    with path.open("r+b") as file:
        file.seek(content.index(old))
        file.write(new)


def save_npz(path: Path) -> None:
    np.savez(path, features=FEATURES, pids=PIDS, camids=PIDS % 3, item_ids=NAMES)


def save_safetensors(path: Path) -> None:
    numpy_files = pytest.importorskip("safetensors.numpy")
    numpy_files.save_file({"features": FEATURES, "pids": PIDS, "camids": PIDS % 3}, path)


@pytest.mark.parametrize(("name", "save"), [("g.npz", save_npz), ("g.safetensors", save_safetensors)])
def test_features_of_a_file_that_a_reader_maps(tmp_path: Path, name: str, save: Callable[[Path], None]) -> None:
    path = tmp_path / name
    save(path)
    opened = open_features(path)
    overwrite(path, FEATURES.tobytes(), (-FEATURES).tobytes())
    with contextlib.suppress(DamagedStoreError):
        assert np.array_equal(opened.read(0, N), FEATURES)


def test_texts_of_a_file_that_a_reader_maps(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    save_npz(path)
    opened = open_features(path)
    overwrite(path, NAMES[5].encode("utf-32-le"), "9999_9999.jpg".encode("utf-32-le"))
    with contextlib.suppress(DamagedStoreError):
        assert opened.item_ids is not None
        assert opened.item_ids.tolist() == NAMES.tolist()


def test_features_in_buffers_of_another_library(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    path = tmp_path / "g.bin"
    path.write_bytes(FEATURES.tobytes())
    mapped = np.frombuffer(arrow.memory_map(str(path)).read_buffer(), np.float32).reshape(N, DIM)
    features = FeatureSet.from_arrays(mapped, PIDS)
    overwrite(path, FEATURES.tobytes(), (-FEATURES).tobytes())
    with contextlib.suppress(DamagedStoreError):
        assert np.array_equal(features.read(0, N), FEATURES)


DISTANCES = np.abs(np.random.default_rng(2).standard_normal((4, 32)))


def test_signs_of_float64_distances(tmp_path: Path) -> None:
    path = tmp_path / "d.npy"
    np.save(path, DISTANCES)
    block = DistanceBlock.open(path)
    assert np.array_equal(block.read(0, 4, 0, 32), DISTANCES)
    overwrite(path, DISTANCES[1].tobytes(), (-DISTANCES[1]).tobytes())
    with pytest.raises(DamagedStoreError):
        block.read(0, 4, 0, 32)


def test_a_block_that_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "d.npy"
    np.save(path, DISTANCES)
    block = DistanceBlock.open(path)
    overwrite(path, DISTANCES[1, :1].tobytes(), np.float64(9).tobytes())
    with pytest.raises(DamagedStoreError):
        block.save(tmp_path / "copy.npy")


def test_a_block_of_a_memory_map_that_is_pickled(tmp_path: Path) -> None:
    path = tmp_path / "d.npy"
    np.save(path, DISTANCES)
    block = DistanceBlock.from_array(np.load(path, mmap_mode="r"))
    overwrite(path, DISTANCES[1, :1].tobytes(), np.float64(9).tobytes())
    with contextlib.suppress(DamagedStoreError):
        assert np.array_equal(pickle.loads(pickle.dumps(block)).read(0, 4, 0, 32), DISTANCES)


def test_a_fused_set_of_a_store_and_of_memory_is_sent_by_value(tmp_path: Path) -> None:
    stored = FeatureSet.from_arrays(FEATURES, PIDS, PIDS % 3).save(tmp_path / "a.zarr")
    fused = fuse(stored, [(FeatureSet.from_arrays(FEATURES[:, ::-1], PIDS, PIDS % 3), 0.4)])
    for features in (fused, with_cameras(fused, (0, 2)), with_cameras(stored, (1,))):
        sent = pickle.loads(pickle.dumps(features))
        np.testing.assert_array_equal(sent.read(0, sent.n_rows), features.read(0, features.n_rows))
        assert sent.content_digest == features.content_digest
        assert sent.pids.tolist() == features.pids.tolist()


def test_a_member_of_an_archive_that_is_read_otherwise_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum is compared before, and again over the rows that are written: one read that is wrong is found."""
    save_npz(tmp_path / "g.npz")
    fromfile, calls = np.fromfile, []

    def wrong_once(*arguments: Any, **named: Any) -> np.ndarray:
        found = fromfile(*arguments, **named)
        if found.dtype == np.float32:
            calls.append(len(found))
            if len(calls) == 1:
                found[len(found) // 2] += 1
        return found

    monkeypatch.setattr(np, "fromfile", wrong_once)
    with pytest.raises(StoreError, match=r"member features\.npy was read with another CRC-32"):
        ingest(tmp_path / "g.npz", tmp_path / "g.zarr")
    assert not (tmp_path / "g.zarr").exists()
    ingest(tmp_path / "g.npz", tmp_path / "g.zarr")
    np.testing.assert_array_equal(FeatureSet.open(tmp_path / "g.zarr").read(0, N), FEATURES)
