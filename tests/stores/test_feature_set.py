"""Feature sets in memory and in stores are the same set."""

from __future__ import annotations

import errno
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from support.feature_arrays import Arrays, make_arrays

from reid_dist.errors import (
    DamagedStoreError,
    IncompleteStoreError,
    InputError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from reid_dist.stores import FeatureSet, FeatureWriter, check_store
from reid_dist.stores.digests import digest_json
from reid_dist.stores.featureset import read_kept


def in_memory(arrays: Arrays) -> FeatureSet:
    return FeatureSet.from_arrays(arrays.features, **arrays.labels(), columns={"clothes": np.arange(len(arrays))})


def test_reads_are_views_of_float32_memory(arrays: Arrays) -> None:
    found = in_memory(arrays)
    rows = found.read(10, 20)
    assert np.shares_memory(rows, arrays.features)
    assert not rows.flags.writeable
    np.testing.assert_array_equal(rows, arrays.features[10:20])
    assert (found.uri, found.is_stored, found.chunk_rows, len(found)) == ("memory", False, 300, 300)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 301), (5, 4)])
def test_rows_outside_are_refused(arrays: Arrays, start: int, stop: int) -> None:
    with pytest.raises(InputError, match="not within the 300 rows"):
        in_memory(arrays).read(start, stop)


@given(
    n=st.integers(1, 2500),
    chunk_rows=st.integers(1, 3000),
    appended=st.lists(st.integers(1, 1500), min_size=1, max_size=6),
    dtype=st.sampled_from(["float32", "float16"]),
)
def test_content_digest_does_not_depend_on_how_rows_are_kept_or_come(
    tmp_path_factory: pytest.TempPathFactory, n: int, chunk_rows: int,
    appended: list[int], dtype: str,
) -> None:  # fmt: skip
    chunk_rows = max(chunk_rows, n // 20)  # At most some 20 files per example.
    arrays = make_arrays(n, 3, seed=n, dtype=dtype)
    held = FeatureSet.from_arrays(arrays.features, arrays.pids)
    folder = tmp_path_factory.mktemp("digest")
    stored = held.save(folder / "saved.zarr", chunk_rows=chunk_rows)
    assert stored.content_digest == held.content_digest
    with FeatureWriter(folder / "appended.zarr", dim=3, dtype=dtype, chunk_rows=chunk_rows) as writer:
        start = 0
        for size in [*appended, n]:
            writer.append(arrays.features[start : start + size], pids=arrays.pids[start : start + size])
            start = min(start + size, n)
    streamed = FeatureSet.open(writer.uri)
    assert streamed.content_digest == held.content_digest
    np.testing.assert_array_equal(read_kept(streamed, n // 3, n), arrays.features[n // 3 :])
    np.testing.assert_array_equal(read_kept(stored, n // 3, n), arrays.features[n // 3 :])


def test_content_digest_is_the_documented_one() -> None:
    features = np.random.default_rng(0).standard_normal((1500, 2), np.float32)
    pids = np.arange(1500)
    label = blake3(b"int64:1500:" + pids.astype("<i8").tobytes()).hexdigest()
    header = {
        "kind": "reid_dist content 1", "shape": [1500, 2], "dtype": "float32", "block_rows": 1024,
        "labels": {"pids": label},
    }  # fmt: skip
    whole = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    whole += blake3(features[:1024].tobytes()).digest() + blake3(features[1024:].tobytes()).digest()
    assert FeatureSet.from_arrays(features, pids).content_digest == blake3(whole).hexdigest()


def test_content_digest_covers_every_part(arrays: Arrays) -> None:
    def digest(**changed: object) -> str:
        return FeatureSet.from_arrays(**({"features": arrays.features, **arrays.labels()} | changed)).content_digest

    flipped = arrays.features.copy()
    flipped[299, 6] = np.nextafter(flipped[299, 6], 9)
    digests = [
        digest(), digest(features=flipped), digest(features=arrays.features[::-1]), digest(pids=arrays.pids + 1),
        digest(camids=None), digest(item_ids=np.arange(300)), digest(columns={"a": arrays.pids}),
        digest(columns={"b": arrays.pids}), digest(image_paths=arrays.item_ids),
        digest(features=arrays.features.astype(np.float16)),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("options", [{}, {"chunk_rows": 64}])
def test_saved_and_opened(place: str, arrays: Arrays, options: dict[str, int]) -> None:
    held, uri = in_memory(arrays), f"{place}/deep/er.zarr"
    held.save(uri, **options)
    stored = FeatureSet.open(uri if uri.startswith("s3://") else f"file://{uri}")
    assert (stored.is_stored, stored.uri) == (True, uri)
    assert not check_store(uri).damaged
    assert stored.describe() == held.describe() | {"uri": stored.uri}
    json.dumps(stored.describe())
    assert stored.labels.keys() == held.labels.keys()
    for name, values in held.labels.items():
        np.testing.assert_array_equal(stored.labels[name], values)
        assert stored.labels[name].dtype == values.dtype
        assert not stored.labels[name].flags.writeable
    for start, stop in [(0, 300), (0, 50), (49, 51), (299, 300), (64, 128), (7, 7)]:
        rows = stored.read(start, stop)
        assert rows.flags.c_contiguous
        np.testing.assert_array_equal(rows, arrays.features[start:stop])


def test_stores_are_plain_zarr(tmp_path: Path, arrays: Arrays) -> None:
    in_memory(arrays).save(tmp_path / "a.zarr", chunk_rows=64)
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    np.testing.assert_array_equal(group["features"][:], arrays.features)
    np.testing.assert_array_equal(group["columns/clothes"][:], np.arange(300))
    for _, array in group.members(max_depth=None):
        if isinstance(array, zarr.Array):
            assert "crc32c" in json.dumps(array.metadata.to_dict()["codecs"])


def test_float16_is_kept_and_read_as_float32(tmp_path: Path) -> None:
    features = np.random.default_rng(0).standard_normal((100, 5), np.float32)
    stored = FeatureSet.from_arrays(features, np.arange(100)).save(tmp_path / "h.zarr", dtype="float16", chunk_rows=30)
    assert stored.dtype == np.float16
    assert read_kept(stored, 0, 100).dtype == np.float16
    np.testing.assert_array_equal(stored.read(20, 70), features.astype(np.float16)[20:70].astype(np.float32))
    assert stored.read(0, 1).dtype == np.float32
    assert any("float16" in note for note in stored.notes)


def test_float16_overflow_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    features = np.ones((10, 2), np.float32)
    features[7, 1] = 1e6
    with pytest.raises(InputError, match=r"do not fit float16.*row 7"):
        FeatureSet.from_arrays(features, np.arange(10)).save(tmp_path / "h.zarr", dtype="float16")
    assert not (tmp_path / "h.zarr").exists()


def test_pickles_to_little_and_opens_once(tmp_path: Path, arrays: Arrays) -> None:
    stored = in_memory(arrays).save(tmp_path / "a.zarr")
    sent = pickle.dumps(stored)
    assert len(sent) < 500
    first, second = pickle.loads(sent), pickle.loads(sent)
    assert first is second
    np.testing.assert_array_equal(first.read(3, 9), arrays.features[3:9])
    held = pickle.loads(pickle.dumps(in_memory(arrays)))
    assert held.content_digest == stored.content_digest


def test_a_store_is_opened_where_it_is_read_and_not_where_it_passes(tmp_path: Path, arrays: Arrays) -> None:
    """A scheduler takes a graph out of its pickle and packs it again; it may run where the store is not."""
    stored = in_memory(arrays).save(tmp_path / "here.zarr")
    (tmp_path / "here.zarr").rename(tmp_path / "away.zarr")
    passing = pickle.loads(pickle.dumps(stored))
    again = pickle.dumps(passing)
    assert passing.is_stored
    assert passing.content_digest == stored.content_digest
    with pytest.raises(StoreNotFoundError, match="no such"):
        _ = passing.dim
    with pytest.raises(AttributeError, match="no attribute 'dimension'"):
        _ = passing.dimension
    (tmp_path / "away.zarr").rename(tmp_path / "here.zarr")
    found = pickle.loads(again)
    assert (found.n_rows, found.dim, found.dtype) == (stored.n_rows, stored.dim, stored.dtype)
    np.testing.assert_array_equal(found.read(3, 9), arrays.features[3:9])


@pytest.mark.slow
def test_a_store_that_changed_is_noticed(tmp_path: Path, arrays: Arrays) -> None:
    stored = in_memory(arrays).save(tmp_path / "a.zarr", chunk_rows=64)
    sent = pickle.dumps(stored)
    other = make_arrays(seed=9)
    FeatureSet.from_arrays(other.features, other.pids).save(tmp_path / "a.zarr", chunk_rows=64, overwrite=True)
    with pytest.raises(DamagedStoreError, match="changed while in use"):
        stored.read(70, 75)
    program = "import pickle, sys; pickle.loads(sys.stdin.buffer.read()).read(0, 1)"
    elsewhere = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=False)
    assert elsewhere.returncode != 0
    assert b"changed while in use" in elsewhere.stderr


def test_threads_read_at_once(tmp_path: Path, arrays: Arrays) -> None:
    stored = in_memory(arrays).save(tmp_path / "a.zarr", chunk_rows=16)
    starts = [start for _ in range(10) for start in range(0, 290, 7)]
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(lambda start: stored.read(start, start + 10), starts))
    for start, block in zip(starts, blocks, strict=True):
        np.testing.assert_array_equal(block, arrays.features[start : start + 10])


class TestOpenRefuses:
    def test_nothing(self, place: str) -> None:
        with pytest.raises(StoreNotFoundError, match="no such"):
            FeatureSet.open(place)

    def test_unknown_scheme(self) -> None:
        with pytest.raises(InputError, match=r"known are paths, file:// URIs of this machine, and s3://"):
            FeatureSet.open("gs://bucket/a.zarr")

    @pytest.mark.quick_cases(1)
    def test_half_written(self, place: str) -> None:
        writer = FeatureWriter(place, dim=2, chunk_rows=2)
        writer.append(np.ones((5, 2), np.float32), pids=np.arange(5))
        with pytest.raises(IncompleteStoreError, match="no commit marker"):
            FeatureSet.open(place)
        writer.finish()
        with pytest.raises(IncompleteStoreError, match="no commit marker"):
            FeatureSet.open(place)
        line = check_store(place).lines()[1]
        assert "no commit marker" in line
        assert "3 files of features" in line
        writer.commit()
        assert FeatureSet.open(place).n_rows == 5

    def test_another_group(self, tmp_path: Path) -> None:
        zarr.create_group(tmp_path / "a.zarr").create_array("features", data=np.ones((3, 2)))
        with pytest.raises(StoreError, match="not a feature store"):
            FeatureSet.open(tmp_path / "a.zarr")

    def test_a_folder_of_stores(self, tmp_path: Path) -> None:
        FeatureSet.from_arrays(np.ones((3, 2), np.float32), [1, 2, 3]).save(tmp_path / "out" / "query.zarr")
        with pytest.raises(StoreError, match="open one of these"):
            FeatureSet.open(tmp_path / "out")

    def test_a_newer_format(self, tmp_path: Path) -> None:
        FeatureSet.from_arrays(np.ones((3, 2), np.float32), [1, 2, 3]).save(tmp_path / "a.zarr")
        group = zarr.open_group(tmp_path / "a.zarr")
        group.attrs["reid_dist"] = group.attrs["reid_dist"] | {"format_version": 3}
        with pytest.raises(StoreError, match=r"format version 3.*update"):
            FeatureSet.open(tmp_path / "a.zarr")

    def test_shards_of_an_earlier_release(self, tmp_path: Path) -> None:
        FeatureSet.from_arrays(np.ones((3, 2), np.float32), [1, 2, 3]).save(tmp_path / "a.zarr")
        group = zarr.open_group(tmp_path / "a.zarr")
        entry = {**group.attrs["reid_dist"], "shard_rows": 6}
        del entry["manifest_digest"]
        group.attrs["reid_dist"] = {**entry, "manifest_digest": digest_json(entry)}
        with pytest.raises(StoreError, match=r"shards.*only earlier releases read; ingest the source again$"):
            FeatureSet.open(tmp_path / "a.zarr")


@pytest.mark.parametrize("failing", ["features", "pids"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    create = zarr.Group.create_array

    def full(group: zarr.Group, name: str, **options: object) -> object:
        if name == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(group, name, **options)

    monkeypatch.setattr(zarr.Group, "create_array", full)
    with pytest.raises(StoreError, match=r"^cannot write .*a\.zarr: No space left on device$"):
        in_memory(arrays).save(tmp_path / "a.zarr")
    assert list(tmp_path.iterdir()) == []


class TestOverwriting:
    def test_a_complete_store_is_kept(self, tmp_path: Path, arrays: Arrays) -> None:
        stored = in_memory(arrays).save(tmp_path / "a.zarr")
        with pytest.raises(StoreExistsError, match=r"already a complete store.*--overwrite \(overwrite=True\)"):
            in_memory(make_arrays(seed=5)).save(tmp_path / "a.zarr")
        assert FeatureSet.open(tmp_path / "a.zarr").content_digest == stored.content_digest

    def test_something_else_is_never_replaced(self, tmp_path: Path, arrays: Arrays) -> None:
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "thesis.tex").write_text("x")
        with pytest.raises(StoreExistsError, match="never overwritten"):
            in_memory(arrays).save(tmp_path / "precious", overwrite=True)
        assert (tmp_path / "precious" / "thesis.tex").exists()

    def test_a_failure_keeps_the_old_store(self, tmp_path: Path, arrays: Arrays) -> None:
        stored = in_memory(arrays).save(tmp_path / "a.zarr")
        with (
            pytest.raises(InputError, match="NaN"),
            FeatureWriter(tmp_path / "a.zarr", dim=2, overwrite=True) as writer,
        ):
            writer.append([[1.0, np.nan]], pids=[1])
        assert FeatureSet.open(tmp_path / "a.zarr").content_digest == stored.content_digest
        assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


class Tensor:
    """The part of a torch tensor that is used."""

    dtype = "torch.float32"

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape = values, values.shape

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self.values


class TestFeatureRules:
    def test_not_finite(self) -> None:
        features = np.ones((3000, 4), np.float32)
        features[[2, 2500], 1] = np.nan
        features[7, 3] = -np.inf
        with pytest.raises(InputError, match=r"NaN in 2 rows \(first: 2, 2500\) and infinity in 1 row \(row 7\)"):
            FeatureSet.from_arrays(features, np.arange(3000))

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_not_finite_in_half_precision(self, value: float) -> None:
        features = np.ones((20, 4), np.float16)
        features[11, 2] = value
        with pytest.raises(InputError, match="row 11"):
            FeatureSet.from_arrays(features, np.arange(20))

    def test_zero_rows_are_counted(self, tmp_path: Path) -> None:
        features = np.zeros((2100, 40), np.float32)
        features[:, 39] = 1  # Far from zero only in the last column.
        features[[5, 1024, 2099]] = 0
        found = FeatureSet.from_arrays(features, np.arange(2100))
        assert (found.n_zero_rows, found.first_zero_rows, found.allow_zero) == (3, (5, 1024, 2099), False)
        stored = found.save(tmp_path / "a.zarr", chunk_rows=100)
        assert (stored.n_zero_rows, stored.first_zero_rows) == (3, (5, 1024, 2099))

    def test_shapes(self) -> None:
        for features, what in [(np.ones(3), "two-dimensional"), (np.ones((0, 3)), "empty"), (np.ones((3, 0)), "empty")]:
            with pytest.raises(InputError, match=what):
                FeatureSet.from_arrays(features, np.arange(3))
        with pytest.raises(InputError, match="2 entries for 3 rows"):
            FeatureSet.from_arrays(np.ones((3, 2)), np.arange(2))

    def test_objects_are_refused(self) -> None:
        with pytest.raises(InputError, match="object array"):
            FeatureSet.from_arrays(np.array([[1, None]], dtype=object), [1])

    def test_float64(self) -> None:
        found = FeatureSet.from_arrays(np.array([[0.1, 1]]), [1])
        assert found.dtype == np.float32
        assert found.notes == ["features were float64 and have been rounded to float32"]
        with pytest.raises(InputError, match=r"do not fit float32.*row 0"):
            FeatureSet.from_arrays(np.array([[1e39, 1]]), [1])

    def test_whole_numbers(self) -> None:
        assert FeatureSet.from_arrays(np.array([[2**24, 3]]), [1]).read(0, 1).tolist() == [[2**24, 3]]
        for wrong in (2**24 + 1, 2**63 - 1):
            with pytest.raises(InputError, match=f"row 0 holds {wrong}"):
                FeatureSet.from_arrays(np.array([[wrong, 3]]), [1])

    def test_any_layout(self, arrays: Arrays) -> None:
        expected = FeatureSet.from_arrays(arrays.features, arrays.pids).content_digest
        for same in (np.asfortranarray(arrays.features), arrays.features.astype(">f4"), arrays.features.tolist()):
            assert FeatureSet.from_arrays(same, arrays.pids).content_digest == expected

    @pytest.mark.parametrize("tensors", [True, False])
    def test_lists_of_batches_lead_to_their_join(self, arrays: Arrays, tensors: bool) -> None:
        def listed(values: np.ndarray, stops: list[int]) -> list[Any]:
            return [Tensor(each) if tensors else each for each in np.split(values, stops)]

        join = "torch.cat" if tensors else "numpy.concatenate"
        for stops in ([100], [150], [1, 2, 3, 4]):
            with pytest.raises(InputError, match=rf"features are a list of \d arrays of shapes .* {join}\(features\)"):
                FeatureSet.from_arrays(listed(arrays.features, stops), arrays.pids)
            with pytest.raises(InputError, match=rf"pids are a list of \d arrays of shapes .* {join}\(pids\)"):
                FeatureSet.from_arrays(arrays.features, listed(arrays.pids, stops))
        # Rows one by one are no batches.
        rows = [Tensor(row) if tensors else row for row in arrays.features]
        single = [Tensor(np.array(pid)) if tensors else pid for pid in arrays.pids.tolist()]
        expected = FeatureSet.from_arrays(arrays.features, arrays.pids).content_digest
        assert FeatureSet.from_arrays(rows, single).content_digest == expected
        with pytest.raises(InputError, match=r"pids must be one label per row: .*inhomogeneous"):
            FeatureSet.from_arrays(arrays.features, [[1, 2], [3]])

    def test_frames_of_tracklets_lead_to_pool(self) -> None:
        with pytest.raises(
            InputError, match=r"shape \(5, 8, 16\); for 5 tracklets of 8 frames, .*axis=1.*reid-dist pool"
        ):
            FeatureSet.from_arrays(np.ones((5, 8, 16)), np.arange(5))
        with pytest.raises(InputError, match=r"not of shape \(5,\)$"):
            FeatureSet.from_arrays(np.ones(5), np.arange(5))

    def test_tensors_and_lazy_arrays(self, arrays: Arrays) -> None:
        da = pytest.importorskip("dask.array")
        lazy = da.from_array(arrays.features, chunks=(100, 7))
        expected = FeatureSet.from_arrays(arrays.features, arrays.pids).content_digest
        assert FeatureSet.from_arrays(lazy, arrays.pids).content_digest == expected

        assert FeatureSet.from_arrays(Tensor(arrays.features), arrays.pids).content_digest == expected
