"""`reid-dist evaluate --pictures`."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist import FeatureSet, Report


@pytest.fixture(scope="module")
def pictured(data):
    """Stores whose items have images, tiny ones of one colour each."""
    image = pytest.importorskip("PIL.Image")
    folder = data / "pictured"
    (folder / "images").mkdir(parents=True)
    for role in ("query", "gallery"):
        items = FeatureSet.open(data / f"{role}.zarr")
        paths = [f"images/{role}_{i}.png" for i in range(items.n_rows)]
        for i, path in enumerate(paths):
            image.new("RGB", (4, 8), (i, 2 * i, 100)).save(folder / path)
        features = items.read(0, items.n_rows)
        FeatureSet.from_arrays(
            features, items.pids, items.camids, image_paths=paths, allow_zero=True
        ).save(folder / f"{role}.zarr")  # fmt: skip
    return folder


def pictured_sides(pictured):
    return [pictured / "query.zarr", pictured / "gallery.zarr"]


@pytest.mark.slow
def test_pictures_of_the_hardest_queries(run, pictured, tmp_path):
    words = ("--pictures", "hardest", "--topk", "6", "--image-root", pictured, "--output", tmp_path / "out")
    assert run(*words, sides=pictured_sides(pictured)).code == 0
    report = Report.load(tmp_path / "out")
    shown = report.pictures.queries
    order = np.argsort(report.per_query["AP"], kind="stable")
    assert [each.query.row for each in shown] == order[: len(shown)].tolist()
    assert {each.reason for each in shown} == {"hardest"}
    assert all(item.image for each in shown for item in (each.query, *each.items))
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<img") >= sum(1 + len(each.items) for each in shown)


@pytest.mark.slow
def test_pictures_of_chosen_queries(run, pictured, tmp_path, monkeypatch):
    """They come first; and relative paths start here by default."""
    monkeypatch.chdir(pictured)
    words = ("--pictures", "7,2", "--topk", "3", "--output", tmp_path / "out")
    assert run(*words, sides=pictured_sides(pictured)).code == 0
    shown = Report.load(tmp_path / "out").pictures.queries
    assert [(each.query.row, each.reason) for each in shown[:2]] == [(7, "chosen"), (2, "chosen")]
    assert shown[0].query.image


def test_pictures_that_cannot_be_read_are_said_with_a_remedy(run, pictured, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--pictures", "hardest", "--topk", "3", "--output", tmp_path / "out")
    done = run(*words, sides=pictured_sides(pictured))
    assert done.code == 0
    assert "No pictures: none of " in done.err
    assert "--image-root" in done.err


def test_pictures_beside_a_block(run, pictured, data, tmp_path):
    words = ("--distances", data / "block.npy", "--pictures", "hardest", "--topk", "3", "--image-root", pictured)
    assert run(*words, "--output", tmp_path / "out", sides=pictured_sides(pictured)).code == 0
    assert Report.load(tmp_path / "out").pictures.queries[0].query.image


def test_no_images_is_a_note(run, tmp_path):
    assert run("--pictures", "hardest", "--topk", "3", "--output", tmp_path / "out").code == 0
    assert "no image paths" in Report.load(tmp_path / "out").pictures.note
