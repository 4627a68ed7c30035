"""Hold an entry against what the history has of earlier nights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reid_dist.errors import DamagedStoreError, StoreNotFoundError
from reid_dist.nightly.gating import (
    AccuracyGate,
    Earlier,
    Gates,
    Night,
    TrendGate,
    dropped,
    gate_accuracy,
    gate_memory,
    gate_speed,
    gate_trend,
    gated_metrics,
    night_of,
    tested_metrics,
)
from reid_dist.nightly.history import History, Past
from reid_dist.nightly.history.values import DONE, INCOMPARABLE, Entry, Finding
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
    earlier = _EarlierNights(entry, report, history, suite, number)
    if gates.accuracy is not None:
        findings.append(_accuracy(earlier, gates.accuracy))
    if gates.trend is not None:
        findings.append(_trend(earlier, gates.trend))
    for gate, judge in ((gates.speed, gate_speed), (gates.memory, gate_memory)):
        if gate is not None:
            past = history.measured(suite, entry.name, before=number, last=_WINDOWS * gate.window)
            findings.append(judge(entry, [each.entry for each in past], gate))
    return tuple(findings)


class _EarlierNights:
    """What the history has for the gates of metrics; each report is read once."""

    def __init__(self, entry: Entry, report: Report, history: History, suite: str, number: int) -> None:
        self.entry, self.report, self.history, self.suite, self.number = entry, report, history, suite, number
        self.reference = history.reference(suite, entry, before=number)
        self._nights: dict[tuple[str, tuple[str, ...]], Night | None] = {}

    def past(self, last: int) -> list[Past]:
        """Return the last nights that ask the same question, oldest first; none before the one that was accepted."""
        since = self.reference.run if self.reference is not None and self.reference.entry.accepted else 0
        past = self.history.measured(self.suite, self.entry.name, before=self.number, last=last)
        return [each for each in past if each.run >= since and each.entry.question == self.entry.question]

    def tested(self, gate: AccuracyGate | TrendGate) -> tuple[str, ...]:
        """Return the gated metrics of which tonight has values per query."""
        return tested_metrics(self.report, gated_metrics(gate.metrics, self.report))

    def nights(self, past: Sequence[Past], metrics: tuple[str, ...]) -> list[Night]:
        """Return the values of nights, oldest first, each result once; reports that were pruned are left out."""
        newest = {each.entry.result_digest: each for each in past}
        found = (self._night(each, metrics) for each in sorted(newest.values(), key=lambda each: each.run))
        return [night for night in found if night is not None]

    def with_report(self, past: Past) -> Earlier:
        """Return an entry with its report, if it is there still."""
        try:
            return Earlier(past.run, past.entry, self.history.report(past.run, past.entry.name))
        except StoreNotFoundError:
            return Earlier(past.run, past.entry)

    def _night(self, past: Past, metrics: tuple[str, ...]) -> Night | None:
        key = past.entry.result_digest, metrics
        if key not in self._nights:
            is_tonights = past.entry.result_digest == self.entry.result_digest
            report = self.report if is_tonights else self.with_report(past).report
            night = None if report is None else night_of(past.run, report, self.report, metrics)
            self._nights[key] = night
        return self._nights[key]


def _accuracy(earlier: _EarlierNights, gate: AccuracyGate) -> Finding:
    entry, report, history = earlier.entry, earlier.report, earlier.history
    good = history.last_good(earlier.suite, entry.name, before=earlier.number)
    same = history.same_options(earlier.suite, entry.name, entry.input_digest, entry.job_digest, before=earlier.number)
    metrics = earlier.tested(gate)
    past = [each for each in earlier.past(gate.nights) if each.entry.is_good]
    may_be_worse = any(dropped(entry, each.entry, metrics, gate.minimum_effect) for each in past)
    try:
        baseline, reference = (
            None if each is None else earlier.with_report(each) for each in (good, earlier.reference)
        )
        recent = earlier.nights(past, metrics) if may_be_worse else []
    except DamagedStoreError as error:
        # What is wrong with the baseline is no fault of this night, and must be told.
        return Finding(gate="accuracy", verdict=INCOMPARABLE, reason=str(error), baseline=None)
    return gate_accuracy(
        report,
        entry,
        last_good=baseline,
        same_options=None if same is None else Earlier(same.run, same.entry),
        gate=gate,
        reference=reference,
        recent=recent,
    )


def _trend(earlier: _EarlierNights, gate: TrendGate) -> Finding:
    metrics, past = earlier.tested(gate), earlier.past(gate.nights - 1)
    tonight = night_of(earlier.number, earlier.report, earlier.report, metrics)
    if tonight is None:
        return Finding(gate="trend", verdict=INCOMPARABLE, reason="the labels of tonight are not recorded")
    try:
        nights = earlier.nights(past, metrics)
    except DamagedStoreError as error:
        return Finding(gate="trend", verdict=INCOMPARABLE, reason=str(error))
    if past and not nights:
        reason = "no earlier night has a report of the same queries"
        return Finding(gate="trend", verdict=INCOMPARABLE, reason=reason)
    results = {night.digest for night in nights}
    n_earlier = sum(each.entry.result_digest in results for each in past)
    return gate_trend(nights, tonight, earlier.report.per_query["pid"], n_earlier=n_earlier, gate=gate)
