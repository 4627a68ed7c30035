"""Exit codes of nights: the most urgent outcome decides."""

from __future__ import annotations

import dataclasses

import example_nights as nights
import pytest

from reid_dist.nightly.history.history_values import FAILED, PREPARATION, SKIPPED, Code, Entry, Finding
from reid_dist.nightly.outcomes import exit_code_of
from reid_dist.nightly.wording import exit_meaning

SAME, FIRST, UNLIKE = nights.entry(), nights.new_entry(0), nights.uncompared_entry(1, baseline=1)
STALE = nights.with_finding(SAME, Finding(gate=PREPARATION, verdict="stale", code=Code.STALE, baseline=1))
UNPREPARED = dataclasses.replace(
    nights.undone_entry(FAILED, "x", night=1),
    findings=(Finding(gate=PREPARATION, verdict="unprepared", code=Code.NOT_STARTED, facts={}),),
)
WORSE, FAILS = nights.slow_entry(1), nights.undone_entry(FAILED, "x", night=1)


@pytest.mark.parametrize(
    ("entries", "code", "words"),
    [
        ([], 0, "nothing failed"),
        ([SAME, FIRST, nights.undone_entry(SKIPPED, "x", night=1)], 0, "nothing failed and nothing is worse"),
        ([SAME, UNLIKE], 5, "a job could not be compared with its baseline"),
        ([UNLIKE, WORSE, FIRST], 4, "a regression"),
        ([UNLIKE, WORSE, FAILS], 3, "a run or job failed"),
        ([UNLIKE, FAILS], 3, "a run or job failed"),
        ([UNLIKE, WORSE, UNPREPARED], 3, "a run or job failed"),
        ([UNLIKE, WORSE, STALE], 3, "a run or job failed"),
        ([dataclasses.replace(STALE, accepted="no training on Sundays"), SAME], 0, "nothing failed"),
        ([dataclasses.replace(UNLIKE, accepted="a larger gallery"), SAME], 0, "nothing failed"),
        # Another machine or another size: times need not compare.
        ([nights.with_finding(SAME, nights.finding("speed", "incomparable", baseline=1))], 0, "nothing failed"),
    ],
)
def test_the_most_urgent_outcome_decides(entries: list[Entry], code: int, words: str) -> None:
    assert exit_code_of(nights.run(1, entries)) == code
    allowed = exit_code_of(nights.run(1, entries), allow_incomparable=True)
    assert allowed == (0 if code == 5 else code), "what failed or is worse is so all the same"
    assert exit_meaning(code).startswith(words)
