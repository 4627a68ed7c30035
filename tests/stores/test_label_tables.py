"""Tables of labels: of data frames, by sides, and by names of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from arrow_streams import Stream

from reid_dist.errors import InputError, StoreError
from reid_dist.stores import open_features, open_labels
from reid_dist.stores.importers.label_tables import LabelTable
from reid_dist.stores.importers.parquet import open_frame

NAMES = ["a/7.jpg", "a/8.jpg", "b/7.jpg"]
FEATURES = np.arange(6, dtype=np.float32).reshape(3, 2)
LABELS: dict[str, list[Any]] = {"label": [4, 5, 4], "camera": ["1", "x", "1"], "path": NAMES, "score": [0.5, 1.5, 2.5]}


def as_stream(columns: dict[str, Any]) -> Stream:
    """In two batches, text in the types that polars gives."""
    arrays = {name: pa.array(values) for name, values in columns.items()}
    arrays["path"] = arrays["path"].cast(pa.string_view())
    arrays["camera"] = arrays["camera"].cast(pa.large_string())
    table = pa.table(arrays)
    return Stream(pa.concat_tables([table.slice(0, 2), table.slice(2)]))


FRAMES = pytest.mark.parametrize(
    "made", [pd.DataFrame, pa.table, as_stream, lambda held: pd.DataFrame(held, ["x", "y", "z"])]
)


@FRAMES
def test_labels_of_a_data_frame(made: Any) -> None:
    table = LabelTable.from_frame(made(LABELS))
    found = {what: table.plain(what).tolist() for what in table.columns}
    assert found == {"pids": [4, 5, 4], "camids": ["1", "x", "1"], "image_paths": NAMES}
    renamed = LabelTable.from_frame(made({**LABELS, "who": ["u", "v", "w"]}), {"pids": "who"})
    assert renamed.plain("pids").tolist() == ["u", "v", "w"]


@FRAMES
@pytest.mark.parametrize("numbered", [False, True])
def test_features_of_a_data_frame_are_those_of_a_parquet_file(made: Any, numbered: bool) -> None:
    columns = {f"f{at}": FEATURES[:, at] for at in range(2)} if numbered else {"features": FEATURES.tolist()}
    with open_frame(made({**LABELS, **columns})) as source:
        for start in (0, 2, 1):
            np.testing.assert_array_equal(source.arrays["features"].read(start, 3), FEATURES[start:])


@pytest.mark.parametrize(
    ("frame", "part"),
    [
        ({"label": [1]}, "the data frame is dict; give a data frame of pandas or polars, or a table of Arrow"),
        (pa.table({"colour": [1]}), "found no labels; name them with --pids and --camids"),
    ],
)
def test_what_is_no_frame_of_labels(frame: Any, part: str) -> None:
    with pytest.raises(InputError, match=part):
        LabelTable.from_frame(frame)
    with pytest.raises(StoreError, match="the data frame has the column 'label' twice"):
        LabelTable.from_frame(pa.table([[1], [2]], ["label", "label"]))


def test_flags_of_a_data_frame_choose_sides() -> None:
    """What is missing is no side; a row of both is found again by its number."""
    flags = {"is_query": [True, None, True], "is_gallery": [None, True, True]}
    table = LabelTable.from_frame(pa.table({**LABELS, **flags})).marked()
    assert table is not None
    sides = {role: table.with_item_ids().select(table.of_role(role)) for role in ("query", "gallery")}
    assert {role: side.plain("item_ids").tolist() for role, side in sides.items()} == {
        "query": [0, 2],
        "gallery": [1, 2],
    }
    assert sides["gallery"].names.tolist() == NAMES[1:]
    assert sides["query"].notes[-1] == "1 rows are query and gallery; item ids are the row numbers of the source"
    assert LabelTable.from_frame(pa.table(LABELS)).marked() is None


@FRAMES
def test_a_data_frame_beside_features(made: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    found = open_features(tmp_path / "f.npy", labels_file=made(LABELS))
    assert (found.pids.tolist(), found.camid_names, found.image_paths.tolist()) == ([4, 5, 4], ("1", "x"), NAMES)
    assert "labels come from the data frame: pids (label), camids (camera), image_paths (path)" in found.notes
    with pytest.raises(InputError, match="the data frame is dict; give"):
        open_features(tmp_path / "f.npy", labels_file=LABELS)


def test_rows_joined_by_name_keep_their_sides() -> None:
    listed = LabelTable.from_frame(pa.table({**LABELS, "split": ["query", "gallery", "gallery"]})).marked()
    assert listed is not None
    joined = listed.join(np.array(["data/b/7.jpg", "data/a/7.jpg"]), "list", stems=False)
    assert (joined.plain("pids").tolist(), joined.of_role("query").tolist()) == ([4, 4], [False, True])
    with pytest.raises(InputError, match=r"several records of '7\.jpg' that differ, records 0 and 2"):
        listed.join(np.array(["7.jpg"]), "list", stems=False)


@pytest.mark.parametrize("overlap", [False, True])
def test_labels_of_a_side_are_those_beside_features(tmp_path: Path, overlap: bool) -> None:
    arrays = {"pids": [1, 2, 1, 2], "is_query": [1, 1, 0, 0], "is_gallery": [0, int(overlap), 1, 1]}
    np.savez(tmp_path / "a.npz", features=np.eye(4), **arrays)
    for role in ("query", "gallery"):
        alone, beside = open_labels(tmp_path / "a.npz", role), open_features(tmp_path / "a.npz", role)
        assert (alone.item_ids is not None) == overlap
        assert alone.labels_digest == beside.labels_digest


def test_flags_of_another_length_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", pids=[1, 2, 1], is_query=[1, 0])
    with pytest.raises(InputError, match="is_query has 2 entries for 3 rows of"):
        open_labels(tmp_path / "a.npz", "query")


def test_columns_of_a_table_that_differ_in_length_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    np.savez(tmp_path / "labels.npz", pids=[1, 2, 1, 2], split=["train", "x", "x", "x", "x"])
    with pytest.raises(InputError, match=r"labels\.npz differ in length: pids 4, split 5; give one value per row"):
        open_features(tmp_path / "f.npy", labels_file=tmp_path / "labels.npz")
