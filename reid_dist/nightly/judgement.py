"""Hold an entry against what the history has of earlier nights."""

from __future__ import annotations

from typing import Final

from reid_dist.errors import DamagedStoreError, StoreNotFoundError
from reid_dist.gating import Earlier, Gates, judge_accuracy, judge_memory, judge_speed
from reid_dist.history import History, Past
from reid_dist.history.values import DONE, INCOMPARABLE, Entry, Finding
from reid_dist.reports import Report

__all__ = ["judged"]

# So many windows are looked through for runs that compare: the others ran on other machines, or had other jobs.
_WINDOWS: Final = 5


def judged(
    entry: Entry, report: Report | None, history: History, *, suite: str, number: int, gates: Gates
) -> tuple[Finding, ...]:
    """Return what the gates find of an entry; nothing of one that was not done.

    Parameters
    ----------
    entry
        The entry, which need not be in the history yet.
    report
        Its report.
    history
        Earlier runs.
    suite, number
        The run that it belongs to.
    gates
        The gates; those that are switched off find nothing.
    """
    if entry.state != DONE or report is None:
        return ()
    findings = []
    if gates.accuracy is not None:
        findings.append(_accuracy(entry, report, history, suite=suite, number=number, gates=gates))
    for gate, judge in ((gates.speed, judge_speed), (gates.memory, judge_memory)):
        if gate is not None:
            past = history.measured(suite, entry.name, before=number, last=_WINDOWS * gate.window)
            findings.append(judge(entry, [each.entry for each in past], gate))
    return tuple(findings)


def _accuracy(entry: Entry, report: Report, history: History, *, suite: str, number: int, gates: Gates) -> Finding:
    if gates.accuracy is None:
        raise AssertionError("a gate that is switched off judges nothing")
    good = history.last_good(suite, entry.name, before=number)
    same = history.same_question(suite, entry.name, entry.input_digest, entry.job_digest, before=number)
    try:
        baseline = None if good is None else _with_report(good, history)
    except DamagedStoreError as error:
        # What is wrong with the baseline is no fault of this night, and must be told.
        return Finding(gate="accuracy", verdict=INCOMPARABLE, reason=str(error), baseline=None)
    return judge_accuracy(
        report,
        entry,
        last_good=baseline,
        same_question=None if same is None else Earlier(same.run, same.entry),
        gate=gates.accuracy,
    )


def _with_report(past: Past, history: History) -> Earlier:
    try:
        return Earlier(past.run, past.entry, history.report(past.run, past.entry.name))
    except StoreNotFoundError:
        return Earlier(past.run, past.entry)
