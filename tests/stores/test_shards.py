"""Sources in several files: a folder or a glob is one source, in natural order, read one file after the other."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from array_files import flip_bit, write_arrays
from safetensors.numpy import save_file

from reid_dist import FeatureSet
from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.stores import ingest, open_features
from reid_dist.stores.importers import file_rows, shards

Arrays = dict[str, np.ndarray]


def rows(start: int, stop: int) -> Arrays:
    """Rows of one set that is the same however it is cut; texts grow with the row."""
    features = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    number = np.arange(start, stop)
    return {
        "features": features[start:stop],
        "pids": number // 4,
        "camids": number % 3,
        "item_ids": np.array([f"item-{row}" for row in number], dtype=np.str_),
    }


def whole_set(stop: int) -> FeatureSet:
    held = rows(0, stop)
    return FeatureSet.from_arrays(held.pop("features"), **held)


CUTS = (0, 7, 7, 40, 41, 90)
"""Five shards; one of them is empty, as that of a rank without rows."""


def write_shards(folder: Path, suffix: str = ".npz") -> Path:
    folder.mkdir()
    for shard, (start, stop) in enumerate(itertools.pairwise(CUTS)):
        path, held = folder / f"rank{shard}", rows(start, stop)
        if suffix == ".safetensors":  # The format has no texts.
            del held["item_ids"]
        if suffix == " compressed":
            np.savez_compressed(path, **held)
        else:
            write_arrays(path.with_suffix(suffix), held)
    return folder


@pytest.mark.parametrize("suffix", [".npz", " compressed", ".parquet", ".safetensors"])
@pytest.mark.parametrize("how", ["folder", "glob"])
def test_shards_are_one_set_with_one_digest(tmp_path: Path, suffix: str, how: str) -> None:
    folder = write_shards(tmp_path / "shards", suffix)
    expected = whole_set(90)
    if suffix == ".safetensors":
        expected = FeatureSet.from_arrays(expected.read(0, 90), expected.pids, expected.camids)
    source = folder if how == "folder" else folder / "rank*"
    (stored,) = ingest(source, tmp_path / "out.zarr")
    assert stored.content_digest == expected.content_digest
    assert open_features(source).content_digest == expected.content_digest
    assert any("rows come from 5 files in the order of their names: rank0." in note for note in stored.notes)


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["part-10", "part-9", "part-1"], ["part-1", "part-9", "part-10"]),
        (["part-010", "part-009", "part-001"], ["part-001", "part-009", "part-010"]),
        (["2026-02-01", "2026-01-31", "2025-12-31"], ["2025-12-31", "2026-01-31", "2026-02-01"]),
        (["b2c10", "b10c1", "b2c9", "a11"], ["a11", "b2c9", "b2c10", "b10c1"]),
        # Digits of other scripts, and raised ones, are text; ٣ is 3.
        (["r1²", "r1٣", "r1x"], ["r1x", "r1²", "r1٣"]),
        (["1²2", "1٣2", "112"], ["1²2", "1٣2", "112"]),
        # One number in two spellings: by text.
        (["r1", "r01"], ["r01", "r1"]),
    ],
)
def test_names_are_in_natural_order(tmp_path: Path, names: list[str], order: list[str]) -> None:
    for name in names:
        np.savez(tmp_path / f"{name}.npz", features=np.full((1, 2), 1 + order.index(name), np.float32), pids=[1])
    found = open_features(tmp_path / "*.npz")
    assert found.read(0, len(names))[:, 0].tolist() == [*range(1, len(names) + 1)]


def test_globs_go_into_folders_and_leave_hidden_files_and_markers_out(tmp_path: Path) -> None:
    for day in ("day2", "day10"):
        write_shards(tmp_path / day)
        (tmp_path / day / "_SUCCESS").touch()
        (tmp_path / day / ".rank9.npz.crc").touch()
    assert open_features(tmp_path / "day2").n_rows == 90
    both = open_features(f"{tmp_path}/**/*.npz")
    assert both.item_ids is not None
    assert both.item_ids.tolist() == 2 * [f"item-{row}" for row in range(90)]
    assert open_features(f"{tmp_path}/day*/rank[34].npz").n_rows == 100


def test_a_file_whose_name_is_a_pattern_is_that_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a[1].npz", **rows(0, 3))
    np.savez(tmp_path / "a1.npz", **rows(0, 9))
    assert open_features(tmp_path / "a[1].npz").n_rows == 3


def test_shards_of_both_sides(tmp_path: Path) -> None:
    for day in (1, 2):
        held = {f"{side}_{name}": values for side in ("query", "gallery") for name, values in rows(0, 9 * day).items()}
        np.savez(tmp_path / f"day{day}.npz", **held)
    query, gallery = ingest(tmp_path / "day*.npz", tmp_path / "out")
    assert query.content_digest == gallery.content_digest
    assert query.n_rows == 27


def test_labels_beside_shards_of_features_alone(tmp_path: Path) -> None:
    held = rows(0, 30)
    for shard, part in enumerate(np.split(held["features"], 3)):
        np.save(tmp_path / f"features{shard}.npy", part)
        np.save(tmp_path / f"pids{shard}.npy", held["pids"][10 * shard : 10 * shard + 10])
        (tmp_path / f"cams{shard}.txt").write_text(
            "\n".join(map(str, held["camids"][10 * shard : 10 * shard + 10].tolist()))
        )
        (tmp_path / f"labels{shard}.csv").write_text(
            "pid,camid\n" + "".join(f"{row // 4},{row % 3}\n" for row in range(10 * shard, 10 * shard + 10))
        )
    expected = FeatureSet.from_arrays(held["features"], held["pids"], held["camids"]).content_digest
    source = tmp_path / "features*.npy"
    files = {"pids_file": tmp_path / "pids*.npy", "camids_file": tmp_path / "cams?.txt"}
    assert open_features(source, **files).content_digest == expected
    assert open_features(source, labels_file=tmp_path / "labels*.csv").content_digest == expected
    with pytest.raises(InputError, match=r"no file matches .*nothing\*\.npy"):
        open_features(source, pids_file=tmp_path / "nothing*.npy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.ones((3, 9), np.float32)}, r"float32 of shape \(3, 9\).*float32 of shape \(7, 8\)"),
        ({"features": np.ones((3, 8))}, r"float64 of shape \(3, 8\).*float32"),
        ({"pids": np.array(["a", "b", "c"])}, r"text of shape \(3,\).*'pids' of .*int64 of shape"),
        ({"camids": None}, "holds features, item_ids, pids, and rank0.npz holds camids, features, item_ids, pids"),
        ({"extra": np.arange(3)}, "holds camids, extra, features"),
        ({"num_query": np.array(2)}, "num_query, which is of one file and not of 6 files; .*--num-query"),
    ],
)
def test_what_differs_is_refused_by_name(tmp_path: Path, changes: dict, message: str) -> None:
    folder = write_shards(tmp_path / "shards")
    held = {name: values for name, values in {**rows(0, 3), **changes}.items() if values is not None}
    np.savez(folder / "rank5.npz", **held)
    with pytest.raises(InputError, match=message) as failed:
        ingest(folder, tmp_path / "out.zarr")
    assert str(folder / "rank5.npz") in str(failed.value)
    assert not (tmp_path / "out.zarr").exists()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("more.safetensors", r"mixes formats: more.*\(safetensors\), rank0.*\(npz\); give a glob .*shards/\*\."),
        ("labels.csv", r"mixes formats: .*labels\.csv \(csv\)"),
        ("rank5.npz.part", r"holds rank5\.npz\.part, which is of no known format"),
        ("more/", "holds more, which is a directory"),
    ],
)
def test_folders_of_anything_else_are_refused(tmp_path: Path, other: str, message: str) -> None:
    folder = write_shards(tmp_path / "shards")
    if other.endswith("/"):
        (folder / other).mkdir()
    elif other.endswith(".safetensors"):
        save_file({"features": np.ones((2, 8), np.float32)}, folder / other)
    else:
        (folder / other).touch()
    with pytest.raises(InputError, match=message):
        ingest(folder, tmp_path / "out.zarr")


def test_nothing_to_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".part").touch()
    for place in ("empty", "hidden"):
        with pytest.raises(InputError, match="is an empty directory; give a store"):
            ingest(tmp_path / place, tmp_path / "out.zarr")
    with pytest.raises(InputError, match=r"no file matches .*\*\.npz; quote the pattern"):
        open_features(tmp_path / "*.npz")
    with pytest.raises(StoreNotFoundError, match="no such file"):
        open_features(tmp_path / "absent.npz")
    with pytest.raises((InputError, StoreError)):
        open_features("s3://bucket/*.npz")


def test_a_damaged_shard_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "shards")
    np.savez(folder / "rank3.npz", **rows(40, 90))
    flip_bit(folder / "rank3.npz", rows(60, 61)["features"].tobytes())
    with pytest.raises(StoreError, match=r"(?s)rank3\.npz.*(CRC-32|damaged)"):
        ingest(folder, tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_large_shards_are_mapped_and_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shards(tmp_path / "shards")
    expected = open_features(folder).content_digest
    monkeypatch.setattr(shards, "_HELD_BYTES", 1000)
    monkeypatch.setattr(file_rows, "_SPOOLED_BYTES", 100)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = open_features(folder)
    assert found.content_digest == expected
    np.testing.assert_array_equal(found.read(0, 90), rows(0, 90)["features"])
    # The temporary file has no name that could be left behind.
    assert [path.name for path in tmp_path.iterdir()] == ["shards"]


_PEAK = """
import resource, sys
from reid_dist.stores import ingest
import reid_dist.stores.importers.numpy_files, reid_dist.stores.importers.shards
ingest(sys.argv[1] + "/warm*.npz", sys.argv[2] + "/warm.zarr")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ingest(sys.argv[1] + "/part*.npz", sys.argv[2] + "/all.zarr")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, number in (("warm", 2), ("part", 12)):
        for shard in range(number):
            features = rng.standard_normal((16_384, 512), dtype=np.float32)
            np.savez(tmp_path / f"{name}{shard}.npz", features=features, pids=np.arange(16_384))
    # 12 files of 32 MiB.
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(tmp_path), str(tmp_path)],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert int(done.stdout) < 64
