"""The page of a sweep: offline, whole, its charts inside their frames, the best point marked by a sign."""

from __future__ import annotations

import math
import re

import pytest
from support.pages import Page, assert_link_stays

from reid_dist.core.findings import info
from reid_dist.evaluation.sweeps import SweepReport
from reid_dist.reports.plots.chart import Dots, Line
from reid_dist.reports.plots.chart_svg import draw
from reid_dist.reports.sweep_page import charts_of


def report(parameters, values, metrics=("mAP", "CMC@1"), **more):
    """A report over a grid; `values` are those of the first metric at each point."""
    settings = [{}]
    for name, each in parameters.items():
        settings = [{**setting, name: value} for setting in settings for value in each]
    rows = [
        {
            "parameters": setting,
            "metrics": {name: value / (1 + place) for place, name in enumerate(metrics)},
            "name": "aqe(" + ",".join(f"{name}={value}" for name, value in setting.items()) + ")",
            "digest": f"{number:064x}",
            "seconds": 0.25,
        }
        for number, (setting, value) in enumerate(zip(settings, values, strict=True))
    ]
    fields = {
        "kind": "expand",
        "method": {"name": "aqe", "source": "<b>someone</b>", "fixed": {"include_self": False}},
        "parameters": {name: list(each) for name, each in parameters.items()},
        "protocol": {"name": "market1501", "summary": "same identity, other camera"},
        "distance": {"name": "cosine"},
        "options": {"max_rank": 50},
        "counts": {"n_query": 10, "n_valid": 9, "n_gallery": 1234},
        "inputs": {side: {"uri": f"{side}<&>.zarr", "content_digest": "ab"} for side in ("query", "gallery")},
        "environment": {"numpy": "2"},
        "timing": {"total": 3.0},
        "notes": [info("text", text="a note & more")],
    }
    return SweepReport(rows=rows, **{**fields, **more})


def grid(n_lines=3, n_points=11):
    return report(
        {"k": range(n_points), "alpha": [float(line) for line in range(n_lines)]},
        [0.5 + 0.01 * k - 0.001 * k * k + 0.02 * line for k in range(n_points) for line in range(n_lines)],
    )


REPORTS = {
    "one line": report({"k": range(6)}, [0.6, 0.6, 0.64, 0.66, 0.65, 0.62]),
    "three lines": grid(),
    "many lines": grid(n_lines=40, n_points=4),
    "five hundred points": grid(n_lines=1, n_points=500),
    "one point": report({"k": [3]}, [0.5]),
    "names": report({"variant": ["zhong", "faiss_k1", "paper"]}, [0.5, 0.6, 0.4]),
    "names beside lines": report(
        {"k1": [10, 20], "k2": [1, 6], "lambda_value": [0.0, 0.3], "variant": ["zhong", "zhong_d4"]},
        [0.5 + 0.01 * number for number in range(16)],
    ),
    "nothing is found": report({"k": range(5)}, [0.0] * 5),
    "gaps": report({"k": range(5)}, [0.4, math.nan, 0.5, 0.45, math.nan]),
    "no values": report({"k": range(3)}, [math.nan] * 3),
    "not in order": report({"k": [5, 1, 3]}, [0.3, 0.1, 0.2]),
    "a threshold": report({"k": range(3)}, [3.25, 4.5, 2.0], metrics=("threshold",)),
}


@pytest.fixture(params=REPORTS)
def made(request):
    return REPORTS[request.param]


@pytest.mark.quick_cases(6)
def test_the_page_is_whole_and_fetches_nothing(made):
    text = made.to_html()
    page = Page(text)
    assert not any(page.named(tag) for tag in ("script", "link", "img"))
    for _, attributes in page.tags:
        assert not {"src", "srcset", "data", "action"} & set(attributes)
        assert_link_stays(attributes)
        assert not any(name.startswith("on") for name in attributes)
    for forbidden in ("url(", "@import", "//"):
        assert forbidden not in text
    assert text == made.to_html()
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {each["aria-labelledby"] for _, each in page.tags if "aria-labelledby" in each} <= set(ids)
    assert "<b>someone" not in text
    assert "query&lt;&amp;&gt;.zarr" in text
    assert "a note &amp; more" in text


def test_charts_stay_inside_their_frames(made):
    charts = re.findall(r"<svg.*?</svg>", made.to_html(), re.DOTALL)
    assert len(charts) == len(made.metric_names)
    for chart in charts:
        page = Page(chart)
        (frame,) = page.named("svg")
        _, _, width, height = map(float, frame["viewbox"].split())
        assert frame["role"] == "img"
        assert frame["aria-label"]
        points = re.findall(r'points="([^"]*)"', chart)
        places = [tuple(map(float, pair.split(","))) for each in points for pair in each.split()]
        places += [
            (float(each["x"]), float(each["y"])) for each in page.named("text")
        ]  # fmt: skip
        assert all(0 <= x <= width and 0 <= y <= height for x, y in places)


def chart_of(made, metric=0):
    return charts_of(made.to_dict())[metric].chart


def lines_of(chart):
    return [layer for layer in chart.layers if isinstance(layer, Line)]


def test_there_is_one_named_line_for_each_setting_of_the_others():
    chart = chart_of(REPORTS["three lines"])
    assert chart.legend == [("alpha 0", 0), ("alpha 1", 1), ("alpha 2", 2)]
    drawn = str(draw(chart))
    styles = re.findall(r'<polyline class="(line [^"]*)"', drawn)
    assert len(styles) == 6, "three lines, and a piece of each in the legend"
    assert len(set(styles)) == 3
    assert not chart_of(REPORTS["one line"]).legend
    assert "k2 6, lambda 0.3, zhong_d4" in dict(chart_of(REPORTS["names beside lines"]).legend)


def test_too_many_lines_are_left_to_the_table():
    many = REPORTS["many lines"]
    chart = chart_of(many)
    assert len(lines_of(chart)) == 8
    assert "alpha 39" in dict(chart.legend)
    assert "The 8 of 40 lines" in many.to_html()


@pytest.mark.quick_cases(6)
def test_the_best_point_has_a_sign(made):
    (table,) = made.tables()
    assert sum(cell.is_best for row in table.cells() for cell in row) == len(made.best)
    assert made.to_html().count("<b>") >= len(made.best)
    for number, name in enumerate(made.metric_names):
        marks = [layer for layer in chart_of(made, number).layers if isinstance(layer, Dots) and layer.shape == "best"]
        assert len(marks) == (name in made.best)


def test_the_mark_is_at_the_best_point():
    chart = chart_of(REPORTS["one line"])
    (line,) = lines_of(chart)
    (mark,) = (layer for layer in chart.layers if isinstance(layer, Dots))
    assert (mark.x.tolist(), mark.y.tolist()) == ([3], [0.66])
    assert (line.x.tolist(), line.y.tolist()) == (list(range(6)), [0.6, 0.6, 0.64, 0.66, 0.65, 0.62])
    drawn = str(draw(chart))
    (centre,) = re.findall(r'class="shape best[^"]*" d="M([\d.]+) ([\d.]+)m', drawn)
    (points,) = re.findall(r'<polyline[^>]*points="([^"]*)"', drawn)
    assert ",".join(centre) == points.split()[3]
    assert ">66.00%<" in drawn


def test_lines_go_from_left_to_right_whatever_the_order_of_the_grid():
    (line,) = lines_of(chart_of(REPORTS["not in order"]))
    assert (line.x.tolist(), line.y.tolist()) == ([1, 3, 5], [0.1, 0.2, 0.3])
    assert [cell.text for cell in REPORTS["not in order"].tables()[0].column("k")] == ["5", "1", "3"]


def test_the_page_describes_the_inputs():
    words = " ".join(Page(REPORTS["three lines"].to_html()).words)
    for text in ("9 valid queries of 10", "1,234 gallery rows", "market1501", "include self", "alpha = 2", "k = 5"):
        assert text in words, text
    assert REPORTS["three lines"].result_digest in words
    assert all(row["digest"] in words for row in REPORTS["three lines"].rows)
