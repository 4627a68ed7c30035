"""Where a report comes from: name, date, command, version and digest, on page and console and in the document."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from support.pages import Page, printed, section, tables

from reid_dist import Report
from reid_dist.core.credentials import command_line
from reid_dist.errors import InputError
from reid_dist.metrics.metric import METRICS
from reid_dist.reports import described_run

COMMAND = "reid-dist evaluate q.zarr g.zarr --name 'ten <epochs>'"


@pytest.fixture
def named(report: Report) -> Report:
    run = described_run("ten <epochs>", description="a first\ntry", command=COMMAND)
    return dataclasses.replace(report, run=run)


def test_page_and_console_show_the_origin_of_the_numbers(named: Report) -> None:
    page, console = Page(named.to_html()), printed(named).splitlines()
    first_screen = page.text.partition("Contents")[0]
    for text in (
        "ten <epochs>",
        "a first try",
        COMMAND,
        named.run["date"],
        "reid-dist 0.1.0",
        named.result_digest[:16],
    ):
        assert text in first_screen
        assert text in " ".join(" ".join(console).split())
    assert console[0] == "ten <epochs>"
    assert console[1] == "market1501 \N{MIDDLE DOT} cosine \N{MIDDLE DOT} k_reciprocal"
    # The title of the browser's tab has the name as well.
    assert "ten &lt;epochs&gt; (reid-dist)</title>" in named.to_html()


def test_the_origin_is_kept_and_is_no_part_of_the_digest(named: Report, report: Report, tmp_path: Path) -> None:
    assert named.result_digest == report.result_digest
    assert Report.load(named.save(tmp_path / "named")).run == named.run
    # Without a name, the stages are the title, in the tab and as the heading, and not once more below it.
    title = "market1501 \N{MIDDLE DOT} cosine \N{MIDDLE DOT} k_reciprocal"
    assert printed(report).splitlines()[0] == title
    assert Page(report.to_html()).text.count(title) == 2


def test_an_origin_of_another_kind_is_refused(make_report: Callable[..., Report]) -> None:
    with pytest.raises(InputError, match="run: name must be a text, found 3"):
        make_report(n_query=5, n_invalid=0, run={"name": 3})


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("s3://key:secret@host/set.zarr", "s3://…@host/set.zarr"),
        ("s3://key:sec'r\"e t@host/set.zarr", "s3://…@host/set.zarr"),
        ("query=s3://key:se/cret@host/a@b.zarr", "query=s3://…@host/a@b.zarr"),
        ("s3://bucket/a@b.zarr", "s3://bucket/a@b.zarr"),
        ("two words", "'two words'"),
        ("\x1b[31mred", "'?[31mred'"),
        ("not-utf8-\udcff", "'not-utf8-?'"),
    ],
)
def test_a_command_holds_no_password_and_no_control_codes(word: str, shown: str) -> None:
    assert command_line(["reid-dist", word]).replace("'", "") == f"reid-dist {shown}".replace("'", "")


def test_contents_lead_to_every_section(full_report: Report) -> None:
    text = full_report.to_html()
    page = Page(text)
    listed = text.split("<nav")[1].split("</nav>")[0]
    leads = [str(link["href"]).removeprefix("#") for link in Page(listed.partition(">")[2]).named("a")]
    assert leads == [str(tag["id"]) for tag in page.named("h2") if tag["id"] != "contents"]
    assert {"metrics", "curves", "breakdowns", "pictures", "conventions", "digest"} <= set(leads)
    assert len(leads) == len(set(leads))


def test_a_convention_is_printed_once_for_a_family(report: Report) -> None:
    words = METRICS.get("CMC@k").summary
    (table,) = tables(section(report.to_html(), "metrics"))
    conventions = {row[0]: row[-1] for row in table}
    assert conventions["CMC@1"] == words
    assert conventions["CMC@5"] == conventions["CMC@10"] == "as CMC@1"
    assert " ".join(printed(report).split()).count("as CMC@1") == 2


def test_a_chain_of_expansions_is_written_as_its_spec(report: Report) -> None:
    chain = {"name": "dba(k=5)+aqe(k=3)", "definition": "…", "source": "…"}
    chained = dataclasses.replace(report, expand=chain)
    for text in (Page(chained.to_html()).text, printed(chained)):
        assert "dba(k=5)+aqe(k=3)" in text
        assert "()" not in text
