"""Streaks of failing or worse jobs, and jobs that left the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from history_entries import BAD, GOOD, SLOW, entry_of, failed_entry

from reid_dist.nightly.history.history_values import FAILED, INCOMPARABLE, SKIPPED, Code, Entry, Finding, Run
from reid_dist.nightly.outcomes import Streak, removed_jobs, streak

FAILS, FINE, WORSE = failed_entry(), entry_of(findings=(GOOD,)), entry_of(findings=(BAD,))
UNLIKE = entry_of(findings=(Finding(gate="accuracy", verdict=INCOMPARABLE, baseline=3),))
FIRST = entry_of(findings=(Finding(gate="accuracy", verdict=INCOMPARABLE, code=Code.NO_BASELINE),))
SKIPS = entry_of(state=SKIPPED)
OTHER = entry_of(name="vit/market1501/plain")

A, B, C = "a/set/plain", "b/set/plain", "c/set/plain"


@pytest.mark.parametrize(
    ("before", "tonight", "nights"),
    [
        ([], FAILS, None),
        ([FAILS], FINE, None),
        ([FAILS, FINE], FAILS, None),
        ([WORSE], FAILS, None),
        ([FAILS, FAILS], FAILS, (3, 1)),
        ([FINE, FAILS, FAILS], FAILS, (3, 2)),
        ([FAILS, SKIPS, None, OTHER], FAILS, (2, 1)),
        ([WORSE, entry_of(findings=(GOOD, SLOW))], WORSE, (3, 1)),
        ([WORSE, entry_of(findings=(BAD,), accepted="smaller")], WORSE, None),
        ([FIRST, UNLIKE, UNLIKE], UNLIKE, (3, 2)),
        ([UNLIKE, WORSE], UNLIKE, None),
        ([FIRST], FIRST, None),
    ],
)
def test_a_streak_counts_nights_with_one_trouble(
    before: list[Entry | None], tonight: Entry, nights: tuple[int, int] | None
) -> None:
    runs = [
        Run(number=at, suite="s", suite_digest="", started="", entries=(entry,) if entry else ())
        for at, entry in enumerate(before, start=1)
    ]
    found = streak(tonight, reversed(runs))
    assert (found if found is None else (found.n_nights, found.run)) == nights


def test_a_streak_reads_no_more_nights_than_needed() -> None:
    taken = []

    def newest_first() -> Iterator[Run]:
        for at, entry in enumerate([FAILS, FINE, FAILS]):
            taken.append(at)
            yield Run(number=9 - at, suite="s", suite_digest="", started="", entries=(entry,))

    assert streak(FINE, newest_first()) is None
    assert taken == []
    assert streak(FAILS, newest_first()) == Streak(FAILED, 9, 2)
    assert taken == [0, 1]


def night(number: int, planned: list[str], did: list[str] | None = None, *, finished: bool = True) -> Run:
    return Run(
        number=number,
        suite="market",
        suite_digest="",
        started="2026-05-09T02:00:00Z",
        finished="2026-05-09T03:00:00Z" if finished else None,
        entries=tuple(failed_entry(name) for name in (planned if did is None else did)),
        planned=tuple(planned),
    )


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
    found = removed_jobs(tonight, earlier)
    assert [(job.name, job.run) for job in found] == expected
