"""Labels in names of images, one data set after the other, in the form in which it is published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_files import write_arrays
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from named_images import rows_of, write_features

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.stores import ingest, open_features
from reid_dist.stores.digests import digest_label
from reid_dist.stores.importers.image_names import labels_of_names, sides_by_folder
from reid_dist.stores.importers.name_layouts import LAYOUTS
from reid_dist.stores.importers.text_files import read_names

Labels = dict[str, list[Any]]


def labels_of(store: FeatureSet) -> Labels:
    pids: list[Any] = store.pids.tolist()
    if store.pid_names is not None:
        pids = [pid if pid < 1 else store.pid_names[pid - 1] for pid in pids]
    found: Labels = {"pid": pids, **{name: values.tolist() for name, values in store.columns.items()}}
    return found if store.camids is None else {**found, "camid": store.camids.tolist()}


# Names as they are published, of one side unless folders choose more; labels; rows of query and gallery.
CASES: dict[str, tuple[list[str], Labels, tuple[list[int], list[int]] | None]] = {
    "market1501": (
        [
            *("M/query/0001_c1s1_001051_00.jpg", "M/bounding_box_test/-1_c3s2_012345_00.jpg"),
            *("M/bounding_box_test/0000_c6s3_111_07.jpg", "M/bounding_box_train/0002_c1s1_000451_03.jpg"),
            "M/bounding_box_test/1501_c5s1_000002_00.jpg",
        ],
        {"pid": [1, -1, 0, 1501], "camid": [1, 3, 6, 5]},
        ([0], [1, 2, 4]),
    ),
    "dukemtmcreid": (
        ["query/0005_c2_f0046985.jpg", "bounding_box_test/0005_c8_f0046986.jpg"],
        {"pid": [5, 5], "camid": [2, 8]},
        ([0], [1]),
    ),
    "occluded_duke": (
        ["query/0005_c2_f0046985.jpg", "bounding_box_test/7140_c1_f0046986.jpg"],
        {"pid": [5, 7140], "camid": [2, 1]},
        ([0], [1]),
    ),
    "cuhk03_np": (
        ["query/0003_c1_21.png", "bounding_box_test/0003_c2_22.png", "bounding_box_train/0004_c2_23.png"],
        {"pid": [3, 3], "camid": [1, 2]},
        ([0], [1]),
    ),
    "msmt17": (
        ["test/0000/0000_000_01_0303morning_0015_0.jpg", "test/0113/0113_019_10_0303noon_0284_2_ex.jpg"],
        {"pid": [0, 113], "camid": [1, 10]},
        None,
    ),
    "mars": (
        ["bbox_test/0065/0065C1T0002F0016.jpg", "00-1C6T0001F001.jpg", "0000C2T0001F001.jpg"],
        {"pid": [65, -1, 0], "camid": [1, 6, 2], "tracklet": [2, 1, 1], "frame": [16, 1, 1]},
        None,
    ),
    "ag_reid": (
        [
            "query/P0000T02140A0/P0000T02140A0C0F91.jpg",
            "gallery/P0000T02140A0/P0000T02140A0C3F31.jpg",
            "train_all/P0001T04041A0/P0001T04041A0C2F31.jpg",
        ],
        {"pid": ["0000T02140A0"] * 2, "camid": [0, 3], "frame": [91, 31]},
        ([0], [1]),
    ),
    "last": (
        [
            *("last/test/query/000000_1.jpg", "last/test/gallery/000001/000001_00000_2.jpg"),
            *("last/val/query/000003_1.jpg", "last/train/000004/000004_05_001.jpg"),
        ],
        {"pid": [0, 1]},
        ([0], [1]),
    ),
    "prcc": (
        [
            *("rgb/test/A/001/cropped_rgb001.jpg", "rgb/test/B/001/cropped_rgb001.jpg"),
            *("rgb/test/C/004/cropped_rgb010.jpg", "rgb/train/092/A_cropped_rgb010.jpg", "rgb/val/110/C_cropped_1.jpg"),
        ],
        {"pid": [4, 1], "camid": [3, 1], "clothes": [2, 1]},
        ([2], [0]),
    ),
    "prcc_same_clothes": (
        [f"rgb/test/{camera}/001/cropped_rgb001.jpg" for camera in "ABC"],
        {"pid": [1, 1], "camid": [2, 1], "clothes": [1, 1]},
        ([1], [0]),
    ),
    "ltcc": (
        ["LTCC_ReID/query/148_1_c3_014811.png", "LTCC_ReID/test/148_2_c12_015833.png", "LTCC_ReID/train/0_1_c1_1.png"],
        {"pid": [148, 148], "camid": [3, 12], "clothes": [1, 2]},
        ([0], [1]),
    ),
    "vc_clothes": (
        ["query/0001-02-03-04.jpg", "gallery/0510-04-01-00.jpg", "train/0001-01-01-00.jpg"],
        {"pid": [1, 510], "camid": [2, 4], "clothes": [3, 1]},
        ([0], [1]),
    ),
    "celeb_reid": (
        ["query/12_34_0.jpg", "gallery/1052_5_0.jpg", "train/1_1_0.jpg"],
        {"pid": [12, 1052], "camid": [3, 5]},
        ([0], [1]),
    ),
    "sysu_mm01": (
        ["SYSU-MM01/cam3/0006/0001.jpg", "SYSU-MM01/cam1/0006/0001.jpg", "SYSU-MM01/cam6/0010/0002.jpg"],
        {"pid": [6, 10, 6], "camid": [3, 6, 1], "modality": [2, 2, 1]},
        ([0, 2], [1]),
    ),
    "regdb": (
        ["Visible/285/male_back_v_05528_285.bmp", "Thermal/285/male_back_t_05529_285.bmp"],
        {"pid": [285, 285], "camid": [1, 2], "modality": [1, 2]},
        None,
    ),
    "llcm": (
        [
            *("test_nir/cam1/0003/0003_c01_s185734_f3195_nir.jpg", "test_vis/cam9/0003/0003_c09_s185734_f3196_vis.jpg"),
            "train_vis/cam2/0004/0004_c02_s185734_f3195_vis.jpg",
        ],
        {"pid": [3, 3], "camid": [1, 9], "modality": [2, 1]},
        ([0, 1], []),
    ),
    "veri776": (
        ["image_query/0002_c002_00030600_0.jpg", "image_test/0776_c020_1_1.jpg", "image_train/0001_c001_1_0.jpg"],
        {"pid": [2, 776], "camid": [2, 20]},
        ([0], [1]),
    ),
    "veri_wild": (["images/00001/000001.jpg", "images/40671/416314.jpg"], {"pid": [1, 40671]}, None),
    "folder_per_identity": (
        ["query/anna/7.jpg", "gallery/bo/7.jpg", "gallery/anna/8.jpg"],
        {"pid": ["anna", "bo", "anna"]},
        ([0], [1, 2]),
    ),
}  # fmt: skip
BY_LISTS = {"vehicleid", "cuhk_pedes", "wildlife"}


def test_every_layout_is_read_here() -> None:
    assert {*CASES, *BY_LISTS} == set(LAYOUTS.names())


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", CASES)
def test_names_as_they_are_published(reid_dist: Any, tmp_path: Path, name: str) -> None:
    names, labels, sides = CASES[name]
    features, listed = write_features(tmp_path, names)
    done = reid_dist("ingest", features, "--names", listed, "--layout", name, "--output", tmp_path / "out")
    assert done.code == 0, done.err
    both = sides is not None and sides[1] != []
    stores = [FeatureSet.open(tmp_path / "out" / f"{role}.zarr") for role in ("query", "gallery")] if both else []
    stores = stores or [FeatureSet.open(tmp_path / "out")]
    rows = [row for store in stores for row in rows_of(store)]
    assert rows == (list(range(len(names))) if sides is None else [*sides[0], *sides[1]])
    found: Labels = {}
    for store in stores:
        for what, values in labels_of(store).items():
            found.setdefault(what, []).extend(values)
        assert store.image_paths.tolist() == [names[row] for row in rows_of(store)]
    assert found == labels
    assert f"layout {name}: " in done.out


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", ["npz", "mat", "parquet", "pth", "h5"])
def test_names_inside_a_file(tmp_path: Path, kind: str) -> None:
    names, labels, _ = CASES["ltcc"]
    features = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    path = write_arrays(tmp_path / f"a.{kind}", {"features": features, "filenames": names})
    query, gallery = ingest(path, tmp_path / "out", layout="ltcc")
    assert [*query.columns["clothes"].tolist(), *gallery.columns["clothes"].tolist()] == labels["clothes"]
    assert (query.image_paths.tolist(), gallery.image_paths.tolist()) == (names[:1], names[1:2])


def test_windows_paths_and_bare_names() -> None:
    names = np.array([r"D:\market\query\0002_c1s1_000451_03.jpg", "0003_c2s1_000451_03.jpg"])
    found = labels_of_names(names, LAYOUTS.get("market1501"))
    assert [coded.decoded().tolist() for coded in found.values()] == [["0002", "0003"], ["1", "2"]]
    sets = sides_by_folder(names, LAYOUTS.get("market1501").folders)
    assert sets.decoded().tolist() == ["query", ""]


def test_the_deepest_folder_counts() -> None:
    names = np.array(["train/a/query/1.jpg", "query/train/1.jpg", "a/val/query/1.jpg", "queries/1.jpg", "query.jpg"])
    sets = sides_by_folder(names, {"query": "query", "train": "train", "val/query": "val"})
    assert sets.decoded().tolist() == ["query", "train", "val", "", ""]


_FORMS = {
    "market1501": "{pid:04d}_c{camid}s1_{rest:06d}_00.jpg",
    "dukemtmcreid": "{pid:04d}_c{camid}_f{rest:07d}.jpg",
    "cuhk03_np": "{pid:04d}_c{camid}_{rest}.png",
    "ltcc": "{pid:03d}_{rest}_c{camid}_000001.png",
    "vc_clothes": "{pid:04d}-{camid:02d}-{rest:02d}-00.jpg",
    "mars": "{pid:04d}C{camid}T{rest:04d}F001.jpg",
    "msmt17": "{pid:04d}_{rest:03d}_{camid:02d}_0303noon_0001_0.jpg",
    "veri776": "{pid:04d}_c{camid:03d}_{rest:08d}_0.jpg",
    "sysu_mm01": "cam{camid}/{pid:04d}/{rest:04d}.jpg",
    "llcm": "{pid:04d}_c{camid:02d}_s1_f{rest}_vis.jpg",
}


@given(
    name=st.sampled_from(sorted(_FORMS)),
    written=st.lists(st.tuples(st.integers(0, 9999), st.integers(1, 2), st.integers(0, 999)), min_size=1, max_size=20),
    folder=st.sampled_from(["", "a/", "cam1/0001/", "/data/2/", "é/"]),
)
def test_what_is_written_in_a_form_is_read_from_it(name: str, written: list[tuple[int, int, int]], folder: str) -> None:
    form = _FORMS[name]
    names = np.array([folder + form.format(pid=pid, camid=camid, rest=rest) for pid, camid, rest in written])
    found = labels_of_names(names, LAYOUTS.get(name))
    for at, what in enumerate(("pids", "camids")):
        coded = found[what]
        assert [int(text) for text in coded.decoded()] == [each[at] for each in written]


@pytest.mark.parametrize("n", [1, 9, 10, 11, 70_000])
def test_names_that_do_not_fit_are_counted_and_the_first_ten_shown(reid_dist: Any, tmp_path: Path, n: int) -> None:
    names = ["0001_c1s1_000001_00.jpg", *(f"IMG_{row}.jpg" for row in range(n)), "0002_c2s1_000001_00.jpg"]
    features, listed = write_features(tmp_path, names, dim=1)
    refused = reid_dist("ingest", features, "--names", listed, "--layout", "market1501", "--output", tmp_path / "out")
    refused.assert_refused("layout market1501", "--pattern", "reid-dist list layouts")
    count = f"{n} of {len(names):,} names do not fit" if n > 1 else "1 of 3 names does not fit"
    assert count in refused.err
    shown = [f"row {1 + row}: 'IMG_{row}.jpg'" for row in range(min(n, 10))]
    more = f" and {n - 10} more" if n > 10 else ""
    for each in [*shown, more.strip()]:
        assert each in refused.err
    assert not (tmp_path / "out").exists()


def test_a_header_is_the_first_line_alone(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("\n\nPaths\n 7.jpg \n\npath\nfiles\n")
    assert read_names(tmp_path / "list.txt").tolist() == ["7.jpg", "path", "files"]
    (tmp_path / "list.txt").write_text("7.jpg\npath\n")
    assert read_names(tmp_path / "list.txt").tolist() == ["7.jpg", "path"]
    (tmp_path / "list.txt").write_text("")
    assert read_names(tmp_path / "list.txt").shape == (0,)


@pytest.mark.slow
def test_names_of_many_blocks_come_back(tmp_path: Path) -> None:
    """Names, their labels and their digest are made block by block."""
    rng = np.random.default_rng(0)
    pids, camids = rng.integers(0, 300, 70_001), rng.integers(1, 7, 70_001)
    names = [f"{pids[row]:04d}_c{camids[row]}s1_{'é' * (row % 3)}{row}.jpg" for row in range(len(pids))]
    features, listed = write_features(tmp_path, names, dim=1)
    (store,) = ingest(features, tmp_path / "a.zarr", names_file=listed)
    assert store.image_paths.tolist() == names
    np.testing.assert_array_equal(store.pids, pids)
    np.testing.assert_array_equal(store.camids, camids)
    written = [name.encode() for name in names]
    expected = b"utf8:70001:" + np.array([len(text) for text in written], "<i8").tobytes() + b"".join(written)
    assert digest_label(store.image_paths) == blake3(expected).hexdigest()


def test_a_group_that_holds_nothing_does_not_fit(tmp_path: Path) -> None:
    names = ["n12-3.jpg", "n-4.jpg", "n13.jpg", "n14-5.jpg"]
    for more, unfit in (([], []), (["m15-6.jpg"], ["row 4: 'm15-6.jpg'"])):
        features, listed = write_features(tmp_path, [*names, *more])
        with pytest.raises(InputError) as refused:
            open_features(features, names_file=listed, pattern="^n(?P<pid>[0-9]*)(?:-(?P<camid>[0-9]))?")
        assert f"{2 + len(more)} of {4 + len(more)} names do not fit" in str(refused.value)
        shown = [part for line in refused.value.details for part in line.split(", ") if part.startswith("row ")]
        assert shown == ["row 1: 'n-4.jpg'", "row 2: 'n13.jpg'", *unfit]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"layout": "market1502"}, "unknown layout 'market1502'; did you mean 'market1501'"),
        ({"layout": "market1501", "pattern": "(?P<pid>a)"}, "by --layout (layout) and by --pattern (pattern)"),
        ({"layout": "vehicleid"}, "names of the layout vehicleid hold no identities; give the lists"),
        (
            {"num_query": 1, "query_folders": ["query"]},
            "chosen twice: by --num-query (num_query) and by --query-f",
        ),
        ({"query_folders": ["querys"]}, "no image is in the query folder querys; the folders are gallery, query:"),
        ({"lists": ["x"]}, "name it with --layout"),
    ],
)
def test_mistakes(tmp_path: Path, options: dict[str, Any], part: str) -> None:
    names = ["query/0001_c1s1_000001_00.jpg", "gallery/0001_c2s1_000001_00.jpg"]
    features, listed = write_features(tmp_path, names)
    with pytest.raises(InputError) as refused:
        ingest(features, tmp_path / "out", names_file=listed, **options)
    assert part in str(refused.value)
    assert not (tmp_path / "out").exists()
    assert isinstance(refused.value, UnknownNameError) == (options.get("layout") == "market1502")
    with pytest.raises(InputError, match="market1501 reads names of images, and there are none"):
        open_features(features, layout="market1501")


def test_cameras_below_the_first_one_are_noted(tmp_path: Path) -> None:
    features, listed = write_features(tmp_path, ["0001_c0s1_000001_00.jpg", "0001_c1s1_000001_00.jpg"])
    notes = open_features(features, names_file=listed, layout="market1501").notes
    assert "cameras of the layout market1501 begin at 1; names hold camera 0" in notes


def test_labels_of_a_store_are_replaced_with_their_texts(tmp_path: Path) -> None:
    named = FeatureSet.from_arrays(np.eye(2, dtype=np.float32), ["a", "b"], image_paths=["x/7.jpg", "y/8.jpg"])
    named.save(tmp_path / "a.zarr")
    (store,) = ingest(tmp_path / "a.zarr", tmp_path / "b.zarr", pattern=r"(?P<pid>[0-9]+)\.jpg")
    assert (store.pids.tolist(), store.pid_names) == ([7, 8], None)


# ---- query and gallery in one file -----------------------------------------------------------------------------------

SPLIT = ["cam1/1_1.jpg", "cam2/1_2.jpg", "cam3/1_3.jpg", "cam1/2_1.jpg", "cam2/2_2.jpg"]
OWN = r"cam(?P<camid>[0-9])/(?P<pid>[0-9])_"


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("words", "query", "gallery"),
    [
        (("--query-folder", "cam1"), [0, 3], [1, 2, 4]),
        (("--gallery-folder", "cam1"), [1, 2, 4], [0, 3]),
        (("--query-folder", "cam1", "--gallery-folder", "cam3"), [0, 3], [2]),
        (("--query-folder", "cam1", "--query-folder", "cam2/"), [0, 1, 3, 4], [2]),
        (("--query-list", "q.txt"), [1, 3], [0, 2, 4]),
        (("--query-list", "q.txt", "--gallery-list", "g.txt"), [1, 3], [0, 1]),
        (("--query-list", "q.txt", "--gallery-folder", "cam3"), [1, 3], [2]),
    ],
)
def test_sides_by_folder_and_list(
    reid_dist: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, query: list[int], gallery: list[int]
) -> None:
    features, listed = write_features(tmp_path, SPLIT)
    (tmp_path / "q.txt").write_text("1_2.jpg\n2_1.jpg\n")
    (tmp_path / "g.txt").write_text("./cam1/1_1.jpg\ncam2/1_2.jpg\ncam1/1_1.jpg\n")
    monkeypatch.chdir(tmp_path)
    done = reid_dist("ingest", features, "--names", listed, "--pattern", OWN, *words, "--output", "out")
    assert done.code == 0, done.err
    stores = [FeatureSet.open(tmp_path / "out" / f"{role}.zarr") for role in ("query", "gallery")]
    assert [rows_of(store) for store in stores] == [query, gallery]
    assert stores[0].camids.tolist() == [int(SPLIT[row][3]) for row in query]
    left = len(SPLIT) - len({*query, *gallery})
    assert (f"left out {left} of 5 rows: neither query nor gallery" in done.out) == (left > 0)
    if {*query} & {*gallery}:
        # A row of both sides has an item id, by which it is not its own match.
        assert evaluate(*stores, protocol="same_set").per_query["n_relevant"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("listed", "part"),
    [
        ("1_2.jpg\nnone.jpg\n", "1 of 2 names of q.txt is not among the names of the features: row 1: 'none.jpg'"),
        ("", "q.txt holds no names of images"),
        ("".join(f"{name}\n" for name in SPLIT), "all rows are of the query side, and none is left for the gallery"),
    ],
)
def test_lists_of_one_side_that_cannot_be(reid_dist: Any, tmp_path: Path, listed: str, part: str) -> None:
    features, names = write_features(tmp_path, SPLIT)
    (tmp_path / "q.txt").write_text(listed)
    words = ("--names", names, "--pattern", OWN, "--query-list", tmp_path / "q.txt", "--output", tmp_path / "out")
    reid_dist("ingest", features, *words).assert_refused(part)
    assert not (tmp_path / "out").exists()


def test_sides_of_a_source_with_labels_of_its_own(tmp_path: Path) -> None:
    """Names choose sides where labels are arrays; one folder or list may be given as it is."""
    held = {"features": np.eye(3, dtype=np.float32), "pids": [4, 5, 4], "paths": np.array(["a/1", "b/2", "b/3"])}
    np.savez(tmp_path / "a.npz", **held)
    query, gallery = ingest(tmp_path / "a.npz", tmp_path / "a", query_folders="a")
    assert (query.pids.tolist(), gallery.pids.tolist()) == ([4], [5, 4])
    (tmp_path / "q.txt").write_text("b/2\n")
    query, gallery = ingest(tmp_path / "a.npz", tmp_path / "b", query_lists=tmp_path / "q.txt")
    assert (query.pids.tolist(), gallery.pids.tolist()) == ([5], [4, 4])
    np.savez(tmp_path / "b.npz", features=held["features"], pids=held["pids"])
    with pytest.raises(InputError, match="--query-folder chooses rows by names of images, and there are none"):
        ingest(tmp_path / "b.npz", tmp_path / "c", query_folders=["a"])
    np.savez(tmp_path / "c.npz", qf=np.ones((1, 2)), q_pids=[1], gf=np.ones((1, 2)), g_pids=[1])
    with pytest.raises(InputError, match=r"holds query and gallery, and these are for a single set: --query-folder"):
        ingest(tmp_path / "c.npz", tmp_path / "c", query_folders=["a"])


def test_without_a_layout_folders_choose_sides_only_where_all_rows_are_in_one(tmp_path: Path) -> None:
    names = [f"{folder}/000{row}_c1s1_1_00.jpg" for row, folder in enumerate(["query", "gallery", "train"])]
    features, listed = write_features(tmp_path, names)
    assert [rows_of(store) for store in ingest(features, tmp_path / "a", names_file=listed)] == [[0], [1]]
    features, listed = write_features(tmp_path, [*names, "0003_c1s1_1_00.jpg"])
    assert [rows_of(store) for store in ingest(features, tmp_path / "b", names_file=listed)] == [[0, 1, 2, 3]]
    features, listed = write_features(tmp_path, [names[2], "0003_c1s1_1_00.jpg"])
    assert rows_of(open_features(features, names_file=listed)) == [0, 1]
    assert rows_of(open_features(features, names_file=listed, layout="market1501")) == [1]
    with pytest.raises(InputError, match="is left after dropping 2 identities"):
        open_features(features, names_file=listed, layout="market1501", drop_pids=[3, 7])


def test_training_images_are_no_other_rows(tmp_path: Path) -> None:
    names = [f"{folder}/000{row}_c1s1_1_00.jpg" for row, folder in enumerate(["train", "test", "test", "train"])]
    features, listed = write_features(tmp_path, names)
    (tmp_path / "q.txt").write_text("0001_c1s1_1_00.jpg\n")
    options: dict[str, Any] = {"names_file": listed, "query_lists": [tmp_path / "q.txt"]}
    stores = ingest(features, tmp_path / "a", layout="market1501", **options)
    assert [rows_of(store) for store in stores] == [[1], [2]]
    stores = ingest(features, tmp_path / "b", pattern=r"^(?P<pid>[0-9]+)", **options)
    assert [rows_of(store) for store in stores] == [[1], [0, 2, 3]]


def test_rows_in_no_folder_of_a_layout_are_not_guessed(tmp_path: Path) -> None:
    names = ["query/0001_c1s1_1_00.jpg", "bounding_box_test/0001_c2s1_1_00.jpg", "images/0000_c1s1_1_00.jpg"]
    features, listed = write_features(tmp_path, names)
    with pytest.raises(InputError, match=r"(?s)1 row of 3 is in no set of the layout market1501.*row 2: 'images/0000"):
        ingest(features, tmp_path / "out", names_file=listed, layout="market1501")
    folders = {"query_folders": ["query"], "gallery_folders": ["bounding_box_test", "images"]}
    stores = ingest(features, tmp_path / "out", names_file=listed, layout="market1501", **folders)
    assert [store.n_rows for store in stores] == [1, 2]


def test_an_entry_num_query_must_agree_with_the_folders(tmp_path: Path) -> None:
    names = np.array(["query/0001_c1s1_1_00.jpg", "query/0002_c2s1_1_00.jpg", "gallery/0001_c2s1_1_00.jpg"])
    held = {"features": np.ones((3, 2), np.float32), "img_path": names}
    np.savez(tmp_path / "good.npz", **held, num_query=2)
    assert [store.n_rows for store in ingest(tmp_path / "good.npz", tmp_path / "good")] == [2, 1]
    np.savez(tmp_path / "bad.npz", **held, num_query=1)
    with pytest.raises(InputError, match=r"the entry num_query .* makes the first 1 rows queries"):
        ingest(tmp_path / "bad.npz", tmp_path / "bad")
    assert [store.n_rows for store in ingest(tmp_path / "bad.npz", tmp_path / "own", num_query=1)] == [1, 2]


# ---- words -----------------------------------------------------------------------------------------------------------

LIGHT = r"(?P<pid>\w+)-(?P<modality>rgb|ir)-(?P<camid>[a-z]+)"
LIT = ["7-rgb-door.jpg", "unknown-ir-hall.jpg", "8-ir-door.jpg"]


def test_words_stand_for_numbers(reid_dist: Any, tmp_path: Path) -> None:
    features, listed = write_features(tmp_path, LIT)
    words = ("ingest", features, "--names", listed, "--pattern", LIGHT, "--output", tmp_path / "a.zarr")
    refused = reid_dist(*words, "--word", "modality:rgb=1")
    refused.assert_refused("modality must be whole numbers, and names of images hold 'ir'", "--word modality:ir=1")
    done = reid_dist(*words, *("--word", "modality:rgb=1", "--word", "modality:ir=2", "--word", "pid:unknown=-1"))
    assert done.code == 0, done.err
    store = FeatureSet.open(tmp_path / "a.zarr")
    assert store.pids.tolist() == [7, -1, 8]
    assert store.columns["modality"].tolist() == [1, 2, 2]
    assert (store.camids.tolist(), store.camid_names) == ([1, 2, 1], ("door", "hall"))


def test_words_are_added_to_those_of_a_layout(tmp_path: Path) -> None:
    features, listed = write_features(tmp_path, CASES["mars"][0])
    found = open_features(features, names_file=listed, layout="mars", words={"pid": {"0000": -1}, "frame": {"016": 3}})
    assert found.pids.tolist() == [65, -1, -1]
    assert found.columns["frame"].tolist() == [16, 1, 1]


@pytest.mark.parametrize("word", ["modality", "modality:ir", "modality:ir=x", "mod ality:ir=1", "modality:=1"])
def test_words_that_are_no_words(reid_dist: Any, tmp_path: Path, word: str) -> None:
    features, listed = write_features(tmp_path, LIT)
    words = ("--names", listed, "--pattern", LIGHT, "--output", tmp_path / "a.zarr", "--word", word)
    reid_dist("ingest", features, *words).assert_refused("is not of the form GROUP:TEXT=N")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"modalty": {"ir": 1}}, "unknown group of words 'modalty'; did you mean 'modality'"),
        ({"modality": {"ir": 1.5}}, r"the word 'ir' of modality must denote a whole number, not 1\.5"),
    ],
)
def test_words_in_python_that_are_no_words(tmp_path: Path, words: Any, message: str) -> None:
    features, listed = write_features(tmp_path, LIT)
    with pytest.raises(InputError, match=message):
        open_features(features, names_file=listed, pattern=LIGHT, words=words)
