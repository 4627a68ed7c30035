"""Exit codes of nights: the most urgent outcome decides."""

from __future__ import annotations

import dataclasses

import example_nights as nights
import pytest

from reid_dist.nightly.history.history_values import FAILED, SKIPPED, Entry
from reid_dist.nightly.outcomes import exit_code_of
from reid_dist.nightly.wording import exit_meaning

SAME, FIRST, UNLIKE = nights.entry(), nights.new_entry(0), nights.uncompared_entry(1, baseline=1)
WORSE, FAILS = nights.slow_entry(1), nights.undone_entry(FAILED, "x", night=1)


@pytest.mark.parametrize(
    ("entries", "code", "words"),
    [
        ([], 0, "nothing failed"),
        ([SAME, FIRST, nights.undone_entry(SKIPPED, "x", night=1)], 0, "nothing failed, nothing is worse"),
        ([SAME, UNLIKE], 5, "a job was not compared with its baseline"),
        ([UNLIKE, WORSE, FIRST], 4, "a regression"),
        ([UNLIKE, WORSE, FAILS], 3, "a job failed"),
        ([UNLIKE, FAILS], 3, "a job failed"),
        ([dataclasses.replace(UNLIKE, accepted="a larger gallery"), SAME], 0, "nothing failed"),
        # Another machine or another size: times need not compare.
        ([nights.with_finding(SAME, nights.finding("speed", "incomparable", baseline=1))], 0, "nothing failed"),
    ],
)
def test_the_most_urgent_outcome_decides(entries: list[Entry], code: int, words: str) -> None:
    assert exit_code_of(nights.run(1, entries)) == code
    assert exit_meaning(code).startswith(words)
