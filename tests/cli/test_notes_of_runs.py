"""Inputs that give misleading numbers: the advice of the error, and the notes where the user goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet


def joined(text: str) -> str:
    """Lines of the console as one, however they are broken."""
    return " ".join(text.split())


def test_one_file_twice_is_led_to_same_set(reid_dist, shared_data, threads, tmp_path: Path) -> None:
    source = shared_data("veri776_sample.npz")
    reid_dist("evaluate", source, source, "--cluster", threads).assert_refused(
        "use the protocol 'same_set': query and gallery are the same set"
    )
    output = tmp_path / "out"
    done = reid_dist("evaluate", source, source, "--protocol", "no_cameras", "--cluster", threads, "--output", output)
    assert done.code == 0
    words = "queries match themselves: the own row of 500 of 500 valid queries"
    assert words in joined(done.out)
    assert words in (output / "report.html").read_text()
    (note,) = json.loads((output / "report.json").read_text())["notes"]
    assert note.startswith(f"warning: {words}")
    assert done.out.index(words) < done.out.index("mAP")
    assert "'same_set'" in note


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sketch_photo.mat", ()),
        ("sketch_photo.mat", ("--protocol", "no_cameras")),
        ("veri776_sample.npz", ("--protocol", "same_set")),
    ],
)
def test_no_false_alarm_on_real_features(reid_dist, shared_data, threads, name: str, options) -> None:
    source = shared_data(name)
    done = reid_dist("evaluate", source, source, *options, "--cluster", threads, "--json")
    notes = " ".join(json.loads(done.out)["notes"])
    assert not any(words in notes for words in ("match themselves", "distance 0", "swapped", "false accepts"))


def test_more_queries_than_gallery_rows_are_noted(reid_dist, shared_data, threads) -> None:
    source = shared_data("market1501_sample.mat")
    done = reid_dist("evaluate", source, source, "--cluster", threads, "--json")
    notes = " ".join(json.loads(done.out)["notes"])
    assert "swapped: there are 100 queries and only 86 gallery rows" in notes
    assert not any(words in notes for words in ("match themselves", "distance 0", "false accepts"))


def test_a_pipeline_has_the_notes_too(reid_dist, threads, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    FeatureSet.from_arrays(rng.standard_normal((20, 6)).astype(np.float32), np.arange(20) % 4).save(tmp_path / "s.zarr")
    (tmp_path / "job.yaml").write_text(
        "query: s.zarr\ngallery: s.zarr\nprotocol: no_cameras\nmetrics: [mAP, TAR@FAR=1e-9]\n".replace(
            "s.zarr", str(tmp_path / "s.zarr")
        )
    )
    done = reid_dist("run", tmp_path / "job.yaml", "--cluster", threads)
    assert done.code == 0, done.err
    assert "20 of 20 valid queries" in joined(done.out)
    assert "TAR@FAR=1e-9 rests on fewer than 10 false accepts (FAR x 300 impostor pairs < 10)" in joined(done.out)
    assert "the smallest FAR that so many support is 0.0334" in joined(done.out)


def test_splits_of_one_set_name_the_option(reid_dist, stores, threads) -> None:
    _, gallery = stores
    refused = reid_dist("splits", gallery, gallery, "--protocol", "no_cameras", "--cluster", threads)
    refused.assert_refused("--rest-as-queries")
    done = reid_dist("splits", gallery, gallery, "--rest-as-queries", "--repeats", 2, "--cluster", threads, "--json")
    assert json.loads(done.out)["notes"] == []
