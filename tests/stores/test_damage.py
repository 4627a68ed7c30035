"""Damage of every kind is found, by a read and by a check, and named by array and chunk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr
from feature_arrays import Arrays, in_memory, make_arrays

from reid_dist.errors import DamagedStoreError, StoreError, StoreNotFoundError
from reid_dist.stores import FeatureSet, check_store, ingest, open_features


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def replace_with_valid_chunk(file: Path) -> None:
    """Another chunk with a valid checksum: only the manifest shows the difference."""
    shutil.copy(file.parent.parent / "0" / "0", file)


DAMAGE: list[Callable[[Path], None]] = [flip, truncate, empty, Path.unlink, replace_with_valid_chunk]


@pytest.fixture
def store(tmp_path: Path, arrays: Arrays) -> FeatureSet:
    return in_memory(arrays).save(tmp_path / "a.zarr", chunk_rows=60)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_chunk_is_named(store: FeatureSet, damage: Callable[[Path], None], arrays: Arrays) -> None:
    damage(Path(store.uri) / "features/c/3/0")
    for start, stop in [(180, 240), (0, 300), (200, 201), (170, 185)]:
        with pytest.raises(DamagedStoreError, match=r"features chunk 3 \(features/c/3/0\)"):
            store.read(start, stop)
    np.testing.assert_array_equal(store.read(0, 180), arrays.features[:180])
    np.testing.assert_array_equal(store.read(240, 300), arrays.features[240:])
    report = check_store(store.uri)
    assert [(found.array, found.chunk) for found in report.damage] == [("features", 3)]
    assert report.damaged
    assert "features chunk 3" in "\n".join(report.lines())


@pytest.mark.parametrize("damage", [flip, empty, Path.unlink])
def test_a_damaged_shard_is_named(tmp_path: Path, arrays: Arrays, damage: Callable[[Path], None]) -> None:
    store = FeatureSet.from_arrays(arrays.features, arrays.pids).save(
        tmp_path / "s.zarr", chunk_rows=25, shard_rows=100
    )
    damage(tmp_path / "s.zarr/features/c/1/0")
    with pytest.raises(DamagedStoreError, match=r"features chunk [4-7] \(features/c/1/0\)"):
        store.read(100, 200)
    found = {damaged.chunk for damaged in check_store(store.uri).damage}
    assert found
    assert found <= {4, 5, 6, 7}


@pytest.mark.parametrize("file", ["pids/c/0", "camids/c/0", "item_ids/utf8/c/0", "item_ids/offsets/c/0"])
@pytest.mark.parametrize("damage", [flip, truncate, Path.unlink])
def test_damaged_labels_are_named(store: FeatureSet, file: str, damage: Callable[[Path], None]) -> None:
    damage(Path(store.uri) / file)
    name = file.split("/")[0]
    with pytest.raises(DamagedStoreError, match=name):
        getattr(FeatureSet.open(store.uri), name)
    assert [found.array for found in check_store(store.uri).damage] == [name]


def test_all_damage_is_collected(store: FeatureSet) -> None:
    flip(Path(store.uri) / "features/c/0/0")
    (Path(store.uri) / "features/c/4/0").unlink()
    flip(Path(store.uri) / "camids/c/0")
    report = check_store(store.uri)
    damaged = [(found.array, found.chunk) for found in report.damage]
    assert damaged == [("features", 0), ("features", 4), ("camids", None)]
    assert sum("damaged:" in line for line in report.lines()) == 3


@pytest.mark.parametrize("old_and_new", [('"allow_zero": false', '"allow_zero": true '), ('"count": 0', '"count": 1')])
def test_an_edited_manifest_is_noticed(store: FeatureSet, old_and_new: tuple[str, str]) -> None:
    file = Path(store.uri) / "zarr.json"
    text = file.read_text()
    assert text.count(old_and_new[0]) == 1
    file.write_text(text.replace(*old_and_new))
    with pytest.raises(DamagedStoreError, match="manifest"):
        FeatureSet.open(store.uri)
    assert check_store(store.uri).damaged


def edit(store: Path, old: str, new: str) -> None:
    text = (store / "zarr.json").read_text()
    assert text.count(old) == 1
    (store / "zarr.json").write_text(text.replace(old, new))


@pytest.mark.parametrize("shard_rows", [None, 60])
@pytest.mark.parametrize("new", ['"reid_disu"', '"attributes": {}, "unused"', "gone"])
def test_a_store_without_its_manifest_is_not_another_group(
    tmp_path: Path, arrays: Arrays, new: str, shard_rows: int | None
) -> None:
    """Nothing in it could be verified."""
    source = tmp_path / "in" / "query.zarr"
    held = in_memory(arrays)
    for place in (source, tmp_path / "in" / "gallery.zarr"):
        held.save(place, chunk_rows=60, shard_rows=shard_rows)
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
            f"{source} has the arrays of a feature store, and no zarr.json with the attribute 'reid_dist'"
        )
        assert "ingest the source again" in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", ["zarr.json", "features/zarr.json", "pids/zarr.json"])
def test_damaged_metadata_is_a_store_error(store: FeatureSet, file: str) -> None:
    truncate(Path(store.uri) / file)
    with pytest.raises(StoreError):
        _ = FeatureSet.open(store.uri).pids
    assert check_store(store.uri).damaged


def test_a_store_without_a_checksum_codec_is_still_verified(store: FeatureSet, arrays: Arrays) -> None:
    """The digests of the manifest do not depend on checksums, which another tool may have removed."""
    shutil.rmtree(Path(store.uri) / "features")
    wrong = arrays.features.copy()
    wrong[100, 0] += 1
    zarr.open_group(store.uri).create_array("features", data=wrong, chunks=(60, 7), compressors=None)
    with pytest.raises(DamagedStoreError, match="chunk 1"):
        FeatureSet.open(store.uri).read(0, 300)


@pytest.mark.parametrize("file", ["features/c/3/0", "camids/c/0", "item_ids/utf8/c/0"])
def test_a_wrong_checksum_gives_one_line(store: FeatureSet, file: str) -> None:
    flip(Path(store.uri) / file)
    array = file.split("/")[0]
    read = (lambda: store.read(0, 300)) if array == "features" else (lambda: getattr(FeatureSet.open(store.uri), array))
    with pytest.raises(DamagedStoreError, match="do not have the checksum that was written with them") as caught:
        read()
    (damage,) = check_store(store.uri).damage
    assert str(damage) in str(caught.value)
    for message in (str(caught.value), str(damage)):
        assert message.isprintable()
        assert "b'" not in message
        assert "Stored" not in message


class TestCheck:
    def test_a_whole_store(self, store: FeatureSet) -> None:
        seen: list[tuple[int, int]] = []
        report = check_store(store.uri, progress=lambda done, total, _: seen.append((done, total)))
        assert not report.damaged
        assert report.manifest is not None
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
        assert report.labels is not None
        assert (report.labels.n_pids, report.labels.n_camids) == (17, 3)
        assert report.labels.junk.first == (4, 5, 6)
        assert report.labels.distractors.first == (0,)
        assert report.labels.duplicate_item_ids.count == 10


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
    query, gallery = make_arrays(3000, 256, seed=1), make_arrays(40_000, 256, seed=2)
    source = tmp_path / "both.npz"
    np.savez(
        source, query_f=query.features, query_label=query.pids, gallery_f=gallery.features, gallery_label=gallery.pids
    )  # fmt: skip
    out = tmp_path / "out"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(source), str(out)], stdout=subprocess.PIPE)
    assert process.stdout is not None
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
    np.testing.assert_array_equal(stores[1].read(39_000, 40_000), gallery.features[39_000:])
    assert not any(check_store(store.uri).damaged for store in stores)
