"""One query with the pictures of its list, as a notebook shows it."""

from __future__ import annotations

import base64
import re
import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from browsed_runs import HOSTILE, make_runs
from full_report import write_images
from support.browser import measured, needs_browser

from reid_dist import FeatureSet, Report, evaluate
from reid_dist.errors import InputError, StoreError, StoreNotFoundError

pytest.importorskip("PIL")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shown")
    make_runs(folder)
    return folder


def images_in(html: str) -> list[bytes]:
    return [base64.b64decode(each) for each in re.findall(r'src="data:image/jpeg;base64,([^"]*)"', html)]


def in_memory(n: int, paths: list[str] | None) -> FeatureSet:
    pids = np.arange(n) % 4
    features = np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)
    return FeatureSet.from_arrays(features, pids, np.arange(n) % 3, image_paths=paths)


def test_a_query_with_its_list(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.chdir(runs)
    report = Report.load(runs / "plain")
    # Every seventh picture of a side is missing.
    row = 8
    shown = report.show_query(row, depth=6)
    items = report.topk.index[row, :6].tolist()
    assert [item.row for item in shown.pictures.items] == items
    assert [item.mark for item in shown.pictures.items] == report.topk.marks(slice(row, row + 1))[0, :6].tolist()
    html = shown._repr_html_()
    found = images_in(html)
    assert len(found) == 1 + sum(item % 7 != 0 for item in items)
    for each in found:
        with Image.open(BytesIO(each)) as picture:
            picture.load()
    assert html.count('<span class="missing">') == sum(item % 7 == 0 for item in items)
    # Nothing is loaded from elsewhere, nothing runs, and no path is shown.
    assert not re.search(r"<script|<link|url\(|https?:|@import", html)
    assert HOSTILE not in html
    lines = repr(shown).splitlines()
    assert lines[0].startswith(f"Query row {row}: AP {100 * report.per_query['AP'][row]:.2f}%, first relevant item at")
    assert [cell.text for cell in shown.summary().column("row")] == [f"row {each}" for each in (row, *items)]


def test_the_page_of_a_query_is_one_file(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    shown = Report.load(runs / "plain").show_query(8)
    path = shown.save(tmp_path / "new" / "query.html")
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert shown._repr_html_().strip() in page
    assert page.count("<title>Query row 8: ") == 1
    assert [each.name for each in path.parent.iterdir()] == ["query.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*choose another path"):
        shown.save(tmp_path / "file" / "query.html")


def test_sets_in_memory_are_passed(tmp_path: Path) -> None:
    names = write_images(tmp_path, 4, size=(20, 40))
    query, gallery = (in_memory(n, [names[row % 4] for row in range(n)]) for n in (4, 30))
    report = evaluate(query, gallery, topk=5)
    with pytest.raises(StoreNotFoundError, match=r"query set, which .* it was in memory; pass it, .* as query=…"):
        report.show_query(1)
    with pytest.raises(StoreNotFoundError, match=r"gallery set, .* as gallery=…"):
        report.show_query(1, query=query)
    shown = report.show_query(1, query=query, gallery=gallery, image_root=tmp_path)
    assert len(images_in(shown._repr_html_())) == 6
    with pytest.raises(InputError, match="are not those of the gallery of the run"):
        report.show_query(1, query=query, gallery=query)
    with pytest.raises(InputError, match="chosen query row 4 is none of the 4 queries"):
        report.show_query(4, query=query, gallery=gallery, image_root=tmp_path)
    with pytest.raises(InputError, match=r"query row 1 cannot be shown.*none of 6 could be read"):
        report.show_query(1, query=query, gallery=gallery, image_root=tmp_path / "elsewhere")


def test_without_lists_images_or_stores(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query, gallery = in_memory(4, None), in_memory(30, None)
    with pytest.raises(InputError, match=r"top-k lists .* has none: evaluate with topk=10"):
        evaluate(query, gallery).show_query(0)
    with pytest.raises(InputError, match=r"query row 0 cannot be shown.*the query set has no image paths"):
        evaluate(query, gallery, topk=3).show_query(0, query=query, gallery=gallery)
    monkeypatch.chdir(runs)
    report = Report.load(runs / "plain")
    (gone,) = runs.glob("gallery-plain.zarr")
    moved = shutil.move(gone, tmp_path / "moved.zarr")
    try:
        with pytest.raises(StoreNotFoundError, match=r"gallery-plain.zarr is not there; pass it, or its path"):
            report.show_query(8)
        assert report.show_query(8, gallery=tmp_path / "moved.zarr").pictures.query.row == 8
    finally:
        shutil.move(moved, gone)


@needs_browser
def test_marks_have_frames_of_their_own(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    shown = Report.load(runs / "plain").show_query(8)
    measure = (
        "found.push(...[...page.querySelectorAll('.tile')].map(tile => [tile.className.split(' ')[1], "
        "view.getComputedStyle(tile.querySelector('img, .missing')).borderTopStyle]));"
    )
    page = shown.save(tmp_path / "query.html").read_text(encoding="utf-8")
    (found,) = measured([page], [900], measure, tmp_path)
    styles = {"query": "double", "right": "solid", "wrong": "dashed", "junk": "dotted"}
    assert [style for _, style in found] == [styles[mark] for mark, _ in found]
    assert {"query", "right", "wrong"} <= {mark for mark, _ in found}
