"""The gate of accuracy: the same answer to the same question, and no drop that is more than noise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from reid_dist.comparison import ChangedQuery, Comparison, MetricComparison, compare
from reid_dist.comparison.conditions import differing_conditions
from reid_dist.confidence import Interval
from reid_dist.errors import InputError
from reid_dist.gating.differences import job_differences, listed, place_differences
from reid_dist.gating.settings import AccuracyGate
from reid_dist.history.values import ALARM, BETTER, INCOMPARABLE, SAME, WORSE, Change, Entry, Finding, Moved
from reid_dist.metrics import parse_metric
from reid_dist.reports import Report
from reid_dist.reports.plain import plain

__all__ = ["Earlier", "judge_accuracy"]

_GATE: Final = "accuracy"
_MOST_LOST: Final = 10
_DIGEST_SHOWN: Final = 12
_DIGEST: Final = re.compile(r"[0-9a-f]{32,}")


class Earlier(NamedTuple):
    """An entry of an earlier run.

    Attributes
    ----------
    number
        Of the run.
    entry
        What the history has of it.
    report
        Its report; None where it was pruned or is not needed.
    """

    number: int
    entry: Entry
    report: Report | None = None


def judge_accuracy(
    candidate: Report,
    facts: Entry,
    *,
    last_good: Earlier | None,
    same_question: Earlier | None,
    gate: AccuracyGate,
) -> Finding:
    """Judge the accuracy of an entry.

    Parameters
    ----------
    candidate
        Its report.
    facts
        The entry; its digests, conventions, environment and machine are looked at.
    last_good
        The newest good entry of the same name, with its report; None where there is none.
    same_question
        The newest good entry of the same name with equal `input_digest` and `job_digest`; None where there is none.
        Its report is not needed.
    gate
        The settings.
    """
    finding = _against(candidate, facts, last_good or same_question, gate)
    alarm = _moved_without_cause(facts, same_question)
    return replace(finding, alarm=ALARM, reason=f"{alarm}; {finding.reason}") if alarm else finding


def _moved_without_cause(facts: Entry, earlier: Earlier | None) -> str:
    """What to say if an equal question got another answer; empty if it did not."""
    if earlier is None:
        return ""
    before = earlier.entry
    question = facts.input_digest, facts.job_digest
    if not all(question) or question != (before.input_digest, before.job_digest):
        return ""
    if facts.result_digest == before.result_digest:
        return ""
    places = place_differences(before, facts)
    where = f"what differs is {listed(places)}" if places else "versions and machine are equal as well"
    return (
        f"{ALARM}: equal inputs and an equal job gave the digest {_brief(before.result_digest)} in run "
        f"{earlier.number} and {_brief(facts.result_digest)} now; {where}"
    )


def _brief(text: str) -> str:
    """Cut a digest; every other text stays."""
    return text[:_DIGEST_SHOWN] if _DIGEST.fullmatch(text) else text


def _against(candidate: Report, facts: Entry, earlier: Earlier | None, gate: AccuracyGate) -> Finding:
    """Hold an entry against the last good run."""
    if earlier is None:
        return _incomparable("no earlier good run")
    number, before, report = earlier
    if facts.job_digest != before.job_digest:
        differences = job_differences(before, facts)
        return _incomparable(f"the job changed since run {number}: {listed(differences) or 'its digest'}", number)
    if facts.result_digest and facts.result_digest == before.result_digest:
        changes = tuple(_unmoved(name, candidate) for name in _gated(gate, candidate) if name in candidate.metrics)
        return _finding(SAME, f"the same answer as in run {number}, to the last bit", number, changes)
    if report is None:
        return _incomparable(f"the report of run {number}, the last good one, was pruned", number)
    conditions = [
        f"{each.what} {_brief(each.baseline)}, then {_brief(each.candidate)}"
        for each in differing_conditions(report, candidate)
    ]
    if conditions:
        return _incomparable(f"the question changed since run {number}: {listed(conditions)}", number)
    return _judge(candidate, report, number, gate)


def _judge(candidate: Report, baseline: Report, number: int, gate: AccuracyGate) -> Finding:
    """Compare the gated metrics query by query."""
    wanted = _gated(gate, candidate)
    rate = gate.false_alarm / len(wanted)
    both = [name for name in wanted if _has(baseline, name) and _has(candidate, name)]
    tested: dict[str, _Judged] = {}
    if both:
        try:
            comparison = compare(
                baseline,
                candidate,
                metrics=both,
                level=1 - 2 * rate,
                n_resamples=gate.n_resamples,
                seed=gate.seed,
                minimum_effect=gate.minimum_effect,
                n_changed=_MOST_LOST,
            )
        except InputError as error:
            return _incomparable(str(error), number)
        tested = {metric.name: _tested(metric, comparison, rate, gate) for metric in comparison.metrics}
    judged = [tested[name] if name in tested else _missing(name, baseline, candidate, number) for name in wanted]
    verdict = _overall([each.change.verdict for each in judged])
    # What decided is said; the rest stands in the changes.
    decisive = "; ".join(each.words for each in judged if each.change.verdict == verdict)
    return _finding(verdict, f"against run {number}: {decisive}", number, tuple(each.change for each in judged))


@dataclass(frozen=True, slots=True)
class _Judged:
    """A change of a metric, and what to say of it."""

    change: Change
    words: str


def _overall(verdicts: Sequence[str]) -> str:
    """One verdict for several metrics: a loss outweighs a gap, and a gap a gain."""
    return next((verdict for verdict in (WORSE, INCOMPARABLE, BETTER) if verdict in verdicts), SAME)


def _gated(gate: AccuracyGate, report: Report) -> tuple[str, ...]:
    """Names of the gated metrics: what the gate names, or what the protocol of the report goes by."""
    if gate.metrics is not None:
        return gate.metrics
    # A report that was not asked for its own family's metric may still have the customary one.
    precision = (str(report.protocol.get("ap_family", "mAP")), "mAP")
    first = (f"{report.protocol.get('cmc_family', 'CMC')}@1", "CMC@1")
    found = [next((name for name in names if _has(report, name)), "") for names in (precision, first)]
    # With neither there is nothing to look at, and what was looked for is named.
    return tuple(name for name in found if name) or (precision[0], first[0])


def _has(report: Report, name: str) -> bool:
    return name in report.metrics or parse_metric(name).per_query_name in report.per_query


def _missing(name: str, baseline: Report, candidate: Report, number: int) -> _Judged:
    runs = ((f"run {number}", baseline), ("this run", candidate))
    lacking = [run for run, report in runs if not _has(report, name)]
    change = Change(name=name, baseline=_value(baseline, name), candidate=_value(candidate, name))
    return _Judged(change, f"{name} is missing from {' and '.join(lacking)}")


def _tested(metric: MetricComparison, comparison: Comparison, rate: float, gate: AccuracyGate) -> _Judged:
    """Judge one metric, one-sided at `rate`."""
    change = Change(
        name=metric.name,
        baseline=plain(metric.baseline),
        candidate=plain(metric.candidate),
        difference=plain(metric.difference),
        lost=tuple(map(_moved, metric.lost)),
    )
    if metric.untested or metric.interval is None or metric.p_value is None or metric.verdict is None:
        return _Judged(change, f"{metric.name} cannot be judged: {metric.untested}")
    change = replace(change, low=metric.interval.low, high=metric.interval.high)
    if 0.5**comparison.n_units > rate:
        # Though all of so few fell, chance would do that more often than the rate: "same" would say too much.
        few = f"{comparison.n_units} identities are too few to tell a loss from chance at a rate of {100 * rate:g} %"
        return _Judged(change, f"{metric.name} cannot be judged: {few}")
    # The interval is too narrow where identities are few; the test of signs is not.
    verdict = metric.verdict if metric.p_value <= 2 * rate else SAME
    change = replace(change, verdict=verdict)
    return _Judged(change, _in_words(metric, metric.interval, comparison, verdict, gate))


def _in_words(
    metric: MetricComparison, interval: Interval, comparison: Comparison, verdict: str, gate: AccuracyGate
) -> str:
    if metric.difference:
        moved = f"{'fell' if metric.difference < 0 else 'rose'} by {_points(abs(metric.difference))} points to"
    else:
        moved = "stayed at"
    parts = [
        f"{metric.name} {moved} {_points(metric.candidate)} % ({100 * comparison.level:g} % interval of the difference "
        f"[{100 * interval.low:+.2f}, {100 * interval.high:+.2f}] points",
        f"{comparison.n_units} identities",
        f"{metric.n_lost} queries lost and {metric.n_gained} gained",
    ]
    if verdict == SAME and (interval.high < 0 or interval.low > 0):
        small = abs(metric.difference) < gate.minimum_effect
        parts.append(f"less than the {_points(gate.minimum_effect)} points that matter" if small else "may be chance")
    return ", ".join(parts) + ")"


def _points(share: float) -> str:
    return f"{100 * share:.2f}"


def _moved(query: ChangedQuery) -> Moved:
    return Moved(query.row, query.pid, query.camid, query.baseline, query.candidate)


def _value(report: Report, name: str) -> Any:
    return plain(report.metrics[name]) if name in report.metrics else None


def _unmoved(name: str, report: Report) -> Change:
    value = _value(report, name)
    return Change(name=name, baseline=value, candidate=value, difference=0.0, verdict=SAME)


def _finding(verdict: str, reason: str, number: int | None, changes: tuple[Change, ...] = ()) -> Finding:
    return Finding(gate=_GATE, verdict=verdict, reason=reason, baseline=number, changes=changes)


def _incomparable(reason: str, number: int | None = None) -> Finding:
    return _finding(INCOMPARABLE, reason, number)
