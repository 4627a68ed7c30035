"""Charts: coordinates of values, and labels inside the frame."""

from __future__ import annotations

import html
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import assert_drawn_inside, line_points

from reid_dist.core.formatting import compact, rate
from reid_dist.reports.plots.curves import cmc_plot, distractor_plot, distractor_scale
from reid_dist.reports.plots.frame import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, log_ticks, thinned
from reid_dist.reports.plots.heat import heat_map, heat_map_is_wide
from reid_dist.reports.plots.verification import det_plot, roc_plot
from reid_dist.reports.words import bounded_value, interval


def points(svg: str) -> np.ndarray:
    return np.array(line_points(svg))


def test_det_is_straight_where_errors_trade_in_proportion() -> None:
    # FRR = 10^-4 / FAR: in logarithms a straight line that falls from one corner to the other.
    far = np.logspace(-4, 0, 41)
    drawn = points(str(det_plot(far, 1 - 1e-4 / far)))
    assert len(drawn) == 41
    expected = np.linspace([LEFT, TOP], [WIDTH - RIGHT, HEIGHT - BOTTOM], 41)
    np.testing.assert_allclose(drawn, expected, atol=0.2)


def test_det_leaves_out_points_without_a_logarithm() -> None:
    far = np.array([0.0, 0.001, 0.01, 0.1, 1.0])
    svg = str(det_plot(far, np.array([0.5, 0.9, 0.99, 0.999, 1.0])))
    assert len(points(svg)) == 3
    assert_drawn_inside(svg)


def test_roc_has_a_decade_as_wide_as_another() -> None:
    drawn = points(str(roc_plot(np.array([0.001, 0.01, 0.1, 1.0]), np.array([0.0, 0.25, 0.5, 1.0]))))
    np.testing.assert_allclose(np.diff(drawn[:, 0]), (WIDTH - RIGHT - LEFT) / 3, atol=0.2)
    height = HEIGHT - BOTTOM - TOP
    np.testing.assert_allclose(HEIGHT - BOTTOM - drawn[:, 1], [0, height / 4, height / 2, height], atol=0.2)


def test_points_of_metrics_are_marked_where_they_are() -> None:
    far = np.array([0.001, 0.01, 0.1, 1.0])
    svg = str(roc_plot(far, np.array([0.2, 0.4, 0.6, 1.0]), [("TAR@FAR=0.01", 0.01, 0.4), ("TAR@FAR=1e-9", 1e-9, 0.1)]))
    ((x, y, title),) = re.findall(r'class="dot" cx="([\d.]+)" cy="([\d.]+)" r="4"><title>(.*?)</title>', svg)
    assert title == "TAR@FAR=0.01: 40 % at FAR 1 %"
    assert [float(x), float(y)] == points(svg)[1].tolist()


@pytest.mark.parametrize("n_points", [0, 1])
def test_too_few_points_are_reported(n_points: int) -> None:
    far = np.full(n_points, 0.5)
    for svg in (str(roc_plot(far, far)), str(det_plot(far, far))):
        assert "fewer than two points" in svg
        assert_drawn_inside(svg)


curves = st.lists(st.floats(0, 1, width=32), min_size=2, max_size=60)


@given(curves, st.floats(1e-9, 0.1))
def test_every_roc_and_det_is_drawn_inside(values: list[float], lowest: float) -> None:
    tar = np.sort(np.array(values, dtype=np.float64))
    far = np.logspace(math.log10(lowest), 0, len(tar))
    marked = [("TAR", float(far[1]), float(tar[1]))]
    for svg in (str(roc_plot(far, tar, marked)), str(det_plot(far, tar, marked))):
        assert_drawn_inside(svg)
        assert "nan" not in svg


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=20, unique=True).map(sorted),
    st.data(),
)
def test_every_distractor_curve_is_drawn_inside(sizes: list[int], data: st.DataObject) -> None:
    values = data.draw(
        st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=len(sizes), max_size=len(sizes)), label="values"
    )
    svg = str(distractor_plot("mAP", sizes, values))
    assert_drawn_inside(svg)
    labels = [float(x) for x in re.findall(r'<text x="([\d.]+)" y="263.0" text-anchor="middle">', svg)]
    assert len(labels) <= 12
    known = sum(value is not None for value in values)
    assert len(re.findall(r'class="dot"', svg)) == known


def test_the_scale_follows_the_span() -> None:
    assert distractor_scale([1000, 9999]) == "linear"
    assert distractor_scale([1000, 10_000]) == "logarithmic"
    assert distractor_scale([0, 10**9]) == "linear"  # zero has no logarithm
    assert distractor_scale([]) == "linear"


@pytest.mark.parametrize("columns", [1, 3, 9, 10, 32])
def test_heat_maps_of_every_width(columns: int) -> None:
    values = np.linspace(0, 1, 2 * columns).reshape(2, columns).tolist()
    svg = str(heat_map("mAP", [1, 2], list(range(columns)), values, [[5] * columns] * 2))
    assert_drawn_inside(svg)
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', svg)[0])
    assert width == 440 if columns <= 9 else width > 440
    assert svg.count("<rect") == 2 * columns


NAMES = ["attic", "bridge", "a camera with a long name", "W" * 30, "door"]


@pytest.mark.parametrize("columns", [1, 2, 5, 20])
def test_heat_maps_of_cameras_with_names(columns: int) -> None:
    names = (NAMES * 4)[:columns]
    svg = str(heat_map("mAP", NAMES, names, [[0.5] * columns] * 5, [[5] * columns] * 5))
    assert_drawn_inside(svg)
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', svg)[0])
    assert (width > 440) == heat_map_is_wide(NAMES, names)
    assert f"query camera {'W' * 30}, gallery camera attic: " in svg  # whole where it is pointed at
    shown = [html.unescape(text) for text in re.findall(r'text-anchor="end">([^<]*)<', svg)]
    assert shown == ["attic", "bridge", "a camera with…", "W" * 13 + "…", "door"]
    # Names of columns do not run into one another, at a letter's usual width.
    heads = re.findall(r'x="([\d.]+)" y="40(?:\.0+)?" text-anchor="middle">([^<]*)<', svg)
    places = [(float(x), text) for x, text in heads]
    assert len(places) == columns
    for (here, left), (there, right) in itertools.pairwise(places):
        assert there - here >= 6.5 * (len(left) + len(right)) / 2, (left, right)


def test_equal_cells_have_one_colour() -> None:
    svg = str(heat_map("mAP", [1], [1, 2], [[0.5, 0.5]], [[1, 1]]))
    assert len(set(re.findall(r'fill-opacity="([\d.]+)"', svg))) == 1
    assert "no query is valid" in str(heat_map("mAP", [1], [1], [[None]], [[0]]))


@pytest.mark.parametrize("curve", [np.linspace(0.9, 0.1, 50), np.linspace(0.1, 0.9, 50), np.full(30, 0.05)])
def test_the_values_of_a_curve_are_written_beside_it(curve: np.ndarray) -> None:
    svg = str(cmc_plot("P", curve))
    line = points(svg)
    for x, y, anchor, words in re.findall(
        r'<text class="value" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">(.*?)</text>', svg
    ):
        width = 6.5 * len(words)
        left = float(x) - {"start": 0, "middle": width / 2, "end": width}[anchor]
        under = line[(line[:, 0] >= left) & (line[:, 0] <= left + width), 1]
        assert not np.any((under > float(y) - 10) & (under < float(y))), f"the line runs through {words}"
        assert left >= 0
        assert left + width <= WIDTH


@given(st.floats(1e-12, 1e11), st.floats(1.0001, 1e12))
def test_logarithmic_ticks_are_few_and_inside(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 7
    assert all(low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6) for tick in ticks)
    assert ticks == sorted(ticks)


@pytest.mark.parametrize("n_points", [1, 2, 399, 400, 401, 10_000])
def test_thinning_keeps_the_ends(n_points: int) -> None:
    kept = thinned(n_points)
    assert kept[0] == 0
    assert kept[-1] == n_points - 1
    assert len(kept) == min(n_points, 400)


def test_small_rates_are_written_out() -> None:
    assert [rate(value) for value in (1e-6, 1e-10, 0.001, 0.7079, 1.0, 0.0, math.nan)] == [
        "0.0001 %", "0.00000001 %", "0.1 %", "70.79 %", "100 %", "0 %", "undefined",
    ]  # fmt: skip
    assert [compact(value) for value in (0, 999, 1000, 1500, 2_000_000, 10**9)] == [
        "0",
        "999",
        "1k",
        "1.5k",
        "2M",
        "1G",
    ]


def test_intervals_and_bounds_in_the_unit_of_their_metric() -> None:
    assert interval("mAP", [0.5, 0.625]) == "[50.00, 62.50] %"
    assert interval("EER_threshold", [0.5, 0.625]) == "[0.5, 0.625]"
    assert interval("mAP", [None, None]) == interval("mAP", None) == "-"
    assert bounded_value("mAP", math.nan, [0.25, 0.5]) == "between 25.00 and 50.00 %"
    assert bounded_value("mAP", 0.3, [0.25, 0.5]) == "30.00 %, between 25.00 and 50.00 %"
    assert bounded_value("mAP", math.nan, [0.25, 0.25]) == "25.00 %"
    assert bounded_value("mAP", math.nan, None) == "undefined"
    assert bounded_value("EER_threshold", math.nan, [0.25, 0.5]) == "between 0.25 and 0.5"
