"""Averages over runs: values, conventions that must agree, notes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_runs import of, run
from scipy.special import stdtrit
from support.noted import codes

from reid_dist import Report
from reid_dist.core.findings import caution, info
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.reports.averages import average_runs


def runs(n: int, **changes: Any) -> list[Report]:
    """Runs of different sizes; the last one is changed."""
    made = []
    for number in range(n):
        ap = np.random.default_rng(number).random(6 + number)
        made.append(run(ap, np.arange(len(ap)), **(changes if number == n - 1 else {})))
    return made


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_mean_spread_ends_and_interval_are_those_of_numpy_and_scipy(n: int, level: float) -> None:
    reports = runs(n)
    average = average_runs(reports, level=level)
    assert [metric.name for metric in average.metrics] == ["mAP", "TAR@FAR=0.01"]
    found = of(average, "mAP")
    values = np.array([report.per_query["AP"].mean() for report in reports])
    assert found.values == pytest.approx(values, rel=1e-12)
    expected = (values.mean(), values.std(ddof=1), values.min(), values.max())
    assert (found.mean, found.spread, found.lowest, found.highest) == pytest.approx(expected, rel=1e-9)
    assert found.interval is not None
    # Not scipy.stats, whose import takes two seconds.
    half = stdtrit(n - 1, (1 + level) / 2) * values.std(ddof=1) / math.sqrt(n)
    ends = max(0.0, values.mean() - half), min(1.0, values.mean() + half)
    assert (found.interval.low, found.interval.high) == pytest.approx(ends, rel=1e-9)
    assert [(each.n_query, each.n_valid, each.n_gallery) for each in average.runs] == [
        (6 + number, 6 + number, 100) for number in range(n)
    ]
    assert [each.name for each in average.runs] == [f"run {number + 1}" for number in range(n)]
    assert average.conditions == average.notes == ()


def test_the_interval_of_a_share_lies_within_0_and_1() -> None:
    low, high = run([0.01, 0.03], [1, 2]), run([0.97, 0.99], [1, 2])
    found = of(average_runs([low, high]), "mAP")
    assert found.mean == pytest.approx(0.5)
    assert (found.interval.low, found.interval.high) == (0.0, 1.0)


def inputs_of(labels: str, features: str) -> dict[str, Any]:
    side = {"labels_digest": labels, "content_digest": features}
    return {"query": side, "gallery": side}


def test_other_features_over_the_same_labels_are_asked_about() -> None:
    """A mean over trainings of one model is right, one over models is not, and nobody but the user can tell."""
    values, pids = [0.2, 0.4], [1, 2]
    reports = [replace(run(values, pids), inputs=inputs_of("one", name)) for name in "abc"]
    assert "models_of_one_set" in codes(average_runs(reports))
    for others in (inputs_of("two", "c"), inputs_of("one", "b")):
        changed = [*reports[:2], replace(run(values, pids), inputs=others)]
        assert "models_of_one_set" not in codes(average_runs(changed))


def test_a_metric_that_some_runs_have() -> None:
    reports = runs(3)
    reports[1] = replace(reports[1], metrics=reports[1].metrics | {"EER": 0.25})
    average = average_runs(reports, names=["a", "b", "c"])
    assert [metric.name for metric in average.metrics] == ["mAP", "TAR@FAR=0.01"]
    assert average.notes == (info("metric_of_some_runs", metric="EER", runs=["run 2 (b)"]),)
    with pytest.raises(InputError, match=r"run 1 \(a\) and run 3 \(c\) have no metric 'EER'; evaluate again"):
        average_runs(reports, names=["a", "b", "c"], metrics="EER")
    with pytest.raises(UnknownNameError, match="did you mean 'mAP'"):
        average_runs(reports, metrics="mAPP")


def test_a_missing_value_leaves_no_mean() -> None:
    reports = [replace(report, metrics=report.metrics | {"EER": 0.25}) for report in runs(3)]
    reports[0] = replace(reports[0], bounds={"EER": [0.25, 0.5]}, metrics={"mAP": 0.5})
    reports[2] = replace(reports[2], metrics=reports[2].metrics | {"EER": math.nan})
    average = average_runs(reports)
    found = of(average, "EER")
    assert found.values[1] == 0.25
    assert found.interval is None
    assert all(map(math.isnan, (found.mean, found.spread, found.lowest, found.highest)))
    assert average.notes[1:] == (
        caution("no_mean", metric="EER", why="known only between bounds", runs=["run 1"]),
        caution("no_mean", metric="EER", why="no value", runs=["run 3"]),
    )
    described = average.to_dict()["metrics"]["EER"]
    assert described == {
        "mean": None, "spread": None, "lowest": None, "highest": None, "interval": None, "values": [None, 0.25, None]
    }  # fmt: skip


LIKE = runs(3)[2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol": {"name": "no_cameras"}}, "protocol.name: market1501 in run 1 and run 2, no_cameras in run 3"),
        ({"protocol": {"invalid_query": "0"}}, "protocol.invalid_query: left out in run 1 and run 2, 0 in run 3"),
        ({"distance": {"name": "euclidean"}}, "distance.name: cosine in run 1 and run 2, euclidean in run 3"),
        (
            {"rerank": {"name": "k_reciprocal", "k1": 20, "definition": "prose"}},
            "rerank: none in run 1 and run 2, k_reciprocal(k1=20) in run 3",
        ),
        ({"expand": {"name": "aqe", "k": 5}}, "expand: none in run 1 and run 2, aqe(k=5) in run 3"),
        ({"options": {"max_rank": 20}}, "max_rank: not recorded in run 1 and run 2, 20 in run 3"),
        ({"options": {"single_shot_draws": 10}}, "single_shot_draws: not recorded in run 1 and run 2, 10 in run 3"),
        ({"ties": {"rule": "at random"}}, "order of ties: not recorded in run 1 and run 2, at random in run 3"),
        ({"definitions": {"mAP": "another mean"}}, "another mean in run 3"),
    ],
)
def test_different_conventions_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    reports = runs(3, **changes)
    with pytest.raises(InputError, match="different conventions") as refused:
        average_runs(reports)
    assert words in str(refused.value)
    assert "--allow-different" in str(refused.value)
    average = average_runs(reports, allow_different=True)
    assert words in "; ".join(map(str, average.conditions))
    assert of(average, "mAP").values == of(average_runs(runs(3)), "mAP").values


def test_every_difference_is_named_with_the_runs() -> None:
    reports = runs(6)
    reports[1] = replace(reports[1], distance={"name": "euclidean"})
    reports[4] = replace(reports[4], distance={"name": "sqeuclidean"}, options={"max_rank": 7})
    with pytest.raises(InputError) as refused:
        average_runs(reports, names=[*"abcdef"])
    assert str(refused.value).startswith(
        "the runs have different conventions: distance.name: cosine in run 1 (a), run 3 (c), run 4 (d) and 1 more, "
        "euclidean in run 2 (b), sqeuclidean in run 5 (e); max_rank: not recorded in run 1 (a), run 2 (b), run 3 (c) "
        "and 2 more, 7 in run 5 (e); evaluate again"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol": {"summary": "other prose", "source": "elsewhere"}},
        {"protocol": {"ground_truth": {"content_digest": "d1"}}},
        {"distance": {"name": "cosine", "definition": "other prose"}},
        {"inputs": {"query": {"content_digest": "c1", "labels_digest": "l1", "shape": [8, 16]}, "gallery": {}}},
        {"counts": LIKE.counts | {"n_gallery": 7}},
        {"options": {"confidence": 0.9, "seed": 3}},
    ],
)
def test_inputs_and_wording_may_differ(changes: dict[str, Any]) -> None:
    average = average_runs(runs(3, **changes))
    assert average.conditions == average.notes == ()


def test_runs_given_twice_and_versions_are_noted() -> None:
    one, two, three = runs(3, environment={"reid_dist": "0.2.0"})
    versions = [("0.1.0", ["run 1", "run 2", "run 3", "run 5"]), ("0.2.0", ["run 4"])]
    assert average_runs([one, two, one, three, one]).notes == (
        caution("same_result", runs=["run 1", "run 3", "run 5"]),
        info("several_versions", what="version of reid_dist", values=versions),
    )


def test_json_reads_back_to_the_same_bits() -> None:
    average = average_runs(runs(3, distance={"name": "euclidean"}), names=["a", "b", "c"], allow_different=True)
    read = json.loads(average.to_json())
    assert read == average.to_dict()
    metric, described = of(average, "mAP"), read["metrics"]["mAP"]
    assert metric.interval is not None
    assert described == {
        "mean": metric.mean, "spread": metric.spread, "lowest": metric.lowest, "highest": metric.highest,
        "interval": [metric.interval.low, metric.interval.high], "values": list(metric.values),
    }  # fmt: skip
    assert [(each["name"], each["result_digest"]) for each in read["runs"]] == [
        (name, report.result_digest) for name, report in zip("abc", runs(3), strict=True)
    ]
    assert read["conditions"] == [{"what": "distance.name", "values": ["cosine", "cosine", "euclidean"]}]
    assert (read["schema"], read["level"]) == (1, 0.95)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"reports": []}, "two runs or more, found 0"),
        ({"reports": runs(1)}, "two runs or more, found 1"),
        ({"reports": LIKE}, "a sequence of reports, found one"),
        ({"reports": ["results/a", "results/b"]}, "run 1 must be a Report, found str"),
        ({"names": ["a"]}, "one entry for each of 2 runs, found 1"),
        ({"level": 95}, "level must lie between 0 and 1"),
        ({"level": "0.9"}, "level must lie between 0 and 1"),
        ({"level": math.nan}, "level must lie between 0 and 1"),
    ],
)
def test_mistakes_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        average_runs(**{"reports": runs(2), **arguments})


def test_definitions_of_other_metrics_may_differ() -> None:
    reports = runs(3, definitions={"TAR@FAR=0.01": "another rate"})
    assert average_runs(reports, metrics="mAP").conditions == ()
    with pytest.raises(InputError, match=r"definition of TAR@FAR=0\.01: .*, another rate in run 3"):
        average_runs(reports)
