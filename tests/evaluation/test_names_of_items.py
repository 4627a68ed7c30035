"""Item ids and image paths in reports: of queries, and of the gallery rows in lists; saved, loaded and as tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest

from reid_dist import FeatureSet, compose_protocol, evaluate, evaluate_lists
from reid_dist.errors import DamagedStoreError
from reid_dist.nightly.history.history_file import pack, unpack
from reid_dist.reports import Report
from reid_dist.reports.documents import with_digest

N_QUERY, N_GALLERY, K = 12, 40, 5


def sides(**changes: Any) -> tuple[FeatureSet, FeatureSet]:
    rng = np.random.default_rng(8)
    made = []
    for side, n in (("q", N_QUERY), ("g", N_GALLERY)):
        labels = {
            "camids": rng.integers(0, 3, n),
            "item_ids": np.arange(n) * 10 if side == "q" else np.array([f"item{row}" for row in range(n)]),
            "image_paths": np.array([f"{side}/{row}.jpg" for row in range(n)]),
        }
        pids = np.arange(n) % 6
        features = (np.eye(8)[pids] + rng.standard_normal((n, 8)) / 2).astype(np.float32)
        made.append(FeatureSet.from_arrays(features, pids, **{**labels, **changes}))
    return made[0], made[1]


@pytest.fixture(scope="module")
def report() -> Report:
    return evaluate(*sides(), topk=K, protocol="no_cameras")


def expected_lists(report: Report) -> pd.DataFrame:
    """The lists row by row, from the arrays."""
    query, gallery = sides()
    lists = report.topk
    return pd.DataFrame(
        [
            {
                "query_row": row,
                "rank": rank + 1,
                "gallery_row": lists.index[row, rank],
                "distance": lists.distance[row, rank],
                "relevant": lists.relevant[row, rank],
                "junk": lists.junk[row, rank],
                "query_item_id": query.item_ids[row],
                "query_image_path": query.image_paths[row],
                "gallery_item_id": gallery.item_ids[lists.index[row, rank]],
                "gallery_image_path": gallery.image_paths[lists.index[row, rank]],
            }
            for row in range(N_QUERY)
            for rank in range(K)
        ]
    )


def test_tables_name_the_items(report: Report) -> None:
    table = report.to_pandas()
    query, _ = sides()
    assert [*table.columns[:4]] == ["pid", "camid", "item_id", "image_path"]
    assert table["item_id"].tolist() == query.item_ids.tolist()
    assert table["image_path"].tolist() == query.image_paths.tolist()
    pd.testing.assert_frame_equal(report.topk.to_pandas(), expected_lists(report), check_dtype=False)


def test_names_are_saved_and_loaded(report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "run")
    loaded = Report.load(path)
    pd.testing.assert_frame_equal(loaded.topk.to_pandas(), report.topk.to_pandas())
    pd.testing.assert_frame_equal(loaded.to_pandas(), report.to_pandas())
    assert loaded.per_query.keys() == report.per_query.keys()
    parquet = pyarrow.parquet.read_table(path / "per_query.parquet").to_pydict()
    assert parquet["image_path"] == [f"q/{row}.jpg" for row in range(N_QUERY)]
    assert parquet["item_id"] == [10 * row for row in range(N_QUERY)]
    with np.load(path / "topk.npz") as lists:
        assert lists["gallery_row"].tolist() == np.unique(report.topk.index).tolist()
        assert lists["gallery_image_path"].tolist() == [f"g/{row}.jpg" for row in lists["gallery_row"]]


def test_names_are_no_part_of_the_result(report: Report) -> None:
    plain = evaluate(*sides(item_ids=None, image_paths=None), topk=K, protocol="no_cameras")
    assert plain.result_digest == report.result_digest
    assert plain.names is None
    assert "item_id" not in plain.to_pandas()
    assert [*plain.topk.to_pandas().columns] == ["query_row", "rank", "gallery_row", "distance", "relevant", "junk"]
    assert plain.topk.digest == report.topk.digest


def test_names_that_were_changed_are_found(report: Report, tmp_path: Path) -> None:
    path = report.save(tmp_path / "run")
    with np.load(path / "per_query.npz") as held:
        arrays = dict(held)
    arrays["image_path"] = arrays["image_path"][::-1]
    np.savez(path / "per_query.npz", **arrays)
    with pytest.raises(DamagedStoreError, match="names digest: "):
        Report.load(path)


def test_reports_of_earlier_versions_have_no_names(report: Report, tmp_path: Path) -> None:
    path = evaluate(*sides(item_ids=None, image_paths=None), topk=K, protocol="no_cameras").save(tmp_path / "run")
    document = json.loads((path / "report.json").read_text())
    del document["names"]
    (path / "report.json").write_text(json.dumps(with_digest(document)))
    assert Report.load(path).names is None


def test_a_history_keeps_no_names(report: Report) -> None:
    kept = unpack(*pack(report), "a history")
    assert kept.names is None
    assert kept.result_digest == report.result_digest


def test_lists_without_some_items_and_of_one_side_alone() -> None:
    query, _ = sides(item_ids=None)
    _, gallery = sides(image_paths=None)
    few = gallery.take(np.arange(3))
    found = evaluate(query, few, topk=K, protocol="no_cameras").topk.to_pandas()
    assert len(found) == 3 * N_QUERY
    assert found["gallery_item_id"].tolist() == [f"item{row}" for row in found["gallery_row"]]
    assert "query_item_id" not in found
    assert "gallery_image_path" not in found


def test_rows_that_do_not_count_keep_their_names() -> None:
    query, gallery = sides()
    rules = compose_protocol("some", base="no_cameras", query_cameras=(0, 1), gallery_cameras=(1, 2))
    found = evaluate(query, gallery, topk=K, rerank="k_reciprocal", protocol=rules)
    table = found.to_pandas()
    assert table["image_path"].tolist() == query.image_paths.tolist()
    lists = found.topk.to_pandas()
    assert lists["gallery_item_id"].tolist() == [f"item{row}" for row in lists["gallery_row"]]
    assert set(gallery.camids[lists["gallery_row"]]) <= {1, 2}


def test_given_lists_name_the_queries() -> None:
    query, gallery = sides()
    index = np.argsort(np.random.default_rng(1).random((N_QUERY, N_GALLERY)), axis=1)
    assert evaluate_lists(index, query, gallery, protocol="no_cameras").to_pandas()["image_path"][3] == "q/3.jpg"
