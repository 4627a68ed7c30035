"""Page of a night: headline, sections, and escaping of foreign texts."""

from __future__ import annotations

import dataclasses
import re

import example_nights as nights
import pytest
from support.pages import Page, assert_complete_and_offline, assert_link_stays

from reid_dist.nightly.causes import past_entries
from reid_dist.nightly.delivery import summary_markdown
from reid_dist.nightly.history.history_values import PREPARATION, Code, Estimate, Finding, Outcome, Run, State
from reid_dist.nightly.night_tables import changes_table, lost_tables, metrics_table, nights_table
from reid_dist.nightly.outcomes import Streak, outcome, outcome_counts, ranked, streak
from reid_dist.nightly.page.document import render_nights
from reid_dist.nightly.wording import (
    KINDS,
    SIGNS,
    causes_texts,
    exit_meaning,
    finding_text,
    first_metric,
    headline,
    lasting_text,
    when,
)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return nights.eventful_nights()


@pytest.fixture(scope="module")
def page(runs: list[Run]) -> Page:
    return Page(render_nights(runs))


def body(page: Page) -> str:
    return page.all("body")[0][1]


def lines(page: Page) -> list[str]:
    """The line of every job, in the order of the page."""
    return [text for attributes, text in page.all("summary") if "machine and digests" not in text]


def section(page: Page, name: str) -> str:
    """The text of the section of a job."""
    return next(text for _, text in page.all("div", "body") if text.startswith(name))


def test_the_section_has_all_causes_and_the_head_what_the_night_was() -> None:
    earlier = [nights.run(night, [nights.entry(night=night)]) for night in range(3)]
    today = nights.run(3, [nights.worse_entry(3, baseline=3)], exit_code=4)
    page = Page(render_nights([*earlier, today]))
    about = page.all("dl", "about")[0][1]
    assert f"4: {exit_meaning(4)}" in about
    assert when(today.started) in about
    # The label with the commit, and the version.
    (before,), (after,) = earlier[-1].entries, today.entries
    causes = [text for _, text in causes_texts(before, after, earlier)]
    assert len(causes) == 4
    assert [text for _, text in page.all("li") if text.endswith(tuple(causes))] == [
        f"{KINDS[kind]} {text}" for kind, text in causes_texts(before, after, earlier)
    ]


def test_a_night_that_was_not_compared_says_so_and_for_how_long() -> None:
    earlier = [nights.run(night, [nights.entry(night=night)]) for night in range(2)]
    earlier += [nights.run(night, [nights.uncompared_entry(night, baseline=night)], exit_code=5) for night in (2, 3)]
    today = nights.run(4, [nights.uncompared_entry(4, baseline=4)], exit_code=5)
    page = Page(render_nights([*earlier, today]))
    assert f"5: {exit_meaning(5)}" in page.all("dl", "about")[0][1]
    (entry,) = today.entries
    lasting = streak(entry, reversed(earlier))
    assert lasting == Streak(Outcome.UNCOMPARED, 3, 3)
    values = finding_text(entry.findings[0])
    for text in (headline(today, earlier).sentence, section(page, "resnet50"), summary_markdown(today, earlier)):
        assert values in text.replace("\\", "")
        assert lasting_text(lasting) in text
    assert first_metric(entry, earlier)[2] == "before 85.20%"
    assert metrics_table(entry).column("Change")[0].text == "-"


@pytest.mark.parametrize("verdict", [Outcome.WORSE, "uncompared", "failed", "stale"])
def test_a_night_that_needs_a_look_is_not_quiet(verdict: str) -> None:
    """The console prints both, and the sentence would deny the headline."""
    stale = Finding(gate=PREPARATION, verdict=Outcome.STALE, code=Code.STALE, baseline=0)
    made = {
        Outcome.WORSE: lambda: nights.worse_entry(1, baseline=0),
        "uncompared": lambda: nights.uncompared_entry(1, baseline=0),
        "failed": lambda: nights.undone_entry("failed", "no features", night=1),
        "stale": lambda: nights.with_finding(nights.entry(night=1), stale),
    }
    before = nights.run(0, [nights.entry(night=0)])
    assert headline(nights.run(1, [made[verdict](), nights.entry(job="other", night=1)]), [before]).quiet == ""


def test_every_entry_is_counted_once(runs: list[Run], page: Page) -> None:
    counts = outcome_counts(runs[-1])
    assert counts == {
        "failed": 1, "unprepared": 0, "stale": 0, "alarm": 1, "worse": 2, "uncompared": 1, "skipped": 1,
        "incomparable": 1, "undecided": 0, "accepted": 0, "better": 1, "same": 1,
    }  # fmt: skip
    tally = [text for _, text in page.all("li") if re.fullmatch(r"\S [a-z ]+ \d+", text)]
    assert tally == [f"{SIGNS[name].mark} {SIGNS[name].words} {count}" for name, count in counts.items() if count]


def test_every_colour_has_a_sign_and_a_word(page: Page) -> None:
    words = {sign.words for sign in SIGNS.values()}
    badges = page.all("span", "badge")
    assert len(badges) > 40
    for attributes, text in badges:
        mark, _, word = text.partition(" ")
        (kind,) = set(attributes["class"].split()) - {"badge"}
        assert (mark, word in (SIGNS[kind].words, "not compared", "no baseline yet")) == (SIGNS[kind].mark, True)
    cells = [each for each in page.all("abbr", "cell") if each[1]]
    assert len(cells) > 80
    assert len({(attributes["title"], text) for attributes, text in cells}) == len({text for _, text in cells})
    legend = " ".join(text for attributes, text in page.all("ul", "legend"))
    assert all(word in legend for word in words)


def test_there_is_one_line_a_job_the_most_urgent_first(runs: list[Run], page: Page) -> None:
    today, found = runs[-1], lines(page)
    assert len(found) == len(today.entries)
    for line, entry in zip(found, ranked(today), strict=True):
        sign, values = SIGNS[outcome(entry)], first_metric(entry, runs[:-1])
        assert line == " ".join(f"{sign.mark} {sign.words} {entry.name} {' '.join(values)}".split())
    # Reasons are in the details, which are closed.
    assert not any("open" in attributes for attributes in page.named("details"))
    for entry in today.entries:
        assert not entry.reason or entry.reason in section(page, entry.name)
    assert len(page.all("svg")) > len(found)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("verdict", [Outcome.WORSE, Outcome.BETTER, Outcome.SAME, Outcome.UNDECIDED])
def test_a_trend_is_told_apart_from_the_change_of_a_night(verdict: str) -> None:
    entry = nights.falling_entry(14, since=1)
    trend = entry.findings[1]
    changes = tuple(dataclasses.replace(change, verdict=verdict) for change in trend.changes)
    trend = dataclasses.replace(trend, verdict=verdict, changes=changes)
    entry = dataclasses.replace(entry, findings=(entry.findings[0], trend, *entry.findings[2:]))
    runs = [nights.run(night, [nights.entry(night=night)]) for night in range(14)]
    page = Page(render_nights([*runs, nights.run(14, [entry])]))
    assert "4.10 points" in section(page, "resnet50/market1501/plain")
    # The headline has it while it is news, with tonight's value and without what changed since the last night.
    (sentence,) = [text for _, text in page.all("p", "sentence")]
    assert ("4.10 points" in sentence) == (verdict in (Outcome.WORSE, Outcome.BETTER))
    assert ("85.20%" in sentence) == (verdict in (Outcome.WORSE, Outcome.BETTER))
    assert "changed" not in sentence.replace("Features changed.", "")
    # The ends of the fitted line are no values of nights.
    assert "81.10%" not in body(page)


def test_the_queries_that_lost_most_lead_to_the_explorer_of_their_job() -> None:
    explorer = "runs/00002/resnet50/market1501/plain/explorer"
    entry = nights.worse_entry(1, baseline=1, explorer=explorer)
    (table,) = lost_tables(entry)
    (change,) = (change for change in entry.findings[0].changes if change.lost)
    files = [file or f"row {moved.row}" for moved, file in zip(change.lost, change.files, strict=True)]
    assert files[3] == "row 93", "a query without a file"
    assert [cell.text for cell in table.column("Query")] == files
    assert [cell.text for cell in table.column("camera")][4] == "-", "a query without a camera"
    assert {cell.text for cell in table.column("Change")} == {"\N{MINUS SIGN}88.00 points"}
    (without,) = lost_tables(dataclasses.replace(entry, explorer=""))
    assert not any(cell.link for cell in without.column("Query"))
    links = [cell.link for cell in table.column("Query")]
    assert links == [f"./{explorer}/index.html#q={moved.row}" for moved in change.lost]
    page = Page(render_nights([nights.run(0, [nights.entry()]), nights.run(1, [entry])]))
    assert set(links) <= {attributes["href"] for attributes in page.named("a")}


def test_time_has_one_direction(runs: list[Run], page: Page) -> None:
    """From left to right, and from top to bottom."""
    numbers = [int(text.rpartition("run ")[2]) for _, text in page.all("th") if "run " in text]
    assert numbers == [run.number for run in runs[-14:]]
    past = past_entries("resnet50/market1501/reranked", runs)
    for table in (nights_table(past, ["mAP"]), changes_table(past)):
        rows = [int(cell.text) for cell in table.column("Run")]
        assert rows == sorted(rows)
    assert [cell.text for cell in changes_table(past).column("Run")] == ["13", "17"]
    assert [cell.text for cell in changes_table(past).column("Mark")] == [f"J {KINDS['job']}", f"V {KINDS['version']}"]
    failed = nights_table(past_entries("vit_b/msmt17/plain", runs), ["mAP"])
    assert [cells[-1].text for cells in (failed.column("Report"), failed.column("mAP"), failed.column("Time"))] == [
        "", "-", "-"
    ]  # fmt: skip
    assert "chunk 17" in failed.column("Outcome")[-1].text


def test_long_tables_have_the_last_rows_and_the_number_of_the_others() -> None:
    runs = [nights.run(night, [nights.entry(night=night, features=f"{night}")]) for night in range(40)]
    past = past_entries("resnet50/market1501/plain", runs)
    changes, table = changes_table(past), nights_table(past, [])
    for found, n in ((changes, 20), (table, 30)):
        assert [int(cell.text) for cell in found.column("Run")] == [*range(41 - n, 41)]
    assert [note.text for found in (changes, table) for note in found.notes] == [
        "19 older changes are left out.", "10 older nights are in the history."
    ]  # fmt: skip


def links_of(page: Page) -> set[str]:
    """Addresses of all links but those of files that the page holds itself."""
    for attributes in page.named("a"):
        if "download" in attributes:
            assert_link_stays(attributes)
    return {str(attributes["href"]) for attributes in page.named("a") if "download" not in attributes}


def test_reports_are_linked_relative_to_the_page(runs: list[Run], page: Page) -> None:
    links = links_of(page)
    assert "./runs/00024/resnet50/market1501/plain/report.html" in links
    assert "./runs/00023/resnet50/market1501/plain/report.html" in links, "an earlier night"
    outside = {link for link in links if not link.startswith("#")}
    assert all(re.fullmatch(r"\./runs/\d{5}/[\w./]+/report\.html", link) for link in outside)
    assert not any("00024/vit_b/msmt17" in link for link in outside), "a failed job has no report"
    inside = {link[1:] for link in links if link.startswith("#")}
    assert inside <= {attributes.get("id") for _, attributes in page.tags}


@pytest.mark.parametrize(
    ("folder", "link"),
    [
        *((folder, "") for folder in ("", "/srv/elsewhere", "//evil.example/x")),
        ("javascript:alert(1)", "./javascript%3Aalert%281%29/report.html"),
        ('a" onclick="x', "./a%22%20onclick%3D%22x/report.html"),
        ("a?b#c", "./a%3Fb%23c/report.html"),
    ],
)
def test_names_of_folders_are_quoted_in_links_and_missing_and_absolute_ones_have_none(folder: str, link: str) -> None:
    page = Page(render_nights([nights.run(0, [nights.entry(folder=folder)])]))
    assert [each for each in links_of(page) if not each.startswith("#")] == [link] * bool(link)


def test_foreign_texts_are_escaped() -> None:
    evil = "</style></title><script>alert('x')</script><img src=x onerror=alert(1)>{{ 7 * 7 }} & | `"
    text = render_nights(nights.nights_full_of(evil))
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "img", "iframe", "object", "link", "base", "form"}
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert "49" not in page.all("h3")[0][1]
    assert evil in body(page), "and is shown as text"
    assert body(page).count("alert('x')") > 20


def test_removed_jobs_are_listed() -> None:
    before, tonight = nights.quiet_nights(2, 2)
    kept, gone = (entry.name for entry in tonight.entries)
    before = dataclasses.replace(before, planned=(kept, gone, "<b>/set/plain"))
    tonight = dataclasses.replace(tonight, entries=tonight.entries[:1], planned=(kept,))
    page = Page(render_nights([before, tonight]))
    (sheet,) = page.all("div", "skips")
    assert sheet[1] == f"No longer in the suite {gone} last in run 1 <b>/set/plain last in run 1"
    assert page.all("h1")[0][1] == "= The only job is the same as before"
    changed = Page(render_nights([before, dataclasses.replace(tonight, planned=before.planned)]))
    assert "No longer in the suite" not in body(changed)


def test_the_page_is_complete_and_offline(runs: list[Run]) -> None:
    """Links to reports, which lead away, are tested above."""
    assert_complete_and_offline(re.sub(r'href="\./[^"]*"', 'href="#today"', render_nights(runs)))


@pytest.mark.parametrize(
    "runs",
    [
        [nights.run(0, [nights.entry(gated=False)])],
        [nights.run(0, [nights.undone_entry(State.FAILED, "", night=0)], exit_code=3)],
        [nights.run(0, [nights.entry(metrics={}, seconds=1e-4, peak_bytes=0)])],
        [nights.run(0, [nights.entry(metrics={"mAP": Estimate(None)}, timing={})])],
        [nights.run(0, [nights.entry()]), nights.run(1, [nights.entry(model="other", night=1)])],
        [nights.run(night, [nights.entry(metrics={"mAP": Estimate(0.0, 0.0, 0.0)})]) for night in range(2)],
        [nights.run(0, [nights.entry(metrics={"threshold@FAR=0.1": Estimate(1.5, 1.4, 1.6)}, labels={})])],
    ],
    ids=["no gates", "failed", "no metrics", "undefined", "another job", "all zero", "a threshold"],
)
def test_small_histories_have_a_page(runs: list[Run]) -> None:
    page = Page(render_nights(runs))
    assert "nan" not in body(page).split()
    assert len(page.all("details", "job")) == len(runs[-1].entries)


def test_runs_of_one_day_have_distinct_tick_labels() -> None:
    runs = [nights.run(0, [nights.entry()], number=number) for number in (7, 8, 9)]
    shown = Page(render_nights(runs)).all("text")
    assert [text for _, text in shown if text.startswith("#")][:3] == ["#7", "#8", "#9"]


def test_the_trend_of_a_job_shows_its_own_nights(page: Page) -> None:
    labels = [attributes["aria-label"] for attributes, _ in page.all("svg")]
    assert any(label.startswith("mAP over 24 nights: 84.80% in run 1, Jan 5, 83.37% in run 24") for label in labels)
    assert any(label.startswith("mAP over 1 night: 85.20% in run 24") for label in labels), "a job of tonight alone"
    assert any(label.startswith("Peak memory over 24 nights") for label in labels)


def test_the_first_metric_is_a_gated_one_with_its_change_and_the_time_of_a_slow_job() -> None:
    entry, slow = nights.entry(), nights.slow_entry(1)
    change = nights.same_change("CMC@1", entry.metrics)
    entry = dataclasses.replace(entry, findings=(nights.finding("accuracy", baseline=1, changes=(change,)),))
    assert first_metric(entry, []) == ("CMC@1", "94.10%", "+0.00 points")
    _, value, changes = first_metric(slow, [])
    assert value == "85.20%"
    assert re.fullmatch(r"\+0\.00 points, time \N{MULTIPLICATION SIGN}.\d\.\d\d", changes)
    assert first_metric(nights.undone_entry("failed", "", night=1), [nights.run(0, [slow])]) == ("mAP", "-", "")
