"""The gate of accuracy: what is the same, what is worse, what cannot be compared, and what is an alarm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reid_dist import Report
from reid_dist.nightly.gating.accuracy import gate_accuracy
from reid_dist.nightly.gating.gate_settings import AccuracyGate
from reid_dist.nightly.history.history_values import ALARM, Change, Code, Entry, Finding, Past, Role, estimates_of
from reid_dist.nightly.wording import finding_text
from tests.benchmarks.gates import report_of

NAN = float("nan")
GATE = AccuracyGate()
QUICK = AccuracyGate(false_alarm=0.05, n_resamples=1000)


def report(ap: Any, pids: Any, hit: Any = None) -> Report:
    """A report with an AP and a hit at rank 1 per query; an AP of at least 0.55 is a hit by default."""
    values = np.asarray(ap, float)
    hits = np.asarray(values >= 0.55 if hit is None else hit, float)
    return report_of({"mAP": values, "CMC@1": hits}, np.asarray(pids))


def entry(of: Report, **changes: Any) -> Entry:
    facts: dict[str, Any] = {
        "metrics": estimates_of(of), "result_digest": of.result_digest,
        "input_digest": "new inputs", "job_digest": "job",
        "conventions": {"protocol": of.protocol, "distance": of.distance, "rerank": None},
        "environment": {"reid_dist": "0.1.0", "host": "a"}, "machine": {"cores": 4},
    }  # fmt: skip
    return Entry(model="m", dataset="d", job="j", **(facts | changes))


def earlier(of: Report, number: int = 7, **changes: Any) -> Past:
    return Past(number, entry(of, **({"input_digest": "old inputs"} | changes)), of)


def gated(
    before: Report | None, after: Report, *, same: Past | None = None, gate: AccuracyGate = GATE, **facts: Any
) -> Finding:
    last = None if before is None else earlier(before)
    return gate_accuracy(after, entry(after, **facts), last_good=last, same_options=same, gate=gate)


def models(loss: float, seed: int = 0, n_identities: int = 100) -> tuple[Report, Report]:
    """Two models that differ by noise, the second one worse by about `loss`."""
    rng = np.random.default_rng(seed)
    pids = np.repeat(np.arange(n_identities), 4)
    ap = rng.integers(3, 8, len(pids)) / 10
    return report(ap, pids), report(np.clip(ap - loss + rng.integers(-1, 2, len(pids)) / 50, 0, 1), pids)


def change_of(finding: Finding, name: str) -> Change:
    return next(change for change in finding.changes if change.name == name)


def test_a_clear_gain_is_better_and_a_loss_worse_with_figures_and_the_queries_that_lost() -> None:
    before, after = models(0.06)
    gain = gated(after, before)
    assert (gain.verdict, gain.is_regression) == ("better", False)
    found = gated(before, after)
    assert (found.verdict, found.alarm, found.baseline, found.is_regression) == ("worse", "", 7, True)
    change = change_of(found, "mAP")
    assert change.verdict == "worse"
    assert (change.baseline, change.candidate) == (before.metrics["mAP"], after.metrics["mAP"])
    assert change.difference == pytest.approx(after.metrics["mAP"] - before.metrics["mAP"])
    assert change.low is not None
    assert change.high is not None
    assert change.low < change.difference < change.high < 0
    assert len(change.lost) == 10
    losses = [query.candidate - query.baseline for query in change.lost]
    assert losses == sorted(losses)
    assert losses[0] == (after.per_query["AP"] - before.per_query["AP"]).min()
    assert (found.code, found.facts) == (Code.TESTED, {"role": "last good", "effect": 0.005})
    # Two metrics, each at half of the share of the last good run, on either side.
    assert (change.level, change.n_units, change.test) == (pytest.approx(0.998), 100, "identities")
    assert change.p_value is not None
    assert change.p_value <= 0.002
    rises = after.per_query["AP"] - before.per_query["AP"]
    assert (change.n_lost, change.n_gained) == ((rises < 0).sum(), (rises > 0).sum())


def test_one_metric_that_is_worse_outweighs_another_that_is_better() -> None:
    pids = np.repeat(np.arange(60), 3)
    before = report(np.full(180, 0.5), pids, np.ones(180))
    mixed = report(np.full(180, 0.6), pids, np.r_[np.zeros(60), np.ones(120)])
    found = gated(before, mixed)
    assert {change.name: change.verdict for change in found.changes} == {"mAP": "better", "CMC@1": "worse"}
    assert found.verdict == "worse"
    assert change_of(found, "CMC@1").difference == pytest.approx(-1 / 3)
    assert "mAP" not in finding_text(found), "the words name what decides"


def test_a_drop_that_does_not_matter_is_the_same() -> None:
    pids = np.repeat(np.arange(60), 3)
    before, after = report(np.full(180, 0.6), pids), report(np.full(180, 0.597), pids)
    found = gated(before, after)
    assert found.verdict == "same"
    change = change_of(found, "mAP")
    assert change.low is not None
    assert change.high is not None
    assert -0.005 <= change.low <= change.high <= 0.005
    assert gated(before, after, gate=AccuracyGate(minimum_effect=0.003)).verdict == "worse"
    assert gated(before, after, gate=AccuracyGate(minimum_effect=0.0031)).verdict == "same"


def test_noise_beyond_what_matters_is_undecided_and_within_it_the_same() -> None:
    rng, pids = np.random.default_rng(0), np.repeat(np.arange(60), 3)
    for _ in range(5):
        near, far = (report(0.5 + 0.1 * rng.standard_normal(180), pids) for _ in range(2))
        found = gated(near, far, gate=QUICK)
        assert (found.verdict, found.is_regression) == ("undecided", False)
        assert found.code == Code.TESTED
    # The noise of these is small beside half a point.
    assert [gated(*models(0.0, seed), gate=QUICK).verdict for seed in range(5)] == ["same"] * 5


def test_an_equal_digest_is_the_same_without_a_report() -> None:
    before, _ = models(0)
    for last in (earlier(before), earlier(before)._replace(report=None)):
        found = gate_accuracy(before, entry(before), last_good=last, same_options=None, gate=GATE)
        assert (found.verdict, found.code, found.baseline) == ("same", Code.EQUAL, 7)
        assert [change.difference for change in found.changes] == [0, 0]


def test_another_result_of_an_equal_job_is_an_alarm_with_the_differences() -> None:
    before, after = models(0.0)
    same_job = earlier(before, input_digest="new inputs")
    found = gate_accuracy(
        after,
        entry(after, environment={"reid_dist": "0.2.0", "host": "a"}, machine={"cores": 8}),
        last_good=same_job,
        same_options=same_job,
        gate=GATE,
    )
    assert (found.verdict, found.alarm, found.is_regression) == ("same", ALARM, True)
    assert found.facts["moved"] == {
        "run": 7,
        "digests": [before.result_digest, after.result_digest],
        "differences": [["reid_dist", "0.1.0", "0.2.0"], ["cores", "4", "8"]],
    }


def test_an_alarm_and_a_loss_are_both_reported() -> None:
    before, after = models(0.06)
    same_job = earlier(before, input_digest="new inputs")
    found = gate_accuracy(after, entry(after), last_good=same_job, same_options=same_job, gate=GATE)
    assert (found.verdict, found.alarm) == ("worse", ALARM)
    assert found.facts["moved"]["differences"] == []
    assert change_of(found, "mAP").verdict == "worse"


def test_an_old_result_is_compared_with_the_better_one_since() -> None:
    old, better = models(-0.06)
    same_job = earlier(old, 3, input_digest="new inputs")
    found = gate_accuracy(old, entry(old), last_good=earlier(better, 5), same_options=same_job, gate=GATE)
    assert (found.verdict, found.alarm, found.baseline) == ("worse", "", 5)


def test_a_loss_in_small_steps_is_found_against_the_reference() -> None:
    """Each night within what matters, the sum not; the reference of a loss against both is named beside it."""
    first, after = models(0.012)
    near = report(after.per_query["AP"] + 0.002, after.per_query["pid"])
    assert gated(near, after).verdict == "same"
    for accepted, role in (("", Role.FIRST), ("published", Role.LAST_ACCEPTED)):
        reference = earlier(first, 3, accepted=accepted)
        found = gate_accuracy(
            after, entry(after), last_good=earlier(near), same_options=None, gate=GATE, reference=reference
        )
        assert (found.verdict, found.baseline) == ("worse", 3)
        assert (found.facts["role"], found.facts["last"]) == (role, ["same", 7])
    both = gate_accuracy(
        after, entry(after), last_good=earlier(first), same_options=None, gate=GATE, reference=earlier(first, 3)
    )
    assert (both.verdict, both.baseline, both.facts["also"]) == ("worse", 7, 3)


BEFORE, AFTER = models(0.0, 3)
LABELS = {"inputs": BEFORE.inputs | {"gallery": {"content_digest": "c1", "labels_digest": "f" * 64}}}


@pytest.mark.parametrize(
    ("last", "after", "facts", "code", "found"),
    [
        (None, AFTER, {}, Code.NO_BASELINE, {}),
        (
            earlier(BEFORE, conventions={"rerank": {"name": "k_reciprocal", "k1": 20, "summary": "old words"}}),
            AFTER,
            {"job_digest": "2", "conventions": {"rerank": {"name": "k_reciprocal", "k1": 25, "summary": "new words"}}},
            Code.OTHER_JOB,
            {"differences": [["rerank.k1", "20", "25"]]},
        ),
        (
            earlier(BEFORE, conventions={"rerank": None}),
            AFTER,
            {"job_digest": "2", "conventions": {"rerank": None}},
            Code.OTHER_JOB,
            {"differences": []},
        ),
        (earlier(BEFORE)._replace(report=None), AFTER, {}, Code.PRUNED, {"role": "last good"}),
        (
            earlier(BEFORE),
            replace(AFTER, **LABELS),
            {},
            Code.OTHER_CONDITIONS,
            {"differences": [["labels of the gallery set", "labels", "f" * 64]]},
        ),
        (
            earlier(BEFORE),
            replace(AFTER, counts=AFTER.counts | {"n_gallery": 101}),
            {},
            Code.OTHER_CONDITIONS,
            {"differences": [["n_gallery", "1", "101"]]},
        ),
    ],
    ids=["first", "job", "job in a way unknown", "pruned", "labels", "gallery"],
)
def test_reasons_of_incomparable_ones(
    last: Past | None, after: Report, facts: dict[str, Any], code: str, found: dict[str, Any]
) -> None:
    finding = gate_accuracy(after, entry(after, **facts), last_good=last, same_options=None, gate=GATE)
    assert (finding.verdict, finding.code, finding.facts, finding.is_regression) == ("incomparable", code, found, False)
    assert finding.baseline == (None if last is None else 7)
    assert finding.is_uncompared == (last is not None)


def test_permuted_queries_are_refused() -> None:
    order = np.random.default_rng(0).permutation(len(BEFORE.per_query["pid"]))
    permuted = report(BEFORE.per_query["AP"][order], BEFORE.per_query["pid"][order])
    found = gated(BEFORE, permuted)
    assert (found.verdict, found.code) == ("incomparable", Code.REFUSED)
    assert "different queries" in found.facts["text"]


@pytest.mark.parametrize(
    ("n_identities", "verdict", "too_few"), [(1, "incomparable", 1), (7, "undecided", 7), (10, "worse", None)]
)
def test_few_identities_that_all_lost_are_never_called_the_same(
    n_identities: int, verdict: str, too_few: int | None
) -> None:
    pids = np.arange(5 * n_identities) % n_identities
    before, after = (report(np.full(len(pids), ap), pids) for ap in (0.9, 0.1))
    found = gated(before, after, gate=AccuracyGate(metrics=("mAP",)))
    assert (found.verdict, found.facts.get("too_few")) == (verdict, too_few)


@pytest.mark.parametrize(
    ("family", "precision"), [("CMC_allshots", "mAP"), ("CMC_single_shot", "mAP"), ("CMC", "mAP_trapezoid")]
)
def test_the_protocols_own_metrics_are_gated(family: str, precision: str) -> None:
    names = {"CMC@1": f"{family}@1", "mAP": precision, "AP": precision.replace("mAP", "AP")}
    reports = [
        replace(
            each,
            metrics={names[name]: value for name, value in each.metrics.items()},
            per_query={names.get(name, name): values for name, values in each.per_query.items()},
            protocol=each.protocol | {"ap_family": precision, "cmc_family": family},
        )
        for each in models(0.06)
    ]
    found = gated(*reports)
    assert found.verdict == "worse"
    assert [change.name for change in found.changes] == [precision, f"{family}@1"]


def test_without_the_families_own_metric_the_customary_one_is_gated() -> None:
    before, after = models(0.06)
    families = BEFORE.protocol | {"ap_family": "mAP_trapezoid", "cmc_family": "CMC_allshots"}
    found = gated(*(replace(each, protocol=families) for each in (before, after)))
    assert [change.name for change in found.changes] == ["mAP", "CMC@1"]


def without_hits(full: Report) -> Report:
    return replace(
        full,
        metrics={"mAP": full.metrics["mAP"]},
        per_query={name: each for name, each in full.per_query.items() if name != "CMC@1"},
    )


def test_a_default_metric_that_no_report_has_is_left_out() -> None:
    found = gated(*map(without_hits, models(0.06)))
    assert found.verdict == "worse"
    assert [change.name for change in found.changes] == ["mAP"]
    # One metric has the whole rate to itself.
    assert found.changes[0].level == pytest.approx(0.996)


def test_a_named_metric_that_is_missing_hides_no_loss_and_is_no_gain() -> None:
    before, after = models(0.06)
    gate = AccuracyGate(metrics=("mAP", "CMC@1"))
    assert gated(before, without_hits(after), gate=gate).verdict == "worse"
    found = gated(without_hits(after), before, gate=gate)
    assert (found.verdict, found.changes[1].missing) == ("incomparable", ("baseline",))
    assert [change.verdict for change in found.changes] == ["better", "incomparable"]
    nothing = replace(before, metrics={}, per_query={"pid": before.per_query["pid"]})
    found = gated(nothing, replace(nothing, metrics={"mINP": 0.5}))
    assert change_of(found, "mAP").missing == ("baseline", "candidate")


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=60))
def test_a_gate_agrees_with_its_figures(rows: list[tuple[int, int, int]]) -> None:
    gate = AccuracyGate(false_alarm=0.1, n_resamples=500)
    pids, near, far = (np.array(column) for column in zip(*rows, strict=True))
    before, after = report(near / 8, pids), report(far / 8, pids)
    down, up = gated(before, after, gate=gate), gated(after, before, gate=gate)
    mirrored = {"worse": "better", "better": "worse", "same": "same", "undecided": "undecided"}
    mirrored["incomparable"] = "incomparable"
    for there, back in zip(down.changes, up.changes, strict=True):
        assert back.verdict == mirrored[there.verdict]
        if there.verdict == "worse":
            assert there.high is not None
            assert there.high < 0
            assert there.difference is not None
            assert there.difference <= -gate.minimum_effect + 1e-9
        assert all(query.candidate < query.baseline for query in there.lost)
    assert gated(before, before, gate=gate).verdict == "same"


def test_invalid_queries_alone_have_no_verdict() -> None:
    nothing = np.full(20, NAN)
    metrics = {"metrics": {"mAP": NAN, "CMC@1": NAN}}
    before = report(np.ones(20), np.arange(20))
    empty = replace(before, per_query=before.per_query | {"AP": nothing, "CMC@1": nothing}, **metrics)
    empty = replace(empty, counts=empty.counts | {"n_valid": 0})
    found = gated(before, empty)
    assert found.verdict == "incomparable"
    assert [change.candidate for change in found.changes] == [None, None]
