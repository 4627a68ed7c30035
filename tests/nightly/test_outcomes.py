"""What nights amount to: outcomes, streaks, headlines and exit codes; the words are in ``golden/night.txt``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import example_nights as nights
import pytest
import scipy.special

from reid_dist.nightly.gating.gate_settings import RatioGate
from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.history.history_values import PREPARATION, Code, Entry, Finding, Outcome, Run, State
from reid_dist.nightly.outcomes import Streak, exit_code_of, outcome, removed_jobs, streak
from reid_dist.nightly.wording import brief_verdict, causes_texts, detectable, headline, reasons

UNCHANGED, FIRST, UNLIKE = nights.entry(), nights.new_entry(0), nights.uncompared_entry(1, baseline=1)
STALE = nights.with_finding(UNCHANGED, Finding(gate=PREPARATION, verdict="stale", code=Code.STALE, baseline=1))
FAILS, SKIPS = (nights.undone_entry(state, "x", night=1) for state in (State.FAILED, State.SKIPPED))
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
        (nights.with_finding(UNCHANGED, nights.finding("memory", Outcome.INCOMPARABLE, baseline=1)), "same"),
        (of(UNCHANGED.findings[0], nights.finding("speed", Outcome.INCOMPARABLE)), "same"),
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
        (
            of(UNCHANGED.findings[2], nights.finding("memory", Outcome.INCOMPARABLE, Code.NO_BASELINE)),
            Outcome.SAME,
            ["Speed"],
        ),
        (of(*SLOW.findings[2:3]), "worse", ["Speed"]),
        (of(nights.finding("speed", Outcome.INCOMPARABLE, Code.NO_BASELINE)), Outcome.INCOMPARABLE, ["Speed"]),
        (of(), Outcome.INCOMPARABLE, [""]),
    ],
)
def test_without_a_gate_of_accuracy_the_other_gates_decide(entry: Entry, word: str, gates: list[str]) -> None:
    assert outcome(entry) == word
    assert [gate for gate, _ in reasons(entry)][:1] == gates
    assert all(reason for _, reason in reasons(entry))


@pytest.mark.parametrize(
    ("entries", "code", "kind"),
    [
        ([UNCHANGED, FIRST, SKIPS], 0, "skipped"),
        ([UNCHANGED, UNLIKE], 5, "uncompared"),
        ([UNLIKE, SLOW, FIRST], 4, "worse"),
        ([UNLIKE, SLOW, FAILS], 3, "failed"),
        ([UNLIKE, FAILS], 3, "failed"),
        ([UNLIKE, SLOW, UNPREPARED], 3, "unprepared"),
        ([UNLIKE, SLOW, STALE], 3, "stale"),
        ([nights.with_finding(SLOW, STALE.findings[-1])], 3, "stale"),
        ([SLOW, MOVED], 4, "alarm"),
        ([UNCHANGED, BETTER], 0, "better"),
        ([accepted(STALE), UNCHANGED], 0, "same"),
        ([accepted(UNLIKE), UNCHANGED], 0, "same"),
        # Another machine or another size: times need not compare.
        ([nights.with_finding(UNCHANGED, nights.finding("speed", Outcome.INCOMPARABLE, baseline=1))], 0, "same"),
    ],
)
def test_the_most_urgent_outcome_decides(entries: list[Entry], code: int, kind: str) -> None:
    run = nights.run(1, entries)
    assert (exit_code_of(run), headline(run).kind) == (code, kind)
    allowed = exit_code_of(run, allow_incomparable=True)
    assert allowed == (0 if code == 5 else code), "what failed or is worse is so all the same"


def test_a_stale_job_that_is_worse_names_its_loss_and_is_stale_for_one_night() -> None:
    stale_and_worse = nights.with_finding(WORSE, STALE.findings[-1])
    assert [gate for gate, _ in reasons(stale_and_worse)] == ["Preparation", "Accuracy"]
    before = [nights.run(2, [WORSE]), nights.run(1, [WORSE])]
    assert streak(stale_and_worse, before) is None
    again = [nights.run(2, [stale_and_worse]), *before[1:]]
    assert streak(stale_and_worse, again) == Streak("stale", again[0].number, 2)


def test_what_changed_every_night_is_summed_up() -> None:
    runs = [nights.run(night, [nights.undecided_entry(night, baseline=night)]) for night in range(5)]
    (entry,), (before,) = runs[-1].entries, runs[-2].entries
    every, now = (causes_texts(before, entry, earlier) for earlier in (runs[:-1], runs[2:-1]))
    assert [kind for kind, _ in every] == ["inputs"]
    assert len(now) == 2, "query and gallery"


def test_an_everyday_night_says_what_could_have_been_detected() -> None:
    entry = nights.undecided_entry(4, baseline=4)
    (moved,) = entry.findings[0].changes
    # Half of the interval is the quantile of its level in standard errors; a power of 80% takes 0.8416 more.
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
    assert outcome(entry) == Outcome.SAME
    assert [gate for gate, _ in reasons(entry)] == ["Accuracy"]


OTHER = nights.entry(model="vit")
A, B, C = "a/set/plain", "b/set/plain", "c/set/plain"


@pytest.mark.parametrize(
    ("before", "tonight", "expected"),
    [
        ([], FAILS, None),
        ([FAILS], UNCHANGED, None),
        ([FAILS, UNCHANGED], FAILS, None),
        ([WORSE], FAILS, None),
        ([FAILS, FAILS], FAILS, (3, 1)),
        ([UNCHANGED, FAILS, FAILS], FAILS, (3, 2)),
        ([FAILS, SKIPS, None, OTHER], FAILS, (2, 1)),
        ([WORSE, SLOW], WORSE, (3, 1)),
        ([WORSE, accepted(WORSE)], WORSE, None),
        ([FIRST, UNLIKE, UNLIKE], UNLIKE, (3, 2)),
        ([UNLIKE, WORSE], UNLIKE, None),
        ([FIRST], FIRST, None),
    ],
)
def test_a_streak_counts_nights_with_one_trouble(
    before: list[Entry | None], tonight: Entry, expected: tuple[int, int] | None
) -> None:
    runs = [nights.run(at, [entry] if entry else []) for at, entry in enumerate(before)]
    found = streak(tonight, reversed(runs))
    assert (found if found is None else (found.n_nights, found.run)) == expected


def test_a_streak_reads_no_more_nights_than_needed() -> None:
    taken = []

    def newest_first() -> Iterator[Run]:
        for at, entry in enumerate([FAILS, UNCHANGED, FAILS]):
            taken.append(at)
            yield nights.run(8 - at, [entry])

    assert streak(UNCHANGED, newest_first()) is None
    assert taken == []
    assert streak(FAILS, newest_first()) == Streak(State.FAILED, 9, 2)
    assert taken == [0, 1]


def night(number: int, planned: list[str], did: list[str] | None = None, *, finished: bool = True) -> Run:
    done = [dataclasses.replace(FAILS, model=name[0], dataset="set") for name in (planned if did is None else did)]
    more = {} if finished else {"finished": None}
    return nights.run(number - 1, done, planned=tuple(planned), **more)


@pytest.mark.parametrize(
    ("earlier", "tonight", "expected"),
    [
        ([], night(1, [A]), []),
        ([night(1, [A])], night(2, [A, B]), []),
        ([night(1, [A, B, C])], night(2, [B]), [(A, 1), (C, 1)]),
        # Listed in one night only.
        ([night(1, [A, B]), night(2, [B])], night(3, [B]), []),
        # Left out by --only, in either night: still in the suite.
        ([night(1, [A, B])], night(2, [A, B], [B]), []),
        ([night(1, [A, B], [B])], night(2, [A, B]), []),
        # Left out in the night before its removal: the last run that had it is an older one.
        ([night(3, [A, B]), night(4, [A, B], [B])], night(5, [B]), [(A, 3)]),
        ([night(4, [A, B], [B])], night(5, [B]), [(A, 4)]),
        # A killed night has reported nothing.
        ([night(1, [A, B]), night(2, [B], [], finished=False)], night(3, [B]), [(A, 1)]),
        ([night(1, [A, B], [A], finished=False)], night(2, [A]), []),
        # Another name is another job.
        ([night(1, [A])], night(2, [C]), [(A, 1)]),
    ],
)
def test_removed_jobs_are_listed_with_their_last_run(
    earlier: list[Run], tonight: Run, expected: list[tuple[str, int]]
) -> None:
    assert [*removed_jobs(tonight, earlier).items()] == expected
