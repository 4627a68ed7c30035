"""Page of a night: headline, sections, and escaping of foreign texts."""

from __future__ import annotations

import dataclasses
import itertools
import re

import example_nights as nights
import pytest
import scipy.special
from pages import Page, assert_link_stays

from reid_dist.errors import InputError
from reid_dist.nightly.delivery import summary_markdown
from reid_dist.nightly.gating.gate_settings import RatioGate
from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.history.history_values import (
    BETTER,
    FAILED,
    INCOMPARABLE,
    PREPARATION,
    SAME,
    SKIPPED,
    STALE,
    UNDECIDED,
    WORSE,
    Code,
    Entry,
    Estimate,
    Finding,
    Run,
)
from reid_dist.nightly.outcomes import counted, outcome
from reid_dist.nightly.page import render_nights
from reid_dist.nightly.wording import SIGNS, detectable, exit_meaning, headline, reasons


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return nights.eventful_nights()


@pytest.fixture(scope="module")
def page(runs: list[Run]) -> Page:
    return Page(render_nights(runs, suite="nightly"))


def table_rows(page: Page, css: str) -> list[str]:
    """Texts of the rows of the first table of a class."""
    span = next(
        span
        for (tag, attributes), span in zip(page.tags, page.spans, strict=True)
        if tag == "table" and css in str(attributes.get("class")).split()
    )
    return [text for _, text in page.all("tr", within=span)]


def body(page: Page) -> str:
    return page.all("body")[0][1]


def lines(page: Page) -> list[str]:
    """The line of every job, in the order of the page."""
    return [text for attributes, text in page.all("summary") if "digests of tonight" not in text]


def section(page: Page, name: str) -> str:
    """The text of the section of a job."""
    return next(text for _, text in page.all("div", "body") if text.startswith(name))


def test_the_headline_has_the_change_its_significance_and_possible_causes() -> None:
    earlier = [nights.run(night, [nights.entry(night=night)]) for night in range(3)]
    today = nights.run(3, [nights.worse_entry(3, baseline=3)], exit_code=4)
    first = headline(today, earlier)
    assert (first.kind, first.title) == (WORSE, "The one job is worse")
    sentence = first.sentence.replace("\N{MINUS SIGN}", "-")
    assert sentence.startswith("resnet50/market1501/plain is worse, beyond chance: mAP 85.20 %")
    assert "-1.83 points [-2.41, -1.20]" in sentence
    assert "since run 3 changed: features, commit 3f2a9c1" in sentence
    page = Page(render_nights([*earlier, today], suite="nightly"))
    about = page.all("dl", "about")[0][1]
    assert f"4: {exit_meaning(4)}" in about
    assert "2026-01-08 02:00 UTC" in about
    # The section lists all causes: the label with the commit, and the version.
    text = section(page, "resnet50/market1501/plain")
    assert "content of query" in text
    assert "commit 3f2a9c1 \N{RIGHTWARDS ARROW} 77d01be" in text
    assert "numpy 2.3.1 \N{RIGHTWARDS ARROW} 2.4.0" in text


def test_a_worse_night_without_a_recorded_cause() -> None:
    before, after = (nights.run(night, [nights.entry(night=0)]) for night in range(2))
    slow = dataclasses.replace(after, entries=(nights.slow_entry(0),))
    (clause,) = headline(slow, [before]).clauses
    assert "beyond the noise of earlier nights" in clause[1]
    assert "nothing that is recorded changed" in clause[1]


def test_a_night_that_was_not_compared_says_so_with_both_values() -> None:
    earlier = [nights.run(night, [nights.entry(night=night)]) for night in range(2)]
    sizes = [15990, 16100, 16240]
    earlier += [
        nights.run(night, [nights.uncompared_entry(night, baseline=night, n_gallery=size)], exit_code=5)
        for night, size in enumerate(sizes, start=2)
    ]
    *earlier, today = earlier
    first = headline(today, earlier)
    assert first.kind == "uncompared"
    page = Page(render_nights([*earlier, today], suite="nightly"))
    assert f"5: {exit_meaning(5)}" in page.all("dl", "about")[0][1]
    values = "mAP 85.20 % \N{RIGHTWARDS ARROW} 5.12 %; the conditions changed since run 4: n_gallery 15913, then 16240"
    for text in (first.sentence, section(page, "resnet50"), summary_markdown(today, None, earlier).replace("\\", "")):
        assert values in text
        assert "or 3 nights in a row, since run 3" in text
    assert lines(page)[0].endswith("mAP 5.12 % before 85.20 %")
    assert "mAP 85.20 % 5.12 % [4.02, 6.22] - ? no baseline yet -" in table_rows(page, "values")
    assert "No gate found a change" not in body(page)


@pytest.mark.parametrize("verdict", [WORSE, "uncompared", "failed", "stale"])
def test_a_night_that_needs_a_look_is_not_quiet(verdict: str) -> None:
    """The console prints both, and the sentence would deny the headline."""
    stale = Finding(gate=PREPARATION, verdict=STALE, code=Code.STALE, baseline=0)
    made = {
        WORSE: lambda: nights.worse_entry(1, baseline=0),
        "uncompared": lambda: nights.uncompared_entry(1, baseline=0),
        "failed": lambda: nights.undone_entry("failed", "no features", night=1),
        "stale": lambda: nights.with_finding(nights.entry(night=1), stale),
    }
    before = nights.run(0, [nights.entry(night=0)])
    assert headline(nights.run(1, [made[verdict](), nights.entry(job="other", night=1)]), [before]).quiet == ""


def test_a_quiet_night_is_one_quiet_sentence() -> None:
    first = headline(nights.quiet_nights(2, 3)[-1])
    assert (first.kind, first.title, first.clauses) == ("same", "All 3 jobs are the same as before", ())
    page = Page(render_nights(nights.quiet_nights(2, 3), suite="nightly"))
    assert "No gate found a change." in body(page)
    assert lines(page)[0] == "= same model00/market1501/plain mAP 85.20 % +0.00 points"


def test_an_everyday_night_says_what_could_have_been_detected() -> None:
    runs = [nights.run(night, [nights.undecided_entry(night, baseline=night)]) for night in range(5)]
    entry = runs[-1].entries[0]
    (moved,) = entry.findings[0].changes
    # Half of the interval is the quantile of its level in standard errors; a power of 80 % takes 0.8416 more.
    error = (moved.high - moved.low) / 2 / scipy.special.ndtri((1 + moved.level) / 2)
    expected = error * (scipy.special.ndtri((1 + moved.level) / 2) + scipy.special.ndtri(0.8))
    assert detectable(moved, 0.005) == pytest.approx(expected, rel=1e-9)
    assert detectable(moved, 0.9) == 0.9
    first = headline(runs[-1], runs[:-1])
    assert (first.kind, first.title, first.clauses) == (UNDECIDED, "No change detected", ())
    assert first.sentence.startswith("Features changed (as every night). Of mAP, a change of ")
    assert f"{100 * expected:.2f} points" in first.sentence
    assert headline(runs[-1], runs[2:-1]).sentence.startswith("Features changed. ")
    (line,) = lines(Page(render_nights(runs, suite="nightly")))
    assert line.startswith("\N{PLUS-MINUS SIGN} no change detected resnet50")


def test_the_first_night_has_no_baseline() -> None:
    run = nights.run(0, [nights.new_entry(0), nights.new_entry(0, model="vit")])
    assert headline(run).title == "First night: no baseline yet"
    later = dataclasses.replace(run, number=2)
    assert headline(later, [nights.run(0, [nights.entry()])]).title == "Both jobs have no baseline yet"


@pytest.mark.parametrize(
    ("entries", "title"),
    [
        ([], "No job was run"),
        ([nights.entry()], "The one job is the same as before"),
        ([nights.entry(), nights.slow_entry(1), nights.slow_entry(1)], "2 of 3 jobs are worse"),
        ([nights.entry(), nights.alarm_entry(1, baseline=1)], "1 of 2 jobs moved without a cause"),
        ([nights.entry(), nights.better_entry(1, baseline=1)], "1 of 2 jobs is better"),
        (
            [nights.new_entry(0), nights.uncompared_entry(0, baseline=1)],
            "1 of 2 jobs was not compared with its baseline",
        ),
        (
            [nights.entry(), nights.slow_entry(1), nights.undone_entry(FAILED, "x", night=1)],
            "Of 3 jobs, 1 failed and 1 is worse",
        ),
    ],
)
def test_the_title_counts_changes(entries: list[Entry], title: str) -> None:
    assert headline(nights.run(1, entries)).title == title


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (nights.entry(), "same"),
        (nights.worse_entry(1, baseline=1), "worse"),
        (nights.slow_entry(1), "worse"),
        (nights.alarm_entry(1, baseline=1), "alarm"),
        (nights.better_entry(1, baseline=1), "better"),
        (nights.new_entry(1), "incomparable"),
        (nights.uncompared_entry(1, baseline=1), "uncompared"),
        (dataclasses.replace(nights.uncompared_entry(1, baseline=1), accepted="a larger gallery"), "incomparable"),
        # What has no baseline of time or memory yet has one of accuracy.
        (nights.with_finding(nights.entry(), nights.finding("memory", INCOMPARABLE, baseline=1)), "same"),
        (nights.entry(gated=False), "incomparable"),
        (nights.undone_entry(FAILED, "x", night=0), "failed"),
        (nights.undone_entry(SKIPPED, "x", night=0), "skipped"),
        (dataclasses.replace(nights.worse_entry(1, baseline=1), accepted="new backbone"), "accepted"),
        # A time that nothing is known of yet does not hide that the result is the same.
        (
            dataclasses.replace(
                nights.entry(), findings=(nights.entry().findings[0], nights.finding("speed", INCOMPARABLE))
            ),
            "same",
        ),
    ],
)
def test_outcomes_of_entries(entry: Entry, expected: str) -> None:
    assert outcome(entry) == expected


def test_every_entry_is_counted_once(runs: list[Run], page: Page) -> None:
    counts = counted(runs[-1])
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
    found = lines(page)
    assert len(found) == len(runs[-1].entries)
    assert [line.partition("/")[0].split()[-1] for line in found[:6]] == [
        "vit_b", "resnet50", "resnet50", "resnet50", "osnet", "vit_b"
    ]  # fmt: skip
    assert found[0] == "\N{BALLOT X} failed vit_b/msmt17/plain mAP -"
    assert found[2].endswith("resnet50/market1501/plain mAP 83.37 % \N{MINUS SIGN}1.83 points")
    assert re.search(r"mAP 85\.20 % \+0\.00 points, time \N{MULTIPLICATION SIGN} \d\.\d\d$", found[3]), "a slow job"
    # Reasons are in the details, which are closed.
    assert not any("open" in attributes for attributes in page.named("details"))
    assert "array features, chunk 17: checksum differs" in section(page, "vit_b/msmt17/plain")
    assert "the time budget of 2 h was spent" in section(page, "vit_b/market1501/reranked")
    assert len(page.all("svg")) > len(found)


def test_an_alarm_is_of_its_own_kind(page: Page) -> None:
    alarm = section(page, "resnet50/msmt17/plain")
    words = SIGNS["alarm"].words
    assert alarm.count(f"{words} Accuracy") == 1
    assert "Nothing that is recorded changed since run 23" in alarm
    assert words not in section(page, "resnet50/market1501/plain")


def test_a_job_that_is_undecided_is_neither_the_same_nor_a_regression() -> None:
    runs = [nights.run(0, [nights.entry()]), nights.run(1, [nights.undecided_entry(1, baseline=1)])]
    page = Page(render_nights(runs, suite="nightly"))
    assert page.all("h1")[0][1] == "\N{PLUS-MINUS SIGN} No change detected"
    text = section(page, "resnet50/market1501/plain")
    assert "mAP fell by 14.85 points" in text
    assert "would have been detected in four of five nights" in text


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("verdict", [WORSE, BETTER, SAME, UNDECIDED])
def test_a_trend_is_told_apart_from_the_change_of_a_night(verdict: str) -> None:
    entry = nights.falling_entry(14, since=1)
    trend = entry.findings[1]
    changes = tuple(dataclasses.replace(change, verdict=verdict) for change in trend.changes)
    trend = dataclasses.replace(trend, verdict=verdict, changes=changes)
    entry = dataclasses.replace(entry, findings=(entry.findings[0], trend, *entry.findings[2:]))
    runs = [nights.run(night, [nights.entry(night=night)]) for night in range(14)]
    page = Page(render_nights([*runs, nights.run(14, [entry])], suite="nightly"))
    assert "4.10 points" in section(page, "resnet50/market1501/plain")
    # The headline has it while it is news, with tonight's value and without what changed since the last night.
    (sentence,) = [text for _, text in page.all("p", "sentence")]
    assert ("4.10 points" in sentence) == (verdict in (WORSE, BETTER))
    assert ("85.20 %" in sentence) == (verdict in (WORSE, BETTER))
    assert "changed" not in sentence.replace("Features changed.", "")
    # The ends of the fitted line are no values of nights.
    assert "81.10 %" not in body(page)


def test_the_queries_that_lost_most_are_listed(page: Page) -> None:
    rows = [text for _, text in page.all("tr")]
    assert "0001_c1.jpg 101 1 90.00 % 2.00 % \N{MINUS SIGN}88.00 points" in rows
    assert "0004_c4.jpg 104 - 90.00 % 2.00 % \N{MINUS SIGN}88.00 points" in rows, "a query without a camera"
    assert "row 93 103 3 90.00 % 2.00 % \N{MINUS SIGN}88.00 points" in rows, "a query without a file"


def test_queries_lead_to_the_explorer_of_their_job() -> None:
    entry = nights.worse_entry(1, baseline=1, explorer="runs/00002/resnet50/market1501/plain/explorer")
    page = Page(render_nights([nights.run(0, [nights.entry()]), nights.run(1, [entry])], suite="nightly"))
    links = {text: attributes["href"] for attributes, text in page.all("a")}
    assert links["0001_c1.jpg"] == "./runs/00002/resnet50/market1501/plain/explorer/index.html#q=31"
    assert links["row 93"].endswith("#q=93")


def test_time_has_one_direction(runs: list[Run], page: Page) -> None:
    """From left to right, and from top to bottom."""
    head = [text for _, text in page.all("th") if "run " in text]
    numbers = [int(text.rpartition("run ")[2]) for text in head if text.rpartition("run ")[2].isdigit()]
    assert numbers == sorted(numbers)
    assert numbers[-1] == runs[-1].number
    for css in ("nights", "changed"):
        rows = [int(row.split()[0]) for row in table_rows(page, css)[1:]]
        assert rows == sorted(rows)


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


@pytest.mark.parametrize("folder", ["", "/srv/elsewhere", "//evil.example/x"])
def test_missing_and_absolute_folders_have_no_link(folder: str) -> None:
    page = Page(render_nights([nights.run(0, [nights.entry(folder=folder)])], suite="nightly"))
    assert not [link for link in links_of(page) if not link.startswith("#")]


@pytest.mark.parametrize("folder", ["javascript:alert(1)", "https://evil.example", 'a" onclick="x', "a?b#c"])
def test_names_of_folders_are_quoted_in_links(folder: str) -> None:
    page = Page(render_nights([nights.run(0, [nights.entry(folder=folder)])], suite="nightly"))
    (link,) = (link for link in links_of(page) if not link.startswith("#"))
    assert link.startswith("./")
    assert not set(link) & set('?#":<>')
    assert all("onclick" not in attributes for _, attributes in page.tags)


def test_foreign_texts_are_escaped() -> None:
    evil = "</style></title><script>alert('x')</script><img src=x onerror=alert(1)>{{ 7 * 7 }} & | `"
    text = render_nights(nights.nights_full_of(evil), suite=evil)
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
    page = Page(render_nights([before, tonight], suite="nightly"))
    (sheet,) = page.all("div", "skips")
    assert sheet[1] == f"No longer in the suite {gone} last in run 1 <b>/set/plain last in run 1"
    assert page.all("h1")[0][1] == "= The one job is the same as before"
    changed = Page(render_nights([before, dataclasses.replace(tonight, planned=before.planned)], suite="nightly"))
    assert "No longer in the suite" not in body(changed)


def test_the_page_needs_no_network_and_no_script(runs: list[Run], page: Page) -> None:
    text = render_nights(runs, suite="nightly")
    policy = next(each["content"] for each, _ in page.all("meta") if "http-equiv" in each)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert not any(name in attributes for _, attributes in page.tags for name in ("src", "srcset", "data"))
    links_of(page)
    assert "http" not in re.sub(r'href="data:[^"]*"', "", text).replace("http-equiv", "")
    assert "url(" not in text
    assert "@import" not in text


def test_the_outline_is_sound(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    labelled = [attributes["aria-labelledby"] for _, attributes in page.tags if "aria-labelledby" in attributes]
    assert labelled
    assert set(labelled) <= set(ids)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels)), "no level is left out"
    assert all(each.get("scope") in ("col", "row") for each, _ in page.all("th"))
    for attributes, _ in page.all("svg"):
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 20
    assert all(each.get("tabindex") == "0" and each.get("aria-label") for each, _ in page.all("div", "scroll"))


def test_the_same_runs_give_the_same_bytes(runs: list[Run]) -> None:
    assert render_nights(runs, suite="nightly") == render_nights(nights.eventful_nights(), suite="nightly")


def test_an_empty_history_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"^no page of suite nightly: its history has no run yet; run .+ first$"):
        render_nights([], suite="nightly")


@pytest.mark.parametrize(
    "runs",
    [
        [nights.run(0, [])],
        [nights.run(0, [nights.entry(gated=False)], exit_code=None, finished=None)],
        [nights.run(0, [nights.undone_entry(FAILED, "", night=0)], exit_code=3)],
        [nights.run(0, [nights.entry(metrics={}, seconds=1e-4, peak_bytes=0)])],
        [nights.run(0, [nights.entry(metrics={"mAP": Estimate(None)}, timing={})])],
        [nights.run(0, [nights.entry()]), nights.run(1, [nights.entry(model="other", night=1)])],
        [nights.run(night, [nights.entry(metrics={"mAP": Estimate(0.0, 0.0, 0.0)})]) for night in range(2)],
        [nights.run(0, [nights.entry(metrics={"threshold@FAR=0.1": Estimate(1.5, 1.4, 1.6)}, labels={})])],
    ],
    ids=["no jobs", "killed", "failed", "no metrics", "undefined", "another job", "all zero", "a threshold"],
)
def test_small_histories_have_a_page(runs: list[Run]) -> None:
    page = Page(render_nights(runs, suite="nightly"))
    assert "nan" not in body(page).split()
    assert len(page.all("details", "job")) == len(runs[-1].entries)


def test_an_accepted_entry_is_marked_and_is_no_regression() -> None:
    accepted = dataclasses.replace(nights.worse_entry(1, baseline=1), accepted="smaller backbone on purpose")
    page = Page(render_nights([nights.run(0, [nights.entry()]), nights.run(1, [accepted])], suite="nightly"))
    assert "smaller backbone on purpose" in section(page, "resnet50")
    assert page.all("h1")[0][1].endswith("The one job is worse, and was accepted")


def test_a_killed_night_is_marked(runs: list[Run]) -> None:
    killed = dataclasses.replace(runs[-1], exit_code=None, finished=None)
    about = Page(render_nights([*runs[:-1], killed], suite="nightly")).all("dl", "about")[0][1]
    assert "none: the run did not end" in about
    assert "has not ended" in about


@pytest.mark.slow
def test_many_nights_of_many_jobs_are_a_sensible_page() -> None:
    runs = nights.quiet_nights(60, 30)
    news = nights.run(20, [nights.slow_entry(20, model="model07")], exit_code=4)
    runs[20] = dataclasses.replace(news, entries=(*news.entries, *runs[20].entries[8:]))
    text = render_nights(runs, suite="nightly")
    assert len(text.encode()) < 3_500_000
    page = Page(text)
    assert len(page.all("details", "job")) == 30
    # Seven jobs were not part of one night.
    assert [body(page).count(f"{n} older nights are in the history.") for n in (29, 30)] == [7, 23]
    tables = [link for link in links_of(page) if "model07" in link]
    nights_of = {int(link.split("/")[2]) for link in tables}
    assert nights_of == set(range(31, 61)), "the last nights"


def test_a_chart_with_fewer_nights_than_the_history_has_a_note() -> None:
    text = body(Page(render_nights(nights.quiet_nights(95, 1), suite="nightly")))
    assert "Charts show the last 90 of 95 nights." in text


def test_runs_of_one_day_have_distinct_tick_labels() -> None:
    runs = [nights.run(0, [nights.entry()], number=number) for number in (7, 8, 9)]
    shown = Page(render_nights(runs, suite="nightly")).all("text")
    assert [text for _, text in shown if text.startswith("#")][:3] == ["#7", "#8", "#9"]


def test_the_trend_of_a_job_shows_its_own_nights(page: Page) -> None:
    labels = [attributes["aria-label"] for attributes, _ in page.all("svg")]
    assert any(label.startswith("mAP over 24 nights: 84.80 % in run 1, Jan 5, 83.37 % in run 24") for label in labels)
    assert any(label.startswith("mAP over 1 night: 85.20 % in run 24") for label in labels), "a job of tonight alone"
    assert any(label.startswith("Peak memory over 24 nights") for label in labels)
    changed = table_rows(page, "changed")
    assert changed[0] == "Run Night Mark What"
    assert any("V version or commit reid_dist 0.1.0 \N{RIGHTWARDS ARROW} 0.2.0" in row for row in changed)


def early_entry(n_before: int) -> Entry:
    entry = nights.entry(night=n_before)
    past = [nights.entry(night=night) for night in range(n_before)]
    waiting = [gate(entry, past, RatioGate()) for gate in (gate_speed, gate_memory)]
    return dataclasses.replace(entry, findings=(*entry.findings[:2], *waiting))


def test_gates_that_need_more_runs_are_abbreviated() -> None:
    runs = [nights.run(night, [early_entry(night)]) for night in range(3)]
    page = render_nights(runs, suite="nightly")
    text = section(Page(page), "resnet50/market1501/plain")
    assert text.count("? needs 5 more nights ") == 2
    assert "The one job is the same as before" in page
    assert "of 7" not in summary_markdown(runs[-1])


def of(*findings: Finding) -> Entry:
    return dataclasses.replace(nights.entry(), findings=findings)


@pytest.mark.parametrize(
    ("entry", "word", "gates"),
    [
        (of(nights.entry().findings[2], nights.finding("memory", INCOMPARABLE, Code.NO_BASELINE)), SAME, ["Speed"]),
        (of(*nights.slow_entry(0).findings[2:3]), "worse", ["Speed"]),
        (of(nights.finding("speed", INCOMPARABLE, Code.NO_BASELINE)), INCOMPARABLE, ["Speed"]),
        (of(), INCOMPARABLE, [""]),
    ],
)
def test_without_a_gate_of_accuracy_the_other_gates_decide(entry: Entry, word: str, gates: list[str]) -> None:
    assert outcome(entry) == word
    assert [gate for gate, _ in reasons(entry)][:1] == gates
    assert all(reason for _, reason in reasons(entry))


def test_gated_metrics_are_shown_first() -> None:
    entry = nights.entry()
    change = nights.same_change("CMC@1", entry.metrics)
    entry = dataclasses.replace(entry, findings=(nights.finding("accuracy", baseline=1, changes=(change,)),))
    (line,) = lines(Page(render_nights([nights.run(0, [entry])], suite="nightly")))
    assert line.endswith("CMC@1 94.10 % +0.00 points")
