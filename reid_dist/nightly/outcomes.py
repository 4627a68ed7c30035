"""What a night amounts to: the outcome of every entry, lasting troubles, removed jobs, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from reid_dist.errors import ExitCode
from reid_dist.nightly.history.history_values import (
    BETTER,
    FAILED,
    INCOMPARABLE,
    SAME,
    SKIPPED,
    STALE,
    UNCOMPARED,
    UNDECIDED,
    UNPREPARED,
    WORSE,
    Entry,
    Run,
)

MOVED: Final = "alarm"
"""Numbers moved without a cause."""

ACCEPTED: Final = "accepted"
"""An accepted regression."""

OUTCOMES: Final = (
    *(FAILED, UNPREPARED, STALE, MOVED, WORSE, UNCOMPARED, SKIPPED),
    *(INCOMPARABLE, UNDECIDED, ACCEPTED, BETTER, SAME),
)
"""All outcomes, the most urgent first."""

INTERRUPTED: Final = "the night was interrupted"
"""Reason of skipped entries of a night that was interrupted."""


def outcome(entry: Entry) -> str:
    """Return the outcome of an entry.

    A worse gate outweighs a better one, and an incomparable accuracy a better time.  Incomparable times and memory, as
    in the first nights, do not count.  An incomparable accuracy is *uncompared* where there is a baseline.
    """
    if entry.state in (FAILED, SKIPPED):
        return UNPREPARED if any(finding.verdict == UNPREPARED for finding in entry.findings) else entry.state
    if any(finding.is_regression for finding in entry.findings):
        if entry.accepted:
            return ACCEPTED
        return MOVED if entry.alarm else WORSE
    if entry.is_stale:
        return STALE
    if entry.is_uncompared:
        return UNCOMPARED
    accuracy = entry.finding("accuracy")
    if accuracy is not None and accuracy.verdict == INCOMPARABLE:
        return INCOMPARABLE
    verdicts = [finding.verdict for finding in entry.findings]
    # An undecided trend, time or memory does not count beside a known accuracy.
    if BETTER not in verdicts and accuracy is not None:
        return accuracy.verdict
    # Without a gate of accuracy the other gates decide.
    return next((verdict for verdict in (BETTER, SAME, UNDECIDED) if verdict in verdicts), INCOMPARABLE)


def counted(run: Run) -> dict[str, int]:
    """Return the number of entries by outcome, in the order of `OUTCOMES`."""
    found = Counter(map(outcome, run.entries))
    return {name: found[name] for name in OUTCOMES}


def ranked(run: Run) -> list[Entry]:
    """Return the entries, the most urgent first; equally urgent ones in the order of the suite."""
    return sorted(run.entries, key=lambda entry: OUTCOMES.index(outcome(entry)))


def exit_code_of(run: Run, *, allow_incomparable: bool = False) -> ExitCode:
    """Return the exit code of a night that was not interrupted.

    A failed job outweighs a regression, and that a job that was not compared.
    """
    if run.failures:
        return ExitCode.FAILED
    if run.regressions:
        return ExitCode.REGRESSION
    return ExitCode.NOT_COMPARED if run.uncompared and not allow_incomparable else ExitCode.DONE


@dataclass(frozen=True, slots=True)
class Streak:
    """Consecutive nights of one trouble of a job: their first run, and their number with tonight.

    The trouble is an outcome: ``failed``, ``unprepared``, ``stale`` or ``uncompared``, or ``worse`` for any regression.
    """

    trouble: str
    run: int
    n_nights: int


@dataclass(frozen=True, slots=True)
class RemovedJob:
    """A job that is no longer in its suite, or has another name there, and the last run that had it."""

    name: str
    run: int


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
    found = WORSE if entry.is_regression else outcome(entry)
    return found if found in (FAILED, UNPREPARED, STALE, WORSE, UNCOMPARED) else ""
