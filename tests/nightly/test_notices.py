"""The verdict for programs, the summary for people, the figures for a dashboard."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import example_nights as nights
import jsonschema
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reid_dist.nightly.delivery import benchmark_accuracy, benchmark_cost, summary_markdown, verdict_document
from reid_dist.nightly.history.history_values import Change, Code, Entry, Estimate, Run, State
from reid_dist.nightly.page.document import render_nights
from reid_dist.nightly.wording import SIGNS, headline
from reid_dist.reports.comparison import ChangedQuery

# What programs may rely on, written down apart from the code.
DOCUMENT = json.loads((Path(__file__).parent / "golden" / "verdict_schema.json").read_text())
# As github-action-benchmark reads its custom tools.
FIGURES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            name: {"type": "number" if name == "value" else "string"}
            for name in ("name", "unit", "value", "range", "extra")
        },
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return nights.eventful_nights()


def as_read(content: object) -> object:
    return json.loads(json.dumps(content, allow_nan=False))


def test_control_codes_in_stored_texts_are_left_out() -> None:
    """Of reasons, labels and names: a terminal that shows the summary acts on nothing."""
    codes = "\x1b]0;title\x07\x1b[31m\r\x9b2J\u202e"
    failed = nights.entry(state=State.FAILED, reason=f"there is no {codes}.zarr", labels={"team": codes})
    worse = nights.entry(
        job=f"re{codes}ranked",
        findings=(nights.finding("accuracy", "worse", Code.RECORDED, facts={"text": f"lost{codes}"}),),
    )
    run = dataclasses.replace(nights.run(0, [failed, worse]), suite=f"market{codes}", host=codes)
    for text in (summary_markdown(run), render_nights([run])):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert "there is no" in text


def test_the_verdict_follows_its_schema(runs: list[Run]) -> None:
    document = as_read(verdict_document(runs[-1], runs[:-1]))
    jsonschema.validate(document, DOCUMENT)
    assert document["run"] == 24
    assert document["exit_code"] == 3
    assert sum(document["counts"].values()) == len(document["entries"]) == 9
    assert document["counts"]["worse"] == 2
    worse = document["entries"][0]
    assert worse["name"] == "resnet50/market1501/plain"
    assert worse["regression"]
    assert worse["report"] == "runs/00024/resnet50/market1501/plain"
    change = worse["findings"][0]["changes"][0]
    assert (change["name"], change["verdict"], change["difference"]) == ("mAP", "worse", -0.0183)
    assert change["lost"][4] == {
        "row": 124,
        "pid": 104,
        "camid": None,
        "baseline": 0.9,
        "candidate": 0.02,
        "path": None,
    }
    assert worse["digests"]["inputs"] == runs[-1].entries[0].input_digest
    assert "changed since run 23: features" in document["summary"]
    assert document["entries"][4]["reason"].startswith("store /features/vit_b")


def test_numbers_that_are_not_finite_are_null() -> None:
    odd = Change(name="mAP", baseline=math.nan, candidate=math.inf, lost=(ChangedQuery(0, None, None, math.nan, 0.5),))
    entry = nights.entry(metrics={"mAP": Estimate(math.nan)}, seconds=1.0, timing={"plan": math.inf})
    entry = dataclasses.replace(entry, findings=(nights.finding("accuracy", changes=(odd,)),))
    document = as_read(verdict_document(nights.run(0, [entry])))
    jsonschema.validate(document, DOCUMENT)
    (found,) = document["entries"]
    assert found["metrics"]["mAP"]["value"] is None
    assert found["timing"]["plan"] is None
    assert found["findings"][0]["changes"][0]["candidate"] is None
    assert found["findings"][0]["changes"][0]["lost"][0]["baseline"] is None


def parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def shown(token: Token) -> str:
    """Visible text of a line."""
    return "".join(child.content for child in token.children or [] if child.type in ("text", "text_special"))


def inside(tokens: list[Token], kind: str) -> Iterator[list[Token]]:
    """Tokens between each opening of a kind and its closing."""
    opened = None
    for place, token in enumerate(tokens):
        if token.type == f"{kind}_open":
            opened = place
        elif token.type == f"{kind}_close" and opened is not None:
            yield tokens[opened + 1 : place]


def links_of(tokens: list[Token]) -> list[object]:
    children = (child for token in tokens for child in token.children or [])
    return [child.attrs["href"] for child in children if child.type == "link_open"]


def table_of(text: str) -> list[list[str]]:
    return [[shown(token) for token in row if token.type == "inline"] for row in inside(parsed(text), "tr")]


def test_the_summary_is_a_headline_a_list_and_a_table(runs: list[Run]) -> None:
    text = summary_markdown(runs[-1], runs[:-1])
    tokens = parsed(text)
    (heading,) = inside(tokens, "heading")
    first = headline(runs[-1], runs[:-1])
    assert shown(heading[0]) == f"{SIGNS[first.kind].mark} {first.title}"
    assert links_of(tokens) == ["index.html"]
    head, *rows = table_of(text)
    assert head == ["Job", "Verdict", "Why"]
    assert [row[1] for row in rows] == [
        f"{sign.mark} {sign.words}"
        for sign in map(SIGNS.__getitem__, [
            "failed", "alarm", "worse", "worse", "uncompared", "skipped", "incomparable", "better"
        ])
    ]  # fmt: skip
    assert all(len(row) == 3 and all(row) for row in rows)
    assert "osnet/market1501/plain" not in [row[0] for row in rows], "unchanged jobs are only counted"
    assert "1 job is the same as before." in text
    assert "exit code 3" in text


def test_a_quiet_summary_has_no_table() -> None:
    text = summary_markdown(nights.quiet_nights(1, 4)[0])
    assert table_of(text) == []
    assert text.splitlines()[0] == "### = All 4 jobs are the same as before"


def test_removed_jobs_are_listed() -> None:
    gone = [f"gone_{number:03}/set/plain" for number in range(60)]
    tonight, before = nights.quiet_nights(2, 1)[::-1]
    (entry,) = tonight.entries
    before = dataclasses.replace(before, planned=(entry.name, *gone))
    tonight = dataclasses.replace(tonight, planned=(entry.name,))
    document = as_read(verdict_document(tonight, [before]))
    jsonschema.validate(document, DOCUMENT)
    assert document["removed"] == [{"name": name, "last_run": before.number} for name in gone]
    assert (document["exit_code"], document["headline"]) == (0, "The only job is the same as before")
    items = inside(parsed(summary_markdown(tonight, [before])), "list_item")
    lines = [shown(token) for item in items for token in item if token.type == "inline"]
    assert lines[1] == f"{gone[0]}: no longer in the suite (last in run {before.number})"
    assert len(lines) == 42, "with that of the job that is the same"
    assert lines[-1].startswith("20 jobs more that are no longer in the suite")
    assert verdict_document(tonight)["removed"] == []


HOSTILE = "a|b `c` **d** _e_ [f](javascript:x) <script>g</script> \\| ~~h~~ $i$ &amp; # j\n\n| k |\n---\n* l"


@pytest.mark.parametrize("state", [State.FAILED, State.SKIPPED])
def test_foreign_texts_are_shown_as_they_are(state: str) -> None:
    entry = Entry(model=HOSTILE, dataset="d", job="j", state=state, reason=HOSTILE)
    text = summary_markdown(nights.run(0, [entry], suite=HOSTILE))
    flat = " ".join(HOSTILE.split())
    head, row = table_of(text)
    assert len(head) == len(row) == 3
    assert row[0] == f"{flat}/d/j"
    assert row[2] == flat
    tokens = parsed(text)
    kinds = {token.type for token in tokens} | {child.type for token in tokens for child in token.children or []}
    assert links_of(tokens) == ["index.html"]
    assert not kinds & {"html_inline", "html_block", "code_inline", "em_open", "hr", "image", "fence"}
    assert [token.type for token in tokens].count("heading_open") == 1


def test_a_long_night_is_a_short_summary() -> None:
    reason = "chunk 3 is damaged " * 100
    entries = [nights.undone_entry(State.FAILED, reason, night=0, model=f"model{number}") for number in range(500)]
    text = summary_markdown(nights.run(0, [*entries, nights.entry()], exit_code=3))
    assert len(text.splitlines()) <= 60
    assert len(text) < 20_000
    assert "460 jobs more with another outcome" in text
    assert len(table_of(text)) == 41


def test_the_dashboard_has_metrics_in_per_cent(runs: list[Run]) -> None:
    figures = as_read(benchmark_accuracy(runs[-1]))
    jsonschema.validate(figures, FIGURES)
    names = [figure["name"] for figure in figures]
    assert len(names) == len(set(names)) == 7 * 5, "seven jobs were done, of five metrics each"
    first = figures[0]
    assert first["name"] == "resnet50/market1501/plain mAP"
    assert (first["unit"], first["value"]) == ("%", pytest.approx(83.37))
    assert first["range"] == "\N{PLUS-MINUS SIGN} 1.10"
    assert "outcome: worse" in first["extra"]
    assert not any("msmt17" in name and "vit_b" in name for name in names), "a failed job has no figure"


def test_the_dashboard_has_costs_where_less_is_better(runs: list[Run]) -> None:
    figures = as_read(benchmark_cost(runs[-1]))
    jsonschema.validate(figures, FIGURES)
    assert {figure["unit"] for figure in figures} == {"s", "bytes"}
    assert len(figures) == 14
    seconds = next(figure["value"] for figure in figures if figure["name"] == "resnet50/market1501/reranked time")
    assert seconds == runs[-1].entries[1].seconds


def test_figures_are_sorted_by_whether_higher_is_better() -> None:
    metrics = {
        "mAP": Estimate(0.5),
        "EER": Estimate(0.02, 0.01, 0.05),
        "threshold@FAR=0.1": Estimate(0.7),
        "mINP": Estimate(None),
        "CMC@1": Estimate(math.nan),
    }
    run = nights.run(0, [nights.entry(metrics=metrics, seconds=1.0, peak_bytes=1)])
    run = dataclasses.replace(run, entries=(dataclasses.replace(run.entries[0], peak_bytes=None),))
    accuracy, cost = benchmark_accuracy(run), benchmark_cost(run)
    prefix = "resnet50/market1501/plain "
    assert [figure["name"].removeprefix(prefix) for figure in accuracy] == ["mAP"]
    assert [figure["name"].removeprefix(prefix) for figure in cost] == ["time", "EER"]
    assert "range" not in accuracy[0]
    assert cost[1]["value"] == pytest.approx(2.0)
    assert cost[1]["range"] == "\N{PLUS-MINUS SIGN} 3.00", "the wider side"
    assert as_read(list(itertools.chain(accuracy, cost)))
