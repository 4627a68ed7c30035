"""Ranked pictures: files, marks and ranks; content of image files is untrusted."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import io
import json
import os
import re
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_report import write_images
from PIL import Image
from support.pages import Page, section, tables

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.reports import ImageSet, Pictures, Report, TopK, make_pictures, thumbnails
from reid_dist.reports import pictures as pictures_module
from reid_dist.reports.thumbnails import Thumbnails, UnreadableImageError, thumbnail

# Three queries against six gallery rows; query 1 is the hardest, query 0 the easiest; row 4 of the gallery is junk.
LISTS = TopK(
    index=np.array([[2, 0, 4, 1], [5, 4, 3, -1], [1, 2, 3, 0]]),
    distance=np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, np.inf], [0.1, 0.2, 0.3, 0.4]]),
    junk=np.array([[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], bool),
    relevant=np.array([[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]], bool),
)


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    return write_images(tmp_path, 9)


def images(paths: Sequence[str] | None, pids: Sequence[int] = (), camids: Sequence[int] = ()) -> ImageSet:
    """Images of a side; without pids, rows are their own identities."""
    rows = range(6 if paths is None else len(paths))
    return ImageSet(
        None if paths is None else np.array(paths, np.str_),
        np.array(pids or rows, np.int64),
        np.array(camids, np.int64) if camids else None,
    )


@pytest.fixture
def listed(make_report: Callable[..., Report]) -> Callable[..., Report]:
    """Makes a report of three queries, of which the lists alone determine the hardest."""
    return partial(make_report, n_query=3, n_invalid=0, n_gallery=6, per_query={"first_rank": np.ones(3)})


@pytest.fixture
def collect(listed: Callable[..., Report], names: list[str], tmp_path: Path) -> Callable[..., Pictures]:
    """Collects pictures of the written images, by default of LISTS."""

    def collected(report: Report | None = None, **options: Any) -> Pictures:
        sides = {"query": images(names[:3]), "gallery": images(names[3:]), "root": tmp_path}
        return make_pictures(listed(topk=LISTS) if report is None else report, **(sides | options))

    return collected


def colours(image: bytes | None) -> np.ndarray:
    assert image is not None
    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB")).astype(int)


def test_each_item_has_its_own_picture_mark_and_rank(
    names: list[str], tmp_path: Path, collect: Callable[..., Pictures]
) -> None:
    gallery = images(names[3:], [1, 7, 7, 3, 7, 5], [1, 2, 3, 4, 5, 6])
    made = collect(query=images(names[:3], [7, 8, 9]), gallery=gallery, chosen=[0], n_hardest=0)
    (shown,) = made.queries
    assert made.note == ""
    assert shown.reason == "chosen"
    assert (shown.query.row, shown.query.mark, shown.query.pid, shown.query.camid) == (0, "query", 7, None)
    assert [(item.row, item.mark, item.rank) for item in shown.items] == [
        (2, "right", 1), (0, "wrong", 2), (4, "junk", None), (1, "right", 3),
    ]  # fmt: skip
    assert [(item.pid, item.camid, item.distance) for item in shown.items] == [
        (7, 3, 0.1), (1, 1, 0.2), (7, 5, 0.3), (7, 2, 0.4),
    ]  # fmt: skip
    for item in shown.items:
        original = np.asarray(Image.open(tmp_path / names[3 + item.row])).astype(int)
        assert colours(item.image).shape == original.shape
        assert np.abs(colours(item.image) - original).mean() < 12, "a JPEG of a JPEG, and of the right one"


def test_an_absent_entry_ends_a_list_and_depth_cuts_it(collect: Callable[..., Pictures]) -> None:
    made = collect(chosen=[1, 2], n_hardest=0, depth=3)
    assert [len(shown.items) for shown in made.queries] == [3, 3]
    assert [item.rank for item in made.queries[0].items] == [1, None, 2]
    assert len(collect(chosen=[1], n_hardest=0).queries[0].items) == 3


def test_the_hardest_come_after_the_chosen_and_no_query_twice(
    make_report: Callable[..., Report], names: list[str], collect: Callable[..., Pictures]
) -> None:
    columns = {"AP": np.array([0.9, 0.1, 0.5])}
    report = make_report(n_query=3, n_invalid=0, n_gallery=6, topk=LISTS, per_query=columns)
    made = collect(report, query=images(names[:3], [7, 8, 9], [1, 1, 2]), chosen=[2, 2], n_hardest=2)
    assert [(shown.query.row, shown.reason) for shown in made.queries] == [(2, "chosen"), (1, "hardest")]
    assert [(shown.query.pid, shown.query.camid) for shown in made.queries] == [(9, 2), (8, 1)]
    assert collect(report, n_hardest=1).queries[0].query.row == 1


def test_the_hardest_queries_of_lists_alone(collect: Callable[..., Pictures], listed: Callable[..., Report]) -> None:
    assert [shown.query.row for shown in collect().queries] == [1, 2, 0]
    unlabelled = listed(topk=TopK(index=LISTS.index, distance=LISTS.distance))
    assert collect(unlabelled).queries == ()
    (shown,) = collect(unlabelled, chosen=[0]).queries
    assert {item.mark for item in shown.items} == {"not assessed"}


def test_paths_start_at_the_root_or_at_the_current_directory(
    names: list[str], tmp_path: Path, collect: Callable[..., Pictures], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_root = collect()
    absolute = [str(tmp_path / name) for name in names]
    made = collect(query=images(absolute[:3]), gallery=images(absolute[3:]), root="/nowhere")
    assert [shown.query.image for shown in made.queries] == [shown.query.image for shown in by_root.queries]
    assert {shown.query.file for shown in made.queries} == set(absolute[:3])
    assert {shown.query.file for shown in by_root.queries} == set(names[:3])
    assert collect(root=["/nowhere", tmp_path]) == by_root
    monkeypatch.chdir(tmp_path)
    assert collect(root=None) == by_root


def test_a_list_without_a_right_item_is_followed_by_the_nearest_one(
    make_report: Callable[..., Report], names: list[str], collect: Callable[..., Pictures]
) -> None:
    # The right item of query 0 at rank 3 is below the head of its list; that of query 1 is in the report alone.
    nearest = {"query": 1, "gallery": 2, "rank": 4, "distance": 0.9, "pids": [1, 1]}
    columns = {"AP": np.array([0.3, 0.25, 0.5])}
    lists = dataclasses.replace(LISTS, relevant=np.array([[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]], bool))
    report = make_report(n_query=3, n_invalid=0, n_gallery=6, topk=lists, per_query=columns, hardest=[nearest])
    found = {shown.query.row: shown.right for shown in collect(report, depth=3).queries}
    below, beyond = found[0], found[1]
    assert below is not None
    assert (below.row, below.mark, below.rank, below.distance) == (1, "right", 3, 0.4)
    assert beyond is not None
    assert (beyond.row, beyond.mark, beyond.rank, beyond.distance, beyond.file) == (2, "right", 4, 0.9, names[3 + 2])
    assert found[2] is None
    # Thumbnails of rows that tables name.
    made = collect(report)
    assert made.thumbnail("query", 1) == made.queries[0].query.image
    assert made.thumbnail("gallery", 2) == beyond.image
    assert made.thumbnail("gallery", 1) is None
    assert collect(report, tables=False).thumbnails == {}
    assert Pictures.from_json(made.to_json()) == made


def test_a_note_gives_the_reason_for_no_pictures(
    make_report: Callable[..., Report], collect: Callable[..., Pictures], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lists = make_report(n_query=3, n_invalid=0, k=None)
    lost = ["lost.jpg"] * 6
    assert "the query set has no image paths" in collect(query=images(None)).note
    assert "the gallery set has no image paths" in collect(gallery=images(None)).note
    nothing = collect(query=images(lost[:3]), gallery=images(lost))
    assert nothing.queries == ()
    assert "none of 9 could be read; the first: 'lost.jpg': No such file" in nothing.note
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert "Pillow is not installed" in collect().note
    for paths in ({}, {"query": images(None), "gallery": images(None)}):
        made = collect(without_lists, **paths)
        assert "the run has no top-k lists" in made.note
    page = dataclasses.replace(without_lists, pictures=made).to_html()
    assert "the run has no top-k lists" in section(page, "pictures")
    assert "img-src" not in page


def test_unreadable_pictures_are_counted(names: list[str], tmp_path: Path, collect: Callable[..., Pictures]) -> None:
    (tmp_path / names[3 + 2]).write_text("no picture")
    made = collect(gallery=images([*names[3:-1], ""]), chosen=[0, 1], n_hardest=0)
    assert made.note.startswith("2 of 8 pictures could not be read; the first: '00005.jpg': cannot identify")
    assert [item.image is None for item in made.queries[0].items] == [True, False, False, False]
    assert made.queries[1].items[0].image is None


def test_pictures_stop_at_a_total_size(collect: Callable[..., Pictures], monkeypatch: pytest.MonkeyPatch) -> None:
    one = collect(chosen=[0], n_hardest=0)
    size = sum(len(picture.image or b"") for picture in (one.queries[0].query, *one.queries[0].items))
    monkeypatch.setattr(pictures_module, "_MOST_IMAGE_BYTES", size - 1)
    made = collect(chosen=[0])
    assert [shown.query.row for shown in made.queries] == [0]
    assert "2 more queries left out" in made.note


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"chosen": [3]}, "chosen query row 3 is none of the 3 queries"),
        ({"chosen": [-1]}, "chosen query row -1"),
        ({"query": images(["a"])}, "query paths hold 1 row, the lists are for 3"),
        ({"gallery": images(["a"] * 5)}, "gallery paths hold 5 rows, the lists are for 6"),
        ({"gallery": images(["a"] * 6, pids=[1, 2])}, "gallery pids hold 2 rows"),
        ({"query": images(["a"] * 3, camids=[1, 2])}, "query camids hold 2 rows"),
    ],
)
def test_missing_rows_are_refused(listed: Callable[..., Report], changes: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"query": images(["a"] * 3), "gallery": images(["a"] * 6)}
    with pytest.raises(InputError, match=words):
        make_pictures(listed(topk=LISTS), **(given | changes))


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "change",
    [
        {"mark": "'><script>"},
        {"row": "1"},
        {"row": None},
        {"rank": True},
        {"distance": "far"},
        {"image": base64.b64encode(b"<svg onload=alert(1)>").decode()},
        {"image": "not base64!"},
        {"other": 1},
    ],
)
def test_a_file_of_pictures_that_was_changed_is_refused(
    full_report: Report, tmp_path: Path, change: dict[str, Any]
) -> None:
    directory = full_report.save(tmp_path / "out")
    document = json.loads((directory / "pictures.json").read_text())
    document["queries"][0]["items"][0] |= change
    (directory / "pictures.json").write_text(json.dumps(document))
    with pytest.raises(DamagedStoreError, match="picture"):
        Report.load(directory)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"note": 3, "queries": []}', b"\xff", b"[" * 100_000])
def test_a_file_without_pictures_is_refused(full_report: Report, tmp_path: Path, content: bytes) -> None:
    directory = full_report.save(tmp_path / "out")
    (directory / "pictures.json").write_bytes(content)
    with pytest.raises(DamagedStoreError):
        Report.load(directory)


def test_the_page_marks_with_signs_and_words(
    names: list[str], collect: Callable[..., Pictures], report: Report
) -> None:
    made = collect(gallery=images(names[3:], range(100, 106)), chosen=[0], n_hardest=0)
    part = section(dataclasses.replace(report, pictures=made).to_html(), "pictures")
    signs = re.findall(r'<span class="sign">(.*?)</span>', part)
    assert signs == ["query", "1 \N{CHECK MARK} right", "2 \N{BALLOT X} wrong", "junk", "3 \N{CHECK MARK} right"]
    kinds = re.findall(r'<li class="tile ([\w-]+)">', part)
    assert kinds == ["query", "right", "wrong", "junk", "right"]
    alternatives = re.findall(r'alt="(.*?)"', part)
    assert alternatives[:3] == ["query row 0", "gallery row 2, right", "gallery row 0, wrong"]
    assert "pid 102" in part
    for shown, source in zip(
        made.queries[0].items, re.findall(r'src="data:image/jpeg;base64,(.*?)"', part)[1:], strict=True
    ):
        assert base64.b64decode(source) == shown.image


def test_tables_have_files_pictures_and_links(
    make_report: Callable[..., Report], names: list[str], collect: Callable[..., Pictures]
) -> None:
    pair = {"pids": [1, 2], "camids": [4, 5], "paths": [f"query/{names[1]}", f"box/{names[4]}"]}
    twins = {"pids": ["p1", "p2"], "queries": [0, 2], "paths": [names[0], names[2]], "evidence": 5.25}
    kinds = {"identities": [twins], "suspects": [], "duplicates": [], "n_suspects": 0, "n_duplicates": 0}
    report = make_report(
        n_query=3,
        n_invalid=0,
        n_gallery=6,
        topk=LISTS,
        per_query={"AP": np.array([0.3, 0.25, 0.5])},
        hardest=[{"query": 1, "gallery": 1, "rank": 1234, "distance": 0.9, **pair}],
        data_problems={**kinds, "n_identities": 1, "cameras": []},
    )
    made = dataclasses.replace(report, pictures=collect(report, n_hardest=2))
    text = made.to_html()
    page = Page(text)
    (table,) = tables(section(text, "hardest"))
    assert table[0] == ["query row", "file", "AP (%)", "nearest right row", "its file", "its distance"]
    assert table[1] == ["1", f"query/{names[1]}", "25.00", "1", f"box/{names[4]}", "0.9000"]
    assert [row[1] for row in table[2:]] == ["", ""]
    # A query with pictures leads to them.
    links = [str(attributes["href"]) for attributes in page.named("a")]
    assert [link for link in links if link.startswith("#query-")] == ["#query-1", "#query-0"]
    assert {"query-0", "query-1"} <= {str(attributes.get("id")) for attributes in page.named("details")}
    assert "1,234 \N{CHECK MARK} right" in section(text, "pictures")
    (identities,) = tables(section(text, "first"))
    assert identities[1:] == [["0", "p1", names[0], "2", "p2", names[2], "5.2"]]
    shown = re.findall(r'<img class="thumb" src="data:image/jpeg;base64,(.*?)"', text)
    assert made.pictures is not None
    expected = [made.pictures.thumbnail(*each) for each in (("query", 0), ("query", 2), ("query", 1), ("gallery", 1))]
    assert [base64.b64decode(each) for each in shown] == expected
    # Without pictures the names are still there.
    assert tables(section(report.to_html(), "hardest")) == [table]
    assert "img-src" not in report.to_html()


# --- files of which nothing is true


def png(width: int, height: int, rows: bytes) -> bytes:
    """A PNG that claims a size, whatever its content."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_files_that_are_no_pictures_to_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no end, is too large, or would start another program is refused before it is read or decoded."""
    os.mkfifo(tmp_path / "pipe")
    for number, size in enumerate([(20_000, 20_000), (2**31 - 1, 2**31 - 1), (60_000, 1_000), (8_000, 8_000)]):
        (tmp_path / f"bomb{number}").write_bytes(png(*size, b"\0" * 100))
    (tmp_path / "script").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    (name,) = write_images(tmp_path, 1)
    cases = {"pipe": "not a file", "": "not a file", "/dev/zero": "not a file", "a\0b": "null", "lost": "No such file"}
    cases |= {f"bomb{number}": r"pixels|limit" for number in range(4)} | {"script": "cannot identify"}
    for place, words in cases.items():
        with pytest.raises(UnreadableImageError, match=words):
            thumbnail(tmp_path / place)
    monkeypatch.setattr(thumbnails, "_MOST_BYTES", 100)
    with pytest.raises(UnreadableImageError, match="the limit is 100"):
        thumbnail(tmp_path / name)


def test_a_picture_that_comes_later_is_shown(tmp_path: Path) -> None:
    shown = Thumbnails({"query": np.array(["0.png"])}, [tmp_path])
    assert shown.get("query", 0) is None
    Image.new("RGB", (8, 16), (0, 0, 255)).save(tmp_path / "0.png")
    first = shown.get("query", 0)
    assert first is not None
    (tmp_path / "0.png").unlink()
    assert shown.get("query", 0) == first, "it was kept"


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP"])
def test_a_cut_file_is_no_picture(tmp_path: Path, kind: str, share: float) -> None:
    noise = np.random.default_rng(1).integers(0, 255, (64, 48, 3), dtype=np.uint8)
    whole = io.BytesIO()
    Image.fromarray(noise).save(whole, kind)
    path = tmp_path / "cut"
    path.write_bytes(whole.getvalue())
    assert thumbnail(path).startswith(b"\xff\xd8\xff")
    path.write_bytes(whole.getvalue()[: int(share * len(whole.getvalue()))])
    with pytest.raises(UnreadableImageError) as caught:
        thumbnail(path)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_flipped_bytes_give_a_picture_or_a_reason(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    path = tmp_path / "flipped"
    for kind in ("JPEG", "PNG", "TIFF"):
        whole = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(whole, kind)
        for _ in range(60):
            content = bytearray(whole.getvalue())
            for at in rng.integers(0, len(content), 3):
                content[at] ^= int(rng.integers(1, 256))
            path.write_bytes(content)
            with contextlib.suppress(UnreadableImageError):  # anything else that it raises fails
                assert thumbnail(path).startswith(b"\xff\xd8\xff")


@pytest.mark.parametrize(
    ("size", "expected"),
    [((64, 128), (64, 128)), ((30, 50), (30, 50)), ((1000, 2000), (64, 128)), ((3000, 300), (256, 26))],
)
def test_thumbnails_keep_their_shape_and_are_never_enlarged(
    tmp_path: Path, size: tuple[int, int], expected: tuple[int, int]
) -> None:
    (name,) = write_images(tmp_path, 1, size=size)
    small = Image.open(io.BytesIO(thumbnail(tmp_path / name)))
    assert np.abs(np.subtract(small.size, expected)).max() <= 1


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "CMYK", "LA"])
def test_pictures_of_every_mode(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "picture.tif"
    Image.new("RGB", (10, 20), (200, 10, 10)).convert(mode).save(path)
    assert thumbnail(path).startswith(b"\xff\xd8\xff")


def test_comments_and_metadata_stay_out_of_thumbnails(tmp_path: Path) -> None:
    path = tmp_path / "signed.jpg"
    Image.new("RGB", (10, 20)).save(path, comment=b"taken by somebody", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0secret")
    assert b"somebody" in path.read_bytes()
    small = thumbnail(path)
    assert b"somebody" not in small
    assert b"secret" not in small
    assert small == thumbnail(path)
