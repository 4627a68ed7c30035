"""The words of nights in one file: a finding of every code, a headline of every outcome, and a page.

``golden/night.txt`` holds them.  After a sentence was changed on purpose, write the file anew:
``REID_DIST_WRITE_GOLDEN=1 pytest tests/nightly/test_night_words.py``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import example_nights as nights
from support.pages import Page

from reid_dist.nightly.common_items import Obstacle
from reid_dist.nightly.delivery import summary_markdown
from reid_dist.nightly.history.history_values import PREPARATION, Change, Code, Entry, Finding, Outcome, Run, State
from reid_dist.nightly.outcomes import outcome
from reid_dist.nightly.page.document import render_nights
from reid_dist.nightly.wording import exit_meaning, finding_text, headline, sign_of_finding

GOLDEN = Path(__file__).parent / "golden" / "night.txt"
NIGHT = 3

WAITING = {"n": 2, "needed": 7, "unit": "run", "n_others": 1, "newest": [
    {"what": "machine", "differences": [["cores", "16", "32"]]},
    {"what": "reused", "stages": [[], ["means", "weights"]]},
]}  # fmt: skip
COMMON = {"by": "prefix", "n_query": 3368, "of_query": 3368, "n_gallery": 15913, "of_gallery": 16240}
COMMAND = {"command": "python extract.py features/vit", "output": "runs/00015/_prepare/1.txt", "seconds": 7200.0}
TAIL = ["Traceback (most recent call last):", "RuntimeError: CUDA out of memory"]
LOST = nights.worse_entry(NIGHT, baseline=13).findings[0]
UNTESTED = nights.uncompared_entry(NIGHT, baseline=13).findings[0]
RISING = dataclasses.replace(
    nights.falling_entry(NIGHT, since=1).findings[1].changes[0], difference=0.031, verdict="better"
)

# Of each code, examples: gate, verdict and facts, with other fields where these have words.
EXAMPLES: dict[Code, list[tuple[str, str, dict[str, Any], dict[str, Any]]]] = {
    Code.RECORDED: [("accuracy", "same", {"text": "the words of an older version"}, {})],
    Code.NO_BASELINE: [("accuracy", "incomparable", {}, {})],
    Code.OTHER_JOB: [("accuracy", "incomparable", {"differences": [["rerank.k1", "20", "25"]]}, {"baseline": 13})],
    Code.OTHER_CONDITIONS: [
        ("accuracy", "incomparable", dict(UNTESTED.facts) | {"obstacle": obstacle}, {"changes": UNTESTED.changes[:1]})
        for obstacle in Obstacle
    ],
    Code.OTHER_SIZES: [("accuracy", "incomparable", {}, {"baseline": 13})],
    Code.PRUNED: [("accuracy", "incomparable", {"role": "last good"}, {"baseline": 13})],
    Code.DAMAGED: [("accuracy", "incomparable", {"text": "report of a/b/c of run 13: cannot be decoded"}, {})],
    Code.REFUSED: [("accuracy", "incomparable", {"text": "the runs hold different queries"}, {})],
    Code.NO_VALUES: [("trend", "incomparable", {}, {})],
    Code.NO_LABELS: [("trend", "incomparable", {}, {})],
    Code.NO_REPORTS: [("trend", "incomparable", {}, {})],
    Code.UNKNOWN: [
        ("speed", "incomparable", {}, {"changes": (Change(name="seconds", baseline=None, candidate=None),)})
    ],
    Code.EXITED: [
        (PREPARATION, Outcome.UNPREPARED, COMMAND | {"tail": TAIL, "exit_code": 1}, {}),
        (PREPARATION, Outcome.UNPREPARED, COMMAND | {"tail": [], "exit_code": -9}, {}),
    ],
    Code.OVERTIME: [(PREPARATION, Outcome.UNPREPARED, COMMAND | {"tail": TAIL}, {})],
    Code.NOT_STARTED: [(PREPARATION, Outcome.UNPREPARED, COMMAND | {"text": "No such file or directory"}, {})],
    Code.STALE: [(PREPARATION, Outcome.STALE, {}, {"baseline": 14})],
    Code.WAITING: [
        ("trend", "incomparable", {"n": 3, "needed": 8, "unit": "result"}, {}),
        ("speed", "incomparable", WAITING, {}),
    ],
    Code.NOISY: [
        ("speed", "undecided", {"n": 8, "needed": 12, "unit": "run", "factor": 4.0}, {
            "changes": (nights.cost("seconds", 100.0, 150.0, 0.2, 5.0, "undecided"),)
        })
    ],
    Code.EQUAL: [
        ("accuracy", "same", {}, {"baseline": 13}),
        ("accuracy", "same", {"common": COMMON}, {"baseline": 13}),
    ],
    Code.EQUAL_NIGHTS: [("trend", "same", {"n_nights": 9}, {"baseline": 6})],
    Code.TESTED: [
        ("accuracy", "worse", {"role": "first", "effect": 0.005, "last": ["same", 12]}, {"changes": LOST.changes[:1]}),
        ("accuracy", "worse", {"role": "last good", "effect": 0.005, "also": 1}, {"changes": LOST.changes[:2]}),
        ("accuracy", "worse", dict(LOST.facts) | {"common": COMMON | {"by": "items"}}, {"changes": LOST.changes[:1]}),
        ("accuracy", "undecided", dict(LOST.facts), {
            "changes": nights.undecided_entry(NIGHT, baseline=13).findings[0].changes
        }),
        ("accuracy", "same", dict(LOST.facts), {"changes": nights.entry().findings[0].changes[:1]}),
        ("accuracy", "incomparable", dict(LOST.facts), {
            "changes": (Change(name="mAP", baseline=0.5, candidate=None, missing=("candidate",)),)
        }),
    ],
    Code.LINE: [
        ("trend", "worse", {"n_results": 14}, {"changes": nights.falling_entry(NIGHT, since=1).findings[1].changes}),
        ("trend", "same", {"n_results": 14, "as_in": 12}, {"changes": (RISING,)}),
        ("trend", "same", {"n_results": 14, "repeats": 13}, {"changes": (RISING,)}),
    ],
    Code.RATIO: [("speed", "worse", {"bound": "noise"}, {"changes": nights.slow_entry(NIGHT).findings[2].changes})],
}  # fmt: skip


def finding_of(code: Code, gate: str, verdict: str, facts: dict[str, Any], more: dict[str, Any]) -> Finding:
    return Finding(gate=gate, verdict=verdict, code=code, facts=facts, **({"baseline": 13} | more))


def entries() -> dict[str, Entry]:
    """An entry of every outcome."""
    (unprepared,) = (finding_of(Code.EXITED, *each) for each in EXAMPLES[Code.EXITED][:1])
    (stale,) = (finding_of(Code.STALE, *each) for each in EXAMPLES[Code.STALE])
    found = {
        State.FAILED: nights.undone_entry(State.FAILED, "store /features/query.zarr: chunk 3 is damaged", night=NIGHT),
        Outcome.UNPREPARED: dataclasses.replace(
            nights.undone_entry(State.FAILED, finding_text(unprepared), night=NIGHT), findings=(unprepared,)
        ),
        Outcome.STALE: nights.with_finding(nights.entry(night=NIGHT), stale),
        "alarm": nights.alarm_entry(NIGHT, baseline=NIGHT),
        "worse": nights.worse_entry(NIGHT, baseline=NIGHT),
        Outcome.UNCOMPARED: nights.uncompared_entry(NIGHT, baseline=NIGHT),
        State.SKIPPED: nights.undone_entry(State.SKIPPED, "the time budget of 2 h was spent", night=NIGHT),
        "incomparable": nights.new_entry(NIGHT),
        Outcome.UNDECIDED: nights.undecided_entry(NIGHT, baseline=NIGHT),
        "accepted": dataclasses.replace(nights.worse_entry(NIGHT, baseline=NIGHT), accepted="a smaller model"),
        "better": nights.better_entry(NIGHT, baseline=NIGHT),
        "same": nights.entry(night=NIGHT),
    }
    assert {name: outcome(entry) for name, entry in found.items()} == {name: name for name in Outcome}
    return found


def text_of(page: Page) -> Iterator[str]:
    """Yield the text of a page element by element, without charts."""
    for tag in ("h1", "li", "dt", "dd", "summary", "p", "tr"):
        yield from (f"  {tag}: {text}" for _, text in page.all(tag) if text)


def words() -> Iterator[str]:
    yield "FINDINGS"
    for code in Code:
        for example in EXAMPLES[code]:
            finding = finding_of(code, *example)
            yield f"{code}, {finding.gate}: {sign_of_finding(finding).words}: {finding_text(finding)}"
    earlier = [nights.run(night, [nights.entry(night=night)]) for night in range(NIGHT)]
    yield "\nHEADLINES"
    shown: list[tuple[str, Entry, list[Run]]] = [(name, entry, earlier) for name, entry in entries().items()]
    shown.append(("first night", nights.new_entry(0), []))
    shown.append(("falling", nights.falling_entry(NIGHT, since=1), earlier))
    shown.append(("slow", nights.slow_entry(0), [nights.run(0, [nights.entry()])]))
    shown.append(("for three nights", entries()[Outcome.UNCOMPARED], [
        *earlier[:-2], *(nights.run(night, [nights.uncompared_entry(night, baseline=1)]) for night in (1, 2))
    ]))  # fmt: skip
    for name, entry, before in shown:
        found = headline(nights.run(NIGHT, [entry]), before)
        yield f"{name}: {found.title}. {found.sentence}"
    eventful = nights.eventful_nights()
    yield f"eventful: {headline(eventful[-1], eventful[:-1]).title}"
    same, new, slow = nights.entry(), nights.new_entry(0), nights.slow_entry(1)
    unlike = nights.uncompared_entry(0, baseline=1)
    for several in ([new, new], [same, slow, slow], [same, nights.better_entry(1, baseline=1)], [new, unlike]):
        found = headline(nights.run(1, several), [nights.run(0, [same])])
        yield f"several: {found.title}. {found.sentence}"
    everyday = [nights.run(night, [nights.undecided_entry(night, baseline=night)]) for night in range(5)]
    yield f"everyday: {headline(everyday[-1], everyday[:-1]).sentence}"
    quiet = headline(nights.run(1, [same] * 3))
    yield f"quiet: {quiet.title}. {quiet.sentence}"
    yield "\nEXIT CODES"
    yield from (f"{code}: {exit_meaning(code)}" for code in (0, 2, 3, 4, 5, 130))
    everything = [dataclasses.replace(entry, job=name) for name, entry in entries().items()]
    tonight = nights.run(NIGHT, everything, exit_code=3)
    yield "\nSUMMARY"
    yield summary_markdown(tonight, earlier)
    yield "PAGE"
    few = tuple(
        each for each in everything if each.job in (Outcome.UNPREPARED, "worse", Outcome.UNCOMPARED, Outcome.UNDECIDED)
    )
    page = render_nights([*earlier, dataclasses.replace(tonight, entries=few)])
    yield from text_of(Page(page))


def test_the_words_are_those_of_the_file() -> None:
    text = "\n".join(words()) + "\n"
    if os.environ.get("REID_DIST_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_every_code_has_an_example() -> None:
    assert set(EXAMPLES) == set(Code)
