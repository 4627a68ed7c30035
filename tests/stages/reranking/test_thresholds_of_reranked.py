"""TAR, EER, DIR and ROC of re-ranked distances that have one scale for all queries, against sorted dense distances."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import verification
from oracles.protocols import assign_relevance
from support.reference import ItemSet
from support.reranking_runs import labelled
from support.strategies import crowded_sets

from reid_dist import evaluate, reranked_distances
from reid_dist.engine import plan
from reid_dist.engine.reductions.key_counts import ScreenScale
from reid_dist.kernels.canonical import COSINE, EUCLIDEAN, LOWEST, PairRows, Rescoring, read_only
from reid_dist.kernels.rescoring import falling_values

RATES = ("0", "0.01", "0.2", "0.5")
METRICS = [*(f"{name}@FAR={rate}" for name in ("TAR", "DIR") for rate in RATES), "EER"]
# Without a share of the plain distance, with one that the tolerance is large against, and with nothing else.
SPECS = [
    *(
        (f"k_reciprocal(k1=6,k2=3,variant={variant},lambda_value={weight})", distance)
        for variant, weight, distance in (
            ("faiss_k1", 0.3, "cosine"),
            ("faiss_k1", 1e-6, "euclidean"),
            ("faiss_k1", 0, "euclidean"),
            ("paper", 0.3, "euclidean"),
            ("paper", 1, "cosine"),
        )
    ),
    ("gnn(k1=6,k2=3)", "cosine"),
    ("gnn(k1=6,k2=3,variant=zhang)", "cosine"),
    # Similarities of rank lists reach far below the lowest value of the screen.
    ("ecn(k=12,t=2,q=3)", "cosine"),
    ("ecn(k=12,t=2,q=3,variant=plain_fallback)", "cosine"),
    ("ecn(t=2,q=3,method=origdist)", "cosine"),
]


@cache
def sets():
    """Some rows more than once; queries without mates in the gallery."""
    made = crowded_sets(24, 150, 8, seed=3, n_distinct=110)
    fresh = np.random.default_rng(5).normal(size=(10, 8)).astype(np.float32)
    return made[0] + ItemSet(fresh, np.arange(900, 910), np.zeros(10, int), np.arange(900, 910)), made[1]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("spec", "distance"), SPECS)
def test_against_sorted_distances(spec, distance):
    query, gallery = sets()
    near, far = labelled(query), labelled(gallery)
    distances = reranked_distances(near, far, rerank=spec, distance=distance)
    relevant, junk = assign_relevance(query, gallery, "market1501")
    pairs = verification.pairs_of(distances, relevant, junk)
    probes = verification.probes_of(query, gallery, distances, relevant, junk)
    options = {"rerank": spec, "distance": distance, "metrics": METRICS, "roc": True, "confidence": None}
    report, *others = (evaluate(near, far, chunk_rows=chunk, **options) for chunk in (None, 11))
    for rate in RATES:
        assert report.metrics[f"TAR@FAR={rate}"] == float(verification.tar_at_far(pairs, rate))
        assert report.metrics[f"DIR@FAR={rate}"] == float(verification.dir_at_far(probes, rate))
        thresholds = report.verification["thresholds"]
        assert thresholds[f"TAR@FAR={rate}"] == verification.threshold_at(pairs.impostor, rate)
        assert thresholds[f"DIR@FAR={rate}"] == verification.threshold_at(probes.non_mated, rate)
    assert report.metrics["EER"] == pytest.approx(float(verification.equal_error_rate(pairs)), abs=1e-15)
    last = np.interp(report.curves["ROC_FAR"][-1], *np.array(verification.roc_points(pairs), float).T)
    assert report.curves["ROC_TAR"][-1] == pytest.approx(last)
    assert [each.result_digest for each in others] == [report.result_digest]


def test_levels_below_the_lowest_value_of_the_screen(monkeypatch):
    """Similarities of rank lists of several hundred, in counts of four distances at most: passes within their range."""
    monkeypatch.setattr(plan, "_MOST_COUNTS", 4)
    monkeypatch.setattr(plan, "_FEWEST_COUNTS", 4)
    query, gallery = sets()
    near, far = labelled(query), labelled(gallery)
    spec, rates = "ecn(k=40,t=2,q=3,variant=plain_fallback)", ("0.001", "0.02", "0.3")
    distances = reranked_distances(near, far, rerank=spec)
    pairs = verification.pairs_of(distances, *assign_relevance(query, gallery, "market1501"))
    report = evaluate(near, far, rerank=spec, metrics=[f"TAR@FAR={rate}" for rate in rates], confidence=None)
    thresholds = [verification.threshold_at(pairs.impostor, rate) for rate in rates]
    assert thresholds[1] < 2 * LOWEST
    assert [*report.verification["thresholds"].values()] == thresholds


@given(
    distance=st.lists(st.floats(-3000, 3), min_size=1, max_size=8),
    weight=st.sampled_from([1.0, 0.3, 1e-9]),
    apart=st.sampled_from([0.0, 1.0]),
    divisor=st.sampled_from([1.0, 0.5]),
    euclidean=st.booleans(),
)
def test_falling_values_are_those_of_the_kernels(distance, weight, apart, divisor, euclidean):
    """Within the bound on errors of rescoring, and back."""
    distances, rows = np.array(distance), np.zeros((1, 2), np.float32)
    indptr, none = np.zeros(2, np.int64), np.empty(0, np.int64)
    rescoring = Rescoring(True, weight, False, np.full(1, divisor), indptr, none, np.empty(0), 0, apart)
    kind = EUCLIDEAN if euclidean else COSINE
    pairs = PairRows(kind, read_only(rows), read_only(rows), np.zeros(1), np.zeros(1), rescoring)
    scale = ScreenScale(euclidean, weight, apart, divisor)
    error, found = scale.error(distances), scale.falling(distances)
    for side in (-1.0, 0.0, 1.0):
        kernel = falling_values(pairs, np.zeros(len(distances), np.int64), distances, side)
        assert (np.abs(kernel - found) <= error).all()
    back = scale.distance(found)
    lowest = (1 - weight) * apart + weight * LOWEST
    assert (back[distances > lowest + 1e-6] > -np.inf).all()
    assert np.isneginf(back[distances < lowest - 1e-6]).all()
    seen = np.isfinite(back)
    np.testing.assert_allclose(back[seen], distances[seen], rtol=1e-9, atol=1e-9)
