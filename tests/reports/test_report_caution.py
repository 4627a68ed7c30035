"""Little evidence is visible before any number is read: in words, and in colour beside them."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from pages import Page, printed
from rich.console import Console

from reid_dist.reports import Report, render_table

Make = Callable[..., Report]


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
    ("n_valid", "n_query", "n_identities", "level", "words"),
    [
        (100, 100, 15, None, ()),
        (50, 100, 15, None, ()),
        (49, 100, 15, "caution", ("49 of 100 queries (49.0 %)",)),
        (10, 100, 10, "caution", ("10 of 100 queries", "10 identities")),
        (9, 100, 9, "strong", ("9 of 100 queries", "9 identities")),
        (1, 100, 1, "strong", ("only 1 of 100 queries (1.0 %) is valid", "1 identity")),
        (100, 100, 14, "caution", ("14 identities",)),
        (100, 100, 5, "caution", ("5 identities",)),
        (100, 100, 4, "strong", ("4 identities",)),
    ],
)
def test_share_and_identities_decide(make_report: Make, n_valid, n_query, n_identities, level, words) -> None:
    report = made(make_report, n_valid=n_valid, n_query=n_query, n_identities=n_identities)
    page = Page(report.to_html())
    shown = [tag for tag in page.named("p") if str(tag.get("class")).startswith("evidence")]
    (cards,) = (tag for tag in page.named("dl") if str(tag.get("class")).startswith("cards"))
    assert [tag["class"] for tag in shown] == ([] if level is None else [f"evidence {level}"])
    assert cards["class"] == ("cards" if level is None else f"cards {level}")
    first_screen = page.text.partition("Contents")[0]
    word = {None: "", "caution": "Caution", "strong": "Warning"}[level]
    for text in (word, *words):
        assert text in first_screen
    console = words_of(report)
    table = console.index("convention")
    assert all(text in console[:table] for text in (word.upper(), *words))
    if level is None:
        assert not {"CAUTION:", "WARNING:"} & set(console.split())


@pytest.mark.parametrize(("n_valid", "code"), [(90, "36"), (30, "33"), (7, "31")], ids=["cyan", "yellow", "red"])
def test_a_terminal_colours_values_as_it_words_them(make_report: Make, n_valid: int, code: str) -> None:
    report = made(make_report, n_valid=n_valid, n_query=100, n_identities=n_valid)
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, color_system="standard", width=100).print(render_table(report))
    value = f"{100 * report.metrics['mAP']:.2f} %"
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
    assert "evidence" not in [tag.get("class") for tag in Page(report.to_html()).named("p")]
    assert "CAUTION" not in words_of(report)


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


def test_one_pid_beside_lists_is_no_identity(make_report: Make) -> None:
    plain = make_report(n_query=20, n_invalid=0)
    per_query = {**plain.per_query, "pid": np.zeros(20, int)}
    listed = make_report(
        n_query=20,
        n_invalid=0,
        per_query=per_query,
        protocol={"name": "oxford", "ground_truth": {"entries": {"good": 3}}},
    )
    assert "WARNING" not in words_of(listed)
    assert "WARNING: the numbers rest on 1 identity" in words_of(
        make_report(n_query=20, n_invalid=0, per_query=per_query)
    )
