"""Features of real models, each from its file through ingest and evaluate to the report, by the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reid_dist import Report


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "stores", "options", "counts"),
    [
        (
            "market1501_sample.mat",
            ("query.zarr", "gallery.zarr"),
            (),
            {
                "n_query": 100,
                "n_valid": 7,
                "n_gallery": 86,
                "n_invalid_by_reason": {"no_positive_in_gallery": 91, "only_same_camera_positives": 2},
            },
        ),
        (
            "sketch_photo.mat",
            ("query.zarr", "gallery.zarr"),
            (),
            {"n_query": 50, "n_valid": 50, "n_gallery": 100, "n_invalid_by_reason": {}},
        ),
        (
            "veri776_sample.npz",
            ("", ""),
            ("--protocol", "same_set", "--distance", "euclidean"),
            {"n_query": 500, "n_valid": 499, "n_gallery": 500, "n_invalid_by_reason": {"no_positive_in_gallery": 1}},
        ),
    ],
)
def test_from_file_to_report(
    reid_dist, shared_data, threads, tmp_path: Path, name: str, stores, options, counts
) -> None:
    source = shared_data(name)
    assert reid_dist("ingest", source, "--output", tmp_path / "data").code == 0
    paths = [tmp_path / "data" / store for store in stores]
    assert reid_dist("check", *paths).code == 0
    output = tmp_path / "out"
    done = reid_dist("evaluate", *paths, *options, "--cluster", threads, "--output", output)
    assert done.code == 0, done.err
    found = json.loads((output / "report.json").read_text())
    assert {key: found["counts"][key] for key in counts} == counts
    assert 0 < found["metrics"]["mINP"] <= found["metrics"]["mAP"] < 1
    assert Report.load(output).result_digest == found["result_digest"]
    assert f"{100 * found['metrics']['mAP']:.2f}%" in (output / "report.html").read_text().replace("\xa0", " ")
    # The file itself is a source, too: no store is needed.
    direct = reid_dist("evaluate", source, source, *options, "--cluster", threads, "--json")
    assert json.loads(direct.out)["result_digest"] == found["result_digest"]
