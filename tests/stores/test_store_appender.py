"""Rows that are appended to a store: what it would be if it had been made at once, or what it was before."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_files import flip_bit
from distributed import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from s3_server import Bucket
from support.feature_arrays import in_memory, make_arrays

from reid_dist import FeatureSet, append, evaluate, ingest
from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreExistsError, StoreNotFoundError
from reid_dist.stores import check_store
from reid_dist.stores.digests import digest_json
from reid_dist.stores.featureset import read_kept, reopened
from reid_dist.stores.folders import LocalFolder
from reid_dist.stores.store_appender import StoreAppender
from reid_dist.stores.stored import StoreReader

CHUNK_ROWS = 50


def named(n: int, seed: int = 0, dim: int = 3, dtype: str = "float32") -> dict[str, Any]:
    """Arguments of a set with every kind of labels, texts among them, and rows of zeros."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, dim)).astype(dtype)
    features[rng.random(n) < 0.02] = 0
    return {
        "features": features,
        "pids": np.array([["anna", "bob", "7", "-1", "zoë", "carl"][each] for each in rng.integers(0, 6, n)]),
        "camids": rng.integers(0, 4, n),
        "item_ids": np.array([f"item-{each}" for each in rng.permutation(n)]),
        "image_paths": np.array([f"{'x' * (each % 9)}/{each}.jpg" for each in range(n)]),
        "columns": {"tracklet": rng.integers(0, 50, n)},
        "allow_zero": True,
    }  # fmt: skip


def rows_of(arrays: Mapping[str, Any], start: int, stop: int) -> FeatureSet:
    """The set of some rows, as it is given by itself: its texts are numbered over these rows alone."""

    def cut(values: Any) -> Any:
        if isinstance(values, dict):
            return {name: cut(each) for name, each in values.items()}
        return values if isinstance(values, bool) else values[start:stop]

    return FeatureSet.from_arrays(**{name: cut(values) for name, values in arrays.items()})


def tree(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def grown(folder: Path, n_rows: tuple[int, ...], *, dim: int = 7) -> tuple[FeatureSet, FeatureSet]:
    """A store in whole chunks and parts, made by appends of so many rows each, and the set of all of these."""
    whole = in_memory(make_arrays(sum(n_rows), dim))
    ends = np.cumsum(n_rows).tolist()
    whole.take(np.arange(ends[0])).save(folder / "a.zarr", chunk_rows=CHUNK_ROWS)
    for start, stop in pairwise(ends):
        append(folder / "a.zarr", whole.take(np.arange(start, stop)).save(folder / f"{stop}.zarr").uri)
    return FeatureSet.open(folder / "a.zarr"), whole


@given(
    cuts=st.lists(st.integers(1, 1300), min_size=2, max_size=6),
    chunk_rows=st.one_of(st.none(), st.integers(1, 1500)),
    dtype=st.sampled_from(["float32", "float16"]),
    seed=st.integers(0, 1000),
)
def cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], chunk_rows: int | None, dtype: str, seed: int
) -> None:
    folder, n = tmp_path_factory.mktemp("appended"), sum(cuts)
    arrays = named(n, seed, dtype=dtype)
    whole, ends = FeatureSet.from_arrays(**arrays), np.cumsum(cuts).tolist()
    chunk_rows = chunk_rows and max(chunk_rows, n // 20)
    rows_of(arrays, 0, ends[0]).save(folder / "a.zarr", chunk_rows=chunk_rows)
    for start, stop in pairwise(ends):
        rows_of(arrays, start, stop).save(folder / f"{stop}.zarr", chunk_rows=chunk_rows)
        append(folder / "a.zarr", folder / f"{stop}.zarr")
    found = FeatureSet.open(folder / "a.zarr")
    assert found.content_digest == whole.content_digest
    np.testing.assert_array_equal(read_kept(found, 0, n), arrays["features"])
    some = np.sort(np.random.default_rng(seed).choice(n, n // 2, replace=False))
    np.testing.assert_array_equal(found.read_rows(some), arrays["features"][some].astype(np.float32))
    assert found.labels.keys() == whole.labels.keys()
    for name, values in whole.labels.items():
        np.testing.assert_array_equal(found.labels[name], values)
    assert (found.n_zero_rows, found.first_zero_rows) == (whole.n_zero_rows, whole.first_zero_rows)
    assert not check_store(found.uri).damaged
    shutil.rmtree(folder)


@pytest.mark.parametrize("n_examples", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_the_store_is_that_of_all_rows_at_once(tmp_path_factory: pytest.TempPathFactory, n_examples: int) -> None:
    settings(max_examples=n_examples)(cut_anywhere)(tmp_path_factory)


@settings(max_examples=4)
@given(cuts=st.lists(st.integers(1, 150), min_size=2, max_size=4), rerank=st.sampled_from([None, "ecn(t=2,q=3)"]))
def test_an_evaluation_is_that_of_all_rows_at_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], rerank: str | None
) -> None:
    query = in_memory(make_arrays(40, seed=9))
    found, whole = grown(tmp_path_factory.mktemp("evaluated"), (30, *cuts))
    first, second = (evaluate(query, each, rerank=rerank, topk=5, chunk_rows=37) for each in (found, whole))
    assert first.result_digest == second.result_digest
    np.testing.assert_array_equal(first.per_query["AP"], second.per_query["AP"])


class TestDisk:
    def test_no_file_of_the_old_store_is_written_again(self, tmp_path: Path) -> None:
        found, _ = grown(tmp_path, (130,))
        before = tree(tmp_path / "a.zarr")
        append(found.uri, in_memory(make_arrays(20, seed=3)).save(tmp_path / "new.zarr").uri)
        after = tree(tmp_path / "a.zarr")
        assert [name for name in before if after[name] != before[name]] == ["zarr.json"]
        added = {name for name in after if "/features/c/" in name and name not in before}
        # Rows 100 to 149 are one chunk.
        assert [name.partition("features/")[2] for name in added] == ["c/0/0"]

    @pytest.mark.parametrize(
        ("sizes", "n_parts"), [((130, *[70, 5, 90, 50, 11, 33, 120, 1, 1, 88]), 7), ((130, 1, 2, 3, 1, 4), 2)]
    )
    def test_what_is_written_again_is_removed(self, tmp_path: Path, sizes: tuple[int, ...], n_parts: int) -> None:
        """Of all appends there are, in the end, the full chunks, the last one, and the last one before it."""
        found, whole = grown(tmp_path, sizes)
        chunks = [name for name in tree(tmp_path / "a.zarr") if "features/c/" in name]
        assert len(chunks) == -(-sum(sizes) // CHUNK_ROWS) + 1
        labels = [name for name in tree(tmp_path / "a.zarr") if name.endswith("pids/c/0")]
        assert len(labels) == 2
        assert len(StoreReader.open(found.uri).manifest.parts) == n_parts
        assert len(list((Path(found.uri) / "appended").iterdir())) == n_parts
        assert found.content_digest == whole.content_digest
        assert not check_store(found.uri).damaged

    def test_a_short_store_gets_chunks_of_the_usual_length(self, tmp_path: Path) -> None:
        whole = in_memory(make_arrays(3000))
        whole.take([0]).save(tmp_path / "a.zarr")
        whole.take(np.arange(1, 3000)).save(tmp_path / "b.zarr")
        found = append(tmp_path / "a.zarr", tmp_path / "b.zarr")
        assert found.content_digest == whole.content_digest
        assert found.chunk_rows == 3000

    def test_other_files_in_the_store_stay(self, tmp_path: Path) -> None:
        found, _ = grown(tmp_path, (130, 20))
        for name in ("README.md", "mine/pids/c/0", ".reid-dist-0123abcd-1f-2e-0123abcd.tmp"):
            (Path(found.uri) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(found.uri) / name).write_text("x")
        for _ in range(2):
            append(found.uri, tmp_path / "150.zarr")
        left = [name for name in tree(Path(found.uri)) if not name.startswith(("appended/", "features/"))]
        assert sorted(left) == ["README.md", "mine/pids/c/0", "zarr.json"]


def test_a_store_of_an_earlier_release(tmp_path: Path) -> None:
    """Its manifest has no digests of blocks, and all of its rows are read."""
    whole = in_memory(make_arrays(2600))
    old = whole.take(np.arange(2500)).save(tmp_path / "a.zarr", chunk_rows=300)
    path = Path(old.uri) / "zarr.json"
    group = json.loads(path.read_text())
    entry = {
        name: value
        for name, value in group["attributes"]["reid_dist"].items()
        if name not in ("manifest_digest", "block_digests", "parts")
    }
    assert entry["format_version"] == 1
    group["attributes"]["reid_dist"] = {**entry, "manifest_digest": digest_json(entry)}
    path.write_text(json.dumps(group))
    whole.take(np.arange(2500, 2600)).save(tmp_path / "b.zarr")
    assert append(old.uri, tmp_path / "b.zarr").content_digest == whole.content_digest
    assert json.loads(path.read_text())["attributes"]["reid_dist"]["format_version"] == 2
    assert not check_store(old.uri).damaged


def test_a_damaged_old_row_that_is_written_again_is_found(tmp_path: Path) -> None:
    found, _ = grown(tmp_path, (130,))
    flip_bit(Path(found.uri) / "features/c/2/0", 100)
    before = tree(Path(found.uri))
    with pytest.raises(DamagedStoreError, match=r"features chunk 2"):
        append(found.uri, in_memory(make_arrays(20, seed=3)).save(tmp_path / "new.zarr").uri)
    assert tree(Path(found.uri)) == before


# ---- what does not fit -----------------------------------------------------------------------------------------------

UNIT = np.array([[0.6, 0.8]], np.float32)
PLAIN = {"features": np.full((3, 2), 2, np.float32), "pids": [1, 2, 3], "camids": [1, 1, 1], "item_ids": [1, 2, 3]}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({}, {"features": np.ones((3, 4), np.float32)}, "has 4 features per row, and .* has 2"),
        ({"features": np.full((3, 2), 2, np.float16)}, {}, "is float32, and .* keeps float16; .*--dtype float16"),
        ({}, {"camids": None}, "camids are in only one of .*a.zarr and .*b.zarr"),
        ({}, {"columns": {"clothes": [1, 2, 3]}}, "columns/clothes are in only one of"),
        ({}, {"image_paths": ["a", "b", "c"]}, "image_paths are in only one of"),
        ({}, {"item_ids": ["a", "b", "c"]}, "item_ids are numbers in .*a.zarr and text in .*b.zarr"),
        ({"features": UNIT.repeat(3, 0)}, {"features": [[0, 1], [3, 4], [0, 2]]},
         r"all of the last rows of .* have length 1, and of .* 2 rows \(first: 1, 2\) do not: row 1 has length 5;"),
        ({}, {"features": UNIT.repeat(3, 0)}, "all rows of .* have length 1, and the last ones of .* do not"),
        ({}, {"features": [[0, 0], [1, 2], [2, 1]]}, r"1 row \(row 0\) of zeros, which have no direction"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_changes_nothing(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], message: str
) -> None:
    for name, changed in (("a.zarr", old), ("b.zarr", new)):
        FeatureSet.from_arrays(**{**PLAIN, **changed}).save(tmp_path / name)
    before = tree(tmp_path)
    with pytest.raises(InputError, match=message):
        append(tmp_path / "a.zarr", tmp_path / "b.zarr")
    assert tree(tmp_path) == before
    assert not (tmp_path / "a.zarr" / "appended").exists()


def test_rows_that_fit_in_the_dtype_of_the_store(tmp_path: Path) -> None:
    FeatureSet.from_arrays(np.array([[0.1, 2.0]], np.float32), [1]).save(tmp_path / "wide.zarr")
    half = FeatureSet.from_arrays(np.array([[0.1, 3.0]], np.float16), [2]).save(tmp_path / "half.zarr")
    widened = append(tmp_path / "wide.zarr", half.uri)
    values = np.array([[0.1, 2.0], half.read(0, 1)[0]], np.float32)
    assert widened.content_digest == FeatureSet.from_arrays(values, [1, 2]).content_digest
    rounded = append(half.uri, tmp_path / "wide.zarr", dtype="float16")
    values = np.array([[0.1, 3.0], [0.1, 2.0], [0.1, 3.0]], np.float16)
    assert rounded.content_digest == FeatureSet.from_arrays(values, [2, 1, 2]).content_digest
    assert rounded.notes == ["features were float32 and have been rounded to float16"]


def test_the_dtype_that_is_named_must_be_that_of_the_store(tmp_path: Path) -> None:
    found, _ = grown(tmp_path, (130, 20))
    with pytest.raises(InputError, match=r"keeps float32, and not float16; leave --dtype \(dtype\) out"):
        append(found.uri, tmp_path / "150.zarr", dtype="float16")
    assert append(found.uri, tmp_path / "150.zarr", dtype="float32").n_rows == 170


def test_numbers_are_names_where_others_are_words(tmp_path: Path) -> None:
    """As they are in one list of labels, and in `FeatureSet.concat`."""
    features = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    FeatureSet.from_arrays(features[:2], ["7", "-1"]).save(tmp_path / "a.zarr")
    FeatureSet.from_arrays(features[2:], ["anna"]).save(tmp_path / "b.zarr")
    found = append(tmp_path / "a.zarr", tmp_path / "b.zarr")
    assert found.content_digest == FeatureSet.from_arrays(features, ["7", "-1", "anna"]).content_digest
    assert (found.pids.tolist(), found.pid_names) == ([1, -1, 2], ("7", "anna"))


def test_zeros_are_taken_where_they_are_meant(tmp_path: Path) -> None:
    zeros = FeatureSet.from_arrays(np.zeros((2, 2), np.float32), [1, 2], allow_zero=True).save(tmp_path / "zeros.zarr")
    plain = FeatureSet.from_arrays([[1.0, 2.0]], [3]).save(tmp_path / "a.zarr")
    assert append(zeros.uri, plain.uri).allow_zero
    assert append(zeros.uri, zeros.uri).first_zero_rows == (0, 1, 3, 4)
    found = append(plain.uri, zeros.uri, allow_zero=True)
    assert found.allow_zero
    assert found.first_zero_rows == (1, 2, 4, 5)


@pytest.mark.parametrize("place", ["nothing.zarr", "folder", "half.zarr", "file.npy"])
def test_a_place_without_a_complete_store(tmp_path: Path, place: str) -> None:
    source = in_memory(make_arrays(20)).save(tmp_path / "b.zarr").uri
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("x")
    np.save(tmp_path / "file.npy", np.eye(3))
    shutil.copytree(source, tmp_path / "half.zarr")
    group = json.loads((tmp_path / "half.zarr/zarr.json").read_text())
    group["attributes"]["reid_dist"] = {"state": "writing"}
    (tmp_path / "half.zarr/zarr.json").write_text(json.dumps(group))
    before = tree(tmp_path)
    with pytest.raises(StoreError):
        append(tmp_path / place, source)
    assert tree(tmp_path) == before
    with pytest.raises(StoreNotFoundError, match="`reid-dist ingest` makes one"):
        append(tmp_path / "deep" / "nothing.zarr", source)
    assert not (tmp_path / "deep").exists()


def test_a_source_of_two_sides(tmp_path: Path) -> None:
    found, _ = grown(tmp_path, (130,))
    (tmp_path / "both").mkdir()
    for side in ("query", "gallery"):
        in_memory(make_arrays(20)).save(tmp_path / "both" / f"{side}.zarr")
    with pytest.raises(InputError, match="holds query and gallery, and a store is one set"):
        append(found.uri, tmp_path / "both")


def test_options_for_labels_are_those_of_ingest(tmp_path: Path) -> None:
    """Rows that are dropped, and labels from names."""
    rng = np.random.default_rng(0)
    names = [f"{row % 5:04d}_c{1 + row % 3}s1_{row}_00.jpg" for row in range(60)]
    features = rng.standard_normal((60, 4)).astype(np.float32)
    for first, stop in ((0, 60), (0, 40), (40, 60)):
        np.save(tmp_path / f"{first}-{stop}.npy", features[first:stop])
        (tmp_path / f"{first}-{stop}.txt").write_text("\n".join(names[first:stop]))

    def source(part: str) -> dict[str, Any]:
        return {"source": tmp_path / f"{part}.npy", "names_file": tmp_path / f"{part}.txt", "drop_pids": [0]}

    (whole,) = ingest(output=tmp_path / "whole.zarr", **source("0-60"))
    ingest(output=tmp_path / "a.zarr", **source("0-40"))
    found = append(tmp_path / "a.zarr", **source("40-60"))
    assert found.content_digest == whole.content_digest
    recorded = StoreReader.open(found.uri).manifest.source["appended"]
    assert [(each["uri"], each["rows"], each["drop_pids"]) for each in recorded] == [
        (str(tmp_path / "40-60.npy"), 16, [0])
    ]


# ---- readers and writers at the same time ----------------------------------------------------------------------------


def from_another_process(sent: bytes) -> FeatureSet:
    """The set as a process gets it that has not opened the store yet."""
    reopened.cache_clear()
    found: FeatureSet = pickle.loads(sent)
    return found


def read_whole(held: FeatureSet, whole: FeatureSet) -> None:
    """Read everything in a set, which must be the first rows of another."""
    n = held.n_rows
    expected = whole.take(np.arange(n))
    assert held.content_digest == expected.content_digest
    np.testing.assert_array_equal(held.read(0, n), whole.read(0, n))
    np.testing.assert_array_equal(held.read_rows(np.arange(1, n, 3)), whole.read(0, n)[1::3])
    for name, values in expected.labels.items():
        np.testing.assert_array_equal(held.labels[name], values)


def test_readers_see_the_old_store_meanwhile_and_afterwards(tmp_path: Path) -> None:
    """Those that opened it, those that were told of it, and, until the commit, those that open it anew."""
    old, _ = grown(tmp_path, (130,))
    uri, sent = old.uri, pickle.dumps(old)
    whole = in_memory(make_arrays(400))
    old = whole.take(np.arange(130)).save(uri, chunk_rows=CHUNK_ROWS, overwrite=True)
    sent = pickle.dumps(old)
    idle = [FeatureSet.open(uri) for _ in range(3)]
    whole.take(np.arange(130, 300)).save(tmp_path / "b.zarr", chunk_rows=20)
    whole.take(np.arange(300, 400)).save(tmp_path / "c.zarr", chunk_rows=20)
    calls = 0

    def progress(*_: object) -> None:
        nonlocal calls
        calls += 1
        read_whole(FeatureSet.open(uri), whole)
        read_whole(from_another_process(sent), whole)

    new = append(uri, tmp_path / "b.zarr", progress=progress)
    assert calls
    read_whole(new, whole)
    assert new.n_rows == 300
    read_whole(idle[0], whole)
    read_whole(from_another_process(sent), whole)
    later = pickle.dumps(new)

    def still(*_: object) -> None:
        read_whole(FeatureSet.open(uri), whole)
        read_whole(from_another_process(sent), whole)

    append(uri, tmp_path / "c.zarr", progress=still)
    read_whole(from_another_process(later), whole)
    for look in (idle[1], from_another_process(sent)):
        with pytest.raises(DamagedStoreError, match=r"was changed while in use.*run again"):
            read_whole(look, whole)


def test_workers_go_on_with_the_old_store(two_workers: Client, tmp_path: Path) -> None:
    """They look for its content before any work, which may begin long after this process opened it."""
    query, (old, whole) = in_memory(make_arrays(30, seed=8)), grown(tmp_path, (130,))
    expected = evaluate(query, whole).result_digest
    new = in_memory(make_arrays(90, seed=3)).save(tmp_path / "new.zarr").uri
    append(old.uri, new)
    assert evaluate(query, old, client=two_workers).result_digest == expected
    append(old.uri, new)
    # Another run, whose stages no workspace of the one before holds.
    with pytest.raises(DamagedStoreError, match=r"was changed while in use.*run again"):
        evaluate(query, old, client=two_workers, rerank="k_reciprocal")


def test_a_second_append_is_refused_while_one_writes(tmp_path: Path) -> None:
    old, _ = grown(tmp_path, (130,))
    new = in_memory(make_arrays(20, seed=3)).save(tmp_path / "new.zarr").uri
    (tmp_path / "link.zarr").symlink_to(old.uri)
    seen = []

    def progress(*_: object) -> None:
        for place in (old.uri, tmp_path / "link.zarr"):
            with pytest.raises(StoreExistsError, match=f"is being written by process {os.getpid()} on "):
                append(place, new)
            seen.append(place)

    append(tmp_path / "link.zarr", new, progress=progress)
    assert seen
    assert (tmp_path / "link.zarr").is_symlink()
    assert FeatureSet.open(old.uri).n_rows == 150


def at_once(place: str, source: str) -> tuple[str, str]:
    """Append twice, the second beginning and ending while the first writes; the outcomes of both."""
    ended = []

    def progress(*_: object) -> None:
        if not ended:
            ended.append(append(place, source).content_digest)

    with pytest.raises(
        StoreError, match="was changed by another process meanwhile, and nothing was appended; run again"
    ):
        append(place, source, progress=progress)
    return ended[0], FeatureSet.open(place).content_digest


def test_of_two_appends_without_locks_one_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    old, _ = grown(tmp_path, (130, 20))
    second, found = at_once(old.uri, str(tmp_path / "150.zarr"))
    assert found == second
    assert not check_store(old.uri).damaged


# ---- errors and interrupts -------------------------------------------------------------------------------------------


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_an_interrupt_at_the_commit_leaves_the_old_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, error: BaseException
) -> None:
    old, _ = grown(tmp_path, (130, 20))
    before, replace, calls = tree(tmp_path), LocalFolder.replace, iter(range(10))

    def interrupted(folder: LocalFolder, *arguments: Any) -> bool:
        if next(calls):
            return replace(folder, *arguments)
        if moment == "after":
            replace(folder, *arguments)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else StoreError):
            append(old.uri, tmp_path / "150.zarr")
    assert tree(tmp_path) == before
    assert append(old.uri, tmp_path / "150.zarr").n_rows == 170


def test_an_abort_after_the_commit_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may come before the commit is noted."""
    old, _ = grown(tmp_path, (130, 20))
    added = FeatureSet.open(tmp_path / "150.zarr")
    writer = StoreAppender(old.uri, {"uri": "here"}, dim=7, comes_as=np.dtype(np.float32))
    writer.set_labels(added.labels)
    writer.append(added.read(0, 20))
    writer.finish()
    writer._prepare()
    writer._show()
    writer.abort()
    assert FeatureSet.open(old.uri).n_rows == 170
    assert not check_store(old.uri).damaged


def test_a_manifest_that_was_stripped_is_noticed(tmp_path: Path) -> None:
    found, _ = grown(tmp_path, (130, 20, 30))
    path = Path(found.uri) / "zarr.json"
    path.write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}))
    for look in (FeatureSet.open, lambda uri: ingest(uri, tmp_path / "out.zarr")):
        with pytest.raises(StoreError, match=r"(?s)has the arrays of a feature store and no manifest.*zarr\.json with"):
            look(found.uri)


@pytest.mark.parametrize("folder", ["../other.zarr", "appended/../../other.zarr", "/tmp"])
def test_a_manifest_does_not_lead_out_of_the_store(tmp_path: Path, folder: str) -> None:
    found, _ = grown(tmp_path, (130, 20))
    path = Path(found.uri) / "zarr.json"
    group = json.loads(path.read_text())
    entry = group["attributes"]["reid_dist"]
    del entry["manifest_digest"]
    entry["parts"][1]["folder"] = folder
    group["attributes"]["reid_dist"] = {**entry, "manifest_digest": digest_json(entry)}
    path.write_text(json.dumps(group))
    with pytest.raises(DamagedStoreError, match="which is no part of a store"):
        FeatureSet.open(found.uri)


def test_manifests_that_refer_to_each_other_do_not_keep_a_reader_for_ever(tmp_path: Path) -> None:
    found, _ = grown(tmp_path, (130, 20))
    marker = json.loads((Path(found.uri) / "zarr.json").read_text())["attributes"]["reid_dist"]
    (part,) = (Path(found.uri) / "appended").iterdir()
    group = json.loads((part / "zarr.json").read_text())
    group["attributes"]["reid_dist"]["before"] = marker
    (part / "zarr.json").write_text(json.dumps(group))
    with pytest.raises(DamagedStoreError, match="was changed while in use"):
        StoreReader.of_content(found.uri, "0" * 64)


@pytest.mark.parametrize("what", ["features/c/0/0", "features/c/1/0", "pids/c/0", "item_ids/utf8/c/0"])
def test_damage_in_a_part_is_found(tmp_path: Path, what: str) -> None:
    found, _ = grown(tmp_path, (130, 70))
    (folder,) = (Path(found.uri) / "appended").iterdir()
    flip_bit(folder / what)
    checked = check_store(found.uri)
    name = f"appended/{folder.name}/{what}"
    assert [name.startswith(damage.file) for damage in checked.damage] == [True]
    with pytest.raises(DamagedStoreError):
        read_whole(FeatureSet.open(found.uri), in_memory(make_arrays(200)))


# ---- object storage --------------------------------------------------------------------------------------------------


class TestOnObjectStorage:
    @pytest.fixture
    def placed(self, bucket: Bucket, tmp_path: Path) -> tuple[str, FeatureSet]:
        whole = in_memory(make_arrays(300))
        whole.take(np.arange(130)).save(bucket.uri("a.zarr"), chunk_rows=CHUNK_ROWS)
        whole.take(np.arange(130, 210)).save(tmp_path / "b.zarr")
        whole.take(np.arange(210, 300)).save(bucket.uri("c.zarr"))
        return bucket.uri("a.zarr"), whole

    def test_rows_are_appended(self, bucket: Bucket, placed: tuple[str, FeatureSet], tmp_path: Path) -> None:
        uri, whole = placed
        old = FeatureSet.open(uri)
        sent = pickle.dumps(old)
        read_whole(append(uri, tmp_path / "b.zarr"), whole)
        read_whole(old, whole)
        read_whole(from_another_process(sent), whole)
        found = append(uri, bucket.uri("c.zarr"))
        assert found.content_digest == whole.content_digest
        read_whole(found, whole)
        assert not check_store(uri).damaged
        # Of the first store, the full chunks alone are left.
        keys = [key for key in bucket.listed("a.zarr/") if "/appended/" not in key]
        assert sorted(keys) == [f"a.zarr/{name}" for name in
                                ("features/c/0/0", "features/c/1/0", "features/zarr.json", "zarr.json")]  # fmt: skip

    def test_of_two_appends_at_once_one_changes_nothing(self, placed: tuple[str, FeatureSet], tmp_path: Path) -> None:
        uri, whole = placed
        second, found = at_once(uri, str(tmp_path / "b.zarr"))
        assert found == second == whole.take(np.arange(210)).content_digest
        assert not check_store(uri).damaged

    def test_an_append_that_began_after_another_was_listed_is_not_removed(
        self, placed: tuple[str, FeatureSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other one begins between the commit of the first and its removal of leftovers."""
        uri, whole = placed
        show, begun = StoreAppender._show, list[StoreAppender]()

        def showing(writer: StoreAppender) -> None:
            show(writer)
            if not begun:
                begun.append(StoreAppender(uri, {"uri": "here"}, dim=7, comes_as=np.dtype(np.float32)))

        monkeypatch.setattr(StoreAppender, "_show", showing)
        append(uri, tmp_path / "b.zarr")
        added = whole.take(np.arange(210, 300))
        with begun[0] as writer:
            writer.set_labels(added.labels)
            writer.append(added.read(0, 90))
        assert FeatureSet.open(uri).content_digest == whole.content_digest
        assert not check_store(uri).damaged

    def test_another_commit_at_the_last_moment(
        self, bucket: Bucket, placed: tuple[str, FeatureSet], tmp_path: Path
    ) -> None:
        """Between the look at the manifest and its replacement: the storage itself refuses the second one."""
        uri, whole = placed
        ended = list[str]()

        def meanwhile(method: str, path: str) -> bool:
            if method == "PUT" and path.endswith("/a.zarr/zarr.json") and not ended:
                ended.append("")
                ended.append(append(uri, tmp_path / "b.zarr").content_digest)
            return False

        bucket.server.refuse = meanwhile
        with pytest.raises(StoreError, match="was changed by another process meanwhile, and nothing was appended"):
            append(uri, bucket.uri("c.zarr"))
        assert ended[1] == FeatureSet.open(uri).content_digest == whole.take(np.arange(210)).content_digest
        assert not check_store(uri).damaged

    def test_what_a_killed_append_left_is_removed(
        self, bucket: Bucket, placed: tuple[str, FeatureSet], tmp_path: Path
    ) -> None:
        uri, whole = placed
        killed = StoreAppender(uri, {"uri": "here"}, dim=7, comes_as=np.dtype(np.float32))
        killed.set_labels(whole.take(np.arange(90)).labels)
        killed.append(whole.read(0, 90))
        killed.finish()
        left = [key for key in bucket.listed("a.zarr/appended/") if "/pids/" in key or "/features/c/" in key]
        assert len(left) >= 4
        assert not check_store(uri).damaged
        append(uri, tmp_path / "b.zarr")
        assert not set(left) & set(bucket.listed("a.zarr/appended/"))
        read_whole(FeatureSet.open(uri), whole)

    @pytest.mark.quick_cases(1)
    @pytest.mark.parametrize("part", ["zarr.json", "/features/c/0/0", "/pids/c/0"])
    def test_a_storage_that_fails_leaves_the_old_store(
        self, bucket: Bucket, placed: tuple[str, FeatureSet], tmp_path: Path, part: str
    ) -> None:
        uri, whole = placed
        bucket.server.status = "403 Forbidden"
        bucket.server.refuse = lambda method, path: method == "PUT" and path.endswith(part)
        with pytest.raises(StoreError):
            append(uri, tmp_path / "b.zarr")
        bucket.server.reset()
        read_whole(FeatureSet.open(uri), whole)
        assert append(uri, tmp_path / "b.zarr").n_rows == 210
