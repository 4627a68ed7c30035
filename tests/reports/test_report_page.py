"""The page: well-formed, offline, escaped, stable, and whole for every odd report."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from full_report import confidence
from support.pages import (
    Page,
    assert_complete_and_offline,
    assert_drawn_inside,
    assert_no_markup,
    drawings,
    line_points,
)

from reid_dist.core.findings import info
from reid_dist.reports import Report
from reid_dist.reports.plots.chart import Band, Bars, Rule
from reid_dist.reports.plots.chart_svg import LEFT, RIGHT, WIDTH, draw
from reid_dist.reports.plots.curve_charts import query_histogram, rank_chart
from reid_dist.reports.sections.curve_section import curves


def test_the_page_is_well_formed_and_offline(report: Report) -> None:
    text = report.to_html()
    page = assert_complete_and_offline(text)
    assert not page.named("img")
    assert "//" not in text
    assert len(page.named("svg")) == len(page.named("figure")) == len(page.named("figcaption")) == 4


def test_everything_of_the_report_is_on_the_page(report: Report) -> None:
    text = Page(report.to_html()).text
    for name, value in report.metrics.items():
        assert name in text
        assert f"{100 * value:.2f}%" in text
    for described in (report.protocol, report.distance, report.rerank, *report.inputs.values()):
        assert described is not None
        for value in described.values():
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            assert shown.casefold() in text.casefold()
    for words in ("2.4.6", "node-17", "11.3 s", "12 pairs", "distance, then gallery row", report.result_digest):
        assert words in text
    for reason, count in report.counts["n_invalid_by_reason"].items():
        assert reason in text
        assert f"{count} ({100 * count / 2000:.1f}%)" in text
        assert ", ".join(map(str, np.flatnonzero(report.per_query["reason"] == reason)[:100])) in text


def test_the_hardest_queries_are_the_hardest(make_report: Callable[..., Report]) -> None:
    nan = math.nan
    report = make_report(
        n_query=6,
        n_invalid=0,
        k=None,
        per_query={
            "AP": np.array([0.5, 0.25, nan, 0.25, 0.25, 1.0]),
            "INP": np.array([0.1, 0.2, nan, 0.1, 0.2, 1.0]),
            "first_rank": np.array([1.0, 4000, nan, 4, 5, 1]),
        },
    )
    table = report.to_html().split('id="hardest"')[1].split("</table>")[0]
    assert re.findall(r'scope="row" class="number">(\d+)<', table) == ["3", "1", "4", "0", "5"]
    assert "4,000" in table


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "place",
    ["metrics", "reason", "protocol", "distance", "inputs", "notes", "environment", "timing", "counts"],
)
def test_no_text_becomes_markup(make_report: Callable[..., Report], place: str) -> None:
    evil = "\"'><script>alert(1)</script><img src=x onerror=y>&amp;{{ 7*7 }}"
    plain = make_report(n_query=5, n_invalid=0)
    counts = {**plain.counts, "n_valid": 4, "n_invalid_by_reason": {evil: 1}}
    reasons = np.array([evil, "", "", "", ""])
    changes: dict[str, dict[str, Any]] = {
        "metrics": {"metrics": {evil: 0.5}, "definitions": {evil: evil}},
        "reason": {"counts": counts, "per_query": {**plain.per_query, "reason": reasons}},
        "protocol": {"protocol": {"name": evil, "invalid_query": evil, evil: {evil: [evil]}}},
        "distance": {"distance": {"name": evil}},
        "inputs": {"inputs": {evil: {"uri": evil, "shape": [1, 2]}}},
        "notes": {"notes": [info("text", text=evil)]},
        "environment": {"environment": {evil: evil}},
        "timing": {"timing": {evil: 1.0}},
        "counts": {"counts": {**plain.counts, evil: evil}},
    }
    page = Page(make_report(n_query=5, n_invalid=0, **changes[place]).to_html())
    assert_no_markup(page)
    shown = page.text.casefold() + " ".join(str(plot["aria-label"]) for plot in page.named("svg")).casefold()
    assert "<script>alert(1)</script>" in shown
    assert "{{ 7*7 }}" in shown


def test_a_large_report_has_a_small_page(make_report: Callable[..., Report]) -> None:
    n_query = 100_000
    rng = np.random.default_rng(3)
    average = rng.random(n_query)
    reason = np.where(rng.random(n_query) < 0.5, "no identity", "")
    average[reason != ""] = np.nan
    n_invalid = int(np.sum(reason != ""))
    report = make_report(
        n_query=10,
        n_invalid=0,
        k=None,
        counts={
            "n_query": n_query,
            "n_valid": n_query - n_invalid,
            "n_gallery": 10**9,
            "n_junk": 10**12,
            "n_invalid_by_reason": {"no identity": n_invalid},
        },
        per_query={"AP": average, "INP": average, "reason": reason},
        curves={"CMC": np.linspace(0, 1, 50_000), "precision_recall": np.linspace(1, 0, 101)},
    )
    text = report.to_html()
    assert len(text) < 120_000
    assert f"and {n_invalid - 100:,} more" in Page(text).text
    assert "1,000,000,000,000" in text


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    "changes",
    [
        {"n_query": 1, "n_invalid": 0, "max_rank": 1},
        {"n_query": 2, "n_invalid": 1, "max_rank": 2},
        {"n_query": 5, "n_invalid": 0, "topk": None, "expand": {"name": "aqe", "k": 5}, "rerank": None},
        {"n_query": 5, "n_invalid": 0, "curves": {}},
        {"n_query": 5, "n_invalid": 0, "curves": {"CMC": np.zeros(0), "other": np.ones(3)}},
        {"n_query": 5, "n_invalid": 0, "per_query": {}},
        {"n_query": 5, "n_invalid": 0, "per_query": {"AP_trapezoid": np.ones(5)}},
        {"n_query": 5, "n_invalid": 0, "metrics": {}},
        {"n_query": 5, "n_invalid": 0, "metrics": {"TAR@FAR=0.001": 0.5, "EER": 0.1, "new": 2.0}},
        {"n_query": 5, "n_invalid": 0, "protocol": {}, "distance": {}, "inputs": {}, "ties": {}, "timing": {}},
        {"n_query": 5, "n_invalid": 0, "environment": {}, "timing": {"open": 0.0}, "notes": []},
    ],
)
def test_unusual_reports_have_complete_pages(make_report: Callable[..., Report], changes: dict[str, Any]) -> None:
    text = make_report(**changes).to_html()
    Page(text)
    assert "nan" not in text.lower()
    for svg in drawings(text):
        assert_drawn_inside(svg)


def test_no_valid_query_at_all(make_report: Callable[..., Report]) -> None:
    nothing = np.full(4, np.nan)
    report = make_report(
        n_query=4,
        n_invalid=0,
        metrics={"mAP": math.nan, "CMC@1": math.nan, "mINP": math.nan},
        curves={"CMC": np.full(50, np.nan), "precision_recall": np.full(101, np.nan)},
        per_query={"AP": nothing, "INP": nothing, "reason": np.full(4, "lost")},
        counts={"n_query": 4, "n_valid": 0, "n_gallery": 9, "n_junk": 0, "n_invalid_by_reason": {"lost": 4}},
    )
    page = Page(report.to_html())
    assert "undefined" in page.text
    assert page.text.count("no query is valid") == 4
    assert "Hardest queries" not in page.text


@pytest.mark.quick_cases(22)
@pytest.mark.parametrize("last", [1, 2, 3, 10, 11, 24, 25, 50, 99, 1000, 100_000])
@pytest.mark.parametrize("low", [0.0, 0.3, 0.55, 0.999, 1.0])
def test_every_cmc_is_drawn_inside_its_frame(last: int, low: float) -> None:
    curve = np.linspace(low, 1.0, last)
    chart = rank_chart("CMC", {"": curve})
    svg = str(draw(chart))
    assert_drawn_inside(svg)
    assert chart.y.low <= low
    assert len(svg) < 14_000
    places = [chart.x.place(tick) * (WIDTH - RIGHT - LEFT) for tick, _ in chart.x.ticks]
    assert all(right - left > 15 for left, right in itertools.pairwise(places)), "labels overlap"


def test_the_curve_is_drawn_where_its_values_are() -> None:
    svg = str(draw(rank_chart("CMC", {"": np.array([0.0, 0.5, 1.0])})))
    (x1, y1), (x2, y2), (x3, y3) = line_points(svg)
    assert x2 - x1 == x3 - x2 > 0
    assert y1 - y2 == y2 - y3 > 0  # up is a smaller y
    assert "100.00% at rank 3" in svg


@pytest.mark.parametrize(
    "values", [[1.0], [0.0], [0.5] * 7, [0.0, 1.0], [math.nan, 0.25], list(np.linspace(0, 1, 1001))]
)
def test_histograms_count_every_valid_query_once(values: list[float]) -> None:
    chart = query_histogram("AP", np.array(values))
    (bars,) = (layer for layer in chart.layers if isinstance(layer, Bars))
    (mean,) = (layer for layer in chart.layers if isinstance(layer, Rule))
    valid = [value for value in values if not math.isnan(value)]
    assert bars.y.sum() == len(valid)
    assert mean.at == pytest.approx(np.mean(valid))
    assert chart.y.high >= bars.y.max()
    assert_drawn_inside(str(draw(chart)))


def test_intervals_of_metrics_are_on_their_curve(report: Report) -> None:
    plain = confidence(["mAP"])
    intervals = {"mAP": [0.4, 0.5], "CMC@5": [0.5, 0.7], "CMC@1": [0.2, 0.4], "CMC@10": [None, None]}
    (chart,) = (
        each.chart
        for each in curves(replace(report, confidence={**plain, "intervals": intervals}))
        if each.chart.y.name == "CMC"
    )
    (band,) = (layer for layer in chart.layers if isinstance(layer, Band))
    assert band.upright
    assert (band.x.tolist(), band.low.tolist(), band.high.tolist()) == ([1, 5], [0.2, 0.5], [0.4, 0.7])


def test_every_chart_is_a_file_of_its_drawing_and_of_its_values(report: Report) -> None:
    links = [each for each in Page(report.to_html()).named("a") if "download" in each]
    assert [str(each["download"]) for each in links[:2]] == ["CMC_by_rank.svg", "CMC_by_rank.csv"]
    assert len(links) == 8
    drawing, table = (unquote(str(each["href"]).partition(",")[2]) for each in links[:2])
    root = ElementTree.fromstring(drawing)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    style = root[0].text or ""
    assert "var(" not in style, "only browsers know variables"
    classes = {name for each in root.iter() for name in each.get("class", "").split()}
    assert {"line", "grid", "axis"} <= classes
    assert {name for name in ("line", "grid", "axis", "bar", "cell") if f".{name}" in style} <= classes
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [float(row["CMC"]) for row in rows] == report.curves["CMC"].tolist()
    assert [float(row["rank"]) for row in rows] == list(range(1, 51))
