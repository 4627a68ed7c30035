"""Metrics that need the ranks of the nearest positives: the values of a whole report, with those ranks alone."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.protocols import PID_PROTOCOLS
from support.noted import codes
from support.reference import DISTANCES
from support.sampling import examples
from support.strategies import problems_for

from reid_dist import FeatureSet, evaluate
from reid_dist.engine.outputs import ranks
from reid_dist.engine.reductions.counts import CountNearer
from reid_dist.errors import InputError

FIRST_ALONE = ("CMC@1", "CMC@3", "MRR", "macro_CMC@1")
FIRST_K_ALONE = tuple(
    f"{name}@{k}" for name in ("mAP", "mAP_found", "mAP_min", "P", "P_min", "R", "P_clipped") for k in (1, 2, 5)
)
OTHERS = ("mAP", "mAP_R", "mAP_trapezoid", "mINP", "Rprec", "CMC_allshots@2")


def report_or_skip(*arguments, **options):
    try:
        return evaluate_items(*arguments, **options)
    except InputError:
        assume(False)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", [name for name in PID_PROTOCOLS if name.startswith(("market", "same", "no_"))])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_values_are_those_of_a_whole_report(protocol, data):
    """Also when ties are settled the other way, and with ranks beyond the gallery."""
    problem = data.draw(problems_for(protocol))
    distance = data.draw(st.sampled_from(DISTANCES))
    listed = data.draw(st.lists(st.sampled_from(FIRST_ALONE + FIRST_K_ALONE), min_size=1, max_size=3, unique=True))
    sides, options = (problem.query, problem.gallery), {"max_rank": 7, "ties": True}
    short = report_or_skip(*sides, protocol, distance, metrics=listed, **options)
    whole = report_or_skip(*sides, protocol, distance, metrics=[*listed, "mAP"], **options)
    for name in listed:
        assert short.metrics[name] == whole.metrics[name]
        for rule in ("optimistic", "pessimistic"):
            assert short.ties[rule][name] == whole.ties[rule][name]
    assert short.curves.keys() == {"CMC"}, "ranks up to 7 need seven positives"
    assert short.curves["CMC"].tobytes() == whole.curves["CMC"].tobytes()
    for name, values in short.per_query.items():
        np.testing.assert_array_equal(values, whole.per_query[name])
    assert whole.per_query.keys() - short.per_query.keys() == {"AP", "AP_trapezoid", "INP", "last_rank"}
    assert short.counts == whole.counts


def near_and_far():
    """Queries with a positive before all else and others behind some hundred negatives, twenty each."""
    rng = np.random.default_rng(5)
    pids = np.arange(12)
    centres = rng.standard_normal((12, 16))
    query = FeatureSet.from_arrays(centres.astype(np.float32), pids, np.zeros(12, int))
    rows = np.concatenate([centres + 0.01, rng.standard_normal((12 * 20 + 400, 16))]).astype(np.float32)
    owner = np.concatenate([pids, np.tile(pids, 20), np.full(400, 99)])
    return query, FeatureSet.from_arrays(rows, owner, np.ones(len(rows), int))


@pytest.mark.parametrize(
    ("metrics", "most"),
    [(["CMC@1", "CMC@10"], 1), (["MRR"], 1), (["CMC@1", "P@5"], 5), (["mAP@3"], 3), (["CMC@1", "mAP"], None)],
)
def test_only_these_positives_are_counted(metrics, most, monkeypatch):
    seen = []

    class Counting(CountNearer):
        def start(self, pair):
            seen.extend(np.diff(self.targets.indptr).tolist())
            return super().start(pair)

    monkeypatch.setattr(ranks, "CountNearer", Counting)
    query, gallery = near_and_far()
    report = evaluate(query, gallery, metrics=metrics, confidence=None)
    assert set(seen) == {21 if most is None else most}
    assert ("nearest_alone" in codes(report)) == (most is not None)


@pytest.mark.parametrize("name", OTHERS)
def test_other_metrics_need_all_positives(name):
    query, gallery = near_and_far()
    report = evaluate(query, gallery, metrics=["CMC@1", name], confidence=None)
    assert {"AP", "INP", "last_rank"} <= report.per_query.keys()
    assert {"precision_recall", "P", "R"} <= report.curves.keys()


@pytest.mark.parametrize(
    "options",
    [
        {"roc": True},
        {"breakdowns": ["gallery_size"]},
        {"collapse": "CMC:pid"},
        {"protocol": "allshots"},
        {"rerank": "k_reciprocal(k1=3,k2=2)", "against_plain": True},
    ],
)
def test_options_that_need_all_positives(options):
    query, gallery = near_and_far()
    assert "AP" in evaluate(query, gallery, metrics=["CMC@1"], confidence=None, **options).per_query


def test_digest_on_any_cut_and_with_float32(monkeypatch):
    query, gallery = near_and_far()
    digests = {
        evaluate(query, gallery, metrics=["CMC@1", "P@5"], chunk_rows=rows).result_digest for rows in (None, 7, 64)
    }
    monkeypatch.setenv("REID_DIST_SCREEN", "float32")
    digests.add(evaluate(query, gallery, metrics=["CMC@1", "P@5"]).result_digest)
    assert len(digests) == 1
