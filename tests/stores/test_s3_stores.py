"""Feature stores on S3: written, read, checked and replaced as on disk."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from s3_server import Bucket
from support.feature_arrays import Arrays, in_memory, make_arrays, save_model

from reid_dist.errors import (
    DamagedStoreError,
    InputError,
    StoreError,
    StoreExistsError,
)
from reid_dist.stores import FeatureSet, FeatureWriter, Workspace, check_store, ingest, objects, open_features

Harm = Callable[[bytes], bytes]
Made = TypeVar("Made")


def fast_to_give_up(work: Callable[[], Made]) -> Made:
    """Do some work with a client that does not wait a minute for storage to come back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "_LATER_PATIENCE", timedelta(seconds=1))
        objects._make_store.cache_clear()
        try:
            return work()
        finally:
            objects._make_store.cache_clear()


def test_ingest_of_both_sides(bucket: Bucket, tmp_path: Path) -> None:
    source = save_model(tmp_path / "both.npz", 1, (30, 200))
    local = ingest(source, tmp_path / "out")
    remote = ingest(source, bucket.uri("out"), chunk_rows=50)
    assert [store.uri for store in remote] == [bucket.uri("out/query.zarr"), bucket.uri("out/gallery.zarr")]
    assert [store.content_digest for store in remote] == [store.content_digest for store in local]
    assert open_features(bucket.uri("out"), "gallery").uri == bucket.uri("out/gallery.zarr")
    back = ingest(bucket.uri("out"), tmp_path / "back")
    assert [store.content_digest for store in back] == [store.content_digest for store in local]


@pytest.mark.slow
def test_many_chunks_are_under_way_at_a_time(bucket: Bucket) -> None:
    arrays = make_arrays(400, 16)
    stored = in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=10)
    bucket.server.delay = 0.1
    bucket.server.requests.clear()
    begun = time.perf_counter()
    np.testing.assert_array_equal(stored.read(0, 400), arrays.features)
    taken = time.perf_counter() - begun
    assert len(bucket.server.requests) == 40
    assert taken < 0.25 * 40 * 0.1


@pytest.mark.slow
def test_a_check_has_many_chunks_under_way(bucket: Bucket) -> None:
    stored = in_memory(make_arrays(400, 16)).save(bucket.uri("set.zarr"), chunk_rows=10)
    bucket.server.delay = 0.1
    begun = time.perf_counter()
    assert not check_store(stored.uri).damaged
    # Some 15 answers are waited for one after the other: the manifest, metadata and labels.
    assert time.perf_counter() - begun < 0.75 * 55 * 0.1


class TestOverwriting:
    @pytest.mark.slow
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_a_complete_store_is_not_replaced(self, bucket: Bucket, arrays: Arrays, overwrite: bool) -> None:
        stored = in_memory(arrays).save(bucket.uri("a/set.zarr"))
        before = bucket.listed()
        with pytest.raises(StoreExistsError, match=f"write to another prefix, or delete it first .*{stored.uri}"):
            in_memory(make_arrays(100, seed=3)).save(stored.uri, overwrite=overwrite)
        assert bucket.listed() == before
        assert not check_store(stored.uri).damaged

    @pytest.mark.slow
    def test_what_a_killed_writer_left_is_replaced(self, bucket: Bucket, arrays: Arrays) -> None:
        writer = FeatureWriter(bucket.uri("set.zarr"), dim=7, chunk_rows=1)
        writer.append(np.ones((60, 7), np.float32), pids=np.arange(60))
        writer.finish()
        again = in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=50)
        assert not check_store(again.uri).damaged
        assert sum("/features/c/" in key for key in bucket.listed()) == 6

    def test_something_else_is_never_overwritten(self, bucket: Bucket, arrays: Arrays) -> None:
        bucket.write("a.zarr/notes.txt", b"other")
        bucket.write("b.zarr", b"other")
        for key in ("a.zarr", "b.zarr"):
            with pytest.raises(StoreExistsError, match="is not a feature store; it is never overwritten"):
                in_memory(arrays).save(bucket.uri(key), overwrite=True)
        assert bucket.listed() == ["a.zarr/notes.txt", "b.zarr"]

    def test_a_bucket_is_no_store(self, bucket: Bucket, arrays: Arrays) -> None:
        with pytest.raises(InputError, match="does not take a whole bucket"):
            in_memory(arrays).save(f"s3://{bucket.name}", overwrite=True)


class TestDamage:
    @pytest.mark.slow
    def test_unreadable_metadata(self, bucket: Bucket, arrays: Arrays) -> None:
        stored = in_memory(arrays).save(bucket.uri("set.zarr"))
        content = bucket.read("set.zarr/zarr.json")
        for harmed in (
            content[:100],
            content.replace(b'"group"', b'"g"'),
            b"[]",
            content.replace(b"float32", b"float16"),
        ):
            bucket.write("set.zarr/zarr.json", harmed)
            with pytest.raises(StoreError):
                FeatureSet.open(stored.uri)

    @pytest.mark.slow
    def test_a_storage_that_fails_is_not_called_damage(self, bucket: Bucket, arrays: Arrays) -> None:
        stored = in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=30)
        bucket.server.refuse = lambda method, path: path.endswith("/features/c/2/0")
        for work in (lambda: stored.read(0, 300), lambda: check_store(stored.uri)):
            with pytest.raises(StoreError, match="HTTP status 500") as caught:
                fast_to_give_up(work)
            assert not isinstance(caught.value, DamagedStoreError)


class Once:
    """One faulty answer to the requests for an object, by the server of the tests."""

    def __init__(self, bucket: Bucket, key: str, fault: str) -> None:
        self._path, self.count = f"/{bucket.name}/{key}", 0
        setattr(bucket.server, fault, self._is_faulty)
        bucket.server.status = "404 Not Found"

    def _is_faulty(self, method: str, path: str) -> bool:
        is_first = method == "GET" and path == self._path and not self.count
        self.count += is_first
        return is_first


OBJECTS = ["zarr.json", "features/zarr.json", "features/c/2/0", "pids/zarr.json", "pids/c/0", "item_ids/utf8/c/0"]


@pytest.mark.parametrize("fault", ["corrupt", "refuse"])
class TestPassingFaults:
    """One corrupt body, and one answer 404, to the first request for an object."""

    @pytest.mark.quick_cases(1)
    @pytest.mark.parametrize("name", OBJECTS)
    def test_a_read_is_right(self, bucket: Bucket, arrays: Arrays, name: str, fault: str) -> None:
        stored = in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=30)
        faulty = Once(bucket, f"set.zarr/{name}", fault)
        found = FeatureSet.open(stored.uri)
        np.testing.assert_array_equal(found.read(0, 300), arrays.features)
        for label, values in arrays.labels().items():
            np.testing.assert_array_equal(found.labels[label], values)
        assert faulty.count == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("name", OBJECTS)
    def test_a_check_finds_no_damage(self, bucket: Bucket, arrays: Arrays, name: str, fault: str) -> None:
        stored = in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=30)
        faulty = Once(bucket, f"set.zarr/{name}", fault)
        assert not check_store(stored.uri).damaged
        assert faulty.count == 1

    @pytest.mark.quick_cases(2)
    @pytest.mark.parametrize("name", ["one.npz", "stage.json"])
    def test_a_part_of_a_workspace_is_kept(self, bucket: Bucket, name: str, fault: str) -> None:
        workspace = Workspace.at(bucket.uri("work"))
        stage = workspace.stage("lists", [1], {"k": 3})
        stage.write("one", {"x": np.arange(300)})
        faulty = Once(bucket, next(key for key in bucket.listed() if key.endswith(name)), fault)
        # Another description would give another checksum.
        again = workspace.stage("lists", [1], {"k": 4})
        np.testing.assert_array_equal(again.read("one")["x"], np.arange(300))
        assert again == stage
        assert faulty.count == 1


@pytest.mark.slow
def test_scattered_rows_after_a_passing_fault(bucket: Bucket, arrays: Arrays) -> None:
    stored = in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=100)
    faulty = Once(bucket, "set.zarr/features/c/1/0", "refuse")
    np.testing.assert_array_equal(stored.read_rows(np.array([3, 150])), arrays.features[[3, 150]])
    assert faulty.count == 1


@pytest.mark.slow
def test_several_chunks_are_written_at_a_time(bucket: Bucket) -> None:
    arrays = make_arrays(400, 16)
    bucket.server.delay = 0.1
    begun = time.perf_counter()
    stored = in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=10)
    taken = time.perf_counter() - begun
    n_requests = len(bucket.server.requests)
    bucket.server.reset()
    assert n_requests > 40
    assert taken < 0.75 * n_requests * 0.1
    assert not check_store(stored.uri).damaged
    np.testing.assert_array_equal(stored.read(0, 400), arrays.features)


@pytest.mark.slow
def test_a_chunk_that_cannot_be_written_ends_the_ingest(bucket: Bucket, arrays: Arrays) -> None:
    bucket.server.refuse = lambda method, path: method == "PUT" and path.endswith("/c/3/0")
    bucket.server.status = "403 Forbidden"
    with pytest.raises(StoreError, match=r"cannot write .*credentials in the environment are refused"):
        in_memory(arrays).save(bucket.uri("set.zarr"), chunk_rows=10)
    assert bucket.listed() == []
