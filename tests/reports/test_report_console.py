"""The table on the console, as a log file of 80 columns has it."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Callable

import pytest
from support.pages import printed

from reid_dist.core.findings import info
from reid_dist.reports import Report, print_report


def test_eighty_columns_without_codes(report: Report, full_report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither variable may affect a file: they apply to terminals alone.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    for text in map(printed, (report, full_report)):
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 80
        assert not any(line != line.rstrip() for line in text.splitlines())
    assert {line.split()[0] for line in text.splitlines() if line.strip()} >= {*full_report.metrics, "mAP@7"}


def test_brackets_are_no_markup(make_report: Callable[..., Report]) -> None:
    report = make_report(
        n_query=5,
        n_invalid=0,
        metrics={"[bold]x[/bold]": 0.5},
        notes=[info("text", text=text) for text in ("[red]careful[/red]", "[/]")],
        distance={"name": "[link=x]d[/link]"},
    )
    text = printed(report)
    for words in ("[bold]x[/bold]", "[red]careful[/red]", "[/]", "[link=x]d[/link]"):
        assert words in text


def test_a_stream_of_few_characters_is_no_error(make_report: Callable[..., Report]) -> None:
    report = make_report(n_query=5, n_invalid=0, notes=[info("text", text="good \N{UNION} ok")])
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_report(report, stream)
    stream.flush()
    text = raw.getvalue().decode("ascii")
    assert "good ? ok" in text
    assert "----" in text


def test_intervals_are_printed_beside_values(full_report: Report) -> None:
    lines = printed(full_report).splitlines()
    assert "95% interval" in next(line for line in lines if line.split()[:1] == ["metric"])
    first = next(line for line in lines if line.split()[:1] == ["mAP"])
    assert f"{100 * full_report.metrics['mAP']:.2f}% [41.23, 45.67]" in " ".join(first.split())
    assert "1,000 resamples of the query identities" in " ".join(printed(full_report).split())


def test_bounds_ties_and_verification_are_printed(full_report: Report) -> None:
    text = " ".join(printed(full_report).split())
    for words in (
        "between 12.00 and",
        "18.75%",
        "optimistic is the highest value that an order of tied items gives",
        "49,378 genuine pairs, 30,987,654 impostor pairs, 1,900 mated queries, 44 non-mated queries",
        "TAR@FAR=0.001: 0.31251234",
        "DIR@FAR=0.01: none: every pair is accepted",
    ):
        assert words in text


def test_every_breakdown_has_a_line_with_its_place_in_the_files(full_report: Report) -> None:
    text = " ".join(printed(full_report).split())
    for words in (
        "6 groups, mAP 39.99% (camid 4) to 60.01% (camid 3) (report.json: breakdowns.camera; report.html: By camera)",
        "57 groups, mAP 20.00% (pid 114) to 76.00% (pid 134)",
        "2 groups, mAP 30.00% (clothes other) to 70.00% (clothes <b>same</b>)",
        "6 query x 6 gallery cameras, mAP",
        "5 sizes, rows in random order, mAP 51.00% (1M rows) to 83.00% (1k rows)",
        "report.html: Distractor curve",
    ):
        assert words in text


def test_a_breakdown_without_values_has_a_line_too(report: Report) -> None:
    empty = {"camid": [1], "n_query": [3], "n_valid": [0], "mAP": [None]}
    text = printed(dataclasses.replace(report, breakdowns={"camera": empty}))
    assert "1 group (report.json: breakdowns.camera" in " ".join(text.split())


def test_counts_and_conventions_are_printed(report: Report) -> None:
    text = " ".join(printed(report).split())
    for words in (
        "1,950 valid of 2,000",
        "invalid: no_positive_in_gallery",
        "invalid query: left out of every mean",
        "15,913 rows, 2,793 junk for every query",
        "78,123 junk",
        "market1501: another camera must see the person again",
        "cosine: 1 - <x, y>",
        "k_reciprocal(k1=20, k2=6, lambda_value=0.3, variant=zhong)",
        "distance, then gallery row",
        report.result_digest[:16],
        "counts 11.3 s",
        "exactly the same distance",
    ):
        assert words in text


def test_rates_of_nothing_have_their_reason(make_report: Callable[..., Report]) -> None:
    counted = {"n_mated": 5, "n_non_mated": 0, "thresholds": {}}
    metrics = {"mAP": 0.5, "DIR@FAR=0.01": math.nan}
    for verification, n_notes in ((counted, 1), (counted | {"n_non_mated": 3}, 0)):
        report = make_report(n_query=5, n_invalid=0, metrics=metrics, verification=verification)
        notes = [note for note in report.tables()[0].notes if note.name == "undefined"]
        assert [(note.needed, str(note.text).partition(":")[0]) for note in notes] == [(True, "DIR@FAR=0.01")] * n_notes


def test_one_set_is_noted_and_no_junk_is_no_number(make_report: Callable[..., Report]) -> None:
    plain = make_report(n_query=5, n_invalid=0)
    inputs = {side: {**described, "content_digest": "c"} for side, described in plain.inputs.items()}
    one = dataclasses.replace(plain, inputs=inputs, counts={**plain.counts, "n_junk": 0, "n_junk_rows": 0})
    assert (plain.is_one_set, one.is_one_set) == (False, True)
    for report in (plain, one):
        assert ("query and gallery are one set" in printed(report)) == report.is_one_set
        assert ("Query and gallery are one set." in report.to_html()) == report.is_one_set
    assert "0 junk" not in printed(one)
    assert "no junk" in printed(one)
