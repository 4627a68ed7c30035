"""The gate of accuracy over means of splits: differences paired by split, and what cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit

from reid_dist.nightly.gating.accuracy import gate_means
from reid_dist.nightly.gating.gate_settings import AccuracyGate
from reid_dist.nightly.history.history_values import ALARM, Code, Entry, Estimate, Outcome, Past

GATE = AccuracyGate()
BEFORE = np.array([0.61, 0.66, 0.58, 0.63, 0.7, 0.57, 0.62, 0.65, 0.6, 0.64])


def entry(values=BEFORE, *, inputs="new", job="j", **counts) -> Entry:
    per_split = {"mAP": np.asarray(values).tolist(), "CMC@1": np.asarray(values).tolist()}
    return Entry(
        model="m",
        dataset="d",
        job="j",
        metrics={name: Estimate(float(np.mean(each)), None, None) for name, each in per_split.items()},
        counts={"n_query": 9, "n_gallery": 5, "per_split": per_split} | counts,
        conventions={"protocol": {"ap_family": "mAP", "cmc_family": "CMC"}, "draw": {}},
        input_digest=inputs,
        job_digest=job,
        result_digest=str(values),
    )


def found(candidate, before=None, same=None):
    past = Past(7, before or entry(inputs="old"), None)
    return gate_means(candidate, last_good=past, same_options=same, gate=GATE)


@pytest.mark.parametrize(
    ("shift", "noise", "verdict"),
    [
        (-0.02, 0.002, Outcome.WORSE),
        (0.02, 0.002, Outcome.BETTER),
        (-0.001, 0.0005, Outcome.SAME),
        (-0.02, 0.05, Outcome.UNDECIDED),
        (-0.004, 0.0, Outcome.SAME),
    ],
)
def test_differences_are_paired_by_split(shift: float, noise: float, verdict: str) -> None:
    difference = shift + noise * np.array([1, -1, 2, -2, 0.5, -0.5, 1.5, -1.5, 0, 0])
    finding = found(entry(BEFORE + difference))
    assert (finding.verdict, finding.baseline, finding.alarm) == (verdict, 7, "")
    (change, _) = finding.changes
    # Two gated metrics, each at half of the share of the last good run.
    level = 1 - 2 * GATE.last_good_share * GATE.false_alarm / 2
    half = stdtrit(9, (1 + level) / 2) * difference.std(ddof=1) / np.sqrt(10)
    assert (change.low, change.high) == pytest.approx((difference.mean() - half, difference.mean() + half), abs=1e-12)
    assert change.difference == pytest.approx(difference.mean(), abs=1e-12)
    assert (finding.code, change.test, change.n_units) == (Code.TESTED, "splits", 10)
    # Values of the splits in another order are other pairs: the spread of the splits hides the difference.
    if verdict == Outcome.WORSE:
        assert found(entry((BEFORE + difference)[::-1])).verdict == Outcome.UNDECIDED


def test_what_cannot_be_compared_is_said() -> None:
    for candidate, before, code in (
        (entry(BEFORE - 0.1, job="k"), None, Code.OTHER_JOB),
        (entry(BEFORE - 0.1, n_gallery=6), None, Code.OTHER_SIZES),
        (entry(BEFORE[:9] - 0.1), None, Code.TESTED),
        (entry(BEFORE - 0.1), entry(inputs="old", per_split={}), Code.TESTED),
        (entry(BEFORE[:1]), entry(BEFORE[:1] - 0.1), Code.TESTED),
    ):
        finding = found(candidate, before)
        assert (finding.verdict, finding.code) == (Outcome.INCOMPARABLE, code)
        assert all(each.difference is None for each in finding.changes)
        assert finding.is_uncompared
        mean = candidate.metrics["mAP"].value
        assert [(each.name, each.candidate) for each in finding.changes] == [("mAP", mean), ("CMC@1", mean)]
    first = gate_means(entry(), last_good=None, same_options=None, gate=GATE)
    assert (first.code, first.is_uncompared) == (Code.NO_BASELINE, False)


def test_equal_results_are_the_same_and_another_result_of_equal_inputs_is_an_alarm() -> None:
    finding = found(entry(), entry(inputs="old"))
    assert (finding.verdict, finding.code, finding.baseline) == (Outcome.SAME, Code.EQUAL, 7)
    other = found(entry(BEFORE + 0.02), same=Past(8, entry(), None))
    assert (other.alarm, other.verdict) == (ALARM, Outcome.BETTER)
    assert other.facts["moved"]["run"] == 8
