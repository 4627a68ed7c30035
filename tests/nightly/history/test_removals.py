"""Jobs that are no longer in their suite are named once, and those that were only left out are not."""

from __future__ import annotations

import pytest
from history_entries import failed_entry

from reid_dist.nightly.history.removals import removals
from reid_dist.nightly.history.values import Run

A, B, C = "a/set/plain", "b/set/plain", "c/set/plain"


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
        # Told once: the night after, it is no news.
        ([night(1, [A, B]), night(2, [B])], night(3, [B]), []),
        # Left out by --only, in either night: in the suite all the same.
        ([night(1, [A, B])], night(2, [A, B], [B]), []),
        ([night(1, [A, B], [B])], night(2, [A, B]), []),
        # Left out the night before it went: the last run that had it is an older one.
        ([night(3, [A, B]), night(4, [A, B], [B])], night(5, [B]), [(A, 3)]),
        ([night(4, [A, B], [B])], night(5, [B]), [(A, 4)]),
        # Nobody was told by a night that was killed.
        ([night(1, [A, B]), night(2, [B], [], finished=False)], night(3, [B]), [(A, 1)]),
        ([night(1, [A, B], [A], finished=False)], night(2, [A]), []),
        # Another name is another job.
        ([night(1, [A])], night(2, [C]), [(A, 1)]),
    ],
)
def test_what_went_is_named_with_the_run_that_had_it(
    earlier: list[Run], tonight: Run, expected: list[tuple[str, int]]
) -> None:
    assert [(removal.name, removal.run) for removal in removals(tonight, earlier)] == expected


def test_a_removal_says_what_happened() -> None:
    (removal,) = removals(night(2, [B]), [night(1, [A, B])])
    assert str(removal) == "no longer in the suite (last in run 1)"
