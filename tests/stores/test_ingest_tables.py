"""Tables and files of labels beside features, and HDF5 of any name."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from named_images import CAMIDS, FEATURES, NAMES, PIDS
from support.feature_arrays import make_arrays

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import InputError
from reid_dist.stores import FORMATS, ingest, open_features, open_labels

TABLE: dict[str, list[Any]] = {
    "label": [7, 7, 1, 2, 1, 2, 9, 9], "path": [f"images/{at}.jpg" for at in range(8)],
    "split": ["train", "train", *["validation"] * 6], "camera": [0, 1, 0, 0, 1, 1, 0, 1],
    "is_query": [None, None, True, True, False, False, True, False],
    "is_gallery": [None, None, False, False, True, True, True, False],
}  # fmt: skip


def write_table(path: Path, table: dict[str, list[Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table(table), path)
        return path
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", *table])
        for row, values in enumerate(zip(*table.values(), strict=True)):
            writer.writerow([row, *("" if value is None else value for value in values)])
    return path


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("with_train", [True, False])
def test_a_table_beside_features(reid_dist: Any, tmp_path: Path, suffix: str, with_train: bool) -> None:
    """The data frame of open-metric-learning; features of all rows, or of those for validation alone."""
    features = make_arrays(8, seed=3).features
    np.save(tmp_path / "f.npy", features if with_train else features[2:])
    table = write_table(tmp_path / f"df{suffix}", TABLE)
    done = reid_dist("ingest", tmp_path / "f.npy", "--labels", table, "--output", tmp_path / "out")
    assert done.code == 0, done.err
    query, gallery = (FeatureSet.open(tmp_path / "out" / f"{role}.zarr") for role in ("query", "gallery"))
    np.testing.assert_array_equal(query.read(0, 3), features[[2, 3, 6]])
    np.testing.assert_array_equal(gallery.read(0, 3), features[[4, 5, 6]])
    assert (query.pids.tolist(), query.camids.tolist()) == ([1, 2, 9], [0, 0, 0])
    assert (gallery.pids.tolist(), gallery.image_paths.tolist()) == (
        [1, 2, 9],
        [f"images/{at}.jpg" for at in (4, 5, 6)],
    )
    # The row that is both is found again by its id, and is no match of itself.
    report = evaluate(query, gallery, protocol="same_set")
    assert report.per_query["n_relevant"].tolist() == [1, 1, 0]


def test_a_table_of_one_set_and_its_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=FEATURES, labels=np.zeros(6, int))
    table = write_table(tmp_path / "df.csv", {"who": PIDS, "columns/tracklet": [3, 1, 2, 5, 4, 0], "path": NAMES})
    found = open_features(tmp_path / "a.npz", names={"pids": "who"}, labels_file=table)
    assert found.pids.tolist() == PIDS
    assert found.columns["tracklet"].tolist() == [3, 1, 2, 5, 4, 0]
    # Without a column of identities, its paths hold them.
    np.save(tmp_path / "f.npy", FEATURES)
    assert open_features(tmp_path / "f.npy", labels_file=table).pids.tolist() == PIDS
    labels = open_labels(write_table(tmp_path / "own.csv", {"label": PIDS, "camera": CAMIDS}), "query")
    assert labels.pids.tolist() == PIDS
    both = write_table(tmp_path / "both.csv", TABLE)
    assert [open_labels(both, role).pids.tolist() for role in ("query", "gallery")] == [[1, 2, 9], [1, 2, 9]]
    ids = open_labels(both, "gallery").item_ids
    assert ids.tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("table", "part"),
    [
        ({"label": [1, 2]}, "pids has 2 entries for 6 rows"),
        ({"colour": [1] * 6}, "found no labels; name them with --pids and --camids"),
        (
            {"label": [1] * 6, "is_query": ["maybe"] * 6},
            "is_query must be true or false in every row: row 0 holds 'maybe'",
        ),
        ({"label": [1] * 6, "is_query": [True] * 6}, "no row is of the gallery side"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, table: dict[str, list[Any]], part: str) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    with pytest.raises(InputError, match=part):
        open_features(tmp_path / "f.npy", "query", labels_file=write_table(tmp_path / "df.csv", table))


# ---- HDF5 of any name ------------------------------------------------------------------------------------------------


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", ["a.h5", "a.hdf5", "a.mat", "a", "a.features", "a.npz"])
@pytest.mark.parametrize("square", [False, True])
def test_plain_hdf5_is_read_rows_first(tmp_path: Path, name: str, square: bool) -> None:
    features = FEATURES[:4] if square else FEATURES
    n = len(features)
    with h5py.File(tmp_path / name, "w") as file:
        file["features"], file["pids"] = features, PIDS[:n]
        file["paths"] = NAMES[:n]
        file["fixed"] = np.array(NAMES[:n], dtype="S")
    for format_name in (None, "mat", "hdf5"):
        found = open_features(tmp_path / name, format_name=format_name)
        np.testing.assert_array_equal(found.read(0, n), features)
        assert found.pids.tolist() == PIDS[:n]
        assert found.image_paths.tolist() == NAMES[:n]
    assert open_features(tmp_path / name, names={"image_paths": "fixed"}).image_paths is not None
    assert "hdf5" in FORMATS.names()


def test_groups_of_hdf5_are_sides(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for role, rows in (("query", slice(0, 2)), ("gallery", slice(2, 6))):
            file[f"{role}/features"], file[f"{role}/pids"] = FEATURES[rows], PIDS[rows]
            file[f"{role}/columns/weather"] = CAMIDS[rows]
    query, gallery = ingest(tmp_path / "a.h5", tmp_path / "out")
    np.testing.assert_array_equal(gallery.read(0, 4), FEATURES[2:])
    assert query.pids.tolist() == PIDS[:2]
    assert gallery.columns["weather"].tolist() == CAMIDS[2:]


@pytest.mark.parametrize("marked", ["header", "attributes"])
@pytest.mark.parametrize("name", ["a.mat", "a.h5", "a"])
def test_matlab_files_are_turned_back_under_any_name(tmp_path: Path, marked: str, name: str) -> None:
    with h5py.File(tmp_path / name, "w", userblock_size=512) as file:
        for key, array in (("features", FEATURES.T), ("pids", np.array(PIDS)[:, None])):
            file[key] = array
            if marked == "attributes":
                file[key].attrs["MATLAB_class"] = np.bytes_("double")
    if marked == "header":
        with (tmp_path / name).open("r+b") as raw:
            raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124))
    for format_name in (None, "mat", "hdf5"):
        found = open_features(tmp_path / name, format_name=format_name)
        np.testing.assert_array_equal(found.read(0, 6), FEATURES)


# ---- files of labels -------------------------------------------------------------------------------------------------


def test_labels_as_savetxt_writes_them(reid_dist: Any, tmp_path: Path) -> None:
    """By default it writes -1.000000000000000000e+00, which is -1: junk, and what --drop-pid drops."""
    np.save(tmp_path / "f.npy", FEATURES)
    np.savetxt(tmp_path / "pids.txt", PIDS, header="identities")
    np.savetxt(tmp_path / "cams.txt", CAMIDS, fmt="%.3f")
    given = ("--pids-file", tmp_path / "pids.txt", "--camids-file", tmp_path / "cams.txt")
    done = reid_dist("ingest", tmp_path / "f.npy", *given, "--output", tmp_path / "a.zarr")
    assert done.code == 0, done.err
    store = FeatureSet.open(tmp_path / "a.zarr")
    assert (store.pids.tolist(), store.pid_names) == (PIDS, None)
    assert store.content_digest == FeatureSet.from_arrays(FEATURES, PIDS, CAMIDS).content_digest
    dropped = reid_dist("ingest", tmp_path / "f.npy", *given, "--drop-pid", -1, "--output", tmp_path / "b.zarr")
    assert "left out 1 of 6 rows: pid -1" in dropped.out
    np.savetxt(tmp_path / "pids.txt", np.array(PIDS) + 0.25)
    refused = reid_dist("ingest", tmp_path / "f.npy", *given, "--output", tmp_path / "c.zarr")
    refused.assert_refused("pids must be whole numbers: row 0 holds 2.25")
    assert not (tmp_path / "c.zarr").exists()


@pytest.mark.parametrize("option", ["--pids-file", "--names", "--labels"])
@pytest.mark.parametrize(
    ("encoding", "refusal"),
    [("latin-1", "is no text in UTF-8: byte 0xe9 in line 2"), ("utf-16-le", "line 1 holds a zero byte")],
)
def test_label_files_in_other_encodings(
    reid_dist: Any, tmp_path: Path, option: str, encoding: str, refusal: str
) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    (tmp_path / "labels.csv").write_text("label\n" + "\n".join("éabcde"), encoding=encoding)
    done = reid_dist("ingest", tmp_path / "f.npy", option, tmp_path / "labels.csv", "--output", tmp_path / "a.zarr")
    done.assert_refused(refusal, "UTF-8")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_label_files_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    (tmp_path / "labels.csv").write_text("label\n" + "\n".join("éabcdé"), encoding=encoding)
    for options in ({"pids_file": tmp_path / "labels.csv"}, {"labels_file": tmp_path / "labels.csv"}):
        assert open_features(tmp_path / "f.npy", **options).pid_names == ("a", "b", "c", "d", "é")
