"""Comparisons of runs: what is paired, what is refused, what is called worse."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import of, run
from support.noted import codes, values_of
from support.refusals import in_full

from reid_dist import FeatureSet, Report, evaluate
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.relevance.protocols import ZERO
from reid_dist.reports.comparison import Untested, compare
from reid_dist.reports.comparison.paired import pair_values
from reid_dist.reports.item_names import ItemNames

NAN = float("nan")


def changed_inputs(report: Report, side: str, **fields: Any) -> dict[str, Any]:
    return {"inputs": report.inputs | {side: report.inputs[side] | fields}}


# Values on a coarse grid, so that ties and zero differences are many.
def pair(seed: int, n_identities: int = 60, gain: float = 0.0) -> tuple[Report, Report]:
    rng = np.random.default_rng(seed)
    pids = rng.integers(0, n_identities, 4 * n_identities)
    ap = rng.integers(0, 9, len(pids)) / 8
    better = np.clip(ap + rng.integers(-1, 2, len(pids)) / 8 + gain, 0, 1)
    return run(ap, pids), run(better, pids)


def test_difference_interval_and_p_value_are_those_of_full_enumeration() -> None:
    pids = np.array([4, 4, 1, 1, 1, 8, 6, 6])
    before = np.array([0.5, 0.25, 1.0, 0.5, 0.75, 0.125, 0.25, 0.0])
    after = np.array([0.5, 0.75, 0.5, 0.5, 1.0, 0.5, 0.75, 0.25])
    found = of(compare(run(before, pids), run(after, pids), n_resamples=20_000, level=0.8), "mAP")
    assert (found.baseline, found.candidate) == (before.mean(), after.mean())
    assert found.difference == pytest.approx(after.mean() - before.mean(), abs=1e-15)
    identities = [(after - before)[pids == pid] for pid in (1, 4, 6, 8)]
    means = np.sort([np.concatenate(drawn).mean() for drawn in itertools.product(identities, repeat=4)])
    assert found.interval is not None
    for end, share in ((found.interval.low, 0.1), (found.interval.high, 0.9)):
        assert np.mean(means < end - 1e-12) <= share + 0.01
        assert np.mean(means <= end + 1e-12) >= share - 0.01
    totals = np.array([identity.sum() for identity in identities])
    flips = np.array(list(itertools.product((1, -1), repeat=4))) @ totals
    assert found.p_value == pytest.approx(np.mean(np.abs(flips) >= abs(totals.sum())), abs=0.015)


@pytest.mark.parametrize("seed", range(3))
def test_a_clear_loss_is_worse_and_its_mirror_better(seed: int) -> None:
    baseline, candidate = pair(seed, gain=-0.0625)
    down, up = compare(baseline, candidate, n_resamples=1000), compare(candidate, baseline, n_resamples=1000)
    assert (of(down, "mAP").verdict, of(up, "mAP").verdict) == ("worse", "better")
    assert (down.worse, up.worse) == (("mAP",), ())
    for name in ("difference", "interval"):
        assert getattr(of(down, "mAP"), name) != getattr(of(up, "mAP"), name)
    low, high = of(down, "mAP").interval, of(up, "mAP").interval
    assert low is not None
    assert high is not None
    assert (low.low, low.high) == pytest.approx((-high.high, -high.low))
    assert of(down, "mAP").p_value == of(up, "mAP").p_value == pytest.approx(1 / 1001)
    assert (of(down, "mAP").n_lost, of(down, "mAP").n_gained) == (of(up, "mAP").n_gained, of(up, "mAP").n_lost)
    assert not down.identical


def test_a_verdict_follows_from_interval_and_p_value() -> None:
    for seed, gain in itertools.product(range(4), (-0.0625, -0.02, 0.0, 0.02, 0.0625)):
        for effect in (0.0, 0.005, 0.02, 0.04):
            metric = of(compare(*pair(seed, gain=gain), n_resamples=400, minimum_effect=effect), "mAP")
            assert metric.interval is not None
            assert metric.p_value is not None
            low, high, change = metric.interval.low, metric.interval.high, metric.difference
            if high < 0 and change <= -effect and metric.p_value <= 0.05:
                expected = "worse"
            elif low > 0 and change >= effect and metric.p_value <= 0.05:
                expected = "better"
            else:
                expected = "same" if max(-low, high) <= effect else "undecided"
            assert metric.verdict == expected


def test_a_large_drop_of_seven_queries_is_undecided() -> None:
    baseline = run([0.75, 0.5, 1.0, 0.25, 0.5, 1.0, 0.75], np.arange(7))
    candidate = run([0.9, 0.0, 1.0, 0.6, 0.1, 0.06, 1.0], np.arange(7))
    comparison = compare(baseline, candidate)
    metric = of(comparison, "mAP")
    assert metric.difference < -0.1
    assert metric.p_value is not None
    assert metric.p_value > 0.3
    assert (metric.verdict, comparison.worse) == ("undecided", ())
    assert "mAP" in comparison.undecided
    assert comparison.to_dict()["undecided"] == ["mAP"]


def test_five_identities_give_no_verdict_at_this_level() -> None:
    baseline, candidate = run(np.full(5, 0.9), np.arange(5)), run(np.full(5, 0.1), np.arange(5))
    found = compare(baseline, candidate)
    assert of(found, "mAP").verdict == "undecided"
    assert values_of(found, "no_verdict") == {"n_units": 5, "unit": "identity", "level": 0.95}
    # The same answer of so few is no evidence of equality either.
    assert of(compare(baseline, run(np.full(5, 0.9), np.arange(5))), "mAP").verdict == "undecided"
    assert of(compare(baseline, candidate, level=0.9), "mAP").verdict == "worse"


def test_a_run_and_itself() -> None:
    baseline, _ = pair(0)
    same = compare(baseline, baseline)
    assert same.identical
    metric = of(same, "mAP")
    assert (metric.difference, metric.p_value, metric.verdict, metric.n_gained, metric.n_lost) == (0, 1, "same", 0, 0)
    assert metric.gained == metric.lost == ()
    assert same.options == same.conditions == ()


def test_runs_may_be_given_by_their_directories(tmp_path: Path) -> None:
    runs = pair(1)
    folders = [report.save(tmp_path / str(place)) and tmp_path / str(place) for place, report in enumerate(runs)]
    assert compare(*folders, n_resamples=500) == compare(*map(Report.load, folders), n_resamples=500)


def test_names_the_queries_that_changed_most() -> None:
    pids = np.array([5, 6, 7, 8, 9, 5, 6])
    before = np.array([0.5, 0.5, 0.0, 1.0, NAN, 0.25, 0.5])
    after = np.array([0.75, 0.5, 1.0, 0.75, NAN, 0.5, 0.25])
    found = of(compare(run(before, pids), run(after, pids), n_changed=2), "mAP")
    assert (found.n_gained, found.n_lost) == (3, 2)
    assert [(query.row, query.pid, query.camid) for query in found.gained] == [(2, 7, 1), (0, 5, 2)]
    assert [(query.row, query.baseline, query.candidate) for query in found.lost] == [(3, 1.0, 0.75), (6, 0.5, 0.25)]


BASE, LIKE = pair(1)


def like(**changes: Any) -> Report:
    """Another run over the same values, changed."""
    return run(LIKE.per_query["AP"], LIKE.per_query["pid"], **changes)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"protocol": {"name": "no_cameras"}}, ["protocol.name: market1501 in the baseline, no_cameras in the"]),
        ({"counts": BASE.counts | {"n_gallery": 99}}, ["n_gallery: 100 in the baseline, 99 in the candidate"]),
        (changed_inputs(BASE, "query", labels_digest="l1"), ["labels of the query set: l0", "l1 in the candidate"]),
        (changed_inputs(BASE, "gallery", labels_digest="l1"), ["labels of the gallery set"]),
        (changed_inputs(BASE, "gallery", labels_digest=None), ["not recorded in the candidate"]),
        ({"protocol": {"ground_truth": {"content_digest": "d1"}}}, ["ground_truth: none in the baseline, d1 in the"]),
        (
            changed_inputs(BASE, "gallery", labels_digest="l1") | {"protocol": {"name": "oxford", "truth": "t"}},
            ["protocol.name", "protocol.truth: absent in the baseline, t in the", "labels of the gallery set"],
        ),
    ],
)  # fmt: skip
def test_unlike_conditions_are_refused_by_name(changes: dict[str, Any], parts: list[str]) -> None:
    other = like(**changes)
    with pytest.raises(InputError, match="not comparable") as refused:
        compare(BASE, other)
    for part in [*parts, "--allow-different"]:
        assert part in in_full(refused.value)
    allowed = compare(BASE, other, allow_different=True, n_resamples=100)
    assert len(allowed.conditions) == in_full(refused.value).count("in the baseline")
    assert of(allowed, "mAP").difference == of(compare(BASE, LIKE, n_resamples=100), "mAP").difference


def test_runs_that_cannot_be_paired_are_refused() -> None:
    ap, pids = BASE.per_query["AP"], BASE.per_query["pid"]
    swapped = pids.copy()
    swapped[[3, 4]] = 900, 901
    fewer, other = run(ap[:-1], pids[:-1]), run(ap, swapped)
    cameras = run(ap, pids, per_query=dict(BASE.per_query) | {"camid": np.zeros(len(pids), int)})
    for allow in (False, True):
        with pytest.raises(InputError, match=r"240 queries against 239\n  n_query: 240 in the baseline, 239"):
            compare(BASE, fewer, allow_different=allow)
        with pytest.raises(InputError, match=r"pid of 2 queries differs, first in row 3: .* against 900"):
            compare(BASE, other, allow_different=allow)
        with pytest.raises(InputError, match="camid of"):
            compare(BASE, cameras, allow_different=allow)


def test_compared_options_may_differ_and_are_listed() -> None:
    changes = {
        "distance": {"name": "euclidean", "definition": "other prose"},
        "rerank": {"name": "k_reciprocal", "k1": 20},
        "environment": {"reid_dist": "0.2.0"},
        "inputs": BASE.inputs
        | {
            "query": BASE.inputs["query"] | {"content_digest": "c1", "uri": "elsewhere", "shape": [240, 16]},
            "gallery": BASE.inputs["gallery"] | {"uri": "the same set, elsewhere"},
            "distances": {"content_digest": "d1"},
        },
    }
    found = compare(BASE, like(**changes), n_resamples=100)
    assert [str(option).replace(" in the ", " ") for option in found.options] == [
        "query.uri: memory baseline, elsewhere candidate",
        "query.shape: 240, 8 baseline, 240, 16 candidate",
        "query.content_digest: c0 baseline, c1 candidate",
        "distances.content_digest: absent baseline, d1 candidate",
        "distance.name: cosine baseline, euclidean candidate",
        "rerank: none baseline, k_reciprocal(k1=20) candidate",
        "version of reid_dist: 0.1.0 baseline, 0.2.0 candidate",
    ]
    assert found.conditions == ()


def test_metrics_that_are_no_means_over_queries_are_listed_without_a_test() -> None:
    other = like()
    other.metrics["TAR@FAR=0.01"] = 0.25
    found = of(compare(BASE, other, n_resamples=100), "TAR@FAR=0.01")
    assert (found.baseline, found.candidate, found.difference) == (0.5, 0.25, -0.25)
    assert (found.interval, found.p_value, found.verdict) == (None, None, None)
    assert found.untested == Untested.NO_QUERY_VALUES
    assert compare(BASE, other, metrics=["TAR@FAR=0.01"], n_resamples=100).worse == ()


def test_a_column_that_does_not_give_the_metric_is_not_tested() -> None:
    metrics = dict(LIKE.metrics) | {"mAP": LIKE.metrics["mAP"] + 0.01}
    other = like(metrics=metrics)
    found = of(compare(BASE, other, n_resamples=100), "mAP")
    assert found.verdict is None
    assert found.untested == Untested.OTHER_MEAN
    assert found.candidate == metrics["mAP"]


def test_the_gravest_reason_of_both_runs_is_named() -> None:
    other = like(metrics=dict(LIKE.metrics) | {"mAP": LIKE.metrics["mAP"] + 0.01})
    without = like(per_query={name: each for name, each in LIKE.per_query.items() if name != "AP"})
    for runs in ((without, other), (other, without)):
        assert pair_values("mAP", *runs).untested == Untested.NO_QUERY_VALUES


def test_metrics_known_between_bounds_are_not_tested() -> None:
    values = np.where(np.arange(240) < 200, LIKE.per_query["AP"], NAN)
    columns = dict(LIKE.per_query) | {"AP": values, "INP": values / 2}
    cut = run(
        LIKE.per_query["AP"], LIKE.per_query["pid"], per_query=columns, metrics={"MRR": 1.0}, bounds={"mAP": [0.1, 0.9]}
    )
    found = compare(BASE, cut, n_resamples=100)
    assert [metric.name for metric in found.metrics] == ["mAP"]
    assert np.isnan(of(found, "mAP").candidate)
    assert of(found, "mAP").untested == Untested.BOUNDS
    # Some valid queries have no INP: the mean of the others is the mean of another set of queries.
    with pytest.raises(InputError, match="the candidate has no metric 'mINP'"):
        compare(BASE, cut, metrics=["mINP"])


def test_a_metric_may_come_from_its_values_per_query() -> None:
    found = compare(BASE, LIKE, metrics=["mINP"], n_resamples=100)
    assert [metric.name for metric in found.metrics] == ["mINP"]
    assert of(found, "mINP").baseline == pytest.approx(BASE.metrics["mAP"] / 2)
    assert of(found, "mINP").difference == of(compare(BASE, LIKE, n_resamples=100), "mAP").difference / 2


def test_metrics_that_are_not_there() -> None:
    more = like(metrics=dict(LIKE.metrics) | {"MRR": 0.5})
    found = compare(BASE, more, n_resamples=100)
    assert [metric.name for metric in found.metrics] == ["mAP", "TAR@FAR=0.01"]
    assert values_of(found, "metric_of_some_runs") == {"metric": "MRR", "runs": ("the candidate",)}
    with pytest.raises(InputError, match="the baseline has no metric 'MRR'"):
        compare(BASE, more, metrics=["mAP", "MRR"])
    with pytest.raises(UnknownNameError, match="'mAPP'; did you mean 'mAP'"):
        compare(BASE, more, metrics=["mAPP"])
    with pytest.raises(UnknownNameError, match="first_rank"):
        # A column, but no metric: a lower rank is better.
        compare(BASE, more, metrics=["first_rank"])
    with pytest.raises(InputError, match="must be a list of names"):
        compare(BASE, more, metrics=[1])
    assert [metric.name for metric in compare(BASE, more, metrics="mAP", n_resamples=100).metrics] == ["mAP"]
    with pytest.raises(InputError, match="no metric in common: MRR, P@1"):
        compare(run([1, 0], [1, 2], metrics={"MRR": 1.0}), run([1, 0], [1, 2], metrics={"P@1": 1.0}))


def test_invalid_queries_count_as_zero_under_such_a_protocol() -> None:
    pids = np.arange(40)
    before, after = np.full(40, 0.5), np.full(40, 0.75)
    before[:10] = after[:10] = NAN
    left_out = compare(run(before, pids), run(after, pids), n_resamples=100)
    assert (left_out.n_paired, left_out.n_units, of(left_out, "mAP").difference) == (30, 30, 0.25)
    zero = {"protocol": {"invalid_query": ZERO}}
    as_zero = compare(run(before, pids, **zero), run(after, pids, **zero), n_resamples=100)
    assert (as_zero.n_paired, as_zero.n_units, of(as_zero, "mAP").difference) == (40, 40, 0.1875)
    assert of(as_zero, "mAP").candidate == 0.5625
    interval = of(as_zero, "mAP").interval
    assert interval is not None
    assert interval.low < 0.1875 < interval.high
    mixed = compare(run(before, pids), run(after, pids, **zero), allow_different=True, n_resamples=100)
    assert (mixed.n_paired, of(mixed, "mAP").difference) == (30, 0.25)
    assert "other_invalid_rule" in codes(mixed)


def test_queries_valid_in_one_run_only_are_not_paired() -> None:
    pids = np.arange(4)
    found = compare(run([0.5, NAN, 0.5, 0.25], pids), run([1.0, 1.0, NAN, 0.75], pids), n_resamples=100)
    assert (found.n_paired, found.n_query, of(found, "mAP").difference) == (2, 4, 0.5)
    assert [query.row for query in of(found, "mAP").gained] == [0, 3]
    fewer = compare(run([0.5, NAN, 0.5, 0.25], pids), run([1.0, NAN, NAN, 0.75], pids), n_resamples=100)
    assert values_of(fewer, "other_valid_queries") == {"baseline": 3, "candidate": 2}


def test_one_identity_is_no_evidence() -> None:
    found = compare(run([0.9, 0.8, 0.9], [3, 3, 3]), run([0.1, 0.2, 0.1], [3, 3, 3]))
    metric = of(found, "mAP")
    assert (metric.verdict, metric.interval, metric.p_value) == (None, None, None)
    assert metric.untested == Untested.FEW_UNITS
    assert metric.n_lost == 3
    assert found.worse == ()


def test_the_unit_is_what_is_resampled() -> None:
    baseline, candidate = pair(3, n_identities=10)
    by_identity, by_query = (compare(baseline, candidate, unit=unit, n_resamples=100) for unit in ("identity", "query"))
    assert (by_identity.n_units, by_query.n_units) == (10, 40)
    assert values_of(by_identity, "narrow_intervals")["n_units"] == 10
    assert "queries_resampled" in codes(by_query)
    nameless = dict(baseline.per_query)
    del nameless["pid"]
    without = run(baseline.per_query["AP"], baseline.per_query["pid"], per_query=nameless)
    with pytest.raises(InputError, match="compare by query"):
        compare(without, candidate)
    assert of(compare(without, candidate, unit="query", n_resamples=100), "mAP").gained[0].pid is None


def test_json_holds_everything() -> None:
    lost = run(np.zeros(240), LIKE.per_query["pid"], metrics={"mAP": 0.0, "EER": NAN})
    before = run(BASE.per_query["AP"], BASE.per_query["pid"], metrics=dict(BASE.metrics) | {"EER": 0.1})
    comparison = compare(before, lost, n_resamples=100)
    document = json.loads(comparison.to_json())
    assert document == comparison.to_dict()
    assert document["worse"] == ["mAP"]
    assert document["metrics"]["EER"]["candidate"] is None
    metric = of(comparison, "mAP")
    assert metric.interval is not None
    assert document["metrics"]["mAP"]["interval"] == [metric.interval.low, metric.interval.high]
    assert document["metrics"]["mAP"]["lost"][0] == {
        "row": metric.lost[0].row, "pid": metric.lost[0].pid, "camid": metric.lost[0].camid,
        "baseline": metric.lost[0].baseline, "candidate": 0.0, "path": None,
    }  # fmt: skip
    assert document["baseline_digest"] == before.result_digest


def test_changed_queries_have_their_files() -> None:
    paths = np.array([f"q/{row}.jpg" for row in range(240)])
    names = ItemNames(query={"image_path": paths}, rows=np.empty(0, np.int64), gallery={})
    lost = run(np.zeros(240), LIKE.per_query["pid"], metrics={"mAP": 0.0})
    comparison = compare(replace(BASE, names=names), lost, n_resamples=100)
    (table,) = comparison.changed_queries()
    assert table.columns[-1].head == "file"
    assert [row[-1].text for row in table.rows] == [f"q/{each.row}.jpg" for each in of(comparison, "mAP").lost]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"minimum_effect": -0.1}, "minimum_effect must be a share"),
        ({"minimum_effect": NAN}, "minimum_effect"),
        ({"minimum_effect": "0.1"}, "minimum_effect"),
        ({"n_changed": -1}, "n_changed"),
        ({"level": 1.5}, "level"),
        ({"unit": "camera"}, "unit"),
        ({"seed": 0.5}, "seed"),
        ({"n_resamples": 10}, "draw at least 40"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError, match=part):
        compare(BASE, LIKE, **options)


def test_the_spec_of_runs_decides_whether_they_compare_and_not_their_words() -> None:
    """Of a run of an earlier version, which stored no spec, there are words alone."""
    rng = np.random.default_rng(3)
    sides = [
        FeatureSet.from_arrays(rng.standard_normal((n, 8)).astype(np.float32), np.arange(n) % 9, np.arange(n) % camera)
        for n, camera in ((40, 2), (90, 3))
    ]
    done = evaluate(*sides)
    reworded = replace(done, protocol={**done.protocol, "junk": "in other words"})
    assert compare(done, reworded, n_resamples=100).conditions == ()
    rules = {**done.spec["protocol"], "junk_pid": 0}
    with pytest.raises(InputError, match=r"protocol\.junk_pid: -1 in the baseline, 0 in the candidate"):
        compare(done, replace(done, spec={**done.spec, "protocol": rules}))
    with pytest.raises(InputError, match=r"ground_truth: none in the baseline, d1 in the candidate"):
        compare(done, replace(done, spec={**done.spec, "ground_truth": "d1"}))
    earlier = replace(done, spec={})
    assert compare(earlier, done, n_resamples=100).conditions == ()
    with pytest.raises(InputError, match=r"protocol\.junk: .* in other words in the candidate"):
        compare(earlier, reworded)


def test_labels_without_a_digest_are_not_equal() -> None:
    old = [
        run(report.per_query["AP"], report.per_query["pid"], **changed_inputs(BASE, "gallery", labels_digest=None))
        for report in (BASE, LIKE)
    ]
    with pytest.raises(InputError, match="labels of the gallery set: not recorded in the baseline, not recorded"):
        compare(*old)


def test_other_labels_are_a_condition_and_other_features_an_option() -> None:
    changes = changed_inputs(BASE, "gallery", labels_digest="l1", content_digest="c1")
    other = like(**changes)
    found = compare(BASE, other, allow_different=True, n_resamples=100)
    assert [difference.what for difference in found.conditions] == ["labels of the gallery set"]
    assert [difference.what for difference in found.options] == ["gallery.content_digest"]
