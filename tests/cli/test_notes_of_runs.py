"""Inputs that give misleading numbers: the advice of the error, and the notes where the user goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ALARMS = {"own_rows", "same_labels", "identical_features", "few_false_accepts", "roc_few_false_accepts"}


def joined(text: str) -> str:
    """Lines of the console as one, however they are broken."""
    return " ".join(text.split())


def test_one_file_twice_is_led_to_same_set(reid_dist, shared_data, threads, tmp_path: Path) -> None:
    source = shared_data("veri776_sample.npz")
    reid_dist("evaluate", source, source, "--cluster", threads).assert_refused(
        "use the protocol 'same_set'", "query and gallery are the same set"
    )
    output = tmp_path / "out"
    done = reid_dist("evaluate", source, source, "--protocol", "no_cameras", "--cluster", threads, "--output", output)
    assert done.code == 0
    words = "queries match themselves: for 500 of 500 valid queries"
    assert words in joined(done.out)
    assert words in (output / "report.html").read_text()
    (note,) = json.loads((output / "report.json").read_text())["notes"]
    assert (note["code"], note["severity"]) == ("own_rows", "warning")
    assert note["text"].startswith(words)
    assert "'same_set'" in note["text"]
    assert joined(done.out).index(words) < joined(done.out).index("mAP")


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
    codes = {note["code"] for note in json.loads(done.out)["notes"]}
    assert not codes & (ALARMS | {"sides_swapped"})


def test_more_queries_than_gallery_rows_are_noted(reid_dist, shared_data, threads) -> None:
    source = shared_data("market1501_sample.mat")
    done = reid_dist("evaluate", source, source, "--cluster", threads, "--json")
    notes = {note["code"]: note for note in json.loads(done.out)["notes"]}
    swapped = notes["sides_swapped"]
    assert swapped["severity"] == "caution"
    assert (swapped["values"]["n_query"], swapped["values"]["n_gallery"]) == (100, 86)
    assert not {*notes} & ALARMS
