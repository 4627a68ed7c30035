"""Gate of accuracy: equal results for equal inputs, and no loss beyond noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.metrics.metric import parse_metric
from reid_dist.metrics.repeats import mean_and_spread, mean_interval
from reid_dist.nightly.causes import job_differences, place_differences
from reid_dist.nightly.gating.gate_settings import AccuracyGate
from reid_dist.nightly.history.history_values import (
    ALARM,
    BASELINE,
    CANDIDATE,
    PER_SPLIT,
    Change,
    Code,
    Decider,
    Entry,
    Finding,
    Outcome,
    Past,
    Role,
)
from reid_dist.reports import Report
from reid_dist.reports.comparison import Comparison, MetricComparison, compare
from reid_dist.reports.comparison.conditions import differing_conditions
from reid_dist.reports.documents import plain
from reid_dist.reports.verdicts import ROUNDING, decidable, verdict_of_interval

Float64 = NDArray[np.float64]

_GATE: Final = "accuracy"
_MOST_LOST: Final = 10
_ORDER: Final = (Outcome.WORSE, Outcome.INCOMPARABLE, Outcome.BETTER, Outcome.UNDECIDED, Outcome.SAME)


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
    finding = _against(candidate, entry, last_good, gate, gate.last_good_share, Role.LAST_GOOD)
    loss = _loss_against_reference(candidate, entry, last_good, reference, gate)
    if loss is not None and finding.verdict == Outcome.WORSE:
        finding = replace(finding, facts={**finding.facts, "also": loss.baseline})
    elif loss is not None:
        finding = instead_of(loss, finding)
    elif (
        finding.verdict != Outcome.BETTER
        and (gain := _new_gain(candidate, entry, last_good, reference, gate)) is not None
    ):
        finding = instead_of(gain, finding)
    return with_alarm(finding, entry, same_options)


def gate_means(entry: Entry, *, last_good: Past | None, same_options: Past | None, gate: AccuracyGate) -> Finding:
    """Return the finding of accuracy of means over splits, against the last good entry of the same splits.

    Differences are paired by split, with Student's t interval of their mean.  Splits that share their queries tell a
    loss from the noise of the galleries alone.
    """
    return with_alarm(_means_against(entry, last_good, gate), entry, same_options)


def finding_of_changes(
    gate: str, changes: Sequence[Change], order: Sequence[str], code: str, facts: Mapping[str, Any], baseline: int
) -> Finding:
    """Return the finding of the first verdict of `order` that a change has."""
    verdict = next(each for each in order if any(change.verdict == each for change in changes))
    return Finding(gate=gate, verdict=verdict, code=code, facts=facts, baseline=baseline, changes=tuple(changes))


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


# ---------------------------------------------------------------------------------------------------- means over splits


def _means_against(entry: Entry, earlier: Past | None, gate: AccuracyGate) -> Finding:
    if earlier is None:
        return Finding(gate=_GATE, verdict=Outcome.INCOMPARABLE, code=Code.NO_BASELINE)
    before = earlier.entry
    wanted = _gated(gate.metrics, entry.conventions["protocol"], entry.metrics.__contains__)
    if (untested := _untested(entry, earlier, wanted)) is not None:
        return untested
    if entry.comparison_key != before.comparison_key:
        return _incomparable(Code.OTHER_SIZES, {}, entry, earlier, wanted)
    rate = gate.last_good_share * gate.false_alarm / len(wanted)
    changes = []
    for name in wanted:
        old, new = (np.asarray(each.counts.get(PER_SPLIT, {}).get(name, ()), np.float64) for each in (before, entry))
        if len(old) == len(new) and np.isfinite([*old, *new]).all() and len(new) > 1:
            changes.append(_tested_means(name, old, new, gate, 1 - 2 * rate))
        else:
            untried = Change(name=name, baseline=before.value(name), candidate=entry.value(name))
            changes.append(replace(untried, test=Decider.SPLITS))
    facts = {"role": Role.LAST_GOOD, "effect": gate.minimum_effect}
    return finding_of_changes(_GATE, changes, _ORDER, Code.TESTED, facts, earlier.run)


def _tested_means(name: str, old: Float64, new: Float64, gate: AccuracyGate, level: float) -> Change:
    interval = mean_interval((new - old).tolist(), level)
    before, after, difference = (mean_and_spread(each.tolist())[0] for each in (old, new, new - old))
    return Change(
        name=name,
        baseline=before,
        candidate=after,
        difference=difference,
        low=interval.low,
        high=interval.high,
        verdict=verdict_of_interval(difference, interval, smallest_effect=gate.minimum_effect),
        test=Decider.SPLITS,
        level=level,
        n_units=len(new),
    )


# ------------------------------------------------------------------------------------------------------------ reference


def _loss_against_reference(
    candidate: Report, entry: Entry, last_good: Past | None, reference: Past | None, gate: AccuracyGate
) -> Finding | None:
    if reference is None or (last_good is not None and reference.run == last_good.run):
        return None
    if not _dropped(entry, reference.entry, gated_metrics(gate.metrics, candidate), gate.minimum_effect):
        return None
    found = _against(candidate, entry, reference, gate, gate.reference_share, role_of(reference))
    return found if found.verdict == Outcome.WORSE else None


def _new_gain(
    candidate: Report, entry: Entry, last_good: Past | None, reference: Past | None, gate: AccuracyGate
) -> Finding | None:
    """Return a gain against the last accepted entry that the last good entry had not reached; None for none."""
    if reference is None or not reference.entry.accepted or last_good is None or last_good.run == reference.run:
        return None
    gain = _against(candidate, entry, reference, gate, gate.reference_share, Role.LAST_ACCEPTED)
    if gain.verdict != Outcome.BETTER or last_good.report is None:
        return None
    before = _against(last_good.report, last_good.entry, reference, gate, gate.reference_share, Role.LAST_ACCEPTED)
    return None if before.verdict == Outcome.BETTER else gain


def role_of(reference: Past) -> Role:
    """Return why an entry is a reference."""
    return Role.LAST_ACCEPTED if reference.entry.accepted else Role.FIRST


def instead_of(found: Finding, against_last: Finding) -> Finding:
    """Return a finding against the reference, with the verdict against the last good run."""
    return replace(found, facts={**found.facts, "last": [against_last.verdict, against_last.baseline]})


def _dropped(after: Entry, before: Entry, metrics: Sequence[str], smallest: float) -> bool:
    """Return whether a metric may have dropped by so much; true for unknown values."""
    values = [(before.value(name), after.value(name)) for name in metrics]
    return any(old is None or new is None or old - new >= smallest - ROUNDING for old, new in values)


def with_alarm(finding: Finding, entry: Entry, earlier: Past | None) -> Finding:
    """Return a finding with an alarm, if the earlier entry of equal inputs and an equal job has another result."""
    if earlier is None or entry.result_digest == earlier.entry.result_digest:
        return finding
    before = earlier.entry
    moved = {
        "run": earlier.run,
        "digests": [before.result_digest, entry.result_digest],
        "differences": place_differences(before, entry),
    }
    return replace(finding, alarm=ALARM, facts={**finding.facts, "moved": plain(moved)})


# ----------------------------------------------------------------------------------------------------------- comparison


def _against(
    candidate: Report, entry: Entry, earlier: Past | None, gate: AccuracyGate, share: float, role: str
) -> Finding:
    """Compare an entry with an earlier one, at a share of the rate of the gate."""
    if earlier is None:
        return Finding(gate=_GATE, verdict=Outcome.INCOMPARABLE, code=Code.NO_BASELINE)
    number, before, report = earlier
    gated = gated_metrics(gate.metrics, candidate)
    if (untested := _untested(entry, earlier, gated)) is not None:
        return untested
    if report is None:
        return _incomparable(Code.PRUNED, {"role": role}, entry, earlier, gated)
    conditions = [
        [each.what, str(each.baseline), str(each.candidate)] for each in differing_conditions(report, candidate)
    ]
    if conditions:
        return _incomparable(Code.OTHER_CONDITIONS, {"differences": conditions}, entry, earlier, gated)
    try:
        compared = _compared(candidate, report, gate, share)
    except InputError as error:
        return _incomparable(Code.REFUSED, {"text": str(error)}, entry, earlier, gated)
    tested = {} if compared is None else {each.name: _tested(each, compared) for each in compared.metrics}
    changes = []
    for name in gated:
        sides = ((BASELINE, report), (CANDIDATE, candidate))
        missing = tuple(side for side, each in sides if not _has(each, name))
        untried = Change(name=name, baseline=before.value(name), candidate=entry.value(name), missing=missing)
        changes.append(tested.get(name, untried))
    facts: dict[str, Any] = {"role": role, "effect": gate.minimum_effect}
    if compared is not None and not decidable(compared.n_units, compared.level):
        facts["too_few"] = compared.n_units
    return finding_of_changes(_GATE, changes, _ORDER, Code.TESTED, facts, number)


def _untested(entry: Entry, earlier: Past, gated: Sequence[str]) -> Finding | None:
    """Return the finding of an entry of another job, or with an equal result; None for one to compare."""
    before = earlier.entry
    if entry.job_digest != before.job_digest:
        differences = plain(job_differences(before, entry))
        return _incomparable(Code.OTHER_JOB, {"differences": differences}, entry, earlier, gated)
    if entry.result_digest != before.result_digest:
        return None
    equal = ((name, entry.value(name)) for name in gated if name in entry.metrics)
    changes = tuple(
        Change(name=name, baseline=value, candidate=value, difference=0.0, verdict=Outcome.SAME)
        for name, value in equal
    )
    return Finding(gate=_GATE, verdict=Outcome.SAME, code=Code.EQUAL, baseline=earlier.run, changes=changes)


def _compared(candidate: Report, baseline: Report, gate: AccuracyGate, share: float) -> Comparison | None:
    """Compare the gated metrics that both have query by query; None if they have none, InputError if they differ."""
    wanted = gated_metrics(gate.metrics, candidate)
    both = [name for name in wanted if _has(baseline, name) and _has(candidate, name)]
    if not both:
        return None
    return compare(
        baseline,
        candidate,
        metrics=both,
        level=1 - 2 * share * gate.false_alarm / len(wanted),
        n_resamples=gate.n_resamples,
        seed=gate.seed,
        minimum_effect=gate.minimum_effect,
        n_changed=_MOST_LOST,
    )


def _has(report: Report, name: str) -> bool:
    return name in report.metrics or parse_metric(name).per_query_name in report.per_query


def _tested(metric: MetricComparison, comparison: Comparison) -> Change:
    change = Change(
        name=metric.name,
        baseline=plain(metric.baseline),
        candidate=plain(metric.candidate),
        difference=plain(metric.difference),
        lost=tuple(metric.lost),
    )
    if metric.untested or metric.interval is None or metric.verdict is None:
        return replace(change, untested=metric.untested)
    return replace(
        change,
        low=metric.interval.low,
        high=metric.interval.high,
        verdict=metric.verdict,
        test=Decider.IDENTITIES,
        p_value=metric.p_value,
        level=comparison.level,
        n_units=comparison.n_units,
        n_lost=metric.n_lost,
        n_gained=metric.n_gained,
    )


def _incomparable(code: str, facts: Mapping[str, Any], entry: Entry, earlier: Past, names: Sequence[str]) -> Finding:
    """Return the finding of an entry that does not compare with its baseline, with the values of both."""
    changes = tuple(
        Change(name=name, baseline=earlier.entry.value(name), candidate=entry.value(name)) for name in names
    )
    return Finding(
        gate=_GATE, verdict=Outcome.INCOMPARABLE, code=code, facts=facts, baseline=earlier.run, changes=changes
    )
