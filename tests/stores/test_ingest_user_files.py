"""Files as users have them: names in place of labels, queries first, tables beside features, odd containers."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from feature_arrays import make_arrays
from handmade_pth import Tensor, write_pth

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import InputError, StoreError
from reid_dist.stores import ingest, open_features, open_labels
from reid_dist.stores.importers import FORMATS, open_source

NAMES = ["0002_c1s1_000451_03.jpg", "-1_c3s2_012345_00.jpg", "0005_c2_f0046985.jpg", "0002_c4s6_000001_01.jpg",
         "0000_c6s3_111_07.jpg", "1501_c5s1_000002_00.jpg"]  # fmt: skip
PIDS, CAMIDS = [2, -1, 5, 2, 0, 1501], [1, 3, 2, 4, 6, 5]
FEATURES = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)


def assert_named(store: FeatureSet, names: list[str] = NAMES) -> None:
    order = [NAMES.index(Path(name).name) for name in names]
    np.testing.assert_array_equal(store.read(0, 6), FEATURES[order])
    assert store.pids.tolist() == [PIDS[at] for at in order]
    assert store.camids is not None
    assert store.camids.tolist() == [CAMIDS[at] for at in order]
    assert store.image_paths is not None
    assert store.image_paths.tolist() == names
    assert any("layout market1501" in note and "pids " in note for note in store.notes)


# ---- names of images -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["paths", "img_path", "image_paths", "filenames", "impath", "img_name"])
def test_names_inside_a_pth_become_labels(tmp_path: Path, word: str) -> None:
    paths = [f"data/market/query/{name}" for name in NAMES]
    source = write_pth(tmp_path / "a.pth", {"features": Tensor(FEATURES), word: paths})
    (store,) = ingest(source, tmp_path / "a.zarr")
    assert_named(store, paths)
    assert open_features(source).content_digest == store.content_digest


def test_names_of_both_sides_inside_a_file(tmp_path: Path) -> None:
    held = {"qf": FEATURES[:2], "q_paths": np.array(NAMES[:2]), "gf": FEATURES[2:], "g_paths": np.array(NAMES[2:])}
    np.savez(tmp_path / "a.npz", **held)
    query, gallery = ingest(tmp_path / "a.npz", tmp_path / "a")
    assert query.pids.tolist() == PIDS[:2]
    assert gallery.pids.tolist() == PIDS[2:]


def test_names_from_a_list(reid_dist: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "list.txt").write_text("path\n" + "\n".join(f"é/{name}" for name in NAMES), encoding=encoding)
        words = ("--names", tmp_path / "list.txt", "--overwrite", "--output", tmp_path / "a.zarr")
        done = reid_dist("ingest", tmp_path / "f.npy", *words)
        assert done.code == 0, done.err
        assert "4 identities, 6 cameras" in done.out
        assert f"note: labels come from names of images, layout market1501: 'é/{NAMES[0]}' is pids 0002" in done.out
        assert_named(FeatureSet.open(tmp_path / "a.zarr"), [f"é/{name}" for name in NAMES])


def test_names_replace_customary_labels_and_not_named_ones(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=FEATURES, labels=np.arange(6), own=np.arange(10, 16))
    (tmp_path / "list.txt").write_text("\n".join(NAMES))
    assert_named(open_features(tmp_path / "a.npz", names_file=tmp_path / "list.txt"))
    mixed = open_features(tmp_path / "a.npz", names={"pids": "own"}, names_file=tmp_path / "list.txt")
    assert mixed.pids.tolist() == list(range(10, 16))
    assert mixed.camids is not None
    assert mixed.camids.tolist() == CAMIDS


def test_labels_of_a_file_are_not_replaced_by_its_paths(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=FEATURES, pids=np.arange(6), paths=np.array(NAMES))
    found = open_features(tmp_path / "a.npz")
    assert found.pids.tolist() == list(range(6))
    assert found.camids is None
    cameras = open_features(tmp_path / "a.npz", pattern="_c(?P<camid>[0-9]+)")
    assert cameras.pids.tolist() == list(range(6))
    assert cameras.camids is not None
    assert cameras.camids.tolist() == CAMIDS


def test_a_pattern_reads_base_names_or_paths_and_further_columns(reid_dist: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES[:3])
    (tmp_path / "list.txt").write_text("anna/12-c3-t07.jpg\nbo/12-c1-t08.jpg\n007\\x\\13-c2-t09.jpg\n")
    words = ("ingest", tmp_path / "f.npy", "--names", tmp_path / "list.txt", "--overwrite", "--output")
    target = tmp_path / "a.zarr"
    base = reid_dist(*words, target, "--pattern", r"^(?P<pid>\d+)-c(?P<camid>\d)-t(?P<tracklet>\d+)")
    assert base.code == 0, base.err
    store = FeatureSet.open(target)
    assert store.pids.tolist() == [12, 12, 13]
    assert store.camids is not None
    assert store.camids.tolist() == [3, 1, 2]
    assert store.columns["tracklet"].tolist() == [7, 8, 9]
    path = reid_dist(*words, target, "--pattern", r"^(?P<pid>[^/]+)/")
    assert path.code == 0, path.err
    assert FeatureSet.open(target).pid_names == ("007", "anna", "bo")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            (),
            ("2 of 6 names do not fit the layout market1501", "row 1: 'Thumbs.db'", "row 4: 'IMG_4.jpg'", "--pattern"),
        ),
        (("--pattern", "(?P<pid>"), ("is no regular expression",)),
        (("--pattern", "[0-9]+"), ("neither a group pid nor a group camid",)),
        (("--pattern", "(?P<pid>[0-9]+)", "--pids-file", "x"), ("pids are named twice", "--pattern")),
        (("--labels", "x"), ("--labels", "--names", "give one of them")),
    ],
)
def test_names_that_do_not_fit_are_not_guessed(reid_dist: Any, tmp_path: Path, words: Any, parts: Any) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    names = list(NAMES)
    names[1], names[4] = "Thumbs.db", "IMG_4.jpg"
    (tmp_path / "list.txt").write_text("\n".join(names))
    given = ("--names", tmp_path / "list.txt", "--output", tmp_path / "a.zarr", *words)
    refused = reid_dist("ingest", tmp_path / "f.npy", *given)
    assert refused.code == 2
    assert len([line for line in refused.err.splitlines() if line.startswith("Error: ")]) == 1
    for part in parts:
        assert part in refused.err
    assert not (tmp_path / "a.zarr").exists()


def test_names_may_hold_commas_and_quotes(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    names = [f'a, "b"/{name}' for name in NAMES]
    (tmp_path / "list.txt").write_bytes("\r\n".join([*names, ""]).encode())
    assert_named(open_features(tmp_path / "f.npy", names_file=tmp_path / "list.txt"), names)


def test_a_list_of_another_length_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    (tmp_path / "list.txt").write_text("\n".join(NAMES[:5]))
    with pytest.raises(InputError, match="5 names of images for 6 rows"):
        open_features(tmp_path / "f.npy", names_file=tmp_path / "list.txt")


@pytest.mark.parametrize("names", [NAMES, [f"shop/{at}.PNG" for at in range(6)], [Path(n).stem for n in NAMES]])
def test_names_of_files_are_no_identities(reid_dist: Any, tmp_path: Path, names: list[str]) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    (tmp_path / "list.txt").write_text("\n".join(names))
    given = ("--pids-file", tmp_path / "list.txt", "--output", tmp_path / "a.zarr")
    refused = reid_dist("ingest", tmp_path / "f.npy", *given)
    assert refused.code == 2
    assert f"pids are names of files and no labels: row 0 holds {names[0]!r}" in refused.err
    assert "--names FILE" in refused.err
    np.savez(tmp_path / "a.npz", features=FEATURES, ids=np.array(names))
    with pytest.raises(InputError, match="name the array with --image-paths"):
        open_features(tmp_path / "a.npz")


# ---- dictionaries from name to tensor --------------------------------------------------------------------------------


def test_a_dictionary_of_tensors_by_name(tmp_path: Path) -> None:
    """open-reid and cluster-contrast: rows in the order of the file, views of the batches they came from."""
    batches = [FEATURES[:4].copy(), FEATURES[4:].copy()]
    held = {
        name: Tensor(batches[row // 4], view=(row % 4 * 4, (4,), (1,))) for row, name in enumerate(NAMES)
    }  # fmt: skip
    (store,) = ingest(write_pth(tmp_path / "a.pth", held), tmp_path / "a.zarr")
    assert_named(store)
    labels = {name: Tensor(np.array(7 + row)) for row, name in reversed(list(enumerate(NAMES)))}
    both = open_features(write_pth(tmp_path / "b.pth", {"features": held, "labels": labels}))
    assert both.pids.tolist() == [7, 8, 9, 10, 11, 12]
    np.testing.assert_array_equal(both.read(0, 6), FEATURES)
    pair = write_pth(tmp_path / "c.pth", (held, labels))
    assert open_features(pair, names={"pids": "item1"}).pids.tolist() == [7, 8, 9, 10, 11, 12]
    sides = {"query": dict(list(held.items())[:2]), "gallery": dict(list(held.items())[2:])}
    gallery = open_features(write_pth(tmp_path / "d.pth", sides), "gallery")
    np.testing.assert_array_equal(gallery.read(0, 4), FEATURES[2:])
    assert gallery.pids.tolist() == PIDS[2:]


def test_a_flipped_byte_in_one_of_many_storages_is_found(tmp_path: Path) -> None:
    path = write_pth(tmp_path / "a.pth", {name: Tensor(FEATURES[row].copy()) for row, name in enumerate(NAMES)})
    data = bytearray(path.read_bytes())
    data[data.find(FEATURES[3].tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        ingest(path, tmp_path / "a.zarr")


def test_errors_list_ten_keys(reid_dist: Any, tmp_path: Path) -> None:
    held = {f"vectors_{row}": Tensor(np.ones((row + 1, 2), np.float32)) for row in range(2000)}
    path = write_pth(tmp_path / "a.pth", held)
    for words in ((), ("--features", "vector")):
        refused = reid_dist("ingest", path, "--output", tmp_path / "a.zarr", *words)
        assert refused.code == 2
        assert "and 1990 more" in refused.err
        assert len(refused.err) < 2500
        assert refused.err.count("vectors_") <= 22


def test_a_list_of_records(tmp_path: Path) -> None:
    records = [
        {"feature": Tensor(FEATURES[row].copy()), "pid": PIDS[row], "camid": CAMIDS[row], "path": NAMES[row]}
        for row in range(6)
    ]
    found = open_features(write_pth(tmp_path / "a.pth", records))
    np.testing.assert_array_equal(found.read(0, 6), FEATURES)
    assert found.pids.tolist() == PIDS
    assert found.image_paths is not None
    assert found.image_paths.tolist() == NAMES


# ---- numpy inside of torch.save, and what else is beside it ----------------------------------------------------------


def test_numpy_arrays_of_torch_save(tmp_path: Path) -> None:
    held = {
        "feats": np.asfortranarray(FEATURES.astype(">f4")), "pids": np.array(PIDS, dtype=np.int16),
        "camids": np.array(CAMIDS)[None], "img_path": np.array(NAMES), "num_query": np.int64(2),
    }  # fmt: skip
    query, gallery = ingest(write_pth(tmp_path / "a.pth", held), tmp_path / "a")
    for number in (2, Tensor(np.array(2)), np.array(2)):
        again = ingest(write_pth(tmp_path / "a.pth", held | {"num_query": number}), tmp_path / "a", overwrite=True)
        assert [store.n_rows for store in again] == [2, 4]
    np.testing.assert_array_equal(np.concatenate([query.read(0, 2), gallery.read(0, 4)]), FEATURES)
    assert [*query.pids.tolist(), *gallery.pids.tolist()] == PIDS
    assert gallery.image_paths is not None
    assert gallery.image_paths.tolist() == NAMES[2:]


def test_what_is_beside_the_features_does_not_block_them(tmp_path: Path) -> None:
    others = {
        "args": argparse.Namespace(lr=0.1), "boxes": np.array([None, {}], dtype=object), "when": np.datetime64("2020"),
        "mixed": [1, "a", None], 3.5: "x", None: "y",
    }  # fmt: skip
    source = write_pth(tmp_path / "a.pth", {"features": Tensor(FEATURES), "pids": PIDS, **others})
    assert open_features(source).pids.tolist() == PIDS
    refused = open_source(str(source)).refused
    assert "argparse.Namespace" in refused["args"]
    assert "object array" in refused["boxes"]
    with pytest.raises(InputError, match=r"'args' cannot be read: it is of argparse\.Namespace, which is never loaded"):
        open_features(source, names={"camids": "args"})


def test_deep_settings_beside_the_features_are_left_out(tmp_path: Path) -> None:
    deep: Any = {"lr": 1}
    for _ in range(20):
        deep = {"config": deep}
    source = write_pth(tmp_path / "a.pth", {"features": Tensor(FEATURES), "pids": PIDS, "settings": deep})
    assert open_features(source).pids.tolist() == PIDS
    with pytest.raises(InputError, match=r"found no features.*nested more than 8 deep"):
        open_features(write_pth(tmp_path / "b.pth", deep))


def test_object_arrays_that_are_not_needed_do_not_block_an_npz(tmp_path: Path) -> None:
    boxed = np.array([*NAMES], dtype=object)
    np.savez(tmp_path / "a.npz", features=FEATURES, pids=PIDS, paths=boxed, history=np.array([{}], dtype=object))
    (store,) = ingest(tmp_path / "a.npz", tmp_path / "a.zarr")
    assert store.pids.tolist() == PIDS
    assert store.image_paths is None
    (note,) = [note for note in store.notes if note.startswith("not read: paths")]
    assert "object array" in note
    np.savez(tmp_path / "b.npz", features=FEATURES, pids=PIDS, camids=np.array([*CAMIDS], dtype=object))
    with pytest.raises(InputError, match="'camids' cannot be read"):
        open_features(tmp_path / "b.npz")
    np.save(tmp_path / "c.npy", np.array(CAMIDS))
    assert open_features(tmp_path / "b.npz", camids_file=tmp_path / "c.npy").camids is not None


@pytest.mark.parametrize("name", ["features.pkl", "features.pickle", "features.pth", "features"])
def test_a_pickle_is_answered_with_its_conversion(reid_dist: Any, tmp_path: Path, name: str) -> None:
    import pickle

    held = {"features": FEATURES, "pids": np.array(PIDS)}
    (tmp_path / name).write_bytes(pickle.dumps(held))
    refused = reid_dist("ingest", tmp_path / name, "--output", tmp_path / "a.zarr")
    assert refused.code == 2
    assert "is a pickle, a program that could do anything when it is read, and is never read" in refused.err
    lines = [line.strip() for line in refused.err.splitlines() if line.startswith("  ")]
    assert len(lines) == 3
    # The three lines do what they promise.
    program = "\n".join(lines).replace('"features.pkl"', repr(str(tmp_path / name)))
    exec(program.replace('"features.npz"', repr(str(tmp_path / "features.npz"))), {})
    assert open_features(tmp_path / "features.npz").pids.tolist() == PIDS


def test_a_pkl_of_torch_save_is_read(tmp_path: Path) -> None:
    source = write_pth(tmp_path / "features.pkl", {"features": Tensor(FEATURES), "pids": PIDS})
    assert open_features(source).pids.tolist() == PIDS


# ---- queries first ---------------------------------------------------------------------------------------------------


def test_queries_first_by_option(reid_dist: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", feats=FEATURES, pids=np.array(["b", "a", "b", "c", "a", "b"]), camids=CAMIDS)
    done = reid_dist("ingest", tmp_path / "a.npz", "--num-query", 2, "--output", tmp_path / "out")
    assert done.code == 0, done.err
    query, gallery = (FeatureSet.open(tmp_path / "out" / f"{role}.zarr") for role in ("query", "gallery"))
    np.testing.assert_array_equal(query.read(0, 2), FEATURES[:2])
    np.testing.assert_array_equal(gallery.read(0, 4), FEATURES[2:])
    assert (query.pids.tolist(), gallery.pids.tolist()) == ([2, 1], [2, 3, 1, 2])
    dropped = ingest(tmp_path / "a.npz", tmp_path / "dropped", num_query=2, drop_pids=[2], chunk_rows=2)
    assert [store.pids.tolist() for store in dropped] == [[1], [3, 1]]
    np.testing.assert_array_equal(dropped[1].read(0, 2), FEATURES[[3, 4]])
    for number in (0, 6, -1):
        refused = reid_dist("ingest", tmp_path / "a.npz", "--num-query", number, "--output", tmp_path / "no")
        assert refused.code == 2
        assert f"is {number}, and must be at least 1 and less than the 6 rows" in refused.err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("kind", ["npz", "mat", "pth", "h5"])
def test_queries_first_by_the_entry_of_a_file(reid_dist: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    held = {"feats": FEATURES, "pids": np.array(PIDS), "camids": np.array(CAMIDS), "num_query": 2}
    if kind == "npz":
        np.savez(path, **held)
    elif kind == "mat":
        scipy.io.savemat(path, held)
    elif kind == "pth":
        write_pth(path, held | {"feats": Tensor(FEATURES), "pids": PIDS})
    else:
        with h5py.File(path, "w") as file:
            file.update(held)
    stores = ingest(path, tmp_path / "out")
    assert [store.pids.tolist() for store in stores] == [PIDS[:2], PIDS[2:]]
    if kind == "pth":
        done = reid_dist("evaluate", path, path, "--json")
        assert done.code == 0, done.err
        assert evaluate(*stores).result_digest in done.out
    assert [s.n_rows for s in ingest(path, tmp_path / "three", num_query=3)] == [3, 3]


def test_both_sides_are_not_cut_again(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", qf=FEATURES, q_pids=PIDS, gf=FEATURES, g_pids=PIDS)
    with pytest.raises(InputError, match=r"holds query and gallery.*--num-query was given"):
        ingest(tmp_path / "a.npz", tmp_path / "out", num_query=3)


# ---- tables of labels ------------------------------------------------------------------------------------------------


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
    assert query.camids is not None
    assert gallery.image_paths is not None
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
    assert ids is not None
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
        assert found.image_paths is not None
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
    assert refused.code == 2
    assert not (tmp_path / "c.zarr").exists()
    assert "pids must be whole numbers: row 0 holds 2.25" in refused.err


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
    assert done.code == 2
    assert refusal in done.err
    assert "UTF-8" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_label_files_with_a_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    np.save(tmp_path / "f.npy", FEATURES)
    (tmp_path / "labels.csv").write_text("label\n" + "\n".join("éabcdé"), encoding=encoding)
    for options in ({"pids_file": tmp_path / "labels.csv"}, {"labels_file": tmp_path / "labels.csv"}):
        assert open_features(tmp_path / "f.npy", **options).pid_names == ("a", "b", "c", "d", "é")
