"""``reid-dist append``: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.feature_arrays import in_memory, make_arrays

from reid_dist import FeatureSet


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FeatureSet:
    monkeypatch.chdir(tmp_path)
    whole = in_memory(make_arrays(200))
    whole.take(np.arange(150)).save("a.zarr", chunk_rows=40)
    whole.take(np.arange(150, 200)).save("b.zarr")
    return whole


def test_rows_are_appended(reid_dist, whole: FeatureSet, tmp_path: Path) -> None:
    done = reid_dist("append", "a.zarr", "b.zarr")
    assert done.code == 0, done.err
    digest = whole.content_digest
    assert done.out == (f"{tmp_path}/a.zarr: 50 rows appended, 200 x 7 float32, 20 identities, content {digest[:16]}\n")
    assert FeatureSet.open("a.zarr").content_digest == digest
    assert reid_dist("check", "a.zarr").code == 0


def test_items_that_are_there_already_are_noted(reid_dist, whole: FeatureSet) -> None:
    assert reid_dist("append", "a.zarr", "b.zarr").code == 0
    done = reid_dist("append", "a.zarr", "b.zarr")
    assert done.code == 0
    assert "caution: set: 50 of 250 rows have the item id of an earlier row (first: row 200, " in done.out


def test_labels_are_named_as_for_ingest(reid_dist, whole: FeatureSet) -> None:
    added = whole.take(np.arange(150, 200))
    held = {"emb": added.read(0, 50), "who": added.pids, "camids": added.camids, "item_ids": added.item_ids}
    np.savez("c.npz", **held, image_paths=added.image_paths)
    words = ("append", "a.zarr", "c.npz", "--features", "emb", "--pids", "who")
    assert reid_dist(*words, "--drop-pid", "3").code == 0
    assert FeatureSet.open("a.zarr").n_rows == 200 - int((added.pids == 3).sum())


def test_rows_are_left_out_as_by_ingest(reid_dist, whole: FeatureSet) -> None:
    (Path("bad.txt")).write_text("row\n0\n7\n999\n")
    done = reid_dist("append", "a.zarr", "b.zarr", "--exclude", "bad.txt", "--left-out", "left_out.csv")
    assert done.code == 0, done.err
    kept = np.delete(np.arange(200), [150, 157])
    assert FeatureSet.open("a.zarr").content_digest == whole.take(kept).content_digest
    assert len(Path("left_out.csv").read_text().splitlines()) == 4
    assert "  note: left out 2 of 50 rows (exclusion list)\n" in done.out
    assert "  note: 1 of 3 entries in the exclusion list matches no row: 999\n" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing.zarr", "b.zarr"), "no such feature store: "),
        (("a.zarr", "nothing.zarr"), "no such file: "),
        (("a.zarr", "narrow.zarr"), "has 3 features per row, and "),
        (("a.zarr", "b.zarr", "--dtype", "float16"), "keeps float32, and not float16"),
        (("a.zarr", "b.zarr", "--num-query", "3"), "No such option"),
        (("a.zarr", "b.zarr", "--query-pids", "who"), "No such option"),
        (("a.zarr", "b.zarr", "--overwrite"), "No such option"),
    ],
)
def test_mistakes_are_one_line(reid_dist, whole: FeatureSet, words: tuple[str, ...], message: str) -> None:
    in_memory(make_arrays(5, 3)).save("narrow.zarr")
    done = reid_dist("append", *words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert FeatureSet.open("a.zarr").content_digest == whole.take(np.arange(150)).content_digest
