"""Evaluations with metrics over pairs and probes: chunks, capacity, edge cases and planned memory."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pytest
from oracles import verification as oracle

from reid_dist import FeatureSet, LabelledRows, evaluate, evaluate_distances
from reid_dist.engine import plan
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.plan import ExtraMemory, SetShape, make_plan
from reid_dist.engine.task_graph import Progress
from reid_dist.engine.verification import sampling
from reid_dist.engine.verification.measures import ROC_RATES
from reid_dist.errors import InputError
from reid_dist.relevance.protocols import PROTOCOLS, compose_protocol
from reid_dist.stores import DistanceBlock

METRICS = ["EER", "TAR@FAR=0", "TAR@FAR=1e-3", "TAR@FAR=0.37", "TAR@FAR=1"]


@cache
def sets():
    """Features of few values, so that pairs of different queries tie; two cameras, junk, non-mated queries."""
    rng = np.random.default_rng(5)
    features = rng.integers(-1, 3, (540, 6)).astype(np.float32)
    pids, camids = rng.integers(-1, 15, 540), rng.integers(0, 2, 540)
    query = FeatureSet.from_arrays(features[:40], np.where(np.arange(40) < 8, 77, pids[:40]), camids[:40])
    return query, FeatureSet.from_arrays(features[40:], pids[40:], camids[40:], allow_zero=True)


ASKED = ["mAP", "TAR@FAR=0.01", "TAR@FAR=0.5", "EER", "DIR@FAR=0.2"]


@cache
def plain_report(distance="sqeuclidean", roc=True):
    return evaluate(*sets(), distance=distance, metrics=ASKED, roc=roc)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("chunk_rows", [5, 64, 300])
def test_chunks_do_not_matter(chunk_rows):
    for roc in (True, False):
        report = evaluate(*sets(), distance="sqeuclidean", metrics=ASKED, roc=roc, chunk_rows=chunk_rows)
        assert report.result_digest == plain_report(roc=roc).result_digest
        assert report.verification == plain_report().verification


@pytest.mark.parametrize("roc", [True, False])
def test_capacity_does_not_matter(monkeypatch, roc):
    monkeypatch.setattr(plan, "_MOST_COUNTS", 5)
    monkeypatch.setattr(plan, "_FEWEST_COUNTS", 5)
    report = evaluate(*sets(), distance="sqeuclidean", metrics=ASKED, roc=roc, chunk_rows=100)
    assert report.result_digest == plain_report(roc=roc).result_digest
    assert report.verification == plain_report().verification


@pytest.mark.slow
def test_a_cluster_does_not_matter(two_workers, tmp_path):
    query, gallery = sets()
    whole = [each.save(tmp_path / f"{side}.zarr", chunk_rows=90) for side, each in (("query", query), ("all", gallery))]
    report = evaluate(*whole, distance="sqeuclidean", metrics=ASKED, roc=True, client=two_workers)
    assert report.result_digest == plain_report().result_digest
    assert report.verification == plain_report().verification


def tiny_rates():
    """Digest and verification of some queries of the sets."""
    query, gallery = sets()
    few = FeatureSet.from_arrays(query.read(0, 12), query.pids[:12], query.camids[:12])
    report = evaluate(few, gallery, distance="cosine", metrics=ASKED, roc=True)
    return [report.result_digest, json.loads(json.dumps(report.verification))]


@pytest.mark.slow
def test_kernels_in_python_give_the_same(python_kernels):
    assert python_kernels.call(tiny_rates) == tiny_rates()


@pytest.mark.parametrize("distance", DISTANCES.names())
def test_rates_of_the_curve_are_those_of_the_metric(distance):
    query, gallery = sets()
    names = [f"TAR@FAR={rate}" for rate in ROC_RATES]
    report = evaluate(query, gallery, distance=distance, metrics=names, roc=True)
    assert report.curves["ROC_TAR"].tolist() == list(report.metrics.values())
    assert report.curves["ROC_threshold"].tolist() == list(report.verification["thresholds"].values())
    assert report.curves["ROC_FAR"].tolist() == [float(rate) for rate in ROC_RATES]
    assert list(report.verification) == ["n_genuine", "n_impostor", "thresholds"]


class Stages(Progress):
    """Progress that records its calls."""

    def __init__(self):
        self.started, self.done = [], []

    def start(self, totals):
        self.started.append(totals)

    def advance(self, stage):
        self.done.append(stage)


def test_further_passes_are_a_stage_of_their_own(monkeypatch):
    monkeypatch.setattr(sampling, "_DEVIATIONS", (-8.0,))
    recorded = Stages()
    report = evaluate(*sets(), metrics=["EER"], roc=True, progress=recorded)
    assert [list(totals) for totals in recorded.started][:2] == [["pairs", "sweep"], ["verification"]]
    assert "verification" in recorded.done
    assert list(report.timing) == ["plan", "pairs", "sweep", "verification", "metrics", "total"]
    assert all(seconds >= 0 for seconds in report.timing.values())
    assert sum(report.timing.values()) - report.timing["total"] <= report.timing["total"] * 1.01


@pytest.mark.parametrize("roc", [True, False])
def test_given_distances_of_any_size(roc):
    """Negative ones, zeros of both signs, and some that a float32 cannot hold."""
    rng = np.random.default_rng(3)
    palette = np.array([-1e300, -1e39, -2.5, -1e-300, -0.0, 0.0, 1e-300, 0.7, 0.7000000000000001, 1e20, 1e39, 1e300])
    values = palette[rng.integers(0, len(palette), (20, 300))]
    values[rng.random(values.shape) < 0.3] = rng.standard_normal()
    pids = rng.integers(0, 8, 300), rng.integers(0, 8, 20)
    report = evaluate_distances(
        DistanceBlock.from_array(values),
        LabelledRows(pids[1]),
        LabelledRows(pids[0]),
        protocol="no_cameras",
        metrics=METRICS,
        roc=roc,
        chunk_rows=64,
    )
    same = pids[1][:, None] == pids[0]
    pairs = oracle.Pairs(np.sort(values[same]).tolist(), np.sort(values[~same]).tolist())
    assert report.metrics["EER"] == float(oracle.equal_error_rate(pairs))
    for name, value in list(report.metrics.items())[1:]:
        rate = name.partition("=")[2]
        assert report.verification["thresholds"][name] == oracle.threshold_at(pairs.impostor, float(rate)), name
        assert value == float(oracle.tar_at_far(pairs, float(rate)))


def test_queries_that_a_protocol_does_not_count_are_no_impostors():
    """A protocol for queries of one camera gives the results of an evaluation of these queries alone."""
    query, gallery = sets()
    one = compose_protocol("camera_1", base=PROTOCOLS.get("market1501"), query_cameras=(1,))
    kept = np.flatnonzero(query.camids == 1)
    alone = FeatureSet.from_arrays(query.read(0, 40)[kept], query.pids[kept], query.camids[kept])
    found = evaluate(query, gallery, protocol=one, metrics=ASKED, roc=True)
    expected = evaluate(alone, gallery, metrics=ASKED, roc=True)
    assert found.metrics == expected.metrics
    assert found.verification == expected.verification
    assert found.curves["ROC_threshold"].tolist() == expected.curves["ROC_threshold"].tolist()


def test_the_own_row_of_a_non_mated_query_is_junk():
    """Under another pid, too, a query's own row is junk: the nearest of the others counts."""
    places = np.array([[0.0], [10.0], [3.0], [50.0]], np.float32)
    gallery = FeatureSet.from_arrays(places, [1, 2, 3, 1], item_ids=[100, 101, 102, 103], allow_zero=True)
    query = FeatureSet.from_arrays(places[[0, 2]], [1, 99], item_ids=[100, 102], allow_zero=True)
    report = evaluate(query, gallery, protocol="same_set", distance="euclidean", metrics=["DIR@FAR=0"])
    assert report.verification == {"n_mated": 1, "n_non_mated": 1, "thresholds": {"DIR@FAR=0": 3.0}}


def test_a_non_mated_query_without_visible_rows_is_infinitely_far():
    protocol = compose_protocol("other_cameras", base=PROTOCOLS.get("market1501"), junk=(("camid",),))
    features = np.arange(6, dtype=np.float32)[:, None] + 1
    gallery = FeatureSet.from_arrays(features[:3], [1, 1, 2], [0, 1, 1])
    query = FeatureSet.from_arrays(features[3:5], [1, 9], [0, 0])
    report = evaluate(query, gallery, protocol=protocol, metrics=["DIR@FAR=0"], distance="euclidean")
    assert report.verification["thresholds"] == {"DIR@FAR=0": 2.0}
    gallery = FeatureSet.from_arrays(features[:3], [1, 1, 2], [1, 1, 1])
    query = FeatureSet.from_arrays(features[[0, 4]], [1, 9], [0, 1])
    report = evaluate(query, gallery, protocol=protocol, metrics=["DIR@FAR=0"], distance="euclidean")
    assert report.verification["thresholds"] == {"DIR@FAR=0": math.inf}
    assert report.metrics["DIR@FAR=0"] == 1.0


def test_open_set_without_non_mated_queries_is_refused_before_any_work():
    query, gallery = sets()
    mated = FeatureSet.from_arrays(query.read(8, 40), np.full(32, 3), query.camids[8:])
    recorded = Stages()
    with pytest.raises(InputError, match="or that you take out of it"):
        evaluate(mated, gallery, metrics=["DIR@FAR=0.1"], progress=recorded)
    assert not recorded.started


def test_no_valid_query_is_reported_first():
    query, gallery = sets()
    unmated = FeatureSet.from_arrays(query.read(0, 8), np.full(8, 77), query.camids[:8])
    with pytest.raises(InputError, match="no query has a relevant gallery item"):
        evaluate(unmated, gallery, metrics=["TAR@FAR=0.1", "EER", "DIR@FAR=0.1"], roc=True)


def test_impostors_are_the_kept_negatives():
    report = plain_report()
    ranked_pairs = int(report.per_query["n_kept"].sum() - report.per_query["n_relevant"].sum())
    assert report.verification["n_impostor"] == ranked_pairs
    assert report.verification["n_genuine"] == report.counts["n_relevant"]
    assert report.verification["n_non_mated"] == 8


def test_memory_of_the_search_is_planned():
    shapes = SetShape(50_000, 128, 4, 8192), SetShape(10**6, 128, 4, 8192)
    without, searching = (make_plan(*shapes, n_threads=4, extra=ExtraMemory(pairs=pairs)) for pairs in (False, True))
    assert without.bracket_counts == 0
    assert 2**19 < searching.bracket_counts <= 2**20
    assert searching.task_bytes >= without.task_bytes + 2**18 * 16 * 8
    assert searching.result_bytes >= without.result_bytes + 7 * 2**18 * 16
    # Many blocks of queries share the memory of the calling process; with little memory each task gets little.
    many = make_plan(SetShape(10**6, 128, 4, 8192), shapes[1], n_threads=4, extra=ExtraMemory(pairs=True))
    assert many.bracket_counts * many.n_query_blocks <= 2**22
    poor = make_plan(*shapes, n_threads=4, memory_per_thread=64 * 2**20, extra=ExtraMemory(pairs=True))
    assert poor.bracket_counts < 2**15
    assert poor.task_bytes <= 64 * 2**20
