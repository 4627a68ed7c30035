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


@pytest.mark.parametrize(
    ("options", "rows", "note"),
    [
        ({"drop_duplicates": "item_ids"}, [0, 1, 2], "left out 3 of 6 rows, whose item id an earlier row has"),
        ({"drop_duplicates": "image_paths"}, [0, 1, 2, 3], "left out 2 of 6 rows, whose image path an earlier row has"),
        # Rows that are left out for their identity are no earlier rows.
        ({"drop_duplicates": "item_ids", "drop_pids": [2]}, [0, 1], "left out 3 of 5 rows, whose item id"),
    ],
)
def test_the_first_row_of_every_item_is_kept(tmp_path: Path, options: dict, rows: list[int], note: str) -> None:
    (store,) = ingest(source(tmp_path / "a.npz"), tmp_path / "out.zarr", **options)
    assert store.read(0, store.n_rows)[:, 0].tolist() == [2 * row + 1 for row in rows]
    assert any(note in each for each in store.notes)
    assert not check_store(store.uri).damaged


def test_rows_of_the_other_side_are_no_duplicates(tmp_path: Path) -> None:
    paths, pids = np.array(list("aabbcc")), np.array([1, 1, 2, 2, 3, 3])
    path = source(tmp_path / "a.npz", image_paths=paths, pids=pids)
    stores = ingest(path, tmp_path / "out", num_query=3, drop_duplicates="image_paths")
    assert [store.image_paths.tolist() for store in stores] == [["a", "b"], ["b", "c"]]


@pytest.mark.parametrize(
    ("changes", "by", "message"),
    [
        ({"item_ids": None}, "item_ids", "has no item_ids, .*drop them by image_paths"),
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
