"""Every rank metric by its name: the formula, the walk down the list, the worked examples, and the report."""

from __future__ import annotations

import ir_measures
import numpy as np
import pytest
from agreement import evaluate_items
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, P, R, Rprec
from oracles import evaluation, protocols, rank_metrics
from oracles.rank_metrics import hits_of, value
from sklearn.metrics import ndcg_score, roc_auc_score
from support.reference import ItemSet, canonical_distances, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems, scattered_sets

sets_of_ranks = st.sets(st.integers(1, 40), min_size=1, max_size=12).map(sorted)


def lines(*rankings, n):
    """Queries at the origin of a line, and a gallery of `n` items on it that all of them keep.

    Each query has a pid of its own, whose items are at some 1-based ranks; no rank may be given twice.
    """
    pids = np.full(n, 1000)
    for pid, ranks in enumerate(rankings):
        assert (pids[np.array(ranks) - 1] == 1000).all()
        pids[np.array(ranks) - 1] = pid
    gallery = ItemSet(np.arange(1, n + 1, dtype=np.float32)[:, None], pids, np.ones(n, int), np.arange(n))
    n_query = len(rankings)
    query = ItemSet(
        np.zeros((n_query, 1), np.float32), np.arange(n_query), np.zeros(n_query, int), np.arange(5000, 5000 + n_query)
    )
    return query, gallery


def evaluate_list(ranks, metrics, n=60, **options):
    """The report of one query with positives at these ranks among n items."""
    return evaluate_items(*lines(ranks, n=n), "market1501", "euclidean", metrics, **options)


# ------------------------------------------------------------------------------------------------- the oracle


@given(sets_of_ranks)
def test_formulas_and_walks(ranks):
    hits = hits_of(ranks, 40)
    n = len(ranks)
    for k in (1, 2, 5, 13, 60):
        cut = hits[:k]
        assert value(f"CMC@{k}", ranks) == rank_metrics.walk_first_match(hits, k)[-1]
        assert value(f"CMC_allshots@{k}", ranks) == pytest.approx(rank_metrics.walk_all_shots(hits, k)[-1], abs=1e-12)
        assert value(f"mAP@{k}", ranks) == pytest.approx(rank_metrics.walk_average_precision(cut, n), abs=1e-12)
        found = sum(cut)
        of_found = rank_metrics.walk_average_precision(cut, found) if found else 0.0
        assert value(f"mAP_found@{k}", ranks) == pytest.approx(of_found, abs=1e-12)
        of_most = rank_metrics.walk_average_precision(cut, min(n, k))
        assert value(f"mAP_min@{k}", ranks) == pytest.approx(of_most, abs=1e-12)
        assert value(f"P@{k}", ranks) == pytest.approx(found / k)
        assert value(f"P_min@{k}", ranks) == pytest.approx(sum(cut) / min(k, n))
        assert value(f"R@{k}", ranks) == pytest.approx(found / n)
        by_sklearn = ndcg_score([hits + [False] * 20], [-np.arange(60)], k=k)
        assert value(f"nDCG@{k}", ranks) == pytest.approx(by_sklearn, abs=1e-12)
    assert value("mAP", ranks) == pytest.approx(rank_metrics.walk_average_precision(hits, n), abs=1e-12)
    assert value("mAP_R", ranks) == pytest.approx(rank_metrics.walk_average_precision(hits[:n], n), abs=1e-12)
    assert value("mAP_trapezoid", ranks) == pytest.approx(rank_metrics.walk_trapezoid(hits, n), abs=1e-12)


@pytest.mark.parametrize(
    ("name", "ranks", "expected"),
    [
        ("CMC_allshots@1", [1, 2, 3], 1.0),
        ("CMC_allshots@1", [2, 3, 7], 0.0),
        ("CMC_allshots@2", [2, 3, 7], 2 / 3),
        ("CMC_allshots@5", [2, 3, 7], 1.0),
        ("mAP_found@5", [2, 3, 7], (1 / 2 + 2 / 3) / 2),
        ("mAP_found@1", [2, 3, 7], 0.0),
        ("mAP_min@5", [2, 3, 7], (1 / 2 + 2 / 3) / 3),
        ("mAP_min@2", [2, 3, 7], (1 / 2) / 2),
        ("mAP_min@1", [1, 50], 1.0),
        ("mAP_R", [2, 3, 7], (1 / 2 + 2 / 3) / 3),
        ("mAP_R", [2, 4, 7], (1 / 2) / 3),
        ("mAP_R", [1, 2, 50], 2 / 3),
        ("mAP@5", [2, 3, 7], (1 / 2 + 2 / 3) / 3),
        ("P_clipped@5", [2, 3, 7], 2 / 5),
        ("P_clipped@10", [2, 3, 7], 3 / 7),
        ("P_clipped@10", [1], 1.0),
        ("P_min@5", [2, 3, 7], 2 / 3),
        ("P_min@2", [2, 3, 7], 1 / 2),
        ("P_min@9", [2, 3, 7], 1.0),
        ("P_clipped@5", [1, 3], 2 / 3),
        ("P@10", [1], 1 / 10),
        ("R@10", [1, 50], 1 / 2),
        ("P@1000", [1, 50], 2 / 1000),
        ("mINP", [2, 3, 7], 3 / 7),
        ("nDCG@1", [2, 3, 7], 0.0),
        ("nDCG@3", [1, 3], (1 + 1 / 2) / (1 + np.log(2) / np.log(3))),
        ("nDCG@1", [1, 50], 1.0),
        ("Rprec", [2, 3, 7], 2 / 3),
        ("MRR", [2, 3, 7], 1 / 2),
    ],
)
def test_values_by_hand(name, ranks, expected):
    assert value(name, ranks) == pytest.approx(expected, abs=1e-15)
    report = evaluate_list(ranks, [name])
    assert report.metrics == {name: pytest.approx(expected, abs=1e-15)}


# ------------------------------------------------------------------------------------------------- the report


def test_per_query_values_of_requested_metrics():
    """One value per query, NaN where it is invalid, with the mean that was reported."""
    query, gallery = crowded_sets(20, 150, 9, seed=53)
    query = query + ItemSet(query.features[:1], np.array([4000]), query.camids[:1], np.array([4000]))
    names = ["CMC@2", "CMC_allshots@2", "mAP@5", "P_clipped@5", "Rprec"]
    report = evaluate_items(query, gallery, metrics=names)
    columns = {name for name, column in report.per_query.items() if column.dtype.kind == "f"}
    for name in ("CMC@2", "CMC_allshots@2", "P_clipped@5", "Rprec"):
        assert name in columns
        column = report.per_query[name]
        assert len(column) == 21
        assert np.isnan(column[-1])
        assert np.nanmean(column) == pytest.approx(report.metrics[name], abs=1e-12)


def test_columns_of_two_metrics_do_not_overwrite_each_other():
    """mAP@5 and mAP_found@5 differ, per query too."""
    query, gallery = crowded_sets(20, 150, 9, seed=54)
    both = evaluate_items(query, gallery, metrics=["mAP@5", "mAP_found@5", "P@5", "P_clipped@5"])
    assert both.metrics["mAP@5"] < both.metrics["mAP_found@5"]
    alone = evaluate_items(query, gallery, metrics=["mAP@5"]).per_query
    added = set(alone) - set(evaluate_items(query, gallery, metrics=["mAP"]).per_query)
    assert added
    for name in added:
        assert both.per_query[name].tobytes() == alone[name].tobytes()


# -------------------------------------------------------------------------------------------- trec_eval


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


# -------------------------------------------------------------------------------------------- the area under the ROC


@pytest.mark.parametrize(
    ("ranks", "n", "expected"), [([1, 2], 9, 1.0), ([8, 9], 9, 0.0), ([3], 4, 1 / 3), ([2, 3], 4, 0.5)]
)
def test_areas_by_hand(ranks, n, expected):
    assert evaluate_list(ranks, ["AUC"], n=n).metrics == {"AUC": pytest.approx(expected, abs=1e-15)}


def test_nothing_but_positives_has_the_whole_area():
    assert evaluate_list([1, 2, 3], ["AUC"], n=3).metrics == {"AUC": 1.0}


@settings(max_examples=examples(20))
@given(problem=problems(kinds=("palette", "few_valued", "constant")))
def test_a_tied_pair_counts_half_between_the_bounds(problem):
    """As scikit-learn counts it."""
    query, gallery = problem.query, problem.gallery
    if evaluation.evaluate(query, gallery, "no_cameras", "sqeuclidean", ["mAP"]) is None:
        return
    report = evaluate_items(query, gallery, "no_cameras", "sqeuclidean", ["AUC"], ties=True)
    squares = ((query.features[:, None].astype(float) - gallery.features[None].astype(float)) ** 2).sum(axis=2)
    kept, areas = gallery.pids != -1, []
    for row in np.flatnonzero(query.pids != -1):
        relevant = gallery.pids[kept] == query.pids[row]
        if relevant.any():
            areas.append(1.0 if relevant.all() else roc_auc_score(relevant, -squares[row, kept]))
    low, high = (report.ties[rule]["AUC"] for rule in ("pessimistic", "optimistic"))
    assert low <= report.metrics["AUC"] <= high
    assert (low + high) / 2 == pytest.approx(np.mean(areas), abs=1e-12)
