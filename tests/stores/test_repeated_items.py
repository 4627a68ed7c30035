"""Rows that repeat an item: found among numbers and texts, and left out on request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.errors import InputError
from reid_dist.stores import FeatureSet, check_store, ingest
from reid_dist.stores.repeated_items import repeated_rows

TEXTS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3), min_size=1, max_size=40)
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), min_size=1, max_size=40)


@given(st.one_of(TEXTS, NUMBERS))
def test_rows_whose_value_is_in_an_earlier_row(values: list[str] | list[int]) -> None:
    array = np.array(values)
    expected = [row for row, value in enumerate(array.tolist()) if value in array.tolist()[:row]]
    assert repeated_rows(array).tolist() == expected
    assert repeated_rows(array.astype(array.dtype.newbyteorder(">"))).tolist() == expected


def source(path: Path, **changes: np.ndarray) -> Path:
    held = {
        "features": np.arange(1, 13, dtype=np.float32).reshape(6, 2), "pids": np.array([1, 1, 2, 1, 1, 1]),
        "item_ids": np.array([7, 8, 9, 8, 7, 7]), "image_paths": np.array(list("abcdab")),
    }  # fmt: skip
    np.savez(path, **{name: values for name, values in {**held, **changes}.items() if values is not None})
    return path


def test_rows_that_are_left_out_for_their_identity_are_no_earlier_rows(tmp_path: Path) -> None:
    (store,) = ingest(source(tmp_path / "a.npz"), tmp_path / "out.zarr", drop_duplicates="item_ids", drop_pids=[2])
    assert store.read(0, store.n_rows)[:, 0].tolist() == [1, 3]
    assert any("left out 3 of 5 rows, whose item id an earlier row has" in each for each in store.notes)
    assert not check_store(store.uri).damaged


def test_rows_of_the_other_side_are_no_duplicates(tmp_path: Path) -> None:
    paths, pids = np.array(list("aabbcc")), np.array([1, 1, 2, 2, 3, 3])
    path = source(tmp_path / "a.npz", image_paths=paths, pids=pids)
    stores = ingest(path, tmp_path / "out", num_query=3, drop_duplicates="image_paths")
    assert [store.image_paths.tolist() for store in stores] == [["a", "b"], ["b", "c"]]


@pytest.mark.parametrize(
    ("changes", "by", "message"),
    [
        ({"item_ids": None, "image_paths": None}, "item_ids", "has no item_ids, .*name them"),
        ({}, "paths", "unknown way to find duplicates .*'paths'; did you mean 'image_paths'"),
    ],
)
def test_what_cannot_be_dropped_by_is_refused(tmp_path: Path, changes: dict, by: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ingest(source(tmp_path / "a.npz", **changes), tmp_path / "out.zarr", drop_duplicates=by)
    assert not (tmp_path / "out.zarr").exists()


def test_check_names_repeated_paths(tmp_path: Path) -> None:
    paths = ["x", "y", "x", "x"]
    FeatureSet.from_arrays(np.eye(4), [1, 2, 3, 4], image_paths=paths).save(tmp_path / "a.zarr")
    lines = check_store(tmp_path / "a.zarr").lines()
    assert "  image paths that an earlier row has: 2 rows (first: 2, 3)" in lines
    assert any("--drop-duplicates image_paths --output NEW` keeps the first" in line for line in lines)
