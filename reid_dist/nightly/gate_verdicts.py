"""Application of the gates to an entry and the history of its job."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from reid_dist.errors import DamagedStoreError, StoreNotFoundError
from reid_dist.nightly.causes import content_digests
from reid_dist.nightly.common_items import CommonItems, NotCommonError
from reid_dist.nightly.gating.accuracy import (
    gate_accuracy,
    gate_means,
    gated_metrics,
    instead_of,
    role_of,
    with_alarm,
)
from reid_dist.nightly.gating.gate_settings import AccuracyGate, Gates, RatioGate, TrendGate
from reid_dist.nightly.gating.ratios import gate_memory, gate_speed
from reid_dist.nightly.gating.trend import Night, announced_once, gate_trend, night_of, tested_metrics
from reid_dist.nightly.history import History, Past
from reid_dist.nightly.history.history_values import PREPARATION, Code, Entry, Finding, Outcome, State
from reid_dist.reports import Report

# Number of windows that are searched for comparable runs.
_WINDOWS: Final = 5


def apply_gates(
    entry: Entry,
    report: Report | None,
    history: History,
    *,
    suite: str,
    number: int,
    gates: Gates,
    common: Callable[[Past], CommonItems] | None = None,
    expects_new: bool = False,
) -> tuple[Finding, ...]:
    """Return the findings of the gates for an entry of a run, in the history or not; none unless it is done.

    Means over splits have no report with values per query: `report` is None, and they are compared split by split.
    `common` evaluates tonight on the items that a baseline with other rows or labels has as well, or raises
    NotCommonError; with `expects_new`, inputs with the content of the last night are a finding of their own.
    """
    if entry.state != State.DONE:
        return ()
    earlier = _EarlierNights(entry, history, suite, number)
    found: list[Finding] = []
    if gates.accuracy is not None:
        found.append(earlier.accuracy(report, gates.accuracy, common))
    if gates.trend is not None and report is not None:
        found.append(earlier.trend(report, gates.trend))
    if gates.speed is not None:
        found.append(gate_speed(entry, earlier.window(gates.speed), gates.speed))
    if gates.memory is not None:
        found.append(gate_memory(entry, earlier.window(gates.memory), gates.memory))
    if expects_new and (stale := earlier.stale()) is not None:
        found.append(stale)
    return tuple(found)


class _UnreadableReportError(Exception):
    """The report of an earlier night is damaged."""

    def __init__(self, error: DamagedStoreError, run: int) -> None:
        super().__init__(str(error))
        self.run = run

    def finding(self, gate: str) -> Finding:
        """Return the finding of a gate: a damaged baseline does not fail this night, but is reported."""
        facts = {"text": str(self)}
        return Finding(gate=gate, verdict=Outcome.INCOMPARABLE, code=Code.DAMAGED, facts=facts, baseline=self.run)


def _differs_in_items(entry: Entry, before: Entry) -> bool:
    """Whether two entries are one job over other rows or labels."""
    return entry.job_digest == before.job_digest and entry.comparison_key != before.comparison_key


def _on_common_items(entry: Entry, last: Past, common: CommonItems, gate: AccuracyGate) -> Finding:
    """Compare an entry with an earlier one over the items of both."""
    now, before = entry.of_report(common.tonight), last.entry.of_report(common.baseline)
    baseline = Past(last.run, before, common.baseline)
    found = gate_accuracy(common.tonight, now, last_good=baseline, same_options=None, gate=gate)
    # Rows of queries are those of tonight's whole set.
    changes = tuple(
        replace(change, lost=tuple(replace(moved, row=int(common.query_rows[moved.row])) for moved in change.lost))
        for change in found.changes
    )
    return replace(found, changes=changes, facts={**found.facts, "common": dict(common.facts)})


class _EarlierNights:
    """What the gates read of the earlier nights of a job."""

    def __init__(self, entry: Entry, history: History, suite: str, number: int) -> None:
        self.entry, self.history, self.suite, self.number = entry, history, suite, number
        self.reference = history.reference(suite, entry, before=number)

    def accuracy(
        self, report: Report | None, gate: AccuracyGate, common: Callable[[Past], CommonItems] | None
    ) -> Finding:
        """Return the finding of accuracy."""
        entry, history = self.entry, self.history
        good = history.last_good(self.suite, entry.name, before=self.number)
        digests = {"input_digest": entry.input_digest, "job_digest": entry.job_digest}
        # The newest good entry of equal inputs and an equal job.
        same = history.last_good(self.suite, entry.name, before=self.number, **digests)
        if report is None:
            return gate_means(entry, last_good=good, same_options=same, gate=gate)
        try:
            read = [None if each is None else self._with_report(each) for each in (good, self.reference)]
        except _UnreadableReportError as error:
            return error.finding("accuracy")
        last, reference = read
        facts: dict[str, str] = {}
        if common is not None and last is not None and last.report is not None and _differs_in_items(entry, last.entry):
            try:
                return with_alarm(self._on_common_items(last, gate, common), entry, same)
            except NotCommonError as error:
                facts = error.facts
        found = gate_accuracy(report, entry, last_good=last, same_options=same, gate=gate, reference=reference)
        return replace(found, facts={**found.facts, **facts})

    def _on_common_items(self, last: Past, gate: AccuracyGate, common: Callable[[Past], CommonItems]) -> Finding:
        """Return the finding of accuracy over the items of both nights; NotCommonError if there is none.

        The reference of other rows is compared in the same way, in the first night of these rows.
        """
        found = _on_common_items(self.entry, last, common(last), gate)
        reference = self.history.reference(self.suite, self.entry, before=self.number, any_items=True)
        if (
            self.reference is not None
            or reference is None
            or reference.run == last.run
            or found.verdict == Outcome.WORSE
        ):
            return found
        with contextlib.suppress(NotCommonError, _UnreadableReportError):
            loss = _on_common_items(self.entry, reference, common(self._with_report(reference)), gate)
            if loss.verdict == Outcome.WORSE:
                return instead_of(replace(loss, facts={**loss.facts, "role": role_of(reference)}), found)
        return found

    def stale(self) -> Finding | None:
        """Return the finding of inputs that all have the content of the last night; None if one is new."""
        for last in self._measured(1):
            if content_digests(last.entry) == content_digests(self.entry):
                return Finding(gate=PREPARATION, verdict=Outcome.STALE, code=Code.STALE, baseline=last.run)
        return None

    def trend(self, report: Report, gate: TrendGate) -> Finding:
        """Return the finding of the trend; it reaches back to the accepted night at most."""
        metrics = tested_metrics(report, gated_metrics(gate.metrics, report))
        since = self.reference.run if self.reference is not None and self.reference.entry.accepted else 0
        past = [
            each
            for each in self._measured(gate.nights - 1)
            if each.run >= since and each.entry.comparison_key == self.entry.comparison_key
        ]
        tonight = night_of(self.number, report, report, metrics)
        if tonight is None:
            return Finding(gate="trend", verdict=Outcome.INCOMPARABLE, code=Code.NO_LABELS)
        try:
            nights = self._nights(past, report, metrics)
        except _UnreadableReportError as error:
            return error.finding("trend")
        if past and not nights:
            return Finding(gate="trend", verdict=Outcome.INCOMPARABLE, code=Code.NO_REPORTS)
        results = {night.digest for night in nights}
        n_earlier = sum(each.entry.result_digest in results for each in past)
        found = gate_trend(nights, tonight, report.per_query["pid"], n_earlier=n_earlier, gate=gate)
        before = [(each.run, finding) for each in past if (finding := each.entry.finding("trend")) is not None]
        repeats = past and past[-1].entry.result_digest == self.entry.result_digest
        return announced_once(found, before, repeats=past[-1].run if repeats else None)

    def window(self, gate: RatioGate) -> list[Entry]:
        """Return the entries in which a gate of speed or memory searches for comparable ones, oldest first."""
        return [each.entry for each in self._measured(_WINDOWS * gate.window)]

    def _measured(self, last: int) -> list[Past]:
        """Return the last nights in which the job was done, oldest first."""
        return self.history.measured(self.suite, self.entry.name, before=self.number, last=last)

    def _nights(self, past: list[Past], report: Report, metrics: tuple[str, ...]) -> list[Night]:
        """Return the values of nights, oldest first, each result once; nights with pruned reports are left out."""
        newest = {each.entry.result_digest: each for each in past}
        found = []
        for each in sorted(newest.values(), key=lambda each: each.run):
            is_tonights = each.entry.result_digest == self.entry.result_digest
            read = report if is_tonights else self._with_report(each).report
            found.append(None if read is None else night_of(each.run, read, report, metrics))
        return [night for night in found if night is not None]

    def _with_report(self, past: Past) -> Past:
        """Return an entry with its report, None for a pruned one."""
        try:
            return past._replace(report=self.history.report(past.run, past.entry.name))
        except StoreNotFoundError:
            return past
        except DamagedStoreError as error:
            raise _UnreadableReportError(error, past.run) from error
