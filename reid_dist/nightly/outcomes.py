"""What a night amounts to: the outcome of every entry, lasting troubles, removed jobs, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from reid_dist.errors import ExitCode
from reid_dist.nightly.history.history_values import Entry, Finding, Outcome, Run, State

_EXIT_CODES: Final = {
    Outcome.FAILED: ExitCode.FAILED,
    Outcome.UNPREPARED: ExitCode.FAILED,
    Outcome.STALE: ExitCode.FAILED,
    Outcome.MOVED: ExitCode.REGRESSION,
    Outcome.WORSE: ExitCode.REGRESSION,
    Outcome.UNCOMPARED: ExitCode.NOT_COMPARED,
}
# Outcomes that may last; a regression of any kind is `WORSE`.
_TROUBLES: Final = (Outcome.FAILED, Outcome.UNPREPARED, Outcome.STALE, Outcome.WORSE, Outcome.UNCOMPARED)


def decided(entry: Entry) -> tuple[Outcome, Sequence[Finding]]:
    """Return the outcome of an entry, and the findings that it rests on.

    A worse gate outweighs a better one, and an incomparable accuracy a better time.  Incomparable times and memory, as
    in the first nights, do not count.  An incomparable accuracy is *uncompared* where there is a baseline.
    """
    found = entry.findings
    if entry.state != State.DONE:
        unprepared = [each for each in found if each.verdict == Outcome.UNPREPARED]
        return Outcome.UNPREPARED if unprepared else Outcome(entry.state), unprepared
    worse = [each for each in found if each.is_regression]
    if not entry.accepted and (stale := [each for each in found if each.verdict == Outcome.STALE]):
        # A loss is named as well: whoever accepts the features accepts it, too.
        return Outcome.STALE, [*stale, *worse]
    if worse:
        return Outcome.ACCEPTED if entry.accepted else Outcome.MOVED if entry.alarm else Outcome.WORSE, worse
    if not entry.accepted and (uncompared := [each for each in found if each.is_uncompared]):
        return Outcome.UNCOMPARED, uncompared
    accuracy = [each for each in found if each.gate == "accuracy"]
    better = [each for each in found if each.verdict == Outcome.BETTER]
    if better and not any(each.verdict == Outcome.INCOMPARABLE for each in accuracy):
        return Outcome.BETTER, better
    # An undecided trend, time or memory does not count beside a known accuracy; without it the other gates decide.
    same, undecided = ([each for each in found if each.verdict == name] for name in (Outcome.SAME, Outcome.UNDECIDED))
    known = accuracy or same or undecided
    return (Outcome(known[0].verdict), known) if known else (Outcome.INCOMPARABLE, found)


def outcome(entry: Entry) -> Outcome:
    """Return the outcome of an entry."""
    return decided(entry)[0]


def outcome_counts(run: Run) -> dict[Outcome, int]:
    """Return the number of entries by outcome, in the order of `Outcome`."""
    found = Counter(map(outcome, run.entries))
    return {name: found[name] for name in Outcome}


def ranked(run: Run) -> list[Entry]:
    """Return the entries, the most urgent first; equally urgent ones in the order of the suite."""
    return sorted(run.entries, key=lambda entry: [*Outcome].index(outcome(entry)))


def exit_code_of(run: Run, *, allow_incomparable: bool = False) -> ExitCode:
    """Return the exit code of a night that was not interrupted: that of its most urgent outcome."""
    counts = outcome_counts(run)
    code = next((code for name, code in _EXIT_CODES.items() if counts[name]), ExitCode.DONE)
    return ExitCode.DONE if allow_incomparable and code == ExitCode.NOT_COMPARED else code


@dataclass(frozen=True, slots=True)
class Streak:
    """Consecutive nights of one trouble of a job: their first run, and their number with tonight.

    The trouble is an outcome: ``failed``, ``unprepared``, ``stale`` or ``uncompared``, or ``worse``, also for an alarm.
    """

    trouble: str
    run: int
    n_nights: int


def streak(entry: Entry, newest_first: Iterable[Run]) -> Streak | None:
    """Return the streak of an entry; None if it has no trouble, or has it for the first night.

    Of the earlier runs of its suite no more are taken than needed.  Runs without the job, or that skipped it, are
    passed over.
    """
    trouble = _trouble(entry)
    found: Streak | None = None
    for run in newest_first if trouble else ():
        before = run.entry(entry.name)
        if before is None or before.state == State.SKIPPED:
            continue
        if _trouble(before) != trouble:
            break
        found = Streak(trouble, run.number, 2 if found is None else found.n_nights + 1)
    return found


def removed_jobs(run: Run, earlier: Sequence[Run]) -> dict[str, int]:
    """Return the jobs of the last finished run, of earlier ones oldest first, that the suite lacks now.

    By their names, with the last run that had each; another name is another job.  Jobs that ``--only`` left out are
    still in the suite.
    """
    # A killed night has reported nothing.
    before = next((each for each in reversed(earlier) if each.finished is not None), None)
    if not run.planned or before is None:
        return {}
    last_runs = {entry.name: each.number for each in earlier for entry in each.entries}
    return {name: last_runs.get(name, before.number) for name in before.planned if name not in run.planned}


def _trouble(entry: Entry) -> str:
    found = outcome(entry)
    found = Outcome.WORSE if found == Outcome.MOVED else found
    return found if found in _TROUBLES else ""
