"""Comparison of a run with the runs before it: lasting troubles, and jobs that left the suite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reid_dist.nightly.history.values import FAILED, SKIPPED, UNCOMPARED, WORSE, Entry, Run


@dataclass(frozen=True, slots=True)
class Streak:
    """Consecutive nights of one trouble of a job: their first run, and their number with tonight.

    The trouble is ``failed``, ``worse`` for any regression, or ``uncompared``.
    """

    trouble: str
    run: int
    n_nights: int

    def __str__(self) -> str:
        return f"for {self.n_nights:,} nights in a row, since run {self.run}"


@dataclass(frozen=True, slots=True)
class RemovedJob:
    """A job that is no longer in its suite, or has another name there, and the last run that had it."""

    name: str
    run: int

    def __str__(self) -> str:
        return f"no longer in the suite (last in run {self.run})"


def streak(entry: Entry, newest_first: Iterable[Run]) -> Streak | None:
    """Return the streak of an entry; None if it has no trouble, or has it for the first night.

    Of the earlier runs of its suite no more are taken than needed.  Runs without the job, or that skipped it, are
    passed over.
    """
    trouble = _trouble(entry)
    found: Streak | None = None
    for run in newest_first if trouble else ():
        before = run.entry(entry.name)
        if before is None or before.state == SKIPPED:
            continue
        if _trouble(before) != trouble:
            break
        found = Streak(trouble, run.number, 2 if found is None else found.n_nights + 1)
    return found


def removed_jobs(run: Run, earlier: Sequence[Run]) -> tuple[RemovedJob, ...]:
    """Return the jobs of the suite of the last finished run, of earlier ones oldest first, that this suite lacks.

    Jobs that ``--only`` left out are still in the suite.
    """
    # A killed night has reported nothing.
    before = next((each for each in reversed(earlier) if each.finished is not None), None)
    if not run.planned or before is None:
        return ()
    now = frozenset(run.planned)
    last_runs = {entry.name: each.number for each in earlier for entry in each.entries}
    return tuple(RemovedJob(name, last_runs.get(name, before.number)) for name in before.planned if name not in now)


def _trouble(entry: Entry) -> str:
    if entry.state == FAILED:
        return FAILED
    return WORSE if entry.is_regression else UNCOMPARED if entry.is_uncompared else ""
