"""Every rank metric by its name: the formula, the walk down the list, the worked examples, and the report."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import evaluate_items
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import evaluation, rank_metrics
from oracles.rank_metrics import hits_of, value
from sklearn.metrics import ndcg_score, roc_auc_score
from support.reference import ItemSet
from support.sampling import examples
from support.strategies import crowded_sets, problems

METRICS = (
    *("mAP", "mAP_R", "mAP_trapezoid", "mINP", "MRR", "Rprec"),
    *(f"CMC@{k}" for k in (1, 2, 7, 90)),
    *(f"CMC_allshots@{k}" for k in (1, 2, 7, 90)),
    *(
        f"{name}@{k}"
        for name in ("mAP", "mAP_found", "mAP_min", "P", "P_min", "R", "P_clipped", "nDCG")
        for k in (1, 2, 5, 10, 90)
    ),
)
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


@settings(max_examples=examples(15))
@given(ranks=sets_of_ranks)
def test_any_list(ranks):
    report = evaluate_list(ranks, METRICS, n=40, max_rank=45)
    for name in METRICS:
        assert report.metrics[name] == pytest.approx(value(name, ranks), abs=1e-12), name
    hits = hits_of(ranks, 40)
    assert report.curves["CMC"].tolist() == rank_metrics.walk_first_match(hits, 45)


@settings(max_examples=examples(15))
@given(ranks=sets_of_ranks)
def test_all_shots_curve_of_any_list(ranks):
    report = evaluate_items(*lines(ranks, n=40), "allshots", "euclidean", ["mAP"], max_rank=45)
    expected = rank_metrics.walk_all_shots(hits_of(ranks, 40), 45)
    assert report.curves["CMC_allshots"] == pytest.approx(expected, abs=1e-12)


@settings(max_examples=examples(25))
@given(problem=problems(kinds=("palette", "few_valued", "scaled", "constant")))
def test_small_sets(problem):
    expected = evaluation.evaluate(problem.query, problem.gallery, "no_cameras", "sqeuclidean", METRICS)
    if expected is None:
        return
    report = evaluate_items(problem.query, problem.gallery, "no_cameras", "sqeuclidean", METRICS, max_rank=10)
    for name in METRICS:
        assert report.metrics[name] == pytest.approx(expected.metrics[name], abs=1e-12), name
    assert list(report.metrics) == list(METRICS)


def test_several_lists():
    rankings = [[1, 4, 5], [2, 3], [60], [6, 30, 31, 32], [7], [58, 59]]
    report = evaluate_items(*lines(*rankings, n=60), "market1501", "euclidean", METRICS)
    for name in METRICS:
        expected = np.mean([value(name, ranks) for ranks in rankings])
        assert report.metrics[name] == pytest.approx(expected, abs=1e-12), name
    assert report.per_query["first_rank"].tolist() == [1, 2, 60, 6, 7, 58]


@pytest.mark.slow
def test_metrics_do_not_depend_on_other_metrics():
    query, gallery = crowded_sets(20, 200, 9, seed=51)
    together = evaluate_items(query, gallery, metrics=METRICS).metrics
    assert tuple(together) == METRICS
    for name in METRICS:
        assert evaluate_items(query, gallery, metrics=[name], max_rank=3).metrics == {name: together[name]}


@pytest.mark.quick_cases(18)
@pytest.mark.parametrize("name", METRICS)
def test_a_perfect_ranking_scores_one(name):
    """But for what is cut at K and shared among all 90 positives: K of them have been found there."""
    report = evaluate_list(list(range(1, 91)), [name], n=95)
    best = int(name.partition("@")[2]) / 90 if name.startswith(("R@", "mAP@")) else 1.0
    assert report.metrics[name] == pytest.approx(best, abs=1e-15)


@pytest.mark.parametrize("protocol", ["market1501", "market1501_matlab"])
def test_curves_of_precision_and_recall(protocol):
    query, gallery = crowded_sets(20, 200, 9, seed=52)
    metrics = ["P@4", "R@30", "mAP"]
    report = evaluate_items(query, gallery, protocol, "sqeuclidean", metrics, max_rank=30)
    expected = evaluation.evaluate(query, gallery, protocol, "sqeuclidean", metrics, max_rank=30)
    for name, curve in expected.more_curves.items():
        assert report.curves[name] == pytest.approx(curve, abs=1e-12), name
    assert report.curves["P"][3] == report.metrics["P@4"]
    assert report.curves["R"][29] == report.metrics["R@30"]
    assert (np.diff(report.curves["R"]) >= 0).all()


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
