"""The sections of the page: the given numbers and their explanations."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from full_report import breakdowns, confidence
from support.pages import (
    Page,
    assert_complete_and_offline,
    assert_no_markup,
    drawings,
    line_points,
    section,
    tables,
)

from reid_dist.reports import Report


@pytest.fixture(scope="module")
def page(full_report: Report) -> str:
    return full_report.to_html()


def test_the_page_is_complete_and_offline(page: str) -> None:
    assert assert_complete_and_offline(page).named("img")
    assert "nan" not in re.sub(r"data:image[^\"]*", "", page).lower()


def test_every_metric_has_its_interval_and_its_values_with_ties_settled(page: str, full_report: Report) -> None:
    (table,) = tables(section(page, "metrics"))
    assert table[0] == ["metric", "value", "optimistic", "pessimistic", "convention"]
    rows = {row[0]: row[1:4] for row in table[1:]}
    assert list(rows) == [*full_report.metrics, "mAP@7"]
    assert rows["mAP"] == [f"{100 * full_report.metrics['mAP']:.2f}% [41.23, 45.67]", "50.00%", "25.00%"]
    assert rows["MRR"][1:] == ["-", "-"]
    assert rows["mAP@7"] == ["between 12.00 and 18.75%", "-", "-"]
    words = Page(page).text
    assert "95% confidence intervals, [low, high], from 1,000 resamples of the query identities" in words
    assert "seed 7" in words
    assert "the value lies within these bounds" in words


def test_headlines_have_words_in_place_of_formulas(make_report: Callable[..., Report]) -> None:
    def cards(report: Report) -> dict[str, str]:
        card = r'<div class="card">\s*<dt>(.*?)</dt>.*?<dd class="why">(.*?)</dd>'
        return dict(re.findall(card, report.to_html(), re.DOTALL))

    plain = make_report(n_query=5, n_invalid=0)
    assert cards(plain) == {
        "mAP": "AP: rectangle rule", "CMC@1": "CMC: rank of the first match", "mINP": "INP: rank of the last match"
    }  # fmt: skip
    # Another definition than that of the metric is stated in full.
    other = dataclasses.replace(plain, definitions={"mAP": "items are groups"})
    assert cards(other)["mAP"] == "items are groups"
    # The number of valid queries is there where some are not.
    assert cards(make_report(n_query=50, n_invalid=5))["Valid queries"] == "of 50 (90.0%)"


def test_a_bounded_metric_is_no_number(make_report: Callable[..., Report]) -> None:
    plain = make_report(n_query=5, n_invalid=0)
    metrics = {name: value for name, value in plain.metrics.items() if name != "mAP"}
    report = dataclasses.replace(plain, metrics=metrics, bounds={"mAP": [0.25, 0.5], "mINP": [0.75, 0.75]})
    text = report.to_html()
    cards = re.findall(r"<dt>(.*?)</dt>\s*<dd class=\"big[^\"]*\">(.*?)</dd>", text)
    assert cards[0] == ("mAP", "between 25.00 and 50.00%")
    assert dict(cards)["mINP"] == "75.00%"


def test_cameras_in_their_order(page: str) -> None:
    (table,) = tables(section(page, "breakdown-0"))
    assert table[0] == ["camera", "queries", "valid", "mAP (%)", "CMC@1 (%)"]
    assert table[1] == ["1", "400", "398", "51.23", "81.23"]
    assert table[5] == ["5", "250", "0", "-", "-"]
    assert [row[0] for row in table[1:]] == ["1", "2", "3", "4", "5", "6"]


def test_the_worst_identities_first_and_the_rest_counted(page: str) -> None:
    part = section(page, "breakdown-1")
    (table,) = tables(part)
    values = [float(row[3]) for row in table[1:]]
    given = breakdowns()["identity"]["mAP"]
    assert values == pytest.approx([100 * value for value in sorted(v for v in given if v is not None)[:20]])
    assert "Lowest mAP first." in part
    assert "report.json has 37 more rows under breakdowns.identity." in part


def test_a_group_without_a_valid_query_is_not_the_worst(make_report: Callable[..., Report]) -> None:
    table = {"pid": [5, 6, 7], "n_query": [1, 1, 1], "n_valid": [0, 1, 1], "mAP": [None, 0.5, 0.0]}
    text = make_report(n_query=5, n_invalid=0, breakdowns={"identity": table}).to_html()
    (shown,) = tables(section(text, "breakdown-0"))
    assert [row[0] for row in shown[1:]] == ["7", "6", "5"]


def test_labels_are_text(page: str) -> None:
    part = section(page, "breakdown-2")
    assert tables(part) == [
        [
            ["clothes", "queries", "valid", "mAP (%)"],
            ["<b>same</b>", "1,200", "1,200", "70.00"],
            ["other", "800", "750", "30.00"],
        ]
    ]
    assert "<b>" not in part


def test_camera_pairs_are_matrices_shaded_by_their_values(page: str) -> None:
    part = section(page, "breakdown-3")
    given = breakdowns()["camera_pair"]
    *shown, counts = tables(part)
    assert counts[1] == ["1", "0", "120", "120", "120", "120", "120"]
    for name, table in zip(("mAP", "CMC@1"), shown, strict=True):
        assert f"<h4>{name} (%)</h4>" in part
        assert table[0] == ["query \\ gallery", "1", "2", "3", "4", "5", "6"]
        percents = [cell for row in table[1:] for cell in row[1:]]
        assert percents == ["-" if np.isnan(value) else f"{100 * value:.2f}" for value in given[name].ravel()]
    shades = [float(shade) for shade in re.findall(r'style="--shade:([\d.]+)"', part)]
    values = given["mAP"].ravel()
    values = values[~np.isnan(values)]
    first = np.array(shades[: len(values)])
    assert len(shades) == 2 * len(values)
    assert (first.min(), first.max()) == (0, 1)
    assert np.all(np.diff(first[np.argsort(values)]) >= 0)


@pytest.mark.slow
def test_many_cameras_are_cut_with_a_remark(make_report: Callable[..., Report]) -> None:
    n = 60
    rng = np.random.default_rng(2)
    table = {
        "query_camid": range(n),
        "gallery_camid": range(n),
        "n_valid": np.full((n, n), 7),
        **{f"CMC@{k}": rng.random((n, n)) for k in range(1, 8)},
    }
    groups = {"value": range(1000), "n_query": [1] * 1000, "n_valid": [1] * 1000, "mAP": rng.random(1000)}
    text = make_report(n_query=5, n_invalid=0, breakdowns={"camera_pair": table, "tone": groups}).to_html()
    part = section(text, "breakdown-0")
    assert "the first 32 cameras of 60 and 60" in part
    assert "the first 4 of 7 metrics" in part
    assert [len(table) for table in tables(part)] == [33] * 5
    assert "960 more rows" in section(text, "breakdown-1")
    assert len(text) < 1_000_000


def test_the_distractor_curve_keeps_its_gap(page: str) -> None:
    part = section(page, "breakdown-4")
    assert "in a random order (seed 3)" in part
    assert "axis is logarithmic" in part
    broken, whole = drawings(part)
    assert broken.count("<polyline") == 2
    assert whole.count("<polyline") == 1
    x = [place for place, _ in line_points(whole)]
    # 1k, 3k, 10k, 100k, 1M: a decade is as wide as another.
    assert x[3] - x[2] == pytest.approx(x[4] - x[3], abs=0.2)
    assert x[2] - x[0] == pytest.approx(x[4] - x[3], abs=0.2)
    (table,) = tables(part)
    assert table[0] == ["gallery rows", "mAP (%)", "CMC@1 (%)"]
    assert table[-2:] == [["100,000", "-", "85.00"], ["1,000,000", "51.00", "80.00"]]


def test_verification_is_counted_and_explained(page: str) -> None:
    part = section(page, "verification")
    thresholds, counts, points, again = tables(part)
    assert thresholds[1:] == [
        ["TAR@FAR=0.001", "70.79%", "0.31251234"],
        ["EER", "5.21%", "0.4321"],
        ["DIR@FAR=0.01", "61.00%", "none: every pair is accepted"],
    ]
    assert [row[1] for row in counts] == ["49,378", "30,987,654", "1,900", "44"]
    assert points == again
    assert points[0] == ["FAR", "TAR", "FRR", "threshold"]
    assert [row[0] for row in points[1:]] == ["0.0001%", "0.001%", "0.01%", "0.1%", "1%", "10%", "100%"]
    # TAR = FAR^0.05: 0.5012 at 10^-6, and all at 1.
    assert points[1] == ["0.0001%", "50.12%", "49.88%", "0.1"]
    assert points[-1] == ["100%", "100%", "0%", "1.3"]
    for words in ("smaller than a threshold", "false accept rate", "non-mated queries", "nearest kept row is relevant"):
        assert words in part


def test_only_requested_metrics_are_explained(make_report: Callable[..., Report]) -> None:
    report = make_report(
        n_query=5,
        n_invalid=0,
        metrics={"DIR@FAR=0.01": 0.5},
        verification={"n_mated": 4, "n_non_mated": 1, "thresholds": {"DIR@FAR=0.01": 0.25}},
    )
    part = section(report.to_html(), "verification")
    assert "DIR (detection and identification rate)" in part
    assert "EER" not in part
    assert "genuine pairs:" not in part
    assert "<svg" not in part


@pytest.mark.parametrize(
    ("protocol", "curve", "words"),
    [
        (
            {"name": "market1501_matlab", "invalid_query": "counts as 0", "ap_family": "mAP_trapezoid"},
            "CMC",
            ["Count as 0 in every mean, which is divided by the number of all queries", "Trapezoid rule"],
        ),
        (
            {"name": "cuhk03", "cmc_family": "CMC_single_shot", "single_shot": {"draws": 10, "seed": 4}},
            "CMC_single_shot",
            ["one item of every identity", "Single shot: Draws 10, seed 4."],
        ),
        ({"name": "cuhk03", "single_shot": "exact expectation"}, "CMC", ["Single shot: Exact expectation."]),
        ({"name": "allshots", "cmc_family": "CMC_allshots"}, "CMC_allshots", ["fewer than k negatives"]),
        (
            {"name": "oxford", "relevant": "listed as good or ok", "junk": "listed as junk",
             "invalid_query": "left out",
             "ground_truth": {"kind": "oxford", "n_query": 55, "entries": {"good": 1234, "ok": 5}}},
            "CMC",
            ["Listed as good or ok.", "Listed as junk. Junk items are ignored", "for 55 queries: 1,234 good, 5 ok.",
             "Left out of every mean"],
        ),
        ({"name": "msmt", "query_cameras": "1, 3"}, "CMC", ["Only queries of the cameras 1, 3 count."]),
    ],
)  # fmt: skip
def test_conventions_in_words(
    make_report: Callable[..., Report], protocol: dict[str, Any], curve: str, words: list[str]
) -> None:
    report = make_report(n_query=5, n_invalid=0, protocol=protocol, curves={curve: np.ones(3)})
    (table, *_) = tables(section(report.to_html(), "conventions"))
    shown = " ".join(cell for row in table for cell in row)
    for text in words:
        assert text in shown
    subjects = [row[0] for row in table]
    assert {"Protocol", "Distance", "Ties", "CMC", "Re-ranking", "Query expansion"} <= set(subjects)
    assert "k_reciprocal(k1=20, k2=6, lambda_value=0.3, variant=zhong)" in shown


def test_no_text_of_a_breakdown_becomes_markup(make_report: Callable[..., Report]) -> None:
    evil = "\"'><script>alert(1)</script><img src=x onerror=y>"
    report = make_report(
        n_query=5,
        n_invalid=0,
        metrics={f"TAR@FAR={evil}": 0.5},
        confidence=confidence([f"TAR@FAR={evil}"]),
        bounds={evil: [0, 1]},
        verification={"n_genuine": 1, "thresholds": {evil: 1.0}},
        breakdowns={
            evil: {"value": [evil], "n_query": [1], "n_valid": [1], evil: [0.5]},
            "camera_pair": {"query_camid": [evil], "gallery_camid": [evil], "n_valid": [[1]], evil: [[0.5]]},
            "gallery_size": {"order": "stored", "seed": evil, "n_rows": [1], evil: [0.5]},
        },
    )
    read = Page(report.to_html())
    assert_no_markup(read)
    assert read.text.count("<script>alert(1)</script>") >= 8


def test_a_plain_report_has_no_empty_columns_or_sections(report: Report) -> None:
    text = report.to_html()
    (table,) = tables(section(text, "metrics"))
    assert table[0] == ["metric", "value", "convention"]
    for name in ("breakdowns", "verification", "pictures"):
        assert f'id="{name}"' not in text


def test_what_follows_the_pictures_is_folded(report: Report, make_report: Callable[..., Report]) -> None:
    folded = {}
    for name, each in (("some", report), ("all", make_report(n_query=5, n_invalid=0))):
        found = re.findall(r'<details class="fold"( open)?>\s*<summary><h2 id="(\w+)">', each.to_html())
        folded[name] = {place: not is_open for is_open, place in found}
    assert folded["all"] == dict.fromkeys(("counts", "conventions", "inputs", "run"), True)
    # Why queries are invalid is open.
    assert folded["some"] == folded["all"] | {"counts": False}


def test_parameters_are_not_repeated(make_report: Callable[..., Report]) -> None:
    part = Page(make_report(n_query=5, n_invalid=0).to_html()).text.casefold().partition("what the numbers mean")[2]
    for words in ("another camera must see the person again", "same pid, other camid", "distance, then gallery row"):
        assert part.count(words) == 1


def test_entries_of_other_versions_have_names_in_words(make_report: Callable[..., Report]) -> None:
    plain = make_report(n_query=5, n_invalid=0)
    other = {"counts": plain.counts | {"n_odd_rows": 7}, "ties": plain.ties | {"n_odd_pairs": 8}}
    text = Page(dataclasses.replace(plain, **other).to_html()).text
    for name in ("odd_rows", "odd_pairs"):
        assert name.replace("_", " ") in text
        assert name not in text
        assert f"n {name.replace('_', ' ')}" not in text


def test_advice_for_lists_differs_from_advice_for_labels(make_report: Callable[..., Report]) -> None:
    plain = make_report(n_query=50, n_invalid=5)
    assert "both use the same identity numbers" in plain.to_html()
    listed = dataclasses.replace(plain, protocol={"name": "oxford", "ground_truth": {"entries": {"good": 3}}})
    assert "The ground truth lists no relevant row" in listed.to_html()
    assert "use the same identity numbers" not in listed.to_html()
