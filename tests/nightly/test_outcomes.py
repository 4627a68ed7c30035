"""What nights amount to: outcomes of entries, headlines, and exit codes; the words are in ``golden/night.txt``."""

from __future__ import annotations

import dataclasses

import example_nights as nights
import pytest
import scipy.special

from reid_dist.nightly.gating.gate_settings import RatioGate
from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.history.history_values import (
    FAILED,
    INCOMPARABLE,
    PREPARATION,
    SAME,
    SKIPPED,
    Code,
    Entry,
    Finding,
)
from reid_dist.nightly.outcomes import exit_code_of, outcome
from reid_dist.nightly.wording import brief_verdict, causes_texts, detectable, headline, reasons

UNCHANGED, FIRST, UNLIKE = nights.entry(), nights.new_entry(0), nights.uncompared_entry(1, baseline=1)
STALE = nights.with_finding(UNCHANGED, Finding(gate=PREPARATION, verdict="stale", code=Code.STALE, baseline=1))
FAILS, SKIPS = (nights.undone_entry(state, "x", night=1) for state in (FAILED, SKIPPED))
UNPREPARED = dataclasses.replace(
    FAILS, findings=(Finding(gate=PREPARATION, verdict="unprepared", code=Code.NOT_STARTED),)
)
WORSE = nights.worse_entry(1, baseline=1)
SLOW, MOVED, BETTER = nights.slow_entry(1), nights.alarm_entry(1, baseline=1), nights.better_entry(1, baseline=1)


def accepted(entry: Entry) -> Entry:
    return dataclasses.replace(entry, accepted="on purpose")


def of(*findings: Finding) -> Entry:
    return dataclasses.replace(UNCHANGED, findings=findings)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (UNCHANGED, "same"),
        (WORSE, "worse"),
        (SLOW, "worse"),
        (MOVED, "alarm"),
        (BETTER, "better"),
        (FIRST, "incomparable"),
        (UNLIKE, "uncompared"),
        (accepted(UNLIKE), "incomparable"),
        (accepted(WORSE), "accepted"),
        (nights.undecided_entry(1, baseline=1), "undecided"),
        (STALE, "stale"),
        (UNPREPARED, "unprepared"),
        (FAILS, "failed"),
        (SKIPS, "skipped"),
        # What has no baseline of time or memory yet has one of accuracy.
        (nights.with_finding(UNCHANGED, nights.finding("memory", INCOMPARABLE, baseline=1)), "same"),
        (of(UNCHANGED.findings[0], nights.finding("speed", INCOMPARABLE)), "same"),
        (nights.entry(gated=False), "incomparable"),
    ],
)
def test_outcomes_of_entries(entry: Entry, expected: str) -> None:
    assert outcome(entry) == expected
    # A trouble is news, and so is a gain.
    is_quiet = expected in ("same", "incomparable", "accepted", "undecided")
    first = headline(nights.run(1, [entry]))
    assert (first.kind, bool(first.clauses)) == ("same" if expected == "accepted" else expected, not is_quiet)


@pytest.mark.parametrize(
    ("entry", "word", "gates"),
    [
        (of(UNCHANGED.findings[2], nights.finding("memory", INCOMPARABLE, Code.NO_BASELINE)), SAME, ["Speed"]),
        (of(*SLOW.findings[2:3]), "worse", ["Speed"]),
        (of(nights.finding("speed", INCOMPARABLE, Code.NO_BASELINE)), INCOMPARABLE, ["Speed"]),
        (of(), INCOMPARABLE, [""]),
    ],
)
def test_without_a_gate_of_accuracy_the_other_gates_decide(entry: Entry, word: str, gates: list[str]) -> None:
    assert outcome(entry) == word
    assert [gate for gate, _ in reasons(entry)][:1] == gates
    assert all(reason for _, reason in reasons(entry))


@pytest.mark.parametrize(
    ("entries", "code", "kind"),
    [
        ([], 0, "same"),
        ([UNCHANGED, FIRST, SKIPS], 0, "skipped"),
        ([UNCHANGED, UNLIKE], 5, "uncompared"),
        ([UNLIKE, SLOW, FIRST], 4, "worse"),
        ([UNLIKE, SLOW, FAILS], 3, "failed"),
        ([UNLIKE, FAILS], 3, "failed"),
        ([UNLIKE, SLOW, UNPREPARED], 3, "unprepared"),
        ([UNLIKE, SLOW, STALE], 3, "stale"),
        ([SLOW, MOVED], 4, "alarm"),
        ([UNCHANGED, BETTER], 0, "better"),
        ([accepted(STALE), UNCHANGED], 0, "same"),
        ([accepted(UNLIKE), UNCHANGED], 0, "same"),
        # Another machine or another size: times need not compare.
        ([nights.with_finding(UNCHANGED, nights.finding("speed", INCOMPARABLE, baseline=1))], 0, "same"),
    ],
)
def test_the_most_urgent_outcome_decides(entries: list[Entry], code: int, kind: str) -> None:
    run = nights.run(1, entries)
    assert (exit_code_of(run), headline(run).kind) == (code, kind)
    allowed = exit_code_of(run, allow_incomparable=True)
    assert allowed == (0 if code == 5 else code), "what failed or is worse is so all the same"


def test_what_changed_every_night_is_summed_up() -> None:
    runs = [nights.run(night, [nights.undecided_entry(night, baseline=night)]) for night in range(5)]
    (entry,), (before,) = runs[-1].entries, runs[-2].entries
    every, now = (causes_texts(before, entry, earlier) for earlier in (runs[:-1], runs[2:-1]))
    assert [kind for kind, _ in every] == ["inputs"]
    assert len(now) == 2, "query and gallery"


def test_an_everyday_night_says_what_could_have_been_detected() -> None:
    entry = nights.undecided_entry(4, baseline=4)
    (moved,) = entry.findings[0].changes
    # Half of the interval is the quantile of its level in standard errors; a power of 80 % takes 0.8416 more.
    error = (moved.high - moved.low) / 2 / scipy.special.ndtri((1 + moved.level) / 2)
    expected = error * (scipy.special.ndtri((1 + moved.level) / 2) + scipy.special.ndtri(0.8))
    assert detectable(moved, 0.005) == pytest.approx(expected, rel=1e-9)
    assert detectable(moved, 0.9) == 0.9
    assert f"{100 * expected:.2f} points" in headline(nights.run(4, [entry])).quiet


@pytest.mark.parametrize("n_before", [0, 2])
def test_gates_that_need_more_runs_say_how_many(n_before: int) -> None:
    past = [nights.entry(night=night) for night in range(n_before)]
    waiting = [gate(UNCHANGED, past, RatioGate()) for gate in (gate_speed, gate_memory)]
    entry = of(*UNCHANGED.findings[:2], *waiting)
    assert [brief_verdict(finding) for finding in waiting] == [f"needs {7 - n_before} more nights"] * 2
    assert outcome(entry) == SAME
    assert [gate for gate, _ in reasons(entry)] == ["Accuracy"]
