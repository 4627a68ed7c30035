"""Since when a job is in trouble."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from history_entries import BAD, GOOD, SLOW, entry_of, failed_entry

from reid_dist.nightly.history.streaks import streak
from reid_dist.nightly.history.values import SKIPPED, Entry, Run

FAILS, FINE, WORSE = failed_entry(), entry_of(findings=(GOOD,)), entry_of(findings=(BAD,))
SKIPS = entry_of(state=SKIPPED)
OTHER = entry_of(name="vit/market1501/plain")


@pytest.mark.parametrize(
    ("before", "tonight", "words"),
    [
        ([], FAILS, None),
        ([FAILS], FINE, None),
        ([FAILS, FINE], FAILS, None),
        ([WORSE], FAILS, None),
        ([FAILS, FAILS], FAILS, "for 3 nights in a row, since run 1"),
        ([FINE, FAILS, FAILS], FAILS, "for 3 nights in a row, since run 2"),
        ([FAILS, SKIPS, None, OTHER], FAILS, "for 2 nights in a row, since run 1"),
        ([WORSE, entry_of(findings=(GOOD, SLOW))], WORSE, "for 3 nights in a row, since run 1"),
        ([WORSE, entry_of(findings=(BAD,), accepted="smaller")], WORSE, None),
    ],
)
def test_nights_with_one_trouble_are_counted(before: list[Entry | None], tonight: Entry, words: str | None) -> None:
    runs = [
        Run(number=at, suite="s", suite_digest="", started="", entries=(entry,) if entry else ())
        for at, entry in enumerate(before, start=1)
    ]
    found = streak(tonight, reversed(runs))
    assert (found if found is None else str(found)) == words


def test_no_more_nights_are_looked_at_than_have_to_be() -> None:
    taken = []

    def newest_first() -> Iterator[Run]:
        for at, entry in enumerate([FAILS, FINE, FAILS]):
            taken.append(at)
            yield Run(number=9 - at, suite="s", suite_digest="", started="", entries=(entry,))

    assert streak(FINE, newest_first()) is None
    assert taken == []
    assert str(streak(FAILS, newest_first())) == "for 2 nights in a row, since run 9"
    assert taken == [0, 1]
