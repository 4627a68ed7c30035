"""Ground truth by lists: every form of the same lists reads alike, and whatever is wrong is named in one line."""

from __future__ import annotations

import json
import os
import pickle
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import in_full

import reid_dist.relevance.ground_truth.ground_truth_names
from reid_dist.core.model import RowRange
from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.relevance.ground_truth import GroundTruth, RowLists, read_ground_truth

OXFORD = ("good", "ok", "junk")
REVISITOP = ("easy", "hard", "junk")


@st.composite
def list_sets(draw, kinds=(OXFORD, REVISITOP)):
    """The lists of some queries, in no order, and the number of gallery rows; many lists are empty."""
    names = draw(st.sampled_from(kinds))
    n_gallery = draw(st.integers(1, 12))
    entries = []
    for _ in range(draw(st.integers(1, 5))):
        rows = draw(st.permutations(range(n_gallery)))
        marks = draw(st.lists(st.sampled_from([*names, None]), min_size=n_gallery, max_size=n_gallery))
        entries.append({name: [row for row, mark in zip(rows, marks, strict=True) if mark == name] for name in names})
    return entries, n_gallery


def write_oxford(directory, entries, query_images, gallery_images):
    """Write lists in the files of Oxford; the query of row ``i`` is called ``place_i``."""
    for row, (entry, image) in enumerate(zip(entries, query_images, strict=True)):
        (directory / f"place_{row}_query.txt").write_text(f"oxc1_{image} 1.5 2 30.25 40\n")
        for name, rows in entry.items():
            (directory / f"place_{row}_{name}.txt").write_text("".join(f"{gallery_images[at]}\n" for at in rows))


def read(source, n_query=None, n_gallery=10, **item_ids):
    """Read a source; without a number of queries there are as many as it has entries."""
    n_query = len(source) if n_query is None else n_query
    return read_ground_truth(source, n_query=n_query, n_gallery=n_gallery, **item_ids)


def refusal(source, **options):
    """The message of a refusal with its details."""
    with pytest.raises(InputError) as caught:
        read(source, **options)
    return in_full(caught.value)


@given(list_sets())
def test_lists_are_kept_sorted_by_name_and_query(case):
    entries, n_gallery = case
    truth = read(entries, n_gallery=n_gallery)
    assert truth.names == tuple(entries[0])
    assert truth.kind == ("oxford" if "ok" in entries[0] else "revisitop")
    assert (truth.n_query, truth.n_gallery) == (len(entries), n_gallery)
    for query, entry in enumerate(entries):
        for name, rows in entry.items():
            assert truth.lists[name].of(query).tolist() == sorted(rows)
            assert truth.lists[name].rows.dtype == truth.lists[name].indptr.dtype == np.int64
    fragment = truth.describe()
    assert fragment["entries"] == {name: sum(len(entry[name]) for entry in entries) for name in truth.names}
    assert json.loads(json.dumps(fragment)) == fragment


@given(list_sets(), st.data())
def test_some_queries_and_some_lists(case, data):
    entries, n_gallery = case
    truth = read(entries, n_gallery=n_gallery)
    start = data.draw(st.integers(0, len(entries)))
    stop = data.draw(st.integers(start, len(entries)))
    part = truth.take(RowRange(start, stop))
    chosen = data.draw(st.lists(st.sampled_from(truth.names), unique=True))
    union = part.union(*chosen)
    assert part.n_query == union.n_query == stop - start
    for query, entry in enumerate(entries[start:stop]):
        assert [part.lists[name].of(query).tolist() for name in part.names] == [sorted(entry[n]) for n in part.names]
        assert union.of(query).tolist() == sorted(row for name in chosen for row in entry[name])
    if stop > start:
        assert part.content_digest == read(entries[start:stop], n_gallery=n_gallery).content_digest
    assert pickle.loads(pickle.dumps(part)).content_digest == part.content_digest


@given(list_sets(), st.randoms(use_true_random=False), st.booleans())
def test_every_form_of_the_same_lists_reads_alike(case, random, whole_numbers):
    entries, n_gallery = case
    item_ids = np.arange(len(entries)) * 7 - 3
    if not whole_numbers:
        item_ids = np.array([f"q/{item}.jpg" for item in item_ids.tolist()])
    options = {"n_query": len(entries), "n_gallery": n_gallery, "query_item_ids": item_ids}
    expected = read(entries, n_gallery=n_gallery).content_digest
    named = list(zip(item_ids.tolist(), entries, strict=True))
    random.shuffle(named)
    sources = [
        dict(named),
        tuple(entries),
        [{name: np.array(rows, np.uint16) for name, rows in entry.items()} for entry in entries],
        [{name: tuple(map(np.int32, rows)) for name, rows in entry.items()} for entry in entries],
        [entry | {"bbx": [1.5, 2.0, 3.0, 4.25]} for entry in entries],
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number, source in enumerate([entries, dict(named), {str(key): entry for key, entry in named}]):
            path = Path(folder, f"{number}.json")
            path.write_text(json.dumps(source))
            sources += [path, str(path)]
        for source in sources:
            assert read(source, **options).content_digest == expected


@given(list_sets(kinds=(OXFORD,)), st.sampled_from(["{}", "{}.jpg", "images/a.b/{}.JPG"]))
def test_the_files_of_oxford_read_as_their_lists(case, item_id):
    entries, n_gallery = case
    images = [f"all_souls_{row:06d}" for row in range(n_gallery)]
    queries = [f"all_souls_{9000 - row:06d}" for row in range(len(entries))]
    with tempfile.TemporaryDirectory() as folder:
        write_oxford(Path(folder), entries, queries, images)
        Path(folder, "README.txt").write_text("not a list")
        Path(folder, "._place_0_query.txt").write_text("left behind by an archive")
        truth = read(
            folder,
            n_query=len(entries),
            n_gallery=n_gallery,
            query_item_ids=np.array([item_id.format(name) for name in queries]),
            gallery_item_ids=np.array([item_id.format(name) for name in images]),
        )
    assert truth.content_digest == read(entries, n_gallery=n_gallery).content_digest


def test_revisitop_json_with_boxes(tmp_path):
    gnd = [
        {"bbx": [136.5, 34.1, 648.5, 955.7], "easy": [3, 1], "hard": [9], "junk": []},
        {"bbx": [0.0, 1.0, 2.0, 3.0], "easy": [], "hard": [0, 2], "junk": [5]},
    ]
    path = tmp_path / "gnd_roxford.json"
    path.write_text(json.dumps(gnd))
    truth = read(path, n_query=2)
    assert truth.kind == "revisitop"
    assert truth.union("easy", "hard").rows.tolist() == [1, 3, 9, 0, 2]
    assert truth.union("easy", "hard").indptr.tolist() == [0, 3, 5]
    path.write_text(json.dumps({"gnd": gnd, "imlist": ["a"], "qimlist": ["b"]}))
    assert "whole revisitop file; give the list under its name 'gnd'" in refusal(
        path, n_query=2, query_item_ids=np.array([1, 2])
    )


def test_good_and_ok_are_synonyms():
    only_ok = read([{"ok": [4, 2], "junk": []}])
    assert only_ok.content_digest == read([{"good": [], "ok": [2, 4], "junk": []}]).content_digest
    only_good = read([{"good": [4, 2], "junk": []}])
    assert only_good.content_digest != only_ok.content_digest
    assert only_good.union("good", "ok").rows.tolist() == only_ok.union("good", "ok").rows.tolist() == [2, 4]


def test_the_digest_is_of_queries_lists_and_rows():
    sources = [
        [{"ok": [1], "junk": [2]}, {"ok": [3], "junk": []}],
        [{"ok": [1], "junk": [2]}, {"ok": [], "junk": [3]}],
        [{"ok": [1, 3], "junk": [2]}, {"ok": [], "junk": []}],
        [{"ok": [3], "junk": []}, {"ok": [1], "junk": [2]}],
        [{"easy": [1], "hard": [], "junk": [2]}, {"easy": [3], "hard": [], "junk": []}],
    ]
    assert len({read(source).content_digest for source in sources}) == len(sources)


def test_a_query_in_its_own_lists_counts(tmp_path):
    write_oxford(tmp_path, [{"good": [0], "ok": [1], "junk": []}], ["a"], ["a", "b"])
    truth = read(
        tmp_path, n_query=1, n_gallery=2, query_item_ids=np.array(["a"]), gallery_item_ids=np.array(["a", "b"])
    )
    assert truth.union("good", "ok").of(0).tolist() == [0, 1]


EMPTY = {"ok": [], "junk": []}
GRADED = {"easy": [1], "hard": [], "junk": []}


@pytest.mark.parametrize(
    ("source", "message_part"),
    [
        ([{"ok": [10], "junk": []}], "query 0, list 'ok': row 10 is outside the gallery of 10 rows; rows count from 0"),
        ([EMPTY, {"ok": [0, -1], "junk": []}], "query 1, list 'ok': row -1 is outside the gallery"),
        ([{"ok": [2**70], "junk": []}], "is outside the gallery of 10 rows"),
        ([{"ok": [1, True], "junk": []}], "query 0, list 'ok': True is no gallery row; rows are whole numbers"),
        ([{"ok": np.array([True, False]), "junk": []}], "list 'ok': True is no gallery row"),
        ([{"ok": [3.0], "junk": []}], "list 'ok': 3.0 is no gallery row"),
        ([{"ok": ["a\nb"], "junk": []}], r"list 'ok': 'a\nb' is no gallery row"),
        ([{"ok": [None], "junk": []}], "list 'ok': None is no gallery row"),
        ([{"ok": [], "junk": 5}], "query 0, list 'junk': must be a list of gallery rows, found 5"),
        ([{"ok": [], "junk": "12"}], "list 'junk': must be a list of gallery rows, found '12'"),
        ([{"ok": np.array([[1], [2]]), "junk": []}], "list 'ok': must be a list of gallery rows, found array"),
        ([{"ok": [1, 4, 4], "junk": []}], "query 0, list 'ok': row 4 occurs in it more than once; list every row once"),
        ([{"ok": [4], "junk": [1, 4]}], "query 0, lists 'ok' and 'junk': row 4 occurs in both; keep it in one"),
        ([{"good": [4], "ok": [4], "junk": []}], "lists 'good' and 'ok': row 4 occurs in both"),
        ([{"good": [4], "ok": [], "junk": [4]}], "lists 'good' and 'junk': row 4 occurs in both"),
        ([GRADED | {"hard": [1]}], "lists 'easy' and 'hard': row 1 occurs in both"),
        ([GRADED | {"junk": [1]}], "lists 'easy' and 'junk': row 1 occurs in both"),
        ([GRADED | {"hard": [2], "junk": [2]}], "lists 'hard' and 'junk': row 2 occurs in both"),
        ([{"ok": [1]}], "query 0: lacks the list 'junk'; give 'good' or 'ok' and 'junk', or 'easy', 'hard' and 'junk'"),
        ([{"junk": [1]}], "query 0: lacks the list 'ok'"),
        ([{"easy": [1], "junk": []}], "query 0: lacks the list 'hard'"),
        ([{"hard": [1], "junk": []}], "query 0: lacks the list 'easy'"),
        ([{}], "query 0: lacks the list"),
        ([EMPTY | {"jnuk": []}], "query 0: unknown list 'jnuk'; did you mean 'junk'? known: 'good' or"),
        ([EMPTY | {7: []}], "query 0: unknown list 7; known:"),
        ([EMPTY | {"easy": []}], "query 0: has lists of both kinds, 'ok', 'junk', 'easy'; give"),
        ([EMPTY, GRADED], "query 1: is of the kind revisitop, query 0 is of the kind oxford; give all in one form"),
        ([EMPTY, [1, 2]], "query 1: must map the names of lists to gallery rows, found list"),
        ([EMPTY, None], "query 1: must map the names of lists to gallery rows, found NoneType"),
        ([], "there is no query; give at least one"),
    ],
)
def test_a_wrong_entry_is_named(source, message_part):
    message = refusal(source)
    assert message_part in message
    assert "problems" not in message


def test_all_faults_are_reported():
    source = [EMPTY, {"ok": [1, 1], "junk": [1, 12]}, {"good": [0]}, GRADED]
    first, *faults = refusal(source).split("\n")
    assert first == "ground truth: 4 problems"
    assert faults[0].startswith("query 1, list 'junk': row 12 is outside")
    assert len(faults) == 4


@pytest.mark.parametrize("n_query", [1, 3])
def test_the_number_of_entries_must_be_that_of_the_queries(n_query):
    assert f"holds 2 entries for {n_query} queries; give one entry per query row" in refusal(
        [EMPTY, EMPTY], n_query=n_query
    )


@pytest.mark.parametrize("source", [7, None, b"abc", np.array([1])])
def test_a_source_of_no_known_form_is_refused(source):
    assert "must be one entry per query row, a mapping from query item id" in refusal(source, n_query=1)


TEXTS = np.array(["a/one.jpg", "two", "b/two.jpg"])


@pytest.mark.parametrize(
    ("source", "item_ids", "message_part"),
    [
        ({7: EMPTY}, None, "maps query item ids, and the query set has none; give one entry per query row"),
        (
            {7: EMPTY},
            [7, 8],
            "query 1 (item id '8') has no entry; give its lists, empty ones if none is relevant",
        ),
        ({7: EMPTY, 8: EMPTY, 800: EMPTY}, [7, 8], "entry '800': no query item has the id '800'; the nearest known is"),
        ({7: EMPTY, "7": EMPTY, 8: EMPTY}, [7, 8], "entry '7' is a second one for query 0 ('7'); keep one"),
        ({True: EMPTY}, [1], "True is no item id; name queries by whole numbers or text"),
        ({1.0: EMPTY}, [1], "1.0 is no item id"),
        ({"x": {"ok": [99], "junk": []}}, ["x"], "query 0 (item id 'x'), list 'ok': row 99 is outside"),
        (
            {"a": EMPTY},
            ["a", "a"],
            "entry 'a': 'a' is query row 0 ('a') as well as row 1 ('a'); item ids must be distinct",
        ),
        ({"one": EMPTY, "two": EMPTY}, TEXTS, "query 2 (item id 'b/two.jpg') has no entry"),
        ({"x/two": EMPTY}, TEXTS, "entry 'x/two': 'x/two' is query row 1 ('two') as well as row 2 ('b/two.jpg')"),
        ({"on": EMPTY}, TEXTS, "no query item has the id 'on'; the nearest known is"),
    ],
)
def test_a_wrong_key_is_named(source, item_ids, message_part):
    item_ids = None if item_ids is None else np.array(item_ids)
    assert message_part in refusal(source, n_query=1 if item_ids is None else len(item_ids), query_item_ids=item_ids)


def test_names_without_directory_and_extension():
    source = {"one": {"ok": [1], "junk": []}, "two": {"ok": [2], "junk": []}, "c/b/two.jpg": {"ok": [3], "junk": []}}
    with pytest.raises(InputError, match=r"as well as"):
        read(source, query_item_ids=TEXTS)
    source["b/two.jpg"] = source.pop("c/b/two.jpg")
    assert read(source, query_item_ids=TEXTS).lists["ok"].rows.tolist() == [1, 2, 3]


@pytest.mark.parametrize("wrong", [0, 1, 17, 250, 498, 499])
def test_the_nearest_of_very_many_names(monkeypatch, wrong):
    monkeypatch.setattr(reid_dist.relevance.ground_truth.ground_truth_names, "_MOST_COMPARED", 20)
    item_ids = np.array([f"paris_louvre_{number:06d}" for number in range(500)])
    message = refusal({f"{item_ids[wrong]}x": EMPTY}, n_query=len(item_ids), query_item_ids=item_ids)
    assert f"the nearest known is '{item_ids[wrong]}'" in message
    assert message.startswith("ground truth: 501 problems")
    assert message.endswith("and 491 more")


@pytest.mark.parametrize(
    ("text", "message_part"),
    [
        (b'[{"ok": [1], "junk": []', "is not JSON"),
        (b'{"a": {"ok": [], "junk": []}, "a": {"ok": [1], "junk": []}}', "'a' occurs twice in one object"),
        (b'[{"ok": [1], "ok": [2], "junk": []}]', "'ok' occurs twice in one object"),
        (b"7", "found int"),
        (b'[{"ok": [NaN], "junk": []}]', "nan is no gallery row"),
        (b'[{"ok": [1e0], "junk": []}]', "1.0 is no gallery row"),
        (b'[{"ok": [true], "junk": []}]', "True is no gallery row"),
        (b'[{"ok": [' + b"9" * 5000 + b'], "junk": []}]', "is not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (pickle.dumps([EMPTY], protocol=4), "byte 0 is not UTF-8 text; give JSON or the published text files"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, message_part):
    path = tmp_path / "truth.json"
    path.write_bytes(text)
    message = refusal(path, n_query=1)
    assert message_part in message
    assert message.startswith(f"ground truth {path}: ")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_no_file_is_not_waited_for(tmp_path, kind):
    path = Path("/dev/zero") if kind == "device" else tmp_path / "truth"
    if kind == "pipe":
        os.mkfifo(path)
    if kind == "directory":
        path.mkdir()
        os.mkfifo(path / "a_query.txt")
        for name in ("good", "ok", "junk"):
            os.mkfifo(path / f"a_{name}.txt")
    with pytest.raises(StoreError, match=r"^ground truth .*is a (pipe|device) and no file; write it to a file first$"):
        read(path, n_query=1, gallery_item_ids=np.array(["a"]))


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b", "x" * 300, "y/" * 3000])
def test_a_path_that_no_file_has(path):
    assert re.search("no file can have the path|is too long", refusal(path, n_query=1))


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "truth.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([EMPTY]).encode())
    assert read(path, n_query=1).n_query == 1


def test_nothing_at_the_path(tmp_path):
    with pytest.raises(StoreNotFoundError, match="no such ground truth"):
        read(tmp_path / "absent.json", n_query=1)


IMAGES = np.array(["hall_000001", "hall_000002", "hall_000003", "tower_000001"])


@pytest.fixture
def oxford(tmp_path):
    """Two queries of Oxford in files, and what reads them."""
    write_oxford(
        tmp_path,
        [{"good": [0], "ok": [1], "junk": []}, {"good": [3], "ok": [], "junk": [2]}],
        ["hall_000001", "tower_000001"],
        IMAGES,
    )
    options = {"n_query": 2, "n_gallery": 4, "gallery_item_ids": IMAGES, "query_item_ids": IMAGES[[0, 3]]}
    assert read(tmp_path, **options).union("good", "ok").rows.tolist() == [0, 1, 3]
    return tmp_path, options


@pytest.mark.parametrize(
    ("changed", "message_part"),
    [
        ({"n_query": 3}, "holds 2 files NAME_query.txt for 3 queries; every query row needs one"),
        ({"gallery_item_ids": None}, "names images, and the gallery has no item ids"),
        (
            {"gallery_item_ids": np.arange(4)},
            "query 0 (place_0), list 'good', place_0_good.txt line 1: no gallery item has the id 'hall_000001'",
        ),
        (
            {"query_item_ids": IMAGES[[3, 0]]},
            "query 0 (place_0): place_0_query.txt is about image 'hall_000001', the query set has item id "
            "'tower_000001' in that row; put the queries in the order of the file names",
        ),
    ],
)
def test_sets_that_do_not_fit_the_files(oxford, changed, message_part):
    folder, options = oxford
    assert message_part in refusal(folder, **options | changed)


@pytest.mark.parametrize(
    ("file", "text", "message_part"),
    [
        ("place_1_ok.txt", None, "query 1 (place_1), list 'ok': place_1_ok.txt is not there; add it, empty if"),
        ("elsewhere_1_junk.txt", "", "elsewhere_1_junk.txt belongs to no query; add elsewhere_1_query.txt"),
        ("place_0_query.txt", "\n", "query 0 (place_0): place_0_query.txt is empty"),
        ("place_0_junk.txt", "hall_000003\n\ntowr_000001\n", "list 'junk', place_0_junk.txt line 3: no gallery item"),
        ("place_0_junk.txt", "towr_000001", "the nearest known is 'tower_000001'; correct the name or the item ids"),
        ("place_0_junk.txt", "hall_000002", "lists 'ok' and 'junk': row 1 ('hall_000002') occurs in both"),
        ("place_0_ok.txt", "hall_000002\r\nhall_000002.jpg\r\n", "list 'ok': row 1 ('hall_000002') occurs in it more"),
    ],
)
def test_wrong_files_of_oxford(oxford, file, text, message_part):
    folder, options = oxford
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    message = refusal(folder, **options)
    assert message_part in message
    assert "problems" not in message


def test_queries_need_no_item_ids_for_the_files_of_oxford(oxford):
    folder, options = oxford
    without = read(folder, **options | {"query_item_ids": None})
    assert without.content_digest == read(folder, **options).content_digest


def test_prefixes_blank_lines_and_spaces_have_no_effect(oxford):
    folder, options = oxford
    expected = read(folder, **options).content_digest
    (folder / "place_0_query.txt").write_text("hall_000001 1 2 3 4")  # as in Paris
    (folder / "place_0_ok.txt").write_text("  oxc1_hall_000002 \r\n\r\n")
    assert read(folder, **options).content_digest == expected


def test_a_file_that_cannot_be_read(oxford):
    folder, options = oxford
    (folder / "place_0_ok.txt").unlink()
    (folder / "place_0_ok.txt").mkdir()
    with pytest.raises(StoreError, match=r"place_0_ok\.txt: cannot be read"):
        read(folder, **options)


def test_queries_are_in_the_order_of_file_names(tmp_path):
    images = ["a", "b", "c"]
    for name, image in (("x_2", "a"), ("x_10", "b"), ("X_1", "c")):
        (tmp_path / f"{name}_query.txt").write_text(f"oxc1_{image} 0 0 1 1")
        (tmp_path / f"{name}_good.txt").write_text(image)
        (tmp_path / f"{name}_ok.txt").write_text("")
        (tmp_path / f"{name}_junk.txt").write_text("")
    truth = read(tmp_path, n_query=3, n_gallery=3, gallery_item_ids=np.array(images))
    assert truth.lists["good"].rows.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("indptr", "rows"),
    [([], []), ([1, 2], [0, 1]), ([0, 1], [0, 1]), ([0, 2, 1, 2], [0, 1]), ([0, 2], [1, 1]), ([0, 0, 2, 2], [1, 0])],
)
def test_inconsistent_lists_are_refused(indptr, rows):
    with pytest.raises(ValueError, match=r"offsets|ascend"):
        RowLists(np.array(indptr, np.int64), np.array(rows, np.int64))


def test_inconsistent_ground_truth_is_refused():
    one, two = RowLists.of_queries([np.array([3])]), RowLists.of_queries([np.array([3]), np.array([0])])
    none = RowLists.of_queries([np.empty(0, np.int64)])
    with pytest.raises(ValueError, match="of no kind"):
        GroundTruth(4, {"ok": one, "junk": none})
    with pytest.raises(ValueError, match="same number of queries"):
        GroundTruth(4, {"good": two, "ok": none, "junk": none})
    with pytest.raises(ValueError, match="list 'ok' leaves the 3 rows"):
        GroundTruth(3, {"good": none, "ok": one, "junk": none})
