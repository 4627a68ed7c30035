"""Damage of every kind is found, by a read and by a check, and named by array and chunk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import zarr
from support.feature_arrays import Arrays, in_memory, save_model

from reid_dist.errors import DamagedStoreError, ShortageError, StoreError, StoreNotFoundError
from reid_dist.stores import FeatureSet, check_store, ingest, open_features
from reid_dist.stores.folders import folder_at

Harm = Callable[[bytes], bytes | None]
"""What becomes of the bytes of a file; None if it is removed."""


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def truncate(content: bytes) -> bytes:
    return content[:-9]


def empty(content: bytes) -> bytes:
    return b""


def remove(content: bytes) -> None:
    return None


def damage(store: FeatureSet, file: str, harm: Harm) -> None:
    folder = folder_at(store.uri)
    content = folder.read(file)
    harmed = harm(content)
    assert harmed != content
    folder.remove(file) if harmed is None else folder.write(file, harmed)


def assert_one_line(*messages: object) -> None:
    """Libraries would print the bytes of a file."""
    for message in map(str, messages):
        assert message.isprintable()
        assert "b'" not in message
        assert "Stored" not in message


@pytest.fixture
def store(place: str, arrays: Arrays) -> FeatureSet:
    return in_memory(arrays).save(place, chunk_rows=60)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("harm", [flip, truncate, empty, remove, "another chunk"])
def test_a_damaged_chunk_is_named(store: FeatureSet, harm: Harm | str, arrays: Arrays) -> None:
    # Another chunk has a valid checksum: only the manifest shows the difference.
    other = folder_at(store.uri).read("features/c/0/0")
    damage(store, "features/c/3/0", (lambda _: other) if isinstance(harm, str) else harm)
    report = check_store(store.uri)
    (found,) = report.damage
    assert (found.array, found.chunk, found.what == "missing") == ("features", 3, harm is remove)
    assert report.damaged
    assert f"  damaged: {found}" in report.lines()
    assert str(found).startswith("features chunk 3 (features/c/3/0)")
    for start, stop in [(180, 240), (0, 300), (200, 201), (170, 185)]:
        with pytest.raises(DamagedStoreError, match=re.escape(str(found))) as caught:
            store.read(start, stop)
        assert_one_line(caught.value, found)
    np.testing.assert_array_equal(store.read(0, 180), arrays.features[:180])
    np.testing.assert_array_equal(store.read(240, 300), arrays.features[240:])
    np.testing.assert_array_equal(store.read_rows(np.array([3, 240])), arrays.features[[3, 240]])
    for rows in ([3, 239], [3, *range(180, 240)]):
        with pytest.raises(DamagedStoreError, match=re.escape(str(found))):
            store.read_rows(np.array(rows))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("file", ["pids/c/0", "camids/c/0", "item_ids/utf8/c/0", "item_ids/offsets/c/0"])
@pytest.mark.parametrize("harm", [flip, truncate, remove])
def test_damaged_labels_are_named(store: FeatureSet, file: str, harm: Harm) -> None:
    damage(store, file, harm)
    name = file.split("/")[0]
    (found,) = check_store(store.uri).damage
    assert found.array == name
    with pytest.raises(DamagedStoreError, match=re.escape(str(found))) as caught:
        getattr(FeatureSet.open(store.uri), name)
    assert_one_line(caught.value, found)


@pytest.mark.quick_cases(1)
def test_all_damage_is_collected(store: FeatureSet) -> None:
    damage(store, "features/c/0/0", flip)
    damage(store, "features/c/4/0", remove)
    damage(store, "camids/c/0", flip)
    report = check_store(store.uri)
    damaged = [(found.array, found.chunk) for found in report.damage]
    assert damaged == [("features", 0), ("features", 4), ("camids", None)]
    assert sum("damaged:" in line for line in report.lines()) == 3


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("old_and_new", [('"allow_zero": false', '"allow_zero": true '), ('"count": 0', '"count": 1')])
def test_an_edited_manifest_is_noticed(store: FeatureSet, old_and_new: tuple[str, str]) -> None:
    old, new = (text.encode() for text in old_and_new)
    damage(store, "zarr.json", lambda content: content.replace(old, new))
    with pytest.raises(DamagedStoreError, match="manifest"):
        FeatureSet.open(store.uri)
    assert check_store(store.uri).damaged


def edit(store: Path, old: str, new: str) -> None:
    text = (store / "zarr.json").read_text()
    assert text.count(old) == 1
    (store / "zarr.json").write_text(text.replace(old, new))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("new", ['"reid_disu"', '"attributes": {}, "unused"', "gone"])
def test_a_store_without_its_manifest_is_not_another_group(tmp_path: Path, arrays: Arrays, new: str) -> None:
    """Nothing in it could be verified."""
    source = tmp_path / "in" / "query.zarr"
    held = in_memory(arrays)
    for place in (source, tmp_path / "in" / "gallery.zarr"):
        held.save(place, chunk_rows=60)
    if new == "gone":
        (source / "zarr.json").unlink()
    else:
        edit(source, '"reid_dist"', new)
    for read in (
        lambda: FeatureSet.open(source),
        lambda: check_store(source),
        lambda: open_features(source),
        lambda: open_features(tmp_path / "in", "query"),
        lambda: ingest(source, tmp_path / "out"),
        lambda: ingest(tmp_path / "in", tmp_path / "out"),
    ):
        with pytest.raises(StoreError) as refused:
            read()
        assert str(refused.value).startswith(
            f"{source} is damaged: it has the arrays of a feature store and no manifest"
        )
        assert "ingest the source again" in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("harm", [truncate, lambda _: b"[" * 200_000], ids=["truncated", "of very many levels"])
@pytest.mark.parametrize("file", ["zarr.json", "features/zarr.json", "pids/zarr.json"])
def test_damaged_metadata_is_one_line(store: FeatureSet, file: str, harm: Harm) -> None:
    damage(store, file, harm)
    with pytest.raises(DamagedStoreError, match="unreadable") as found:
        _ = FeatureSet.open(store.uri).pids, FeatureSet.open(store.uri).read(0, 1)
    (problem, *_) = check_store(store.uri).damage
    assert_one_line(found.value, problem)
    assert "unreadable" in str(problem)


@pytest.mark.quick_cases(1)
def test_a_store_without_a_checksum_codec_is_still_verified(store: FeatureSet, arrays: Arrays) -> None:
    """The digests of the manifest do not depend on checksums, which another tool may have removed."""
    folder_at(f"{store.uri}/features").clear()
    wrong = arrays.features.copy()
    wrong[100, 0] += 1
    group = zarr.open_group(folder_at(store.uri).zarr_store(read_only=False))
    group.create_array("features", data=wrong, chunks=(60, 7), compressors=None)
    with pytest.raises(DamagedStoreError, match="chunk 1"):
        FeatureSet.open(store.uri).read(0, 300)


class TestCheck:
    @pytest.mark.quick_cases(1)
    def test_a_whole_store(self, store: FeatureSet) -> None:
        seen: list[tuple[int, int]] = []
        report = check_store(store.uri, progress=lambda done, total, _: seen.append((done, total)))
        assert not report.damaged
        assert report.manifest.content_digest == store.content_digest
        assert seen == [(60, 300), (120, 300), (180, 300), (240, 300), (300, 300)]
        assert report.lines()[0] == f"{store.uri}: whole"

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(StoreNotFoundError):
            check_store(tmp_path / "no.zarr")

    def test_oddities_are_counted(self, tmp_path: Path) -> None:
        features = np.arange(1, 41, dtype=np.float32).reshape(20, 2)
        features[[12, 7, 19]] = features[3]
        features[[9, 11]] = 0
        pids = np.arange(20)
        pids[4:7] = -1
        FeatureSet.from_arrays(features, pids, pids % 3, np.arange(20) // 2, allow_zero=True).save(
            tmp_path / "o.zarr", chunk_rows=6
        )
        report = check_store(tmp_path / "o.zarr")
        assert not report.damaged
        assert report.faults.zero.first == (9, 11)
        assert report.duplicates.first == (7, 11, 12, 19)
        assert report.first_duplicates == ((7, 3), (11, 9), (12, 3), (19, 3))
        assert report.labels[:3] == (
            "identities: 17 (-1 to 19), 3 cameras (0 to 2)",
            "junk (pid -1): 3 rows (first: 4, 5, 6); distractors (pid 0): 1 row (row 0)",
            "item ids that an earlier row has: 10 rows (first: 1, 3, 5, 7, 9, 11, 13, 15, 17, 19)",
        )
        cure = f"`reid-dist ingest {tmp_path}/o.zarr --drop-duplicates item_ids --output NEW`"
        assert any(cure in line for line in report.lines())


KILLED = """
import sys, time
from reid_dist.stores import ingest
def progress(done, total, what):
    print(done, flush=True)
    time.sleep(0.05)
ingest(sys.argv[1], sys.argv[2], chunk_rows=500, progress=progress)
"""


@pytest.mark.slow
def test_a_killed_ingest_is_never_taken_for_a_store(tmp_path: Path) -> None:
    source = save_model(tmp_path / "both.npz", 1, (3000, 40_000), 256)
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(source), str(out)], stdout=subprocess.PIPE)
    for line in process.stdout:
        if int(line) > 15_000:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert list((out / "gallery.zarr/features/c").iterdir())
    for name in ("query.zarr", "gallery.zarr"):
        with pytest.raises(StoreError, match="no commit marker"):
            FeatureSet.open(out / name)
        report = check_store(out / name)
        assert report.damaged
        assert "no commit marker" in report.lines()[1]
    started = time.monotonic()
    stores = ingest(source, out)
    assert time.monotonic() - started < 60
    np.testing.assert_array_equal(stores[1].read(39_000, 40_000), np.load(source)["gallery_f"][39_000:])
    assert not any(check_store(store.uri).damaged for store in stores)


@pytest.mark.parametrize("make", [lambda: ShortageError("no more threads"), MemoryError])
def test_a_shortage_of_the_process_is_no_damage_of_the_store(tmp_path, monkeypatch, make):
    """Zarr needs threads of its own to read metadata, and a limited process may not get them."""
    FeatureSet.from_arrays(np.eye(4, dtype=np.float32), [1, 1, 2, 2]).save(tmp_path / "set.zarr")

    def refused(*_: object) -> NoReturn:
        raise make()

    monkeypatch.setattr(zarr.Group, "__getitem__", refused)
    with pytest.raises(type(make())):
        FeatureSet.open(tmp_path / "set.zarr")
