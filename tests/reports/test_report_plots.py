"""Charts: coordinates of values, and labels inside the frame."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pages import assert_drawn_inside, line_points

from reid_dist.core.formatting import compact, rate
from reid_dist.reports.plots.chart import (
    COLOURS,
    Band,
    Bars,
    Chart,
    Dots,
    Line,
    Rule,
    as_values,
    log_ticks,
    share_axis,
    style_of,
    thinned,
)
from reid_dist.reports.plots.chart_svg import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, draw
from reid_dist.reports.plots.curve_charts import (
    det_chart,
    distractor_chart,
    distractor_scale,
    precision_recall_chart,
    rank_chart,
    roc_chart,
)
from reid_dist.reports.words import bounded_value, interval


def points(chart: Chart) -> np.ndarray:
    """Coordinates of the only line of a chart."""
    return np.array(line_points(str(draw(chart))))


def dots(chart: Chart) -> list[Dots]:
    return [layer for layer in chart.layers if isinstance(layer, Dots)]


def test_det_is_straight_where_errors_trade_in_proportion() -> None:
    # FRR = 10^-4 / FAR: in logarithms a straight line that falls from one corner to the other.
    far = np.logspace(-4, 0, 41)
    drawn = points(det_chart({"": (far, 1 - 1e-4 / far)}))
    assert len(drawn) == 41
    expected = np.linspace([LEFT, TOP], [WIDTH - RIGHT, HEIGHT - BOTTOM], 41)
    np.testing.assert_allclose(drawn, expected, atol=0.2)


def test_det_leaves_out_points_without_a_logarithm() -> None:
    far = np.array([0.0, 0.001, 0.01, 0.1, 1.0])
    chart = det_chart({"": (far, np.array([0.5, 0.9, 0.99, 0.999, 1.0]))})
    assert len(points(chart)) == 3
    assert_drawn_inside(str(draw(chart)))


def test_roc_has_a_decade_as_wide_as_another() -> None:
    drawn = points(roc_chart({"": (np.array([0.001, 0.01, 0.1, 1.0]), np.array([0.0, 0.25, 0.5, 1.0]))}))
    np.testing.assert_allclose(np.diff(drawn[:, 0]), (WIDTH - RIGHT - LEFT) / 3, atol=0.2)
    height = HEIGHT - BOTTOM - TOP
    np.testing.assert_allclose(HEIGHT - BOTTOM - drawn[:, 1], [0, height / 4, height / 2, height], atol=0.2)


def test_points_of_metrics_are_marked_where_they_are() -> None:
    far = np.array([0.001, 0.01, 0.1, 1.0])
    marked = [("TAR@FAR=0.01", 0.01, 0.4), ("TAR@FAR=1e-9", 1e-9, 0.1)]
    chart = roc_chart({"": (far, np.array([0.2, 0.4, 0.6, 1.0]))}, marked)
    ((x, y, title),) = re.findall(
        r'class="shape dot[^"]*" d="M([\d.]+) ([\d.]+)m.*?<title>(.*?)</title>', str(draw(chart))
    )
    assert title == "TAR@FAR=0.01: 40% at FAR 1%"
    assert [float(x), float(y)] == points(chart)[1].tolist()


@pytest.mark.parametrize("n_points", [0, 1])
def test_too_few_points_are_reported(n_points: int) -> None:
    far = np.full(n_points, 0.5)
    for chart in (roc_chart({"": (far, far)}), det_chart({"": (far, far)})):
        assert not chart.layers
        assert chart.words in str(draw(chart))
        assert_drawn_inside(str(draw(chart)))


shares = st.lists(st.floats(0, 1, width=32), min_size=2, max_size=60)


@given(shares, st.floats(1e-9, 0.1))
def test_every_roc_and_det_is_drawn_inside(values: list[float], lowest: float) -> None:
    tar = np.sort(np.array(values, dtype=np.float64))
    far = np.logspace(math.log10(lowest), 0, len(tar))
    marked = [("TAR", float(far[1]), float(tar[1]))]
    for make in (roc_chart, det_chart):
        for runs in ({"": (far, tar)}, {"one": (far, tar), "two": (far, tar[::-1].copy())}):
            svg = str(draw(make(runs, marked)))
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
    chart = distractor_chart("mAP", {"": (sizes, as_values(values))})
    assert_drawn_inside(str(draw(chart)))
    assert len(chart.x.ticks) <= 12
    known = [value for value in values if value is not None]
    for line in (layer for layer in chart.layers if isinstance(layer, Line)):
        assert line.y[np.isfinite(line.y)].tolist() == known
    for (ends,) in filter(None, [dots(chart)]):
        assert ends.y.tolist() == ([known[0], known[-1]] if len(known) > 1 else known)


def test_the_scale_follows_the_span() -> None:
    assert distractor_scale([1000, 9999]) == "linear"
    assert distractor_scale([1000, 10_000]) == "logarithmic"
    assert distractor_scale([0, 10**9]) == "linear"  # zero has no logarithm
    assert distractor_scale([]) == "linear"


def test_several_runs_share_axes_and_keep_their_style_in_every_chart() -> None:
    far = np.array([0.001, 0.01, 0.1, 1.0])
    tars = {
        "first": np.array([0.2, 0.4, 0.6, 1.0]),
        "no errors": np.ones(4),
        "third": np.array([0.3, 0.5, 0.8, 0.9999]),
    }
    rates = {name: (far, tar) for name, tar in tars.items()}
    charts = [
        rank_chart("P", {name: tar[::-1] for name, tar in tars.items()}),
        precision_recall_chart(tars),
        roc_chart(rates),
        det_chart(rates),
        distractor_chart("mAP", {name: ([10, 20, 30, 40], tar) for name, tar in tars.items()}),
    ]
    for chart in charts:
        assert not dots(chart), "values are written beside a curve alone"
        names = ["first", "third"] if chart is charts[3] else list(tars)
        assert chart.legend == [(name, list(tars).index(name)) for name in names]
        assert_drawn_inside(str(draw(chart)))
    assert [(chart.y.low, chart.y.high) for chart in charts[:3]] == [(0, 1)] * 3, "one scale for shares"
    assert [chart.title for chart in charts[:2]] == ["Precision by rank", "Precision by recall"]


def test_lines_of_many_runs_all_differ() -> None:
    assert len({style_of(number) for number in range(64)}) == 64
    chart = rank_chart("CMC", {f"run {number}": np.linspace(0.01 * number, 1, 50) for number in range(20)})
    svg = str(draw(chart))
    assert_drawn_inside(svg)
    styles = re.findall(r'<polyline class="(line [^"]*)"', svg)
    assert len(styles) == 40
    assert len(set(styles)) == 20
    texts = [
        (float(x), float(y), name) for x, y, name in re.findall(r'series" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)<', svg)
    ]
    assert all(y1 < y2 or x1 + 6.5 * len(name) < x2 for (x1, y1, name), (x2, y2, _) in itertools.pairwise(texts))
    height = float(re.findall(r'viewBox="0 0 440 ([\d.]+)"', svg)[0])
    assert max(y for _, y, _ in texts) < height


# Machado, Oliveira and Fernandes, IEEE TVCG 2009: severity 1.0, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)


def linear(colour: str) -> np.ndarray:
    coded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB."""
    ratio = (TO_XYZ @ np.clip(rgb, 0, 1)) / TO_XYZ.sum(axis=1)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize(("scheme", "page"), [("light", "#ffffff"), ("dark", "#1a1d21")])
def test_colours_can_be_told_apart(vision: str, scheme: str, page: str) -> None:
    seen = [lab(VISION[vision] @ linear(getattr(colour, scheme))) for colour in COLOURS]
    distances = [np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)]
    # A difference of some 2.3 is just noticed.
    assert min(distances) > 10
    for colour in COLOURS:
        lighter, darker = sorted((TO_XYZ[1] @ linear(each) for each in (getattr(colour, scheme), page)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3, "WCAG 2.1, 1.4.11"


@pytest.mark.parametrize("curve", [np.linspace(0.9, 0.1, 50), np.linspace(0.1, 0.9, 50), np.full(30, 0.05)])
def test_the_values_of_a_curve_are_written_beside_it(curve: np.ndarray) -> None:
    chart = rank_chart("P", {"": curve})
    line = points(chart)
    for x, y, anchor, words in re.findall(
        r'<text class="value" x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">(.*?)</text>', str(draw(chart))
    ):
        width = 6.5 * len(words)
        left = float(x) - {"start": 0, "middle": width / 2, "end": width}[anchor]
        under = line[(line[:, 0] >= left) & (line[:, 0] <= left + width), 1]
        assert not np.any((under > float(y) - 10) & (under < float(y))), f"the line runs through {words}"
        assert left >= 0
        assert left + width <= WIDTH


def test_values_of_layers_of_one_name_are_in_one_line_of_the_file() -> None:
    x, y = share_axis("recall"), share_axis("precision")
    places = np.array([0.0, 1.0])
    layers = [
        Band(x=places[1:], low=np.array([0.25]), high=np.array([0.75]), name="=a"),
        Line(x=places, y=np.array([0.5, 0.125]), name="=a"),
        Bars(edges=np.array([0.0, 0.5, 1.0]), y=np.array([1.0, 2.0])),
        Rule(at=0.5, name="no data"),
    ]
    text = Chart(title="t", words="w", x=x, y=y, layers=layers).to_csv()
    assert text.splitlines() == [
        "series,recall,precision,low,high",
        "'=a,0.0,0.5,,",
        "'=a,1.0,0.125,0.25,0.75",
        ",0.0,1.0,,",
        ",0.5,2.0,,",
    ]


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
        "0.0001%", "0.00000001%", "0.1%", "70.79%", "100%", "0%", "undefined",
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
    assert interval("mAP", [0.5, 0.625]) == "[50.00, 62.50]"
    assert interval("EER_threshold", [0.5, 0.625]) == "[0.5, 0.625]"
    assert interval("mAP", [None, None]) == interval("mAP", None) == "-"
    assert bounded_value("mAP", math.nan, [0.25, 0.5]) == "between 25.00 and 50.00%"
    assert bounded_value("mAP", 0.3, [0.25, 0.5]) == "30.00%, between 25.00 and 50.00%"
    assert bounded_value("mAP", math.nan, [0.25, 0.25]) == "25.00%"
    assert bounded_value("mAP", math.nan, None) == "undefined"
    assert bounded_value("EER_threshold", math.nan, [0.25, 0.5]) == "between 0.25 and 0.5"
