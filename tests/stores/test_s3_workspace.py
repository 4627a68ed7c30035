"""Stages of a workspace on S3, as on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from s3_server import Bucket
from support.local_workers import started

from reid_dist.errors import DamagedPartError
from reid_dist.stages.session import Session
from reid_dist.stores import FeatureSet, Workspace
from reid_dist.stores.folders import folder_at
from reid_dist.stores.workspace import FORMAT


@pytest.fixture
def workspace(place: str) -> Workspace:
    return Workspace.at(place)


ARRAYS = {
    "index": np.arange(12).reshape(3, 4),
    "none": np.zeros((0, 3), np.float32),
    "special": np.array([np.nan, np.inf, -0.0]),
}


def test_parts(workspace: Workspace) -> None:
    stage = workspace.stage("lists", [1, "a"], {"k": 3})
    assert stage.is_empty
    assert not stage.has("one")
    size = stage.write("one", ARRAYS)
    assert size == folder_at(stage.path).size("one.npz")
    stage.write("two", {"x": np.zeros(0)})
    assert stage.has("one")
    assert not stage.is_empty
    assert stage.done() == {"one", "two"}
    found = stage.read("one")
    assert list(found) == list(ARRAYS)
    for name, values in ARRAYS.items():
        assert (found[name].dtype, found[name].tobytes()) == (values.dtype, values.tobytes())
    assert list(stage.read("one", "special", "index")) == ["special", "index"]
    stage.write("one", {"index": np.ones(2)})
    np.testing.assert_array_equal(stage.read("one")["index"], np.ones(2))
    stage.remove("one")
    stage.remove("one")
    assert stage.done() == {"two"}
    with pytest.raises(DamagedPartError, match=r"one\.npz is missing"):
        stage.read("one")


def test_a_stage_is_found_again_and_its_description_kept(workspace: Workspace) -> None:
    stage = workspace.stage("lists", [1, 0.3], {"k": 3})
    assert workspace.stage("lists", [1, 0.3], {"k": 4}) == stage
    assert stage.description == {"kind": "lists", "format": FORMAT, "k": 3}
    others = [workspace.stage("lists", identity, {}) for identity in ([1, 0.30000000000000004], ["1", 0.3])]
    kind = workspace.stage("averages", [1, 0.3], {})
    assert len({each.path for each in (stage, *others, kind)}) == 4
    assert workspace.stages("lists") == sorted([stage, *others], key=lambda each: each.path)
    stage.write("one", ARRAYS)
    workspace.remove(stage)
    assert workspace.stages("lists") == sorted(others, key=lambda each: each.path)
    assert stage.is_empty
    with pytest.raises(DamagedPartError, match=r"stage\.json is missing or not what was written"):
        assert stage.description


def test_no_stage_in_a_workspace_that_is_not_there(workspace: Workspace) -> None:
    assert workspace.stages("lists") == []


def test_a_description_that_is_gone_is_written_again(bucket: Bucket) -> None:
    workspace = Workspace.at(bucket.uri("work"))
    stage = workspace.stage("lists", [1], {"k": 3})
    stage.write("one", ARRAYS)
    bucket.delete(next(key for key in bucket.listed() if key.endswith("stage.json")))
    assert workspace.stages("lists") == []
    assert workspace.stage("lists", [1], {"k": 3}) == stage
    assert stage.read("one").keys() == ARRAYS.keys()
    bucket.delete(next(key for key in bucket.listed() if key.endswith("stage.json")))
    other = workspace.stage("lists", [1], {"k": 4})
    with pytest.raises(DamagedPartError, match="its rows are cut in another way"):
        other.read("one")


def test_a_part_of_another_place(workspace: Workspace) -> None:
    first, second = (workspace.stage("lists", [number], {}) for number in (1, 2))
    first.write("one", ARRAYS)
    for stage, name in ((first, "two.npz"), (second, "one.npz")):
        with folder_at(first.path).open("one.npz") as file:
            folder_at(stage.path).write(name, file.read())
    for stage, part in ((first, "two"), (second, "one")):
        with pytest.raises(DamagedPartError) as caught:
            stage.read(part, "index")
        written = f"it was written as {first.path.rpartition('/')[2]}/one"
        assert str(caught.value).startswith(f"{stage.path}/{part}.npz is another part ({written}); rerun")
    assert first.read("one").keys() == ARRAYS.keys()


def test_parts_are_removed_by_one_request(bucket: Bucket) -> None:
    stage, other = (Workspace.at(bucket.uri("work")).stage("lists", [number], {}) for number in (1, 2))
    for part in ("one", "two", "three", "four"):
        stage.write(part, ARRAYS)
    for part in ("two", "three"):
        with folder_at(stage.path).open("one.npz") as file:
            folder_at(stage.path).write(f"{part}.npz", file.read())
    n_before = len(bucket.server.requests)
    assert stage.remove_foreign_parts() == 2
    assert [method for method, _ in bucket.server.requests[n_before:] if method != "GET"] == ["POST"]
    assert stage.done() == {"one", "four"}
    other.remove()
    assert [method for method, _ in bucket.server.requests[n_before:] if method != "GET"] == ["POST"]


@pytest.mark.parametrize("harm", [lambda content: content[:40], lambda content: content[:150] + b"?" + content[151:]])
def test_damaged_parts(bucket: Bucket, harm) -> None:
    stage = Workspace.at(bucket.uri("work")).stage("lists", [1], {})
    stage.write("one", ARRAYS)
    key = next(key for key in bucket.listed() if key.endswith("one.npz"))
    bucket.write(key, harm(bucket.read(key)))
    with pytest.raises(DamagedPartError, match=r"one\.npz is damaged"):
        stage.read("one")


def test_sets_in_memory_are_put_where_workers_see_them(bucket: Bucket, tmp_path: Path) -> None:
    features = FeatureSet.from_arrays(np.random.default_rng(0).standard_normal((9, 3)), np.arange(9))
    workspace = Workspace.at(bucket.uri("work"))
    with started(1, tmp_path, processes=False, host=None) as client:
        with Session(client=client, workspace=workspace).visible(features, features) as (query, gallery):
            assert query is gallery
            assert query.uri == bucket.uri(f"work/features-{features.content_digest[:16]}.zarr")
            assert query.content_digest == features.content_digest
            written = bucket.listed()
        # A later run finds them there: stores on S3 are not replaced.
        with Session(client=client, workspace=workspace).visible(features, features) as (query, _):
            assert query.content_digest == features.content_digest
    assert bucket.listed() == written
