"""Application of the gates to an entry and the history of its job.

A gate is its settings, what it reads of the earlier nights, and a pure function from that to a finding; `_GATES` has
all, in the order of the findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from reid_dist.errors import DamagedStoreError, StoreNotFoundError
from reid_dist.nightly.gating.accuracy import gate_accuracy, gate_means, gated_metrics
from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.gating.settings import AccuracyGate, Gates, RatioGate, TrendGate
from reid_dist.nightly.gating.trend import Night, announced_once, gate_trend, night_of, tested_metrics
from reid_dist.nightly.history import History, Past
from reid_dist.nightly.history.values import DONE, INCOMPARABLE, Code, Entry, Finding
from reid_dist.reports import Report

# Number of windows that are searched for comparable runs.
_WINDOWS: Final = 5


def apply_gates(
    entry: Entry, report: Report | None, history: History, *, suite: str, number: int, gates: Gates
) -> tuple[Finding, ...]:
    """Return the findings of the gates for an entry of a run, in the history or not; none unless it is done.

    Means over splits have no report with values per query: `report` is None, and they are compared split by split.
    """
    if entry.state != DONE:
        return ()
    chosen = {name: getattr(gates, name) for name in _GATES if getattr(gates, name) is not None}
    if report is not None:
        earlier = _EarlierNights(entry, report, history, suite, number)
        return tuple(_finding(name, earlier, settings) for name, settings in chosen.items())
    measured = _MeasuredNights(entry, history, suite, number)
    findings = []
    if "accuracy" in chosen:
        good = history.last_good(suite, entry.name, before=number)
        findings = [gate_means(entry, last_good=good, same_options=measured.same_options, gate=chosen["accuracy"])]
    return (*findings, *(_OF_ENTRIES[name](measured, each) for name, each in chosen.items() if name in _OF_ENTRIES))


class _UnreadableReportError(Exception):
    """The report of an earlier night is damaged."""

    def __init__(self, reason: str, run: int) -> None:
        super().__init__(reason)
        self.run = run


class _MeasuredNights:
    """Earlier nights for the gates of speed and memory, which read no report."""

    def __init__(self, entry: Entry, history: History, suite: str, number: int) -> None:
        self.entry, self.history, self.suite, self.number = entry, history, suite, number

    @property
    def same_options(self) -> Past | None:
        """The newest good entry of equal inputs and an equal job."""
        entry = self.entry
        return self.history.same_options(
            self.suite, entry.name, entry.input_digest, entry.job_digest, before=self.number
        )

    def window(self, gate: RatioGate) -> list[Entry]:
        """Return the entries in which a gate of speed or memory searches for comparable ones, oldest first."""
        return [each.entry for each in self.measured(_WINDOWS * gate.window)]

    def measured(self, last: int) -> list[Past]:
        """Return the last nights in which the job was done, oldest first."""
        return self.history.measured(self.suite, self.entry.name, before=self.number, last=last)


class _EarlierNights(_MeasuredNights):
    """Earlier nights for the gates of metrics; each report is read once."""

    def __init__(self, entry: Entry, report: Report, history: History, suite: str, number: int) -> None:
        super().__init__(entry, history, suite, number)
        self.report = report
        self.reference = history.reference(suite, entry, before=number)
        self._nights: dict[tuple[str, tuple[str, ...]], Night | None] = {}

    def past(self, last: int) -> list[Past]:
        """Return the last comparable nights, oldest first; none before the accepted one."""
        since = self.reference.run if self.reference is not None and self.reference.entry.accepted else 0
        return [
            each
            for each in self.measured(last)
            if each.run >= since and each.entry.comparison_key == self.entry.comparison_key
        ]

    def tested(self, gate: AccuracyGate | TrendGate) -> tuple[str, ...]:
        """Return the gated metrics with values per query."""
        return tested_metrics(self.report, gated_metrics(gate.metrics, self.report))

    def nights(self, past: Sequence[Past], metrics: tuple[str, ...]) -> list[Night]:
        """Return the values of nights, oldest first, each result once; nights with pruned reports are left out."""
        newest = {each.entry.result_digest: each for each in past}
        found = (self._night(each, metrics) for each in sorted(newest.values(), key=lambda each: each.run))
        return [night for night in found if night is not None]

    def with_report(self, past: Past) -> Past:
        """Return an entry with its report, None for a pruned one."""
        try:
            return past._replace(report=self.history.report(past.run, past.entry.name))
        except StoreNotFoundError:
            return past
        except DamagedStoreError as error:
            raise _UnreadableReportError(str(error), past.run) from error

    def _night(self, past: Past, metrics: tuple[str, ...]) -> Night | None:
        key = past.entry.result_digest, metrics
        if key not in self._nights:
            is_tonights = past.entry.result_digest == self.entry.result_digest
            report = self.report if is_tonights else self.with_report(past).report
            night = None if report is None else night_of(past.run, report, self.report, metrics)
            self._nights[key] = night
        return self._nights[key]


def _finding(name: str, earlier: _EarlierNights, settings: Any) -> Finding:
    """Return the finding of a gate.  A damaged baseline does not fail this night, but is reported."""
    try:
        return _GATES[name](earlier, settings)
    except _UnreadableReportError as error:
        return Finding(
            gate=name, verdict=INCOMPARABLE, code=Code.DAMAGED, facts={"text": str(error)}, baseline=error.run
        )


def _accuracy(earlier: _EarlierNights, gate: AccuracyGate) -> Finding:
    entry, history = earlier.entry, earlier.history
    good = history.last_good(earlier.suite, entry.name, before=earlier.number)
    same = earlier.same_options
    last_good, reference = (None if each is None else earlier.with_report(each) for each in (good, earlier.reference))
    return gate_accuracy(
        earlier.report,
        entry,
        last_good=last_good,
        same_options=same,
        gate=gate,
        reference=reference,
    )


def _trend(earlier: _EarlierNights, gate: TrendGate) -> Finding:
    metrics, past = earlier.tested(gate), earlier.past(gate.nights - 1)
    tonight = night_of(earlier.number, earlier.report, earlier.report, metrics)
    if tonight is None:
        return Finding(gate="trend", verdict=INCOMPARABLE, code=Code.NO_LABELS)
    nights = earlier.nights(past, metrics)
    if past and not nights:
        return Finding(gate="trend", verdict=INCOMPARABLE, code=Code.NO_REPORTS)
    results = {night.digest for night in nights}
    n_earlier = sum(each.entry.result_digest in results for each in past)
    found = gate_trend(nights, tonight, earlier.report.per_query["pid"], n_earlier=n_earlier, gate=gate)
    before = past[-1].entry.finding("trend") if past else None
    return found if before is None else announced_once(found, before, past[-1].run)


_OF_ENTRIES: Final[Mapping[str, Callable[[_MeasuredNights, Any], Finding]]] = {
    "speed": lambda earlier, gate: gate_speed(earlier.entry, earlier.window(gate), gate),
    "memory": lambda earlier, gate: gate_memory(earlier.entry, earlier.window(gate), gate),
}

_GATES: Final[Mapping[str, Callable[[_EarlierNights, Any], Finding]]] = {
    "accuracy": _accuracy,
    "trend": _trend,
    **_OF_ENTRIES,
}
