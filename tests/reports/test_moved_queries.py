"""Queries that changed most between two runs, on the page of a table."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
from browsed_runs import HOSTILE, make_runs

from reid_dist import Report, compare_runs

pytest.importorskip("PIL")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("moved")
    make_runs(folder)
    return folder


def loaded(folder):
    return [Report.load(folder / name) for name in ("plain", "other")]


def test_lists_of_both_runs_side_by_side(runs, monkeypatch):
    monkeypatch.chdir(runs)
    first, second = loaded(runs)
    table = compare_runs([first, second], names=["plain", "noisy"], n_resamples=200, pictures=True)
    moved = table.groups[0].moved
    change = second.per_query["AP"] - first.per_query["AP"]
    lost = [each.changed.row for each in moved.queries if each.changed.candidate < each.changed.baseline]
    assert sorted(change[lost]) == pytest.approx(np.sort(change[np.isfinite(change)])[: len(lost)])
    n_lost, n_gained = (change < 0).sum(), (change > 0).sum()
    assert len(moved.queries) == min(4, n_lost) + min(4, n_gained) >= 4
    for each in moved.queries:
        for report, shown in zip((first, second), each.lists, strict=True):
            assert shown.query.row == each.changed.row
            assert [item.row for item in shown.items] == report.topk.index[each.changed.row, :8].tolist()
    page = table.to_html()
    assert page.count('<ol class="tiles">') == 2 * len(moved.queries)
    assert "img-src data:" in page
    assert "Queries that changed most: mAP" in page
    assert HOSTILE not in page
    # Pictures are for the page alone.
    assert "moved" not in table.to_dict()["groups"][0]


def test_pictures_are_below_the_root_of_either_run_or_a_given_one(runs, tmp_path, monkeypatch):
    # The first run was made elsewhere, so that only the second one says where its pictures are.
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "other"):
        shutil.copytree(runs / name, tmp_path / name)
    first, second = loaded(tmp_path)
    told = dataclasses.replace(second, spec={**second.spec, "image_root": str(runs)})

    def shown(*reports, **options):
        moved = compare_runs(reports, n_resamples=200, pictures=True, **options).groups[0].moved
        return [sum(item.image is not None for item in each.items) for query in moved.queries for each in query.lists]

    assert set(shown(first, second)) <= {0}
    assert min(shown(first, told)) > 0
    assert shown(first, second, image_root=runs) == shown(first, told)


def test_without_lists_or_stores(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(runs)
    first, second = loaded(runs)
    assert compare_runs([first, second], n_resamples=200).groups[0].moved is None
    assert compare_runs([first, first], n_resamples=200, pictures=True).groups[0].moved is None
    for name in ("plain", "other"):
        shutil.copytree(runs / name, tmp_path / name)
    shutil.move(runs / "query-other.zarr", runs / "elsewhere.zarr")
    table = compare_runs(loaded(tmp_path), n_resamples=200, pictures=True)
    shutil.move(runs / "elsewhere.zarr", runs / "query-other.zarr")
    moved = table.groups[0].moved
    assert moved.queries == ()
    assert moved.note.startswith("No pictures of changed queries: the query set of ")
    assert "query-other.zarr" in moved.note
    assert moved.note in table.to_html()
