"""For how many nights a job has been in trouble, and since when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reid_dist.nightly.history.values import FAILED, SKIPPED, Entry, Run

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


def streak(entry: Entry, newest_first: Iterable[Run]) -> Streak | None:
    """Return since when an entry failed, or was a regression; None where tonight is the first night or all is well.

    Parameters
    ----------
    entry
        Tonight's.
    newest_first
        The runs of its suite before; no more of them are taken than have to be.  Those that had no such job, or skipped
        it, are passed over.
    """
    trouble = _trouble(entry)
    found: Streak | None = None
    for run in newest_first if trouble else ():
        before = next((each for each in run.entries if each.name == entry.name), None)
        if before is None or before.state == SKIPPED:
            continue
        if _trouble(before) != trouble:
            break
        found = Streak(run.number, 2 if found is None else found.n_nights + 1)
    return found


def _trouble(entry: Entry) -> str:
    return FAILED if entry.state == FAILED else "regression" if entry.is_regression else ""
