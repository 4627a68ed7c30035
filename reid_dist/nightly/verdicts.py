"""Application of the gates to an entry and the history of its job."""

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

# Number of windows that are searched for comparable runs.
_WINDOWS: Final = 5


def apply_gates(
    entry: Entry, report: Report | None, history: History, *, suite: str, number: int, gates: Gates
) -> tuple[Finding, ...]:
    """Return the findings of the gates for an entry; none for an entry that is not done.

    Parameters
    ----------
    entry
        Entry, which need not be in the history yet.
    report
        Its report.
    history
        Earlier runs.
    suite, number
        Suite and number of its run.
    gates
        Gates; None fields have no finding.
    """
    if entry.state != DONE or report is None:
        return ()
    findings = []
    earlier = _EarlierNights(entry, report, history, suite, number)
    if gates.accuracy is not None:
        findings.append(_accuracy(earlier, gates.accuracy))
    if gates.trend is not None:
        findings.append(_trend(earlier, gates.trend))
    for gate, apply in ((gates.speed, gate_speed), (gates.memory, gate_memory)):
        if gate is not None:
            past = history.measured(suite, entry.name, before=number, last=_WINDOWS * gate.window)
            findings.append(apply(entry, [each.entry for each in past], gate))
    return tuple(findings)


class _EarlierNights:
    """Earlier nights for the gates of metrics; each report is read once."""

    def __init__(self, entry: Entry, report: Report, history: History, suite: str, number: int) -> None:
        self.entry, self.report, self.history, self.suite, self.number = entry, report, history, suite, number
        self.reference = history.reference(suite, entry, before=number)
        self._nights: dict[tuple[str, tuple[str, ...]], Night | None] = {}

    def past(self, last: int) -> list[Past]:
        """Return the last comparable nights, oldest first; none before the accepted one."""
        since = self.reference.run if self.reference is not None and self.reference.entry.accepted else 0
        past = self.history.measured(self.suite, self.entry.name, before=self.number, last=last)
        return [each for each in past if each.run >= since and each.entry.comparison_key == self.entry.comparison_key]

    def tested(self, gate: AccuracyGate | TrendGate) -> tuple[str, ...]:
        """Return the gated metrics with values per query."""
        return tested_metrics(self.report, gated_metrics(gate.metrics, self.report))

    def nights(self, past: Sequence[Past], metrics: tuple[str, ...]) -> list[Night]:
        """Return the values of nights, oldest first, each result once; nights with pruned reports are left out."""
        newest = {each.entry.result_digest: each for each in past}
        found = (self._night(each, metrics) for each in sorted(newest.values(), key=lambda each: each.run))
        return [night for night in found if night is not None]

    def with_report(self, past: Past) -> Earlier:
        """Return an entry with its report, None for a pruned one."""
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
        # A damaged baseline does not fail this night, but is reported.
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
