"""Charts of a quantity over the nights: gaps, bounds, marks and shapes."""

from __future__ import annotations

import dataclasses
import itertools
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from reid_dist.nightly.history.values import FAILED
from reid_dist.nightly.page.charts import Point, trend_chart
from reid_dist.reports.plots.frame import BOTTOM, HEIGHT, TOP


def series(n_nights: int, **at: dict[str, Any]) -> list[Point]:
    found = [
        Point(name=f"run {night}", tick=f"{night}", value=0.8 + 0.001 * night, low=0.7, high=0.9)
        for night in range(n_nights)
    ]
    for place, change in at.items():
        night = int(place.removeprefix("night"))
        found[night] = dataclasses.replace(found[night], **change)
    return found


def drawn(*arguments: Any, **options: Any) -> ElementTree.Element:
    return ElementTree.fromstring(str(trend_chart(*arguments, **options)))


def by_class(plot: ElementTree.Element, css: str) -> list[ElementTree.Element]:
    return [each for each in plot.iter() if css in each.get("class", "").split()]


def test_a_night_without_a_value_is_a_gap_and_a_failure_a_cross() -> None:
    plot = drawn("mAP", "mAP", series(6, night2={"value": None, "low": None, "high": None, "kind": FAILED}))
    lines = [len(line.get("points", "").split()) for line in by_class(plot, "line")]
    assert lines == [2, 3]
    (cross,) = by_class(plot, "failed")
    assert cross[0].text == "run 2: failed"
    (whiskers,) = by_class(plot, "whisker")
    assert whiskers.get("d", "").count("M") == 5
    (dots,) = by_class(plot, "dots")
    assert dots.get("d", "").count("M") == 4, "and the last night is a shape of its own"


def test_marks_are_at_nights_with_changes() -> None:
    plot = drawn("mAP", "mAP", series(9, night3={"letters": "IV"}, night8={"letters": "M"}))
    dots = re.findall(r"M([\d.]+)", by_class(plot, "dots")[0].get("d", ""))
    lines = [line.get("x1") for line in by_class(plot, "moved")]
    letters = [(text.get("x"), text.text) for text in by_class(plot, "letters")]
    assert lines[0] == dots[3]
    assert letters[0] == (dots[3], "IV")
    assert letters[1] == (lines[1], "M")
    assert "run 3 (I, V), run 8 (M)" in plot.get("aria-label", "")


def test_marks_of_every_night_do_not_overlap() -> None:
    every = {f"night{night}": {"letters": "IJV"} for night in range(60)}
    plot = drawn("mAP", "mAP", series(60, **every))
    assert len(by_class(plot, "moved")) == 60
    places = sorted((float(text.get("y", "")), float(text.get("x", ""))) for text in by_class(plot, "letters"))
    assert len(places) > 10
    assert all(x2 - x1 > 25 for (y1, x1), (y2, x2) in itertools.pairwise(places) if y1 == y2)


@pytest.mark.parametrize(("quantity", "unit"), [("seconds", 60.0), ("peak_bytes", 2.0**30)])
def test_bounds_are_drawn_where_the_values_would_be(quantity: str, unit: float) -> None:
    values = [5 * unit, 4 * unit, 6 * unit]
    bounded = [
        Point(name=f"run {night}", tick="", value=value, low=4 * unit, high=6 * unit)
        for night, value in enumerate(values)
    ]
    plot = drawn(quantity, "Cost", bounded, bounds=True)
    (band,) = by_class(plot, "bounds")
    heights = {float(corner.split(",")[1]) for corner in band.get("points", "").split()}
    line = [float(point.split(",")[1]) for point in by_class(plot, "line")[0].get("points", "").split()]
    assert heights == {line[1], line[2]}
    assert line[2] < line[0] < line[1]


@pytest.mark.parametrize("kind", ["worse", "better", "alarm", "accepted"])
def test_changes_have_a_shape_and_a_word(kind: str) -> None:
    plot = drawn("mAP", "mAP", series(4, night1={"kind": kind}))
    (shape,) = by_class(plot, kind)
    assert shape[0].text == f"run 1: 80.10 %, {kind}"
    other = drawn("mAP", "mAP", series(4, night1={"kind": "worse" if kind != "worse" else "better"}))
    assert shape.get("d", "").split("m")[1] not in {
        each.get("d", "").split("m")[1] for each in by_class(other, "shape")
    }


def test_bounds_that_reach_far_are_cut_and_the_axis_is_that_of_the_values() -> None:
    times = [0.091, 0.305, 0.12, 0.2, 0.15]
    nights = [Point(name=f"run {at}", tick=f"{at}", value=each) for at, each in enumerate(times)]
    wide = [dataclasses.replace(night, low=0.0, high=0.2 * 4360.73) for night in nights]
    plot = drawn("seconds", "Time", wide, bounds=True)
    ticks = [float(text.text or "") for text in plot.iter() if re.fullmatch(r"\d+", text.text or "")]
    assert max(tick for tick in ticks if tick > len(times)) <= 600, "in milliseconds"
    (band,) = by_class(plot, "bounds")
    heights = [float(point.split(",")[1]) for point in band.get("points", "").split()]
    assert min(heights) >= TOP - 0.1
    assert max(heights) <= HEIGHT - BOTTOM + 0.1
    # Bounds within reach of the values are drawn where they are.
    near = [dataclasses.replace(night, low=0.08, high=0.4) for night in nights]
    (inside,) = by_class(drawn("seconds", "Time", near, bounds=True), "bounds")
    heights = [float(point.split(",")[1]) for point in inside.get("points", "").split()]
    assert TOP < min(heights) < max(heights) < HEIGHT - BOTTOM
