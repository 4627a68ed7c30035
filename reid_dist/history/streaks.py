"""For how many nights a job has been in trouble, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reid_dist.history.values import FAILED, SKIPPED, Entry, Run

__all__ = ["Streak", "streak"]


@dataclass(frozen=True, slots=True)
class Streak:
    """Nights in a row with one trouble.

    Attributes
    ----------
    run
        Number of the first.
    n_nights
        How many, tonight's included.
    """

    run: int
    n_nights: int

    def __str__(self) -> str:
        return f"for {self.n_nights:,} nights in a row, since run {self.run}"


def streak(entry: Entry, earlier: Sequence[Run]) -> Streak | None:
    """Return since when an entry failed, or was a regression; None where tonight is the first night or all is well.

    Parameters
    ----------
    entry
        Tonight's.
    earlier
        The runs of its suite before, oldest first.  Those that had no such job, or skipped it, are passed over.
    """
    trouble = _trouble(entry)
    nights = []
    if trouble:
        for run in reversed(earlier):
            before = next((each for each in run.entries if each.name == entry.name), None)
            if before is None or before.state == SKIPPED:
                continue
            if _trouble(before) != trouble:
                break
            nights.append(run.number)
    return Streak(nights[-1], len(nights) + 1) if nights else None


def _trouble(entry: Entry) -> str:
    return FAILED if entry.state == FAILED else "regression" if entry.is_regression else ""
