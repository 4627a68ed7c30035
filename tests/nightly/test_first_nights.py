"""The first nights, in which time and memory have too little to be held against, and suites without a gate."""

from __future__ import annotations

import dataclasses

import example_nights as nights
import pytest

from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.gating.settings import RatioGate
from reid_dist.nightly.history.values import INCOMPARABLE, SAME, Entry, Finding
from reid_dist.nightly.notices import summary_markdown
from reid_dist.nightly.page import render_nights
from reid_dist.nightly.page.outcome import outcome, reasons


def early_entry(n_before: int) -> Entry:
    entry = nights.entry(night=n_before)
    past = [nights.entry(night=night) for night in range(n_before)]
    waiting = [gate(entry, past, RatioGate()) for gate in (gate_speed, gate_memory)]
    return dataclasses.replace(entry, findings=(*entry.findings[:2], *waiting))


def test_gates_that_need_more_runs_are_abbreviated() -> None:
    runs = [nights.run(night, [early_entry(night)]) for night in range(3)]
    page = render_nights(runs, suite="nightly")
    assert page.count('<span class="soft waiting">2 of 7 runs</span>') == 2
    today = page.split('<h2 id="today">')[1].split("</table>")[0]
    assert "incomparable" not in today
    assert "The one job is the same as before" in page
    # The full reason is in the section of the job.
    assert "no verdict yet (2 of 7 runs)" in page
    assert "of 7" not in summary_markdown(runs[-1])


def of(*findings: Finding) -> Entry:
    return dataclasses.replace(nights.entry(), findings=findings)


@pytest.mark.parametrize(
    ("entry", "word", "gates"),
    [
        (of(nights.finding("speed"), nights.finding("memory", INCOMPARABLE, "x")), SAME, ["Speed"]),
        (of(nights.finding("speed", "better")), "better", ["Speed"]),
        (of(nights.finding("speed", INCOMPARABLE, "x")), INCOMPARABLE, ["Speed"]),
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
    entry = dataclasses.replace(entry, findings=(nights.finding("accuracy", changes=(change,)),))
    today = render_nights([nights.run(0, [entry])], suite="nightly").split('<h2 id="today">')[1].split("</table>")[0]
    assert ">CMC@1<" in today
    assert ">mAP<" not in today
