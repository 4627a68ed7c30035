"""Little evidence is a finding; warnings are visible before any number is read, in words and in colour."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

import numpy as np
import pytest
from support.pages import Page, printed

from reid_dist.core.findings import caution, info, warning
from reid_dist.metrics.confidence import few_units
from reid_dist.reports import Report

Make = Callable[..., Report]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def made(make_report: Make, *, n_valid: int, n_query: int, n_identities: int, **changes: object) -> Report:
    """A report over so many valid queries, of so many identities."""
    report = make_report(n_query=n_query, n_invalid=n_query - n_valid)
    pids = np.full(n_query, 999)
    valid = report.per_query["reason"] == ""
    pids[valid] = np.arange(n_valid) % n_identities
    return make_report(
        n_query=n_query, n_invalid=n_query - n_valid, per_query={**report.per_query, "pid": pids}, **changes
    )


def words_of(report: Report) -> str:
    return " ".join(printed(report).split())


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    ("n_valid", "n_query", "n_identities", "expected"),
    [
        (100, 100, 15, []),
        (50, 100, 15, []),
        (49, 100, 15, [("few_valid_queries", "caution")]),
        (10, 100, 10, [("few_valid_queries", "caution"), ("few_identities", "caution")]),
        (9, 100, 9, [("few_valid_queries", "warning"), ("few_identities", "caution")]),
        (1, 100, 1, [("few_valid_queries", "warning"), ("few_identities", "warning")]),
        (100, 100, 14, [("few_identities", "caution")]),
        (100, 100, 5, [("few_identities", "caution")]),
        (100, 100, 4, [("few_identities", "warning")]),
    ],
)
def test_share_and_identities_decide(make_report: Make, n_valid, n_query, n_identities, expected) -> None:
    report = made(make_report, n_valid=n_valid, n_query=n_query, n_identities=n_identities)
    found = report.weak_evidence
    assert [(each.code, each.severity) for each in found] == expected
    for each in found:
        values = {"n_valid": n_valid, "n_query": n_query, "at_zero": False}
        assert each.values == (values if each.code == "few_valid_queries" else {"n": n_identities})


def test_warnings_are_before_the_numbers_cautions_after_them_and_notes_folded(make_report: Make) -> None:
    notes = [info("text", text="a remark"), caution("text", text="a limit"), warning("text", text="an alarm")]
    report = made(make_report, n_valid=100, n_query=100, n_identities=50, notes=notes)
    assert report.findings == notes[::-1]
    html = report.to_html()
    page = Page(html)
    (alarm,) = (tag for tag in page.named("p") if tag.get("class") == "evidence")
    (cards,) = (tag for tag in page.named("dl") if str(tag.get("class")).startswith("cards"))
    assert alarm["role"] == "note"
    assert cards["class"] == "cards warning"
    places = [html.index(words) for words in ("an alarm", '<dl class="cards', "a limit", '<details class="notes">')]
    assert places == sorted(places)
    assert html.count("a limit") == html.count("a remark") == 1
    assert places[-1] < html.index("a remark") < html.index("</details>", places[-1])
    console = words_of(report)
    places = [console.index(words) for words in ("WARNING: an alarm", "convention", "caution a limit", "note a remark")]
    assert places == sorted(places)
    calm = made(make_report, n_valid=100, n_query=100, n_identities=50, notes=notes[:2])
    (cards,) = (tag for tag in Page(calm.to_html()).named("dl") if str(tag.get("class")).startswith("cards"))
    assert cards["class"] == "cards"
    assert "WARNING:" not in words_of(calm)


@pytest.mark.parametrize(("n_valid", "code"), [(90, "36"), (30, "36"), (7, "31")], ids=["cyan", "caution", "red"])
def test_a_terminal_colours_values_as_it_words_them(
    make_report: Make, monkeypatch: pytest.MonkeyPatch, n_valid: int, code: str
) -> None:
    report = made(make_report, n_valid=n_valid, n_query=100, n_identities=n_valid)
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    report.show(file=stream)
    value = f"{100 * report.metrics['mAP']:.2f}%"
    (line,) = (line for line in stream.getvalue().splitlines() if value in line)
    assert f"\x1b[{code}m" in line


def test_queries_of_cameras_that_do_not_count_are_no_reason(make_report: Make) -> None:
    columns = make_report(n_query=100, n_invalid=80).per_query
    reasons = np.where(columns["reason"] == "", "", "camera_not_counted")
    changes = {
        "per_query": {**columns, "reason": reasons, "pid": np.arange(100)},
        "counts": {
            "n_query": 100,
            "n_valid": 20,
            "n_gallery": 50,
            "n_junk": 0,
            "n_invalid_by_reason": {"camera_not_counted": 80},
        },
    }
    report = make_report(n_query=100, n_invalid=80, **changes)
    assert report.weak_evidence == []


def test_one_pid_beside_lists_is_no_identity(make_report: Make) -> None:
    plain = make_report(n_query=20, n_invalid=0)
    per_query = {**plain.per_query, "pid": np.zeros(20, int)}
    listed = make_report(
        n_query=20,
        n_invalid=0,
        per_query=per_query,
        protocol={"name": "oxford", "ground_truth": {"entries": {"good": 3}}},
    )
    assert listed.weak_evidence == []
    assert make_report(n_query=20, n_invalid=0, per_query=per_query).weak_evidence == [warning("few_identities", n=1)]


def test_few_identities_are_said_once(make_report: Make) -> None:
    narrow, fpir = (few_units(7, rates=rates) for rates in ((), ("FPIR",)))
    report = made(make_report, n_valid=100, n_query=100, n_identities=7)
    assert report.findings == [caution("few_identities", n=7), *report.notes]
    assert dataclasses.replace(report, notes=narrow).findings == narrow
    assert len(dataclasses.replace(report, notes=fpir).findings) == 2
    # So few that the means are an alarm.
    alarm = made(make_report, n_valid=100, n_query=100, n_identities=3, notes=few_units(3))
    assert [each.severity for each in alarm.findings] == ["warning", "caution"]


def test_queries_that_count_as_zero_have_their_own_text(make_report: Make) -> None:
    plain = make_report(n_query=100, n_invalid=70)
    report = make_report(
        n_query=100,
        n_invalid=70,
        protocol={**plain.protocol, "invalid_query": "counts as 0"},
        per_query={**plain.per_query, "pid": np.arange(100)},
    )
    assert "the others count as 0" in words_of(report)
    assert "100 identities" in words_of(report)
