"""Gate of accuracy: equal results for equal inputs, and no loss beyond noise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from reid_dist.errors import InputError
from reid_dist.metrics.confidence import Interval
from reid_dist.metrics.definitions import parse_metric
from reid_dist.metrics.repeats import mean_and_spread, mean_interval
from reid_dist.nightly.entries import PER_SPLIT
from reid_dist.nightly.gating.differences import job_differences, listed, place_differences
from reid_dist.nightly.gating.nights import Float64, Tested, finding_of_metrics, points
from reid_dist.nightly.gating.settings import AccuracyGate
from reid_dist.nightly.history.values import (
    ALARM,
    BETTER,
    INCOMPARABLE,
    SAME,
    UNDECIDED,
    WORSE,
    Change,
    Entry,
    Finding,
    Past,
)
from reid_dist.reports import Report
from reid_dist.reports.comparison import Comparison, MetricComparison, compare
from reid_dist.reports.comparison.conditions import differing_conditions
from reid_dist.reports.documents import plain
from reid_dist.reports.verdicts import ROUNDING, decidable, verdict_of_interval

_GATE: Final = "accuracy"
_MOST_LOST: Final = 10
_DIGEST_SHOWN: Final = 12
_DIGEST: Final = re.compile(r"[0-9a-f]{32,}")


def gate_accuracy(
    candidate: Report,
    entry: Entry,
    *,
    last_good: Past | None,
    same_options: Past | None,
    gate: AccuracyGate,
    reference: Past | None = None,
) -> Finding:
    """Return the finding of accuracy of an entry.

    `last_good`, the newest good entry of the same name, and `reference`, the last accepted one or else the first, have
    their reports.  `same_options` is the newest good entry with equal `input_digest` and `job_digest`; its report is
    not needed.

    The finding is that against the last good entry; where that is no loss but the other comparison is, that against the
    reference.  Where there is no loss and no gain either, it is a gain against the last accepted entry, in the night in
    which the gain is reached.
    """
    # Of `same_options` alone only the digest is known.
    finding = _against(candidate, entry, last_good or same_options, gate, gate.last_good_share, "last good")
    loss = _loss_against_reference(candidate, entry, last_good, reference, gate)
    if loss is not None:
        if finding.verdict == WORSE:
            finding = replace(finding, reason=f"{finding.reason}; also a loss against run {loss.baseline}")
        else:
            latest = "" if finding.baseline is None else f"; {finding.verdict} against run {finding.baseline}, the last"
            finding = replace(loss, reason=loss.reason + latest)
    elif finding.verdict != BETTER and (gain := _new_gain(candidate, entry, last_good, reference, gate)) is not None:
        latest = "" if finding.baseline is None else f"; {finding.verdict} against run {finding.baseline}, the last"
        finding = replace(gain, reason=gain.reason + latest)
    alarm = _moved_without_cause(entry, same_options)
    return replace(finding, alarm=ALARM, reason=f"{alarm}; {finding.reason}") if alarm else finding


def gate_means(entry: Entry, *, last_good: Past | None, same_options: Past | None, gate: AccuracyGate) -> Finding:
    """Return the finding of accuracy of means over splits, against the last good entry of the same splits.

    Differences are paired by split, with Student's t interval of their mean.  Splits that share their queries tell a
    loss from the noise of the galleries alone.
    """
    finding = _means_against(entry, last_good or same_options, gate)
    alarm = _moved_without_cause(entry, same_options)
    return replace(finding, alarm=ALARM, reason=f"{alarm}; {finding.reason}") if alarm else finding


def _means_against(entry: Entry, earlier: Past | None, gate: AccuracyGate) -> Finding:
    if earlier is None:
        return _without_baseline()
    number, before = earlier.run, earlier.entry
    wanted = _gated(gate.metrics, entry.conventions["protocol"], entry.metrics.__contains__)
    if entry.job_digest != before.job_digest:
        return _incomparable(_other_job(entry, earlier), entry, earlier, wanted)
    if _is_same(entry, before):
        values = {name: entry.metrics[name].value for name in wanted if name in entry.metrics}
        return _same(number, [_unmoved(name, value) for name, value in values.items()])
    if entry.comparison_key != before.comparison_key:
        return _incomparable(f"labels or numbers of rows changed since run {number}", entry, earlier, wanted)
    rate = gate.last_good_share * gate.false_alarm / len(wanted)
    tested = []
    for name in wanted:
        old, new = (np.asarray(each.counts.get(PER_SPLIT, {}).get(name, ()), np.float64) for each in (before, entry))
        if len(old) == len(new) and np.isfinite([*old, *new]).all() and len(new) > 1:
            tested.append(_tested_means(name, old, new, gate, 1 - 2 * rate))
        else:
            change = Change(name=name, baseline=plain(_value_of(before, name)), candidate=plain(_value_of(entry, name)))
            tested.append(Tested(change, f"{name} has no values of the same splits, two or more, in both runs"))
    order = (WORSE, INCOMPARABLE, BETTER, UNDECIDED, SAME)
    return finding_of_metrics(_GATE, tested, order, against=f"against run {number}", baseline=number)


def _tested_means(name: str, old: Float64, new: Float64, gate: AccuracyGate, level: float) -> Tested:
    """Test the mean difference of a metric over splits."""
    interval = mean_interval((new - old).tolist(), level)
    before, after, difference = (mean_and_spread(each.tolist())[0] for each in (old, new, new - old))
    change = Change(
        name=name,
        baseline=before,
        candidate=after,
        difference=difference,
        low=interval.low,
        high=interval.high,
        verdict=verdict_of_interval(difference, interval, smallest_effect=gate.minimum_effect),
    )
    return Tested(change, f"{_movement(name, difference, after, level, interval)}, {len(new)} splits)")


def _value_of(entry: Entry, name: str) -> float | None:
    return entry.metrics[name].value if name in entry.metrics else None


def gated_metrics(metrics: tuple[str, ...] | None, report: Report) -> tuple[str, ...]:
    """Return the names of gated metrics: those of the gate, or the defaults of the protocol."""
    return _gated(metrics, report.protocol, lambda name: _has(report, name))


def _gated(metrics: tuple[str, ...] | None, protocol: Mapping[str, Any], has: Callable[[str], bool]) -> tuple[str, ...]:
    if metrics is not None:
        return metrics
    # A report without the metric of its own family may have the customary one.
    precision = (str(protocol.get("ap_family", "mAP")), "mAP")
    first = (f"{protocol.get('cmc_family', 'CMC')}@1", "CMC@1")
    found = [next((name for name in names if has(name)), "") for names in (precision, first)]
    # With neither, the finding names the missing ones.
    return tuple(name for name in found if name) or (precision[0], first[0])


def _loss_against_reference(
    candidate: Report, entry: Entry, last_good: Past | None, reference: Past | None, gate: AccuracyGate
) -> Finding | None:
    """Return a loss against the reference; None for none."""
    if reference is None or (last_good is not None and reference.run == last_good.run):
        return None
    if not _dropped(entry, reference.entry, gated_metrics(gate.metrics, candidate), gate.minimum_effect):
        return None
    found = _against(candidate, entry, reference, gate, gate.reference_share, _role(reference))
    return found if found.verdict == WORSE else None


def _role(reference: Past) -> str:
    return "last accepted" if reference.entry.accepted else "first"


def _new_gain(
    candidate: Report, entry: Entry, last_good: Past | None, reference: Past | None, gate: AccuracyGate
) -> Finding | None:
    """Return a gain against the last accepted entry that the last good entry had not reached; None for none."""
    if reference is None or not reference.entry.accepted or last_good is None or last_good.run == reference.run:
        return None
    role = _role(reference)
    gain = _against(candidate, entry, reference, gate, gate.reference_share, role)
    if gain.verdict != BETTER or last_good.report is None:
        return None
    before = _against(last_good.report, last_good.entry, reference, gate, gate.reference_share, role)
    return None if before.verdict == BETTER else gain


def _dropped(after: Entry, before: Entry, metrics: Sequence[str], smallest: float) -> bool:
    """Return whether a metric may have dropped by so much; true for unknown values."""
    values = [(before.metrics.get(name), after.metrics.get(name)) for name in metrics]
    return any(
        old is None
        or new is None
        or old.value is None
        or new.value is None
        or old.value - new.value >= smallest - ROUNDING
        for old, new in values
    )


def _moved_without_cause(entry: Entry, earlier: Past | None) -> str:
    """Return the text of the alarm for another result of equal inputs and an equal job; empty for none."""
    if earlier is None:
        return ""
    before = earlier.entry
    digests = entry.input_digest, entry.job_digest
    if not all(digests) or digests != (before.input_digest, before.job_digest):
        return ""
    if entry.result_digest == before.result_digest:
        return ""
    places = place_differences(before, entry)
    where = f"what differs is {listed(places)}" if places else "versions and machine are equal as well"
    return (
        f"{ALARM}: equal inputs and an equal job gave the digest {_brief(before.result_digest)} in run "
        f"{earlier.run} and {_brief(entry.result_digest)} now; {where}"
    )


def _brief(text: str) -> str:
    """Return the first digits of a digest; any other text unchanged."""
    return text[:_DIGEST_SHOWN] if _DIGEST.fullmatch(text) else text


def _against(
    candidate: Report, entry: Entry, earlier: Past | None, gate: AccuracyGate, share: float, role: str
) -> Finding:
    """Compare an entry with an earlier one, at a share of the rate of the gate."""
    if earlier is None:
        return _without_baseline()
    number, before, report = earlier
    gated = gated_metrics(gate.metrics, candidate)
    if entry.job_digest != before.job_digest:
        return _incomparable(_other_job(entry, earlier), entry, earlier, gated)
    if _is_same(entry, before):
        return _same(number, [_unmoved(name, _value(candidate, name)) for name in gated if name in candidate.metrics])
    if report is None:
        return _incomparable(f"the report of run {number}, the {role} one, was pruned", entry, earlier, gated)
    conditions = [
        f"{each.what} {_brief(each.baseline)}, then {_brief(each.candidate)}"
        for each in differing_conditions(report, candidate)
    ]
    if conditions:
        reason = f"the conditions changed since run {number}: {listed(conditions)}"
        return _incomparable(reason, entry, earlier, gated)
    try:
        return _compared(candidate, report, number, gate, share, role)
    except InputError as error:
        return _incomparable(str(error), entry, earlier, gated)


def _other_job(entry: Entry, earlier: Past) -> str:
    differences = job_differences(earlier.entry, entry)
    return f"the job changed since run {earlier.run}: {listed(differences) or 'its digest'}"


def _is_same(entry: Entry, before: Entry) -> bool:
    return bool(entry.result_digest) and entry.result_digest == before.result_digest


def _same(number: int, changes: Sequence[Change]) -> Finding:
    reason = f"the same result as in run {number}, to the last bit"
    return Finding(gate=_GATE, verdict=SAME, reason=reason, baseline=number, changes=tuple(changes))


def _compared(candidate: Report, baseline: Report, number: int, gate: AccuracyGate, share: float, role: str) -> Finding:
    """Compare the gated metrics query by query; InputError where the runs do not compare."""
    wanted = gated_metrics(gate.metrics, candidate)
    rate = share * gate.false_alarm / len(wanted)
    both = [name for name in wanted if _has(baseline, name) and _has(candidate, name)]
    tested: dict[str, Tested] = {}
    if both:
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
        tested = {metric.name: _tested(metric, comparison, gate) for metric in comparison.metrics}
    results = [tested[name] if name in tested else _missing(name, baseline, candidate, number) for name in wanted]
    against = f"against run {number}" if role == "last good" else f"against run {number}, the {role} one"
    order = (WORSE, INCOMPARABLE, BETTER, UNDECIDED, SAME)
    return finding_of_metrics(_GATE, results, order, against=against, baseline=number)


def _has(report: Report, name: str) -> bool:
    return name in report.metrics or parse_metric(name).per_query_name in report.per_query


def _missing(name: str, baseline: Report, candidate: Report, number: int) -> Tested:
    runs = ((f"run {number}", baseline), ("this run", candidate))
    lacking = [run for run, report in runs if not _has(report, name)]
    change = Change(name=name, baseline=_value(baseline, name), candidate=_value(candidate, name))
    return Tested(change, f"{name} is missing from {' and '.join(lacking)}")


def _tested(metric: MetricComparison, comparison: Comparison, gate: AccuracyGate) -> Tested:
    """Return the change and the description of one metric."""
    change = Change(
        name=metric.name,
        baseline=plain(metric.baseline),
        candidate=plain(metric.candidate),
        difference=plain(metric.difference),
        lost=tuple(metric.lost),
    )
    if metric.untested or metric.interval is None or metric.p_value is None or metric.verdict is None:
        return Tested(change, f"{metric.name} cannot be tested: {metric.untested}")
    change = replace(change, low=metric.interval.low, high=metric.interval.high, verdict=metric.verdict)
    return Tested(change, _in_words(metric, metric.interval, comparison, gate))


def _in_words(metric: MetricComparison, interval: Interval, comparison: Comparison, gate: AccuracyGate) -> str:
    parts = [
        _movement(metric.name, metric.difference, metric.candidate, comparison.level, interval),
        f"{comparison.n_units} identities",
        f"{metric.n_lost} queries lost and {metric.n_gained} gained",
    ]
    effect = f"the {points(gate.minimum_effect)} points that matter"
    if metric.verdict == SAME:
        parts.append(f"within {effect}")
    elif not decidable(comparison.n_units, comparison.level):
        parts.append(
            f"{comparison.n_units} identities are too few to tell a loss from chance at a level of "
            f"{100 * comparison.level:.6g} %"
        )
    elif metric.verdict == UNDECIDED:
        small = (interval.high < 0 or interval.low > 0) and abs(metric.difference) < gate.minimum_effect
        parts.append(
            f"less than {effect}, which are not excluded" if small else f"chance and {effect} are both possible"
        )
    return ", ".join(parts) + ")"


def _movement(name: str, difference: float, after: float, level: float, interval: Interval) -> str:
    """Return how a metric moved, up to a bracket that stays open."""
    moved = (
        f"{'fell' if difference < 0 else 'rose'} by {points(abs(difference))} points to" if difference else "stayed at"
    )
    return (
        f"{name} {moved} {points(after)} % ({100 * level:.6g} % interval of the difference "
        f"[{100 * interval.low:+.2f}, {100 * interval.high:+.2f}] points"
    )


def _value(report: Report, name: str) -> Any:
    return plain(report.metrics[name]) if name in report.metrics else None


def _unmoved(name: str, value: Any) -> Change:
    return Change(name=name, baseline=value, candidate=value, difference=0.0, verdict=SAME)


def _without_baseline() -> Finding:
    return Finding(gate=_GATE, verdict=INCOMPARABLE, reason="no earlier good run")


def _incomparable(reason: str, entry: Entry, earlier: Past, names: Sequence[str]) -> Finding:
    """Return the finding of an entry that does not compare with its baseline, with the values of both."""
    values = [(name, *(plain(_value_of(each, name)) for each in (earlier.entry, entry))) for name in names]
    changes = tuple(Change(name=name, baseline=before, candidate=after) for name, before, after in values)
    return Finding(gate=_GATE, verdict=INCOMPARABLE, reason=reason, baseline=earlier.run, changes=changes)
