"""Rank metrics are those of independent software: scikit-learn, and trec_eval behind ir_measures."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
from agreement import evaluate_items
from ir_measures import AP, RR, P, R, Rprec
from oracles import protocols
from support.reference import DISTANCES, canonical_distances, order_is_unambiguous
from support.strategies import crowded_sets, scattered_sets

CUTOFFS = (1, 2, 5, 10, 50, 500)
TREC = {
    "mAP": AP,
    "MRR": RR,
    "Rprec": Rprec,
    **{f"{name}@{k}": measure @ k for name, measure in (("mAP", AP), ("P", P), ("R", R)) for k in CUTOFFS},
}


def as_run(query, gallery, protocol, distance):
    """Judgements and scores in the form of TREC, junk taken out; scores that no rounding to float32 can tie."""
    distances = canonical_distances(query.features, gallery.features, distance)
    relevant, junk = protocols.assign_relevance(query, gallery, protocol)
    relevance_of, run = {}, {}
    for i in np.flatnonzero(relevant.any(axis=1)):
        kept = np.flatnonzero(~junk[i])
        order = kept[np.lexsort((kept, distances[i][kept]))]
        relevance_of[str(i)] = {str(row): int(relevant[i, row]) for row in kept}
        run[str(i)] = {str(row): float(len(order) - place) for place, row in enumerate(order)}
    return relevance_of, run


def sets_for(protocol, ties):
    """A set with or without ties, and queries from the gallery where the protocol requires it."""
    make = crowded_sets if ties else scattered_sets
    query, gallery = make(25, 260, 10, seed=101)
    return (gallery.take(range(0, 260, 10)) if protocol == "same_set" else query), gallery


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("protocol", ["market1501", "cuhk03_separate_cameras", "same_set", "no_cameras"])
def test_trec_eval(protocol, ties):
    query, gallery = sets_for(protocol, ties)
    assert order_is_unambiguous(query.features, gallery.features, "cosine")
    relevance_of, run = as_run(query, gallery, protocol, "cosine")
    report = evaluate_items(query, gallery, protocol, "cosine", list(TREC))
    answers = ir_measures.calc_aggregate(TREC.values(), relevance_of, run)
    for name, measure in TREC.items():
        assert report.metrics[name] == pytest.approx(answers[measure], abs=1e-9), name


@pytest.mark.slow
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", protocols.PID_PROTOCOLS)
def test_average_precision_of_scikit_learn(protocol, distance):
    """Without ties the rectangle rule is its average precision, on the kept items of each query."""
    from sklearn.metrics import average_precision_score

    query, gallery = sets_for(protocol, ties=False)
    distances = canonical_distances(query.features, gallery.features, distance)
    relevant, junk = protocols.assign_relevance(query, gallery, protocol)
    report = evaluate_items(query, gallery, protocol, distance, ["mAP"])
    scores = []
    for i in np.flatnonzero(relevant.any(axis=1)):
        kept = ~junk[i]
        scores.append(average_precision_score(relevant[i, kept], -distances[i, kept]))
        assert report.per_query["AP"][i] == pytest.approx(scores[-1], abs=1e-12)
    n = len(query) if protocol == "market1501_matlab" else len(scores)
    assert report.metrics["mAP"] == pytest.approx(np.sum(scores) / n, abs=1e-12)
