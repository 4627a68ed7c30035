"""Charts of a quantity over the nights: gaps, bounds, marks and shapes."""

from __future__ import annotations

import csv
import dataclasses
import re
from typing import Any, TypeVar

import numpy as np
import pytest
from support.pages import assert_drawn_inside

from reid_dist.nightly.history.history_values import State
from reid_dist.nightly.page.trend_charts import Point, trend_chart
from reid_dist.reports.plots.chart import Band, Chart, Dots, Line, Rule
from reid_dist.reports.plots.chart_svg import draw

Kind = TypeVar("Kind")


def series(n_nights: int, **at: dict[str, Any]) -> list[Point]:
    found = [
        Point(name=f"run {night}", tick=f"{night}", value=0.8 + 0.001 * night, low=0.7, high=0.9)
        for night in range(n_nights)
    ]
    for place, change in at.items():
        night = int(place.removeprefix("night"))
        found[night] = dataclasses.replace(found[night], **change)
    return found


def layers(chart: Chart, kind: type[Kind]) -> list[Kind]:
    assert_drawn_inside(str(draw(chart)))
    return [layer for layer in chart.layers if isinstance(layer, kind)]


def shapes(chart: Chart) -> dict[str, tuple[float, float]]:
    """Places of the shapes by their names, without that of the last night."""
    return {dots.shape: (dots.x[0], dots.y[0]) for dots in layers(chart, Dots) if dots.shape != "ring"}


def test_a_night_without_a_value_is_a_gap_and_a_failure_a_cross() -> None:
    chart = trend_chart(
        "mAP", "mAP", series(6, night2={"value": None, "low": None, "high": None, "kind": State.FAILED})
    )
    (line,), (whiskers,) = layers(chart, Line), layers(chart, Band)
    assert np.flatnonzero(np.isnan(line.y)).tolist() == np.flatnonzero(np.isnan(whiskers.low)).tolist() == [2]
    assert whiskers.upright
    assert shapes(chart)["cross"][0] == 2
    drawn = str(draw(chart))
    pieces = re.findall(r'<polyline[^>]*points="([^"]*)"', drawn)
    assert [len(piece.split()) for piece in pieces] == [2, 3]
    assert drawn.count("run 2: failed") == 1


def test_marks_are_at_nights_with_changes() -> None:
    chart = trend_chart("mAP", "mAP", series(9, night3={"letters": "IV"}, night8={"letters": "M"}))
    assert [(rule.at, rule.text) for rule in layers(chart, Rule)] == [(3, "IV"), (8, "M")]
    assert "run 3 (I, V), run 8 (M)" in chart.words


@pytest.mark.parametrize(("quantity", "unit"), [("seconds", 60.0), ("peak_bytes", 2.0**30)])
def test_bounds_are_in_the_unit_of_the_values(quantity: str, unit: float) -> None:
    values = [5 * unit, 4 * unit, 6 * unit]
    bounded = [
        Point(name=f"run {night}", tick="", value=value, low=4 * unit, high=6 * unit)
        for night, value in enumerate(values)
    ]
    chart = trend_chart(quantity, "Cost", bounded, bounds=True)
    (band,), (line,) = layers(chart, Band), layers(chart, Line)
    assert line.y.tolist() == [5, 4, 6]
    assert (set(band.low), set(band.high)) == ({4}, {6})
    assert band.corners[0].tolist() == [-0.5, 0.5, 0.5, 1.5, 1.5, 2.5], "no gap between nights"
    rows = list(csv.reader(chart.to_csv().splitlines()))[1:]
    assert [[float(cell) for cell in row[1:]] for row in rows] == [[0, 5, 4, 6], [1, 4, 4, 6], [2, 6, 4, 6]]


def test_changes_have_shapes_of_their_own_and_a_word() -> None:
    kinds = ["worse", "better", "alarm", "accepted"]
    charts = [trend_chart("mAP", "mAP", series(4, night1={"kind": kind})) for kind in kinds]
    assert len({shape for chart in charts for shape in shapes(chart)}) == 4
    for kind, chart in zip(kinds, charts, strict=True):
        assert list(shapes(chart).values()) == [(1, 0.801)]
        assert f"run 1: 80.10%, {kind}" in [title for dots in layers(chart, Dots) for title in dots.titles]


def test_bounds_that_reach_far_are_cut_and_the_axis_is_that_of_the_values() -> None:
    times = [0.091, 0.305, 0.12, 0.2, 0.15]
    nights = [Point(name=f"run {at}", tick=f"{at}", value=each) for at, each in enumerate(times)]
    wide = [dataclasses.replace(night, low=0.0, high=0.2 * 4360.73) for night in nights]
    chart = trend_chart("seconds", "Time", wide, bounds=True)
    assert chart.y.high <= 600, "in milliseconds"
    (inside,) = re.findall(r'<polygon class="band [^"]*" points="([^"]*)"', str(draw(chart)))
    heights = {float(corner.split(",")[1]) for corner in inside.split()}
    assert heights == {30.0, 244.0}, "as high as the frame"
    # Bounds within reach of the values are drawn where they are.
    near = [dataclasses.replace(night, low=0.08, high=0.4) for night in nights]
    axis = trend_chart("seconds", "Time", near, bounds=True).y
    assert axis.low < 80 < 400 < axis.high
