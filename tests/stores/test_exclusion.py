"""Rows that are left out: by lists of rows, item ids and image paths, and as repeats of earlier rows."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist import FeatureSet, append, evaluate
from reid_dist.errors import InputError
from reid_dist.stores import ingest
from reid_dist.stores.importers.exclusion import Exclusion, leave_out

N = 24
PIDS = np.arange(N) // 4
CAMIDS = np.arange(N) % 4
PATHS = np.array([f"cam{row % 4}/{row:04d}.jpg" for row in range(N)])
IDS = np.array([f"item{row}" for row in range(N)])


def features() -> np.ndarray:
    return np.random.default_rng(5).standard_normal((N, 6)).astype(np.float32)


def whole(**changes: Any) -> FeatureSet:
    held = {"pids": PIDS, "camids": CAMIDS, "item_ids": IDS, "image_paths": PATHS, **changes}
    return FeatureSet.from_arrays(held.pop("features", features()), **held)


def other_side() -> FeatureSet:
    """A query whose items have other names."""
    return whole(item_ids=np.array([f"q{row}" for row in range(N)]), image_paths=np.char.add("query/", PATHS))


def listed(path: Path, content: str | np.ndarray) -> Path:
    if isinstance(content, str):
        path.write_text(content)
    else:
        np.save(path, content)
    return path


LISTS = [
    ("bad.txt", "item3\nitem5\n"),
    ("bad.txt", "item_id\n# two of them\nitem3\n\nitem5"),
    ("bad.txt", "cam3/0003.jpg\n./cam1/0005.jpg\n"),
    ("bad.txt", "image_path\ncam3/0003.jpg\n/cam1/0005.jpg\n"),
    ("bad.csv", "why,image_path\nblurred,cam3/0003.jpg\nempty,cam1\\0005.jpg\n"),
    ("bad.csv", "item3\nitem5\n"),
    ("bad.csv", "row,side\n3,gallery\n5,gallery\n"),
    ("bad.npy", np.array(["item5", "item3"])),
    ("bad.npy", PATHS[[3, 5]]),
]


@pytest.mark.parametrize(("name", "content"), LISTS)
def test_lists_in_every_form(tmp_path: Path, name: str, content: str | np.ndarray) -> None:
    path = listed(tmp_path / name, content)
    kept = ~np.isin(np.arange(N), [3, 5])
    query, gallery = leave_out(other_side(), whole(), Exclusion(path))
    assert query.content_digest == other_side().content_digest
    assert gallery.content_digest == whole().filter(kept).content_digest
    assert gallery.notes == ["gallery: left out 2 of 24 rows (exclusion list)"]
    np.savez(tmp_path / "g.npz", features=features(), pids=PIDS, camids=CAMIDS, item_ids=IDS, image_paths=PATHS)
    (store,) = ingest(tmp_path / "g.npz", tmp_path / "g.zarr", exclude=path)
    assert store.content_digest == gallery.content_digest
    assert "left out 2 of 24 rows (exclusion list)" in store.notes


@pytest.mark.parametrize("content", ["3\n5", "row\n3\n5", np.array([3, 5]), np.array([5.0, 3.0])])
def test_numbers_are_rows(tmp_path: Path, content: str | np.ndarray) -> None:
    path = listed(tmp_path / ("bad.txt" if isinstance(content, str) else "bad.npy"), content)
    np.savez(tmp_path / "g.npz", features=features(), pids=PIDS, item_ids=IDS)
    (store,) = ingest(tmp_path / "g.npz", tmp_path / "g.zarr", exclude=[path])
    assert store.item_ids is not None
    assert store.item_ids.tolist() == np.delete(IDS, [3, 5]).tolist()
    # One set on both sides is one set.
    both = leave_out(whole(), whole(), Exclusion(path))
    assert [side.n_rows for side in both] == [22, 22]
    with pytest.raises(InputError, match="numbers of rows, and there are a query and a gallery; add a column side"):
        leave_out(other_side(), whole(), Exclusion(path))


def test_rows_of_a_set_that_is_split_are_those_of_the_source(tmp_path: Path) -> None:
    path = listed(tmp_path / "bad.txt", "2\n9\n23")
    np.savez(tmp_path / "g.npz", features=features(), pids=PIDS, item_ids=IDS)
    query, gallery = ingest(tmp_path / "g.npz", tmp_path / "out", num_query=8, exclude=path)
    assert query.item_ids is not None
    assert gallery.item_ids is not None
    assert query.item_ids.tolist() == np.delete(IDS[:8], 2).tolist()
    assert gallery.item_ids.tolist() == np.delete(IDS[8:], [1, 15]).tolist()


def test_numbers_that_could_be_item_ids_are_not_guessed(tmp_path: Path) -> None:
    path = listed(tmp_path / "bad.txt", "3\n5")
    with pytest.raises(
        InputError, match=r"item ids that are numbers as well; say which .* in a first line: row or item"
    ):
        leave_out(whole(item_ids=np.arange(N) + 1), whole(item_ids=np.arange(N) + 1), Exclusion(path))
    # Item ids that are the numbers of the rows mean the same.
    numbered = whole(item_ids=np.arange(N))
    assert leave_out(numbered, numbered, Exclusion(path))[1].n_rows == 22
    path.write_text("item_id\n03\n5")
    taken = leave_out(whole(item_ids=np.arange(N) + 1), whole(item_ids=np.arange(N) + 1), Exclusion(path))[1]
    assert taken.item_ids is not None
    assert taken.item_ids.tolist() == [1, 2, 4, *range(6, 25)]


def test_a_side_in_the_list_holds_for_names_too(tmp_path: Path) -> None:
    path = listed(tmp_path / "bad.csv", "item_id,side\nitem3,query\nitem4,gallery\nitem5,gallery\n")
    query, gallery = leave_out(whole(), whole(), Exclusion(path))
    assert query.content_digest == whole().filter(np.arange(N) != 3).content_digest
    assert gallery.content_digest == whole().filter(~np.isin(np.arange(N), [4, 5])).content_digest


def test_everything_that_is_left_out_is_listed(tmp_path: Path) -> None:
    again = np.array([*range(N), 7, 3, 9])
    gallery = whole(
        features=features()[again],
        pids=PIDS[again],
        camids=CAMIDS[again],
        item_ids=IDS[again],
        image_paths=PATHS[again],
    )
    path = listed(tmp_path / "bad.txt", "item3\nabsent.jpg\ncam1/0005.jpg\nitem99\n")
    query, kept = leave_out(other_side(), gallery, Exclusion(path, "item_ids", tmp_path / "out" / "left.csv"))
    assert kept.content_digest == whole().filter(~np.isin(np.arange(N), [3, 5])).content_digest
    assert kept.notes == [
        "gallery: left out 3 of 27 rows (exclusion list)",
        "gallery: left out 2 of 24 rows, whose item id an earlier row has",
        "2 of 4 entries in the exclusion list match no row: absent.jpg, item99",
    ]
    assert kept.describe()["left_out"] == {"rows_before": 27, "excluded": 3, "duplicates": 2}
    with (tmp_path / "out" / "left.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [
        (row["side"], row["row"], row["item_id"], row["reason"], row["same_as"], row["entry"]) for row in table
    ] == [
        ("gallery", "3", "item3", "excluded", "", ""),
        ("gallery", "5", "item5", "excluded", "", ""),
        ("gallery", "24", "item7", "same item_ids", "7", ""),
        ("gallery", "25", "item3", "excluded", "", ""),
        ("gallery", "26", "item9", "same item_ids", "9", ""),
        ("", "", "", "names no row", "", "absent.jpg"),
        ("", "", "", "names no row", "", "item99"),
    ]
    assert table[0]["image_path"] == "cam3/0003.jpg"
    assert query.n_rows == N


@pytest.mark.parametrize("place", ["bad.txt", "features.npz", "folder", "pipe"])
def test_the_table_takes_the_place_of_no_other_file(tmp_path: Path, place: str) -> None:
    """Neither of the list, nor of the features, nor of what is no file; and nothing is written before it is refused."""
    source, bad, table = tmp_path / "features.npz", listed(tmp_path / "bad.txt", "item3\n"), tmp_path / place
    np.savez(source, features=features(), pids=PIDS, item_ids=IDS)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = {path: path.read_bytes() for path in (source, bad)}
    store = whole(camids=None, image_paths=None).save(tmp_path / "a.zarr")
    message = f"{place} is there and is no table of rows that were left out"
    with pytest.raises(InputError, match=message):
        ingest(source, tmp_path / "new.zarr", exclude=bad, left_out=table)
    with pytest.raises(InputError, match=message):
        append(store.uri, source, exclude=bad, left_out=table)
    with pytest.raises(InputError, match=message):
        leave_out(whole(), whole(), Exclusion(bad, table=table))
    assert {path: path.read_bytes() for path in (source, bad)} == before
    assert not (tmp_path / "new.zarr").exists()
    assert FeatureSet.open(store.uri).n_rows == N


def test_an_earlier_table_is_replaced_once_the_rows_are_written(tmp_path: Path) -> None:
    table, source, bad = tmp_path / "left.csv", tmp_path / "features.npz", listed(tmp_path / "bad.txt", "item3\n")
    np.savez(source, features=features(), pids=PIDS, item_ids=IDS)
    ingest(source, tmp_path / "a.zarr", exclude=bad, left_out=table)
    before = table.read_bytes()
    broken = features()
    broken[7] = np.nan
    np.savez(tmp_path / "broken.npz", features=broken, pids=PIDS, item_ids=IDS)
    options: Any = {"drop_duplicates": "item_ids", "left_out": table}
    with pytest.raises(InputError, match="NaN"):
        ingest(tmp_path / "broken.npz", tmp_path / "b.zarr", **options)
    with pytest.raises(InputError, match="NaN"):
        append(tmp_path / "a.zarr", tmp_path / "broken.npz", **options)
    assert table.read_bytes() == before
    append(tmp_path / "a.zarr", source, exclude=listed(tmp_path / "more.txt", "item3\nitem4\n"), left_out=table)
    with table.open() as file:
        assert [row["row"] for row in csv.DictReader(file)] == ["3", "4"]


def test_a_table_of_nothing_is_refused(tmp_path: Path) -> None:
    store = whole().save(tmp_path / "a.zarr")
    with pytest.raises(InputError, match="give one of these"):
        ingest(store.uri, tmp_path / "new.zarr", left_out=tmp_path / "left.csv")
    with pytest.raises(InputError, match="give one of these"):
        append(store.uri, store.uri, left_out=tmp_path / "left.csv")


TWO_ENDS = {"image_paths": ["a/0003.jpg", "b/0003.jpg", *PATHS[2:]]}
NO_NAMES = {"item_ids": None, "image_paths": None}


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        ("bad.txt", "0003.jpg", TWO_ENDS, "'0003.jpg' is the end of several .*, such as 'a/0003.jpg' and 'b/0003.jpg'"),
        ("bad.csv", "row,item_id\n3,item3\n", {}, "has columns row, item_id; keep one"),
        ("bad.csv", "name,why\nitem3,x\n", {}, "has no column row, item_id or image_path, but name, why"),
        ("bad.csv", "row,side\n3,left\n", {}, "entry 0 is of side 'left', not query or gallery"),
        ("bad.csv", "row,side\n3\n", {}, "entry 0 has 1 value, not 2"),
        ("bad.txt", "row\nitem3\n", {}, "holds 'item3' in place of the number of a row"),
        ("bad.npy", np.array([0.5]), {}, "whole numbers"),
        ("bad.txt", "item3", NO_NAMES, "names rows by item id or image path, and memory has none"),
        ("bad.txt", "\n".join(IDS), {}, "all 24 rows are excluded, and none is left"),
    ],
)
def test_lists_that_cannot_be_meant(
    tmp_path: Path, name: str, content: str | np.ndarray, changes: dict[str, Any], message: str
) -> None:
    path = listed(tmp_path / name, content)
    with pytest.raises(InputError, match=message):
        leave_out(whole(**changes), whole(**changes), Exclusion(path))


@pytest.mark.parametrize(("name", "content"), [("bad.txt", ""), ("bad.txt", "# none\n"), ("bad.csv", "row,side\n")])
def test_an_empty_list_leaves_nothing_out(tmp_path: Path, name: str, content: str) -> None:
    path = listed(tmp_path / name, content)
    query, gallery = leave_out(other_side(), whole(), Exclusion(path))
    assert gallery.content_digest == whole().content_digest
    assert [*query.notes, *gallery.notes] == []


def test_a_whole_path_is_not_the_end_of_others(tmp_path: Path) -> None:
    paths = PATHS.astype("<U30").copy()
    paths[[4, 8]] = "0003.jpg", "x/cam3/0003.jpg"
    path = listed(tmp_path / "bad.txt", "0003.jpg\ncam3/0003.jpg")
    (kept, _) = leave_out(whole(image_paths=paths), whole(image_paths=paths), Exclusion(path))
    assert kept.image_paths is not None
    assert sorted(set(paths) - set(kept.image_paths)) == ["0003.jpg", "cam3/0003.jpg"]


# ---- duplicates ------------------------------------------------------------------------------------------------------


def repeated(by: str, **changes: Any) -> FeatureSet:
    """Rows 24 and 25 repeat rows 20 and 1 in one respect, and 26 repeats 24."""
    again = np.array([*range(N), 20, 1, 20])
    rows = np.random.default_rng(9).standard_normal((N + 3, 6)).astype(np.float32)
    held = {
        "features": rows, "pids": PIDS[again], "camids": CAMIDS[again],
        "item_ids": np.arange(N + 3), "image_paths": np.array([f"{row}.jpg" for row in range(N + 3)]),
    }  # fmt: skip
    held[by] = np.asarray(held[by])[again]
    return whole(**{**held, **changes})


@pytest.mark.parametrize("by", ["item_ids", "image_paths", "features"])
def test_the_first_of_each_is_kept(tmp_path: Path, by: Any) -> None:
    given, expected = repeated(by), repeated(by).filter(np.arange(N + 3) < N)
    query, gallery = leave_out(other_side(), given, Exclusion(drop_duplicates=by))
    assert query.n_rows == N
    assert gallery.content_digest == expected.content_digest
    assert gallery.notes[0].startswith("gallery: left out 3 of 27 rows, whose ")
    stored = given.save(tmp_path / "g.zarr")
    (store,) = ingest(stored.uri, tmp_path / "new.zarr", drop_duplicates=by)
    assert store.content_digest == expected.content_digest
    assert leave_out(other_side(), stored, Exclusion(drop_duplicates=by))[1].content_digest == expected.content_digest


@pytest.mark.parametrize("by", ["item_ids", "image_paths", "features"])
@pytest.mark.parametrize("label", ["pids", "camids"])
def test_rows_of_other_labels_are_no_duplicates(tmp_path: Path, by: Any, label: str) -> None:
    labels = np.array(getattr(repeated(by), label))
    labels[25] = 9
    given = repeated(by, **{label: labels})
    expected = f"(?s)1 row has the .* of an earlier row and another {label[:-1]};.*first: rows 1 and 25"
    with pytest.raises(InputError, match=expected):
        leave_out(other_side(), given, Exclusion(drop_duplicates=by))
    stored = given.save(tmp_path / "g.zarr")
    with pytest.raises(InputError, match=expected):
        ingest(stored.uri, tmp_path / "new.zarr", drop_duplicates=by)
    assert not (tmp_path / "new.zarr").exists()
    # The cure of the message: without the wrong row, all others are duplicates.
    path = listed(tmp_path / "bad.csv", "row,side\n25,gallery\n")
    kept = leave_out(other_side(), given, Exclusion(path, by))[1]
    assert kept.n_rows == N


def test_identities_in_the_message_are_as_they_were_given() -> None:
    pids = np.array([f"p{pid}" for pid in repeated("item_ids").pids], np.dtype("<U8"))
    pids[25] = "someone"
    with pytest.raises(InputError, match="pids p0 and someone"):
        leave_out(other_side(), repeated("item_ids", pids=pids), Exclusion(drop_duplicates="item_ids"))


def test_bits_are_compared_and_not_numbers() -> None:
    rows = np.zeros((3, 4), np.float32)
    rows[:, 0], rows[1, 1] = 1, -0.0
    given = FeatureSet.from_arrays(rows, [1, 1, 1])
    kept = leave_out(given, given, Exclusion(drop_duplicates="features"))[0]
    np.testing.assert_array_equal(np.signbit(kept.read(0, 2)[:, 1]), [False, True])
    assert kept.n_rows == 2


def test_a_mask_of_flags_leaves_the_same_rows_out() -> None:
    gallery = whole()
    bad = np.isin(gallery.image_paths, PATHS[[3, 5]])
    kept = gallery.filter(~bad)
    report = evaluate(other_side(), kept, protocol="no_cameras", metrics=["mAP"])
    held = np.flatnonzero(~bad)
    alone = whole(
        features=features()[held], pids=PIDS[held], camids=CAMIDS[held], item_ids=IDS[held], image_paths=PATHS[held]
    )
    assert kept.content_digest == alone.content_digest
    assert report.result_digest == evaluate(other_side(), alone, protocol="no_cameras", metrics=["mAP"]).result_digest


def test_a_side_without_names_has_no_repeats_of_them(tmp_path: Path) -> None:
    query, gallery = leave_out(whole(item_ids=None), repeated("item_ids"), Exclusion(drop_duplicates="item_ids"))
    assert (query.n_rows, gallery.n_rows) == (N, N)
    assert query.notes == []
    held = {"query_features": features(), "query_pids": PIDS, "gallery_features": repeated("item_ids").read(0, N + 3)}
    labels = {f"gallery_{name}": getattr(repeated("item_ids"), name) for name in ("pids", "item_ids")}
    np.savez(tmp_path / "both.npz", **held, **labels)
    stores = ingest(tmp_path / "both.npz", tmp_path / "out", drop_duplicates="item_ids")
    assert [store.n_rows for store in stores] == [N, N]
    with pytest.raises(InputError, match=r"memory has no item_ids, .*drop them by image_paths"):
        leave_out(whole(item_ids=None), whole(item_ids=None), Exclusion(drop_duplicates="item_ids"))
