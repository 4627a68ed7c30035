"""Features of real models, re-ranked: what the dense oracle and the oracle of metrics make of them."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import evaluation, graph_reranking
from oracles import reranking as oracle
from oracles.rank_metrics import ALL_METRICS
from support import reference
from support.real_sets import read_sides
from support.reference import order_is_unambiguous
from support.reranking_runs import CLOSE, labelled

from reid_dist import evaluate, reranked_distances
from reid_dist.stages.reranking.k_reciprocal import KReciprocal

SETS = {"market1501_sample.mat": "market1501", "sketch_photo.mat": "no_cameras", "veri776_sample.npz": "no_cameras"}


def read_sets(path):
    """Query and gallery of a file; of a set without sides, its first items are the queries, the others the gallery."""
    query, gallery = read_sides(path)
    if query is not gallery:
        return query, gallery
    return query.take(range(0, 120, 4)), gallery.take([row for row in range(120) if row % 4])


GRAPH_RERANKINGS = {
    "gnn(k1=12,k2=4)": lambda near, far: graph_reranking.propagated(near, far, k1=12, k2=4).final,
    "ecn(k=12)": lambda near, far: graph_reranking.cross_neighbourhoods(near, far, k=12),
    "ecn(method=origdist)": graph_reranking.mean_distances,
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", GRAPH_RERANKINGS)
@pytest.mark.parametrize("name", SETS)
def test_other_re_rankings_are_those_of_whole_matrices(shared_data, name, spec):
    """Of all items, and of the nearest 30 of each query alone, with the metrics of the dense distances."""
    query, gallery = read_sets(shared_data(name))
    near, far = labelled(query), labelled(gallery)
    dense = GRAPH_RERANKINGS[spec](query.features, gallery.features)
    # New features are rounded to float32.
    close = 1e-6 if "origdist" in spec else CLOSE
    np.testing.assert_allclose(reranked_distances(near, far, rerank=spec), dense, rtol=0, atol=close)
    heads = reference.canonical_distances(query.features, gallery.features, "cosine")
    for i, row in enumerate(heads):
        head = np.sort(np.argsort(row, kind="stable")[:30])
        values = GRAPH_RERANKINGS[spec](query.features[i : i + 1], gallery.features[head])[0]
        row[head] = values - values.max() - 1
    found = reranked_distances(near, far, rerank=f"top({spec},m=30)")
    np.testing.assert_allclose(found, heads, rtol=0, atol=close)
    for given, whole in ((spec, dense), (f"top({spec},m=30)", heads)):
        report = evaluate(near, far, protocol=SETS[name], rerank=given, metrics=["mAP", "mINP"], confidence=None)
        expected = evaluation.evaluate(query, gallery, SETS[name], distances=whole)
        assert report.metrics == pytest.approx({each: expected.metrics[each] for each in report.metrics}, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("name", SETS)
def test_metrics_are_those_of_whole_matrices(shared_data, name, distance, tmp_path):
    query, gallery = read_sets(shared_data(name))
    near, far = labelled(query), labelled(gallery)
    together = np.concatenate([query.features, gallery.features])
    of_graph = "cosine" if distance == "cosine" else "sqeuclidean"
    # Real features hold no near-ties, so the margin may be that of float64 itself.
    assert order_is_unambiguous(together, together, of_graph, margin=1e-14)
    values = set()
    for variant in oracle.VARIANTS:
        options = {"variant": variant, "k1": 12, "k2": 4}
        steps = oracle.steps(query.features, gallery.features, distance=distance, lambda_value=0.3, **options)
        for weight, dense in ((0.3, steps.final), (0.0, steps.jaccard)):
            spec = KReciprocal(**options, lambda_value=weight)
            block = reranked_distances(near, far, rerank=spec, distance=distance, workspace=tmp_path)
            np.testing.assert_allclose(block, dense, rtol=CLOSE, atol=CLOSE)
            if not gaps_are_clear(dense, weight):
                continue
            report = evaluate(near, far, protocol=SETS[name], rerank=spec, distance=distance, workspace=tmp_path,
                              metrics=list(ALL_METRICS), confidence=None)  # fmt: skip
            expected = evaluation.evaluate(query, gallery, SETS[name], distances=dense)
            assert {metric: report.metrics[metric] for metric in ALL_METRICS} == pytest.approx(
                expected.metrics, abs=1e-12
            )
            np.testing.assert_allclose(report.curves["CMC"], expected.curves["CMC"], rtol=0, atol=1e-12)
            values.add((variant, weight))
    assert len({variant for variant, _ in values}) == len(oracle.VARIANTS), values


def gaps_are_clear(distances, weight):
    """Whether rounding cannot change the order of a row; without a weight of the distance, many are 1 exactly."""
    gaps = np.diff(np.sort(distances, axis=1), axis=1)
    return bool(((gaps > 1e-12) | ((gaps == 0) & (weight == 0))).all())


def test_re_ranking_helps(shared_data):
    """On a set with several images of each vehicle; by how much is a matter of the features."""
    query, gallery = read_sets(shared_data("veri776_sample.npz"))
    near, far = labelled(query), labelled(gallery)
    plain, better = (
        evaluate(near, far, protocol="no_cameras", rerank=rerank, confidence=None).metrics["mAP"]
        for rerank in (None, "k_reciprocal(k1=6,k2=3)")
    )
    assert better > plain
