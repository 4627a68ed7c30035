"""Rows of other sets: the same set as one that is made of these rows at once, and no row is copied."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_files import flip_bit
from hypothesis import given
from hypothesis import strategies as st
from support.feature_arrays import Arrays, in_memory, make_arrays

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.stores import FeatureSet, Workspace, featureset, fuse
from reid_dist.stores.opening import recorded_place

LABELS = ("pids", "camids", "item_ids", "image_paths")


def given_arrays(seed: int, n: int, texts: Sequence[str] | None, dtype: str = "float32") -> dict[str, Any]:
    """Arrays of a set, with rows of zeros; identities are numbers, or some of the texts."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 5)).astype(dtype)
    features[rng.random(n) < 0.1] = 0
    pids = rng.integers(-1, 9, n) if texts is None else rng.choice([*texts, "-1"], n)
    return {
        "features": features,
        "pids": pids,
        "camids": rng.choice(["c1", "c2", "roof"], n),
        "item_ids": rng.integers(0, 99, n),
        "image_paths": np.array([f"{place}.jpg" for place in rng.integers(0, 10**6, n)]),
        "columns": {"clothes": rng.integers(0, 3, n)},
        "allow_zero": True,
    }


def rows_of(arrays: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    made = {name: values[rows] for name, values in arrays.items() if isinstance(values, np.ndarray)}
    return {**made, "columns": {name: values[rows] for name, values in arrays["columns"].items()}, "allow_zero": True}


def joined(*sets: dict[str, Any]) -> dict[str, Any]:
    names = [name for name, values in sets[0].items() if isinstance(values, np.ndarray)]
    made = {name: np.concatenate([each[name] for each in sets]) for name in names}
    columns = {"clothes": np.concatenate([each["columns"]["clothes"] for each in sets])}
    return {**made, "columns": columns, "allow_zero": True}


def assert_same(found: FeatureSet, expected: FeatureSet) -> None:
    """Everything that a set says of itself, and the rows however they are read."""
    assert found.content_digest == expected.content_digest
    assert found.labels_digest == expected.labels_digest
    assert (found.n_rows, found.dim, found.dtype) == (expected.n_rows, expected.dim, expected.dtype)
    assert (found.pid_names, found.camid_names) == (expected.pid_names, expected.camid_names)
    assert (found.n_zero_rows, found.first_zero_rows) == (expected.n_zero_rows, expected.first_zero_rows)
    assert found.labels.keys() == expected.labels.keys()
    for name, values in expected.labels.items():
        np.testing.assert_array_equal(found.labels[name], values)
        assert not found.labels[name].flags.writeable
    n = expected.n_rows
    for start, stop in {(0, n), (0, 1), (n // 2, n), (n // 3, n // 2), (n, n)}:
        rows = found.read(start, stop)
        assert (rows.dtype, rows.flags.c_contiguous) == (np.float32, True)
        np.testing.assert_array_equal(rows, expected.read(start, stop))
    for some in (np.arange(n), np.arange(0, n, 3), np.array([n - 1]), np.empty(0, np.int64)):
        np.testing.assert_array_equal(found.read_rows(some), expected.read_rows(some))


TEXTS = st.sampled_from([None, ("a", "b", "c"), ("01", "1", "x"), ("7", "8", "9"), ("01", "2", "word")])


@given(
    n=st.integers(1, 60), stored=st.booleans(), texts=TEXTS, data=st.data(), seed=st.integers(0, 9),
    dtype=st.sampled_from(["float32", "float16"]),
)  # fmt: skip
def test_taken_rows_are_the_set_of_these_rows(
    tmp_path_factory: pytest.TempPathFactory, n: int, stored: bool, texts: Sequence[str] | None, data: st.DataObject,
    seed: int, dtype: str,
) -> None:  # fmt: skip
    arrays = given_arrays(seed, n, texts, dtype)
    whole = FeatureSet.from_arrays(**arrays)
    if stored:
        whole = whole.save(tmp_path_factory.mktemp("view") / "a.zarr", chunk_rows=max(1, n // 4))
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=80)))
    found, expected = whole.take(rows), FeatureSet.from_arrays(**rows_of(arrays, rows))
    assert found.is_stored is stored
    assert_same(found, expected)
    assert_same(pickle.loads(pickle.dumps(found)), expected)
    again = rows[: len(rows) // 2 + 1][::-1]
    assert_same(found.take(np.arange(len(rows) // 2, -1, -1)), FeatureSet.from_arrays(**rows_of(arrays, again)))
    mask = np.isin(np.arange(n), rows)
    assert_same(whole.filter(mask), FeatureSet.from_arrays(**rows_of(arrays, np.flatnonzero(mask))))


@given(
    sizes=st.lists(st.integers(1, 25), min_size=1, max_size=4), kept=st.lists(st.booleans(), min_size=4, max_size=4),
    texts=st.sampled_from([None, ("a", "b", "c"), ("7", "8", "9"), ("7", "10", "word")]), step=st.integers(1, 4),
)  # fmt: skip
def test_sets_one_after_the_other_are_the_set_of_their_rows(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], kept: list[bool], texts: Sequence[str] | None, step: int
) -> None:
    arrays = [given_arrays(seed, n, texts) for seed, n in enumerate(sizes)]
    folder = tmp_path_factory.mktemp("concat")
    sets = [FeatureSet.from_arrays(**each) for each in arrays]
    sets = [
        each.save(folder / f"{place}.zarr", chunk_rows=3) if kept[place] else each for place, each in enumerate(sets)
    ]
    whole = joined(*arrays)
    found = FeatureSet.concat(sets)
    assert_same(found, FeatureSet.from_arrays(**whole))
    rows = np.arange(len(whole["features"]))[::-step]
    assert_same(found.take(rows), FeatureSet.from_arrays(**rows_of(whole, rows)))
    assert found.is_stored is all(kept[: len(sizes)])


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["07", "word"], ["7", "-1", "7", "word"]),
        (["word", "-1"], ["7", "-1", "word", "-1"]),
        (["07", "7", "x"], ["7", "-1", "07", "7", "x"]),
    ],
)
def test_identities_are_matched_as_those_of_query_and_gallery(texts: list[str], expected: list[str]) -> None:
    """Digits are a number, unless a set has two spellings of it."""
    numbers = FeatureSet.from_arrays(np.eye(2, dtype=np.float32), [7, -1])
    named = FeatureSet.from_arrays(np.ones((len(texts), 2), np.float32), texts)
    both = FeatureSet.concat([numbers, named])
    assert [both.pid_names[pid - 1] if pid > 0 else str(pid) for pid in both.pids.tolist()] == expected


def test_float16_among_float32_is_widened() -> None:
    halves = FeatureSet.from_arrays(np.full((2, 3), 0.1, np.float16), [1, 2])
    whole = FeatureSet.from_arrays(np.full((1, 3), 0.1, np.float32), [3])
    both = FeatureSet.concat([halves, whole])
    assert both.dtype == np.float32
    expected = np.concatenate([halves.read(0, 2), whole.read(0, 1)])
    assert both.content_digest == FeatureSet.from_arrays(expected, [1, 2, 3]).content_digest
    assert FeatureSet.concat([halves, halves]).dtype == np.float16


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a, b: a.take([0, 300]), "row 300 is not one of the 300 rows of memory"),
        (lambda a, b: a.take([-1]), "row -1 is not one of"),
        (lambda a, b: a.take([]), "no row of memory is taken"),
        (lambda a, b: a.take([0.5]), "rows must be whole numbers"),
        (lambda a, b: a.filter(np.zeros(300, bool)), "no row of memory is taken"),
        (lambda a, b: a.filter(np.ones(299, bool)), r"300 true or false values.*shape \(299,\)"),
        (lambda a, b: a.filter([0, 3]), "300 true or false values.*not int64"),
        (lambda a, b: FeatureSet.concat([]), "no set to concatenate"),
        (lambda a, b: FeatureSet.concat([a, FeatureSet.from_arrays(np.ones((2, 3)), [1, 2])]), "7 features and .* 3"),
        (lambda a, b: FeatureSet.concat([a, b]).labels, "camids, image_paths, item_ids are in only one of"),
    ],
)
def test_mistakes(arrays: Arrays, make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(in_memory(arrays), FeatureSet.from_arrays(arrays.features, arrays.pids))


def files_of(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_a_view_goes_to_workers_as_a_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = make_arrays(20_000, 4)
    stored = in_memory(arrays).save(tmp_path / "a.zarr", chunk_rows=3000)
    before = files_of(tmp_path)
    view = FeatureSet.concat([stored.filter(arrays.pids > 3), stored.take(np.arange(50, 900))])
    sent = pickle.dumps(view)
    assert len(sent) < 4000
    assert pickle.loads(sent) is pickle.loads(sent)
    program = (
        "import pickle, sys; found = pickle.loads(sys.stdin.buffer.read()); "
        "print(found.content_digest, found.read_rows(__import__('numpy').array([5]))[0, 0])"
    )
    done = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=True)
    row = np.concatenate([arrays.features[arrays.pids > 3], arrays.features[50:900]])[5, 0]
    assert done.stdout.decode().split() == [view.content_digest, str(row)]
    # The digest travels with it: no worker reads all rows for it.
    monkeypatch.setattr(featureset.RowsView, "_scanned", property(lambda _: pytest.fail("all rows are read")))
    assert pickle.loads(sent).describe()["content_digest"] == view.content_digest
    assert files_of(tmp_path) == before


def test_a_view_passes_where_its_store_is_not(tmp_path: Path, arrays: Arrays) -> None:
    view = in_memory(arrays).save(tmp_path / "here.zarr").take([5, 3])
    sent = pickle.dumps(view)
    (tmp_path / "here.zarr").rename(tmp_path / "away.zarr")
    featureset.reopened.cache_clear()
    passing = pickle.loads(sent)
    assert (passing.is_stored, passing.content_digest) == (True, view.content_digest)
    again = pickle.dumps(passing)
    (tmp_path / "away.zarr").rename(tmp_path / "here.zarr")
    np.testing.assert_array_equal(pickle.loads(again).read(0, 2), arrays.features[[5, 3]])


def test_rows_of_a_view_are_verified(tmp_path: Path, arrays: Arrays) -> None:
    stored = in_memory(arrays).save(tmp_path / "a.zarr", chunk_rows=60)
    view = stored.filter(np.arange(300) % 2 == 0)
    flip_bit(tmp_path / "a.zarr/features/c/3/0", 500)
    np.testing.assert_array_equal(view.read(0, 90), arrays.features[:180:2])
    for read in (lambda: view.read(80, 100), lambda: view.read_rows(np.array([2, 95])), lambda: view.content_digest):
        with pytest.raises(DamagedStoreError, match=r"features chunk 3 \(features/c/3/0\)"):
            read()


def test_a_view_saved_and_fused(tmp_path: Path, arrays: Arrays) -> None:
    stored = in_memory(arrays).save(tmp_path / "a.zarr", chunk_rows=60)
    view = stored.take([7, 3, 200])
    saved = view.save(tmp_path / "b.zarr")
    assert_same(saved, view)
    other = FeatureSet.from_arrays(arrays.features[::-1], **arrays.labels()).take([7, 3, 200])
    fused, of_saved = fuse(view, [(other, 0.4)]), fuse(saved, [(other, 0.4)])
    np.testing.assert_array_equal(fused.read(0, 3), of_saved.read(0, 3))
    assert fused.content_digest == of_saved.content_digest


def test_a_view_is_no_place_to_open_again(tmp_path: Path, arrays: Arrays) -> None:
    stored = in_memory(arrays).save(tmp_path / "a.zarr")
    for view in (stored.take([1, 2]), FeatureSet.concat([stored, stored])):
        assert str(tmp_path) in view.uri
        assert recorded_place(view.describe(), "gallery") is None
    assert recorded_place(stored.describe(), "gallery") == stored.uri
    assert Workspace.at(tmp_path).path in stored.take([1, 2]).uri


def test_what_is_public_of_a_set() -> None:
    names = {name for name in dir(FeatureSet) if not name.startswith("_")}
    labels = {*LABELS, "pid_names", "camid_names", "columns", "labels", "labels_digest"}
    rows = {
        "n_rows",
        "dim",
        "dtype",
        "chunk_rows",
        "allow_zero",
        "n_zero_rows",
        "first_zero_rows",
        "notes",
        "is_made_of_sets",
    }
    methods = {"open", "from_arrays", "from_frame", "take", "filter", "concat", "read", "read_rows", "save", "describe"}
    assert names == labels | rows | methods


def test_the_examples() -> None:
    found = doctest.testmod(featureset)
    assert found.attempted >= 10
    assert found.failed == 0
