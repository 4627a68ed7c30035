"""Labels from the lists of data sets, in the forms in which they are published: text, XML, JSON, CSV and .mat."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from named_images import rows_of, write_features

from reid_dist import FeatureSet
from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.stores import ingest, open_features
from reid_dist.stores.importers.label_tables import LabelTable, rows_in_list

Write = Callable[[Sequence[str]], tuple[Path, Path]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes features of as many rows as names, and the list of names."""
    return partial(write_features, tmp_path)


def lines(path: Path, *texts: str) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


# ---- text ------------------------------------------------------------------------------------------------------------

MSMT = ["0000/0000_001_02_0303noon_1_0.jpg", "0001/0001_002_15_0303noon_2_0.jpg", "0000/0000_003_04_0303noon_3_0.jpg"]
MSMT = [name.replace("noon_", "noon_000") for name in MSMT]


@pytest.mark.parametrize("by_name", [True, False])
def test_msmt17(reid_dist: Any, tmp_path: Path, write: Write, by_name: bool) -> None:
    query = lines(tmp_path / "list_query.txt", f"{MSMT[2]} 0")
    gallery = lines(tmp_path / "list_gallery.txt", f"{MSMT[0]} 0", f"{MSMT[1]} 1")
    features, names = write([f"MSMT17_V1/test/{name}" for name in MSMT] if by_name else MSMT)
    words = ("--names", names) if by_name else ()
    done = reid_dist(
        *("ingest", features, *words, "--layout", "msmt17", "--list", query, "--list", gallery),
        *("--output", tmp_path / "out"),
    )
    assert done.code == 0, done.err
    sides = [FeatureSet.open(tmp_path / "out" / f"{role}.zarr") for role in ("query", "gallery")]
    # By name the rows keep their order; without names it is that of the lists.
    assert [rows_of(side) for side in sides] == ([[2], [0, 1]] if by_name else [[0], [1, 2]])
    assert [side.pids.tolist() for side in sides] == [[0], [0, 1]]
    assert [side.camids.tolist() for side in sides] == [[4], [2, 15]]
    assert sides[0].image_paths.tolist()[0].endswith(MSMT[2])
    assert "labels come from list_query.txt, list_gallery.txt, layout msmt17, " in done.out


def test_a_list_as_names_and_as_sides(tmp_path: Path, write: Write) -> None:
    features, _ = write(MSMT)
    every = lines(tmp_path / "list_test.txt", *(f"{name} {name[3]}" for name in MSMT))
    query = lines(tmp_path / "list_query.txt", f"{MSMT[1]} 1")
    stores = ingest(features, tmp_path / "out", names_file=every, layout="msmt17", query_lists=[query])
    assert [rows_of(store) for store in stores] == [[1], [0, 2]]
    assert [store.pids.tolist() for store in stores] == [[1], [0, 0]]
    assert stores[0].image_paths.tolist() == [MSMT[1]]


def test_labels_that_are_named_come_before_those_of_a_list(tmp_path: Path, write: Write) -> None:
    features, _ = write(MSMT)
    every = lines(tmp_path / "list_test.txt", *(f"{name} {name[3]}" for name in MSMT))
    pids = lines(tmp_path / "pids.txt", "7", "8", "9")
    found = open_features(features, names_file=every, layout="msmt17", pids_file=pids)
    assert (found.pids.tolist(), found.camids.tolist()) == ([7, 8, 9], [2, 15, 4])
    np.savez(tmp_path / "own.npz", features=np.load(features), own=[4, 5, 6])
    named = open_features(tmp_path / "own.npz", names={"pids": "own"}, names_file=every, layout="msmt17")
    assert (named.pids.tolist(), named.camids.tolist()) == ([4, 5, 6], [2, 15, 4])
    by_list = open_features(features, layout="msmt17", lists=[every], pids_file=pids)
    assert (by_list.pids.tolist(), by_list.camids.tolist()) == ([7, 8, 9], [2, 15, 4])


def test_train_lists_are_left_out(tmp_path: Path, write: Write) -> None:
    features, names = write(MSMT)
    lists = [lines(tmp_path / "list_train.txt", f"{MSMT[0]} 0"), lines(tmp_path / "list_query.txt", f"{MSMT[1]} 1")]
    lists.append(lines(tmp_path / "list_val.txt", f"{MSMT[2]} 0"))
    found = open_features(features, names_file=names, layout="msmt17", lists=lists)
    assert (found.pids.tolist(), rows_of(found)) == ([1], [1])
    assert "left out 2 of 3 rows: train, val" in found.notes


def test_vehicleid(reid_dist: Any, tmp_path: Path, write: Write) -> None:
    features, names = write(["image/0000007.jpg", "image/0000004.jpg", "image/0000009.jpg"])
    listed = lines(tmp_path / "test_list_800.txt", "0000004 12", "0000007 12", "0000009 13", "0000010 13")
    words = ("--layout", "vehicleid", "--list", listed, "--output", tmp_path / "out.zarr")
    done = reid_dist("ingest", features, "--names", names, *words)
    assert done.code == 0, done.err
    store = FeatureSet.open(tmp_path / "out.zarr")
    assert (store.pids.tolist(), store.camids) == ([12, 12, 13], None)


def test_veri_wild(tmp_path: Path, write: Write) -> None:
    names = ["images/00001/000001.jpg", "images/00001/000002.jpg", "images/00002/000003.jpg"]
    features, listed = write(names)
    info = lines(
        tmp_path / "vehicle_info.txt", "id/image;Camera ID;Time;Model;Type;Color",
        "00002/000003;174;2018-03-16 19:53:26;Toyota;SUV;white", "00001/000001;5;2018-03-11 10:10:10;a;b;c",
        "00001/000002;40;2018-03-11 10:10:11;a;b;c", "00009/000009;1;x;y;z;w",
    )  # fmt: skip
    query = lines(tmp_path / "test_3000_query.txt", "00001/000002.jpg")
    gallery = lines(tmp_path / "test_3000.txt", "00001/000001", "00002/000003")
    options: dict[str, Any] = {"names_file": listed, "layout": "veri_wild", "lists": [info]}
    stores = ingest(features, tmp_path / "out", query_lists=[query], gallery_lists=[gallery], **options)
    assert [store.pids.tolist() for store in stores] == [[1], [1, 2]]
    assert [store.camids.tolist() for store in stores] == [[40], [5, 174]]


def test_regdb(tmp_path: Path, write: Write) -> None:
    names = [f"{light}/{pid}/male_front_{light[0].lower()}_0000{pid}_{pid}.bmp" for light in ("Visible", "Thermal")
             for pid in (1, 285)]  # fmt: skip
    features, listed = write([f"RegDB/{name}" for name in names])
    visible = lines(tmp_path / "test_visible_1.txt", *(f"{name} {at}" for at, name in enumerate(names[:2])))
    thermal = lines(tmp_path / "test_thermal_1.txt", *(f"{name} {at}" for at, name in enumerate(names[2:])))
    sides = {"query_lists": [thermal], "gallery_lists": [visible]}
    query, gallery = ingest(features, tmp_path / "out", names_file=listed, layout="regdb", **sides)
    assert query.pids.tolist() == gallery.pids.tolist() == [1, 285]
    assert query.columns["modality"].tolist() == [2, 2]
    assert gallery.camids.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("listed", "part"),
    [
        (["a1.jpg", "b.jpg 2"], "1 of 2 lines of l.txt are not of the form"),
        (["a.jpg;1"], "1 of 1 lines of l.txt are not of the form"),
        ([f"{MSMT[0]} 0"], "2 of 3 names are not in l.txt: row 1: '0001/"),
        ([], "l.txt holds no names of images"),
        ([f"{name} 1" for name in MSMT] + [f"{MSMT[1]} 2"], "several records of '0001/"),
    ],
)
def test_lists_that_do_not_fit(reid_dist: Any, tmp_path: Path, write: Write, listed: list[str], part: str) -> None:
    features, names = write(MSMT)
    words = ("--layout", "msmt17", "--list", lines(tmp_path / "l.txt", *listed), "--output", tmp_path / "out")
    refused = reid_dist("ingest", features, "--names", names, *words)
    refused.assert_refused(part.replace("l.txt are", f"{tmp_path / 'l.txt'} are"))
    assert not (tmp_path / "out").exists()


def test_lines_of_another_form_anywhere_in_a_list(tmp_path: Path, write: Write) -> None:
    features, names = write(MSMT)
    listed = lines(tmp_path / "l.txt", "a1 b", *(f"name{row}" for row in range(5000)))
    with pytest.raises(InputError, match=r"5001 of 5001 lines of .* row 0: 'a1 b', row 1: 'name0'"):
        open_features(features, names_file=names, layout="msmt17", lists=[listed])


def test_lists_in_order_with_rows_for_training(tmp_path: Path, write: Write) -> None:
    features, _ = write(MSMT)
    lists = [lines(tmp_path / f"list_{kind}.txt", f"{name} {at}")
             for at, (kind, name) in enumerate(zip(("train", "gallery", "query"), MSMT, strict=True))]  # fmt: skip
    stores = ingest(features, tmp_path / "out", layout="msmt17", lists=lists)
    assert [(rows_of(store), store.pids.tolist()) for store in stores] == [([2], [2]), ([1], [1])]


def test_lists_without_names_of_another_length(tmp_path: Path, write: Write) -> None:
    features, _ = write(MSMT)
    query = lines(tmp_path / "list_query.txt", f"{MSMT[0]} 0")
    with pytest.raises(InputError, match=r"list_query.txt holds 1 record for 3 rows of features; give the lists"):
        open_features(features, layout="msmt17", lists=[query])
    train = lines(tmp_path / "list_train.txt", f"{MSMT[0]} 0")
    with pytest.raises(InputError, match="hold 2 records, 1 of them evaluated, for 3 rows"):
        open_features(features, layout="msmt17", lists=[query, train])
    with pytest.raises(StoreNotFoundError, match=r"no file with labels at .*none\.txt"):
        open_features(features, layout="msmt17", lists=[tmp_path / "none.txt"])


# ---- XML -------------------------------------------------------------------------------------------------------------

VERI = [
    ("0002_c002_00030600_0.jpg", 2, 2, 5, 4), ("0002_c003_00084280_0.jpg", 2, 3, 5, 4),
    ("0776_c020_00000001_1.jpg", 776, 20, 1, 2),
]  # fmt: skip


def veri_xml(path: Path, items: Sequence[Sequence[Any]] = VERI, *, head: str = "", encoding: str = "gb2312") -> Path:
    form = '    <Item imageName="{}" vehicleID="{:04d}" cameraID="c{:03d}" colorID="{}" typeID="{}"/>'
    written = [form.format(*item) for item in items]
    text = "\n".join([f'<?xml version="1.0" encoding="{encoding}"?>', head, '<TrainingImages Version="1.0">',
                      f'  <Items number="{len(items)}">', *written, "  </Items>", "</TrainingImages>"])  # fmt: skip
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("encoding", ["gb2312", "utf-8", "gbk", "utf-16"])
def test_veri776(reid_dist: Any, tmp_path: Path, write: Write, encoding: str) -> None:
    features, names = write([f"VeRi/image_test/{each[0]}" for each in reversed(VERI)])
    xml = veri_xml(tmp_path / "test_label.xml", head="<!-- 车 -->", encoding=encoding)
    query = lines(tmp_path / "name_query.txt", VERI[1][0])
    words = ("--layout", "veri776", "--list", xml, "--query-list", query, "--output", tmp_path / "out")
    done = reid_dist("ingest", features, "--names", names, *words)
    assert done.code == 0, done.err
    found = FeatureSet.open(tmp_path / "out" / "gallery.zarr")
    assert (found.pids.tolist(), found.camids.tolist()) == ([776, 2], [20, 2])
    assert {name: values.tolist() for name, values in found.columns.items()} == {"color": [1, 5], "type": [2, 4]}
    assert FeatureSet.open(tmp_path / "out" / "query.zarr").image_paths.tolist() == [f"VeRi/image_test/{VERI[1][0]}"]


def test_tracks_of_veri776(tmp_path: Path, write: Write) -> None:
    """Images of one line are one track; one that no line names is a track of its own."""
    images = [each[0] for each in VERI]
    features, names = write([f"VeRi/image_test/{image}" for image in images])
    tracks = lines(tmp_path / "test_track.txt", f"{images[0][:-4]} {images[0]} {images[2]} ", "", "0999_c001_1_0.jpg")
    xml = veri_xml(tmp_path / "test_label.xml")
    for lists in ([xml, tracks], [tracks, xml]):
        found = open_features(features, names_file=names, layout="veri776", lists=lists)
        assert found.columns["tracklet"].tolist() == [1, 3, 1]
    alone = open_features(
        features, names_file=names, layout="veri776", lists=[lines(tmp_path / "t.txt", " ".join(images))]
    )
    assert (alone.columns["tracklet"].tolist(), alone.pids.tolist()) == ([1, 1, 1], [int(name[:4]) for name in images])
    for text, message in ((f"{images[0]}\n{images[0]}", "in the tracks 1 and 2"), ("a b\n", "lists no images")):
        with pytest.raises(InputError, match=message):
            open_features(features, names_file=names, layout="veri776", lists=[lines(tmp_path / "w.txt", text)])


BOMB = '<!DOCTYPE t [<!ENTITY a "' + "a" * 1000 + '"><!ENTITY b "' + "&a;" * 1000 + '">]>'
OUTSIDE = '<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/hostname">]>'


@pytest.mark.parametrize("head", [BOMB, OUTSIDE, '<!DOCTYPE t SYSTEM "http://127.0.0.1/t.dtd">'])
def test_xml_with_a_document_type_is_refused(tmp_path: Path, write: Write, head: str) -> None:
    features, names = write([each[0] for each in VERI])
    xml = veri_xml(tmp_path / "test_label.xml", head=head)
    with pytest.raises(InputError, match="declares a document type, whose entities are never read"):
        open_features(features, names_file=names, layout="veri776", lists=[xml])


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"<a><Item></a>", "is not XML: mismatched tag"),
        (b"", "is not XML: no element found"),
        (b"<a/>", "holds no <Item imageName"),
        (b'<a><Item imageName="a.jpg" vehicleID="1"/></a>', "item 0 has no cameraID"),
        (b'<a><Item imageName="a.jpg" vehicleID="1" cameraID="x"/></a>', "item 0 has the cameraID 'x'"),
        (b'<?xml version="1.0" encoding="utf-7"?><a/>', "is in the encoding utf-7, which is not read"),
        (b'<?xml version="1.0" encoding="rot13"?><a/>', "is in the encoding rot13, which is not read"),
        (b'<?xml version="1.0" encoding="zip"?><a/>', "is in the encoding zip, which is not read"),
        (b'<?xml version="1.0"?><a>\xff</a>', "is no text in utf-8: byte 24"),
        (b"<a>" * 200_000, "is not XML: no element found"),
    ],
)
def test_damaged_xml(tmp_path: Path, write: Write, content: bytes, part: str) -> None:
    features, names = write(["a.jpg"])
    (tmp_path / "l.xml").write_bytes(content)
    with pytest.raises(InputError) as refused:
        open_features(features, names_file=names, layout="veri776", lists=[tmp_path / "l.xml"])
    assert part in str(refused.value)


# ---- JSON and tables -------------------------------------------------------------------------------------------------

PEDES = [
    {"split": split, "captions": ["A woman in a gray shirt.", "She walks."], "file_path": path, "id": pid}
    for split, path, pid in [
        ("train", "train_query/p11600_s14885.jpg", 1), ("val", "CUHK01/0363004.png", 11004),
        ("test", "CUHK03/0363004.png", 12004), ("test", "Market/0363004.png", 12005),
    ]
]  # fmt: skip


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [3, 2], [2, 3]])
def test_cuhk_pedes(reid_dist: Any, tmp_path: Path, write: Write, rows: list[int]) -> None:
    features, names = write([f"CUHK-PEDES/imgs/{PEDES[row]['file_path']}" for row in rows])
    (tmp_path / "reid_raw.json").write_text(json.dumps(PEDES))
    words = ("--layout", "cuhk_pedes", "--list", tmp_path / "reid_raw.json", "--output", tmp_path / "out.zarr")
    done = reid_dist("ingest", features, "--names", names, *words)
    assert done.code == 0, done.err
    store = FeatureSet.open(tmp_path / "out.zarr")
    assert store.pids.tolist() == [12004 if row == 2 else 12005 for row in rows if row > 1]
    assert ("left out 2 of 4 rows: train, val" in done.out) == (len(rows) == 4)


def test_cuhk_pedes_in_the_order_of_the_test_split(tmp_path: Path, write: Write) -> None:
    features, _ = write(["a", "b"])
    (tmp_path / "reid_raw.json").write_text(json.dumps(PEDES))
    found = open_features(features, layout="cuhk_pedes", lists=[tmp_path / "reid_raw.json"])
    assert found.pids.tolist() == [12004, 12005]
    assert found.image_paths.tolist() == ["CUHK03/0363004.png", "Market/0363004.png"]


def test_names_that_several_records_end_in(tmp_path: Path, write: Write) -> None:
    features, names = write(["0363004.png"])
    (tmp_path / "reid_raw.json").write_text(json.dumps(PEDES))
    with pytest.raises(InputError, match=r"several records of '0363004\.png' that differ"):
        open_features(features, names_file=names, layout="cuhk_pedes", lists=[tmp_path / "reid_raw.json"])


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("[1, 2]", "is no table: give a list of objects"),
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"id": 1}]', "has no column of image names"),
        ('[{"file_path": "a.jpg", "split": "test"}]', "lists of the layout cuhk_pedes hold no identities; give other"),
    ],
)
def test_json_that_is_no_list(tmp_path: Path, write: Write, content: str, part: str) -> None:
    features, names = write(["a.jpg"])
    (tmp_path / "l.json").write_text(content)
    with pytest.raises(InputError) as refused:
        open_features(features, names_file=names, layout="cuhk_pedes", lists=[tmp_path / "l.json"])
    assert part in str(refused.value)


@pytest.mark.parametrize("with_split", [True, False])
def test_wildlife(tmp_path: Path, write: Write, with_split: bool) -> None:
    paths = ["images/t1/a.jpg", "images/t1/b.jpg", "images/t2/a.jpg", "images/x.jpg"]
    table = {"image_id": [9, 8, 7, 6], "identity": ["t1", "t1", "t2", "unknown"], "path": paths, "position": ["l"] * 4}
    table |= {"split": ["query", "database", "database", "database"]} if with_split else {}
    with (tmp_path / "metadata.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(table), *zip(*table.values(), strict=True)])
    features, names = write(paths[::-1])
    options: dict[str, Any] = {"names_file": names, "layout": "wildlife", "lists": [tmp_path / "metadata.csv"]}
    stores = ingest(features, tmp_path / "out", **options)
    assert [rows_of(store) for store in stores] == ([[3], [0, 1, 2]] if with_split else [[0, 1, 2, 3]])
    last = stores[-1]
    texts = [last.pid_names[pid - 1] if pid > 0 else pid for pid in last.pids.tolist()]
    assert texts == ["t1" if at == 3 else each for at, each in enumerate([-1, "t2", "t1", "t1"][: last.n_rows])]
    # The list says the side of a row, whatever the features have beside them.
    np.savez(tmp_path / "f.npz", features=np.load(features), split=["query", "query", "gallery", "gallery"])
    beside = ingest(tmp_path / "f.npz", tmp_path / "beside", **options)
    by_list, by_array = [[3], [0, 1, 2]], [[0, 1], [2, 3]]
    assert [rows_of(store) for store in beside] == (by_list if with_split else by_array)


# ---- MATLAB ----------------------------------------------------------------------------------------------------------

TRACKS = np.array([[1, 2, 1, 1], [3, 5, 1, 2], [6, 6, 3, 6], [8, 8, -1, 1]])
FRAMES = ["0001C1T0001F001.jpg", "0001C1T0001F002.jpg", "0001C2T0002F001.jpg", "0001C2T0002F002.jpg",
          "0001C2T0002F003.jpg", "0003C6T0001F001.jpg", "0009C1T0001F001.jpg", "00-1C1T0001F001.jpg"]  # fmt: skip


@pytest.fixture
def mars(tmp_path: Path) -> list[Path]:
    scipy.io.savemat(tmp_path / "tracks_test_info.mat", {"track_test_info": TRACKS.astype(np.float64)})
    scipy.io.savemat(tmp_path / "query_IDX.mat", {"query_IDX": np.array([[2]])})
    return [tmp_path / "tracks_test_info.mat", tmp_path / "query_IDX.mat"]


def test_tracks_of_mars_in_their_order(reid_dist: Any, tmp_path: Path, write: Write, mars: list[Path]) -> None:
    features, _ = write(["a", "b", "c", "d"])
    words = [word for path in mars for word in ("--list", path)]
    done = reid_dist("ingest", features, "--layout", "mars", *words, "--output", tmp_path / "out")
    assert done.code == 0, done.err
    query, gallery = (FeatureSet.open(tmp_path / "out" / f"{role}.zarr") for role in ("query", "gallery"))
    assert (rows_of(query), query.pids.tolist(), query.camids.tolist()) == ([1], [1], [2])
    assert (gallery.pids.tolist(), gallery.camids.tolist()) == ([1, 3, -1], [1, 6, 1])
    assert gallery.columns["tracklet"].tolist() == [1, 3, 4]


def test_images_of_mars_have_the_number_of_their_track(tmp_path: Path, write: Write, mars: list[Path]) -> None:
    names = [FRAMES[at] for at in (7, 3, 2, 0)]
    features, listed = write([f"bbox_test/{name[:4]}/{name}" for name in names])
    every = lines(tmp_path / "test_name.txt", *FRAMES)
    query, gallery = ingest(features, tmp_path / "out", names_file=listed, layout="mars", lists=[*mars, every])
    assert rows_of(query) == [1, 2]
    assert query.columns["tracklet"].tolist() == [2, 2]
    assert query.columns["frame"].tolist() == [2, 1]
    assert (gallery.pids.tolist(), gallery.columns["tracklet"].tolist()) == ([-1, 1], [4, 1])


def test_lists_of_mars_that_do_not_fit(tmp_path: Path, write: Write, mars: list[Path]) -> None:
    features, _ = write(["a", "b", "c", "d"])
    short = lines(tmp_path / "test_name.txt", *FRAMES[:3])
    with pytest.raises(InputError, match="tracks beyond the 3 names of the list"):
        open_features(features, layout="mars", lists=[*mars, short])
    with pytest.raises(InputError, match="need one of track_test_info and track_train_info, found query_IDX"):
        open_features(features, layout="mars", lists=mars[1:])
    scipy.io.savemat(tmp_path / "query_IDX.mat", {"query_IDX": np.array([[5]])})
    with pytest.raises(InputError, match="query_IDX must be numbers from 1 to 4, found 5 to 5"):
        open_features(features, layout="mars", lists=mars)


def test_cuhk03_np(tmp_path: Path, write: Write) -> None:
    names = ["1_001_1_01.png", "1_001_2_06.png", "2_001_1_01.png", "5_003_2_07.png"]
    held = {
        "filelist": np.array(names, dtype=object)[:, None], "labels": np.array([[1], [1], [844], [1467]]),
        "camId": np.array([[1], [2], [1], [2]]), "query_idx": [[1]], "gallery_idx": [[2], [4]], "train_idx": [[3]],
    }  # fmt: skip
    scipy.io.savemat(tmp_path / "cuhk03_new_protocol_config_detected.mat", held)
    features, listed = write([f"images_detected/{name}" for name in names[::-1]])
    config = [tmp_path / "cuhk03_new_protocol_config_detected.mat"]
    query, gallery = ingest(features, tmp_path / "out", names_file=listed, layout="cuhk03_np", lists=config)
    assert (rows_of(query), query.pids.tolist(), query.camids.tolist()) == ([3], [1], [1])
    assert (rows_of(gallery), gallery.pids.tolist(), gallery.camids.tolist()) == ([0, 2], [1467, 1], [2, 2])
    # The other one of the two lists has the same arrays.
    other = shutil.copy(config[0], tmp_path / "cuhk03_new_protocol_config_labeled.mat")
    with pytest.raises(InputError, match=r"filelist is in .*labeled\.mat as well as in another list; give one"):
        open_features(features, names_file=listed, layout="cuhk03_np", lists=[*config, other])
    # Without the list an identity is numbered within its camera pair.
    alone = open_features(features, names_file=listed, layout="cuhk03_np")
    assert [alone.pid_names[pid - 1] for pid in alone.pids] == ["5_003", "2_001", "1_001", "1_001"]


# ---- matching of names -----------------------------------------------------------------------------------------------

_PARTS = st.text("ab.", min_size=1, max_size=2).filter(lambda text: text.strip("."))
_PATHS = st.lists(_PARTS, min_size=1, max_size=3).map("/".join)


@given(listed=st.lists(_PATHS, min_size=1, max_size=12), picked=st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_records_are_those_of_equal_names(listed: list[str], picked: list[int]) -> None:
    names = [listed[at % len(listed)] for at in picked]
    records = LabelTable({"image_paths": np.array(listed), "pids": np.array([hash(each) % 97 for each in listed])})
    assert records.join(np.array(names), "list", stems=False).plain("image_paths").tolist() == names
    # A folder before all of them changes nothing, as long as that is unambiguous.
    try:
        deeper = records.join(np.array([f"root/{name}" for name in names]), "list", stems=False)
    except InputError as error:
        # They have different ends, or fewer components are left, in which several are equal.
        assert min(each.count("/") for each in listed) < max(each.count("/") for each in listed)
        assert "several records" in str(error)  # noqa: PT017
    else:
        depth = min(min(name.count("/") + 2 for name in names), min(each.count("/") + 1 for each in listed))
        tails = [name.split("/")[-depth:] for name in names]
        assert [f"root/{path}".split("/")[-depth:] for path in deeper.plain("image_paths").tolist()] == tails
    assert rows_in_list(np.array(names), np.array(names[:1]), "list", stems=False).tolist() == [
        name == names[0] for name in names
    ]


def test_suffixes_are_those_of_files_and_not_of_folders() -> None:
    records = LabelTable({"image_paths": np.array(["v1.0/7", "v1.1/8", ".hidden"]), "pids": np.array([1, 2, 3])})
    names = np.array(["v1.1/8.jpg", "v1.0/7", ".hidden"])
    assert records.join(names, "list", stems=True).plain("pids").tolist() == [2, 1, 3]
    assert records.join(np.array(["v1.1/8", "v1.0/7"]), "list", stems=True).plain("pids").tolist() == [2, 1]


def test_names_of_many_blocks_are_found() -> None:
    listed = [f"a/{row * 7919 % 10_000}.jpg" for row in range(10_000)]
    records = LabelTable({"image_paths": np.array(listed), "pids": np.arange(10_000)})
    names = [f"a/{row}.jpg" for row in range(9_000)]
    for folder in ("", "data/"):
        joined = records.join(np.array([folder + name for name in names]), "list", stems=False)
        assert [listed[row] for row in joined.plain("pids")] == names
