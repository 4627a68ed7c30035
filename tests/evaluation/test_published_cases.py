"""Numbers that peers publish in their own tests and examples, under our name for their convention.

Quoted are inputs and expected values alone; every test names the repository, the file and its licence
(each read in that repository's own licence file).  How the numbers are put to the evaluator is ours.  Where a
peer counts otherwise than any of our names, the test states it and asserts what the arithmetic gives.

Not quoted: torchreid (MIT) and fast-reid (Apache-2.0), whose tests draw their inputs at random and expect no number;
revisitop, whose repository carries no licence file.
"""

from __future__ import annotations

import numpy as np
import pytest
from oracles import evaluation
from published import (
    EXACT,
    OXFORD_WITH_ZEROS,
    assert_metrics,
    assert_per_query,
    evaluate_marked,
    in_order,
    lists_of,
    unlabelled,
)
from support.reference import ItemSet

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    LabelledRows,
    evaluate,
    evaluate_distances,
    evaluate_lists,
)

# --------------------------------------------------------------------------------------------------------- open-reid
# Cysu/open-reid, test/evaluation_metrics/test_cmc.py, MIT.  Its `cmc` by default goes over all shots.

OPEN_REID = {
    "only_distmat": (
        [[0, 1, 2, 3, 4], [1, 0, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [1, 2, 3, 4, 0]],
        ([0, 1, 2, 3, 4], [0] * 5), ([0, 1, 2, 3, 4], [1] * 5),
        [0.6, 0.6, 0.8, 1.0, 1.0],
    ),
    "duplicate_ids": (
        [[0, 1, 2, 3]] * 4, ([0, 0, 1, 1], [0] * 4), ([0, 0, 1, 1], [1] * 4), [0.5, 0.5, 1, 1],
    ),
    "duplicate_cams": (
        [[0, 1, 2, 3, 4]] * 5, ([0, 0, 0, 1, 1], [0] * 5), ([0, 0, 0, 1, 1], [0, 1, 1, 1, 1]), [0.6, 0.6, 0.6, 1, 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OPEN_REID)
def test_open_reid(case):
    """The curve of `allshots`; in these three it is that of the first match too, since all positives are adjacent."""
    distances, query, gallery, curve = OPEN_REID[case]
    block = DistanceBlock.from_array(np.array(distances, np.float64))
    for protocol, family in (("allshots", "CMC_allshots"), ("market1501", "CMC")):
        report = evaluate_distances(
            block, LabelledRows(*query), LabelledRows(*gallery), protocol=protocol, max_rank=len(curve), confidence=None
        )
        np.testing.assert_allclose(report.curves[family], curve, rtol=0, atol=EXACT)


# ----------------------------------------------------------------------------------------------------- mmdetection


def test_mmdetection():
    """open-mmlab/mmdetection, tests/test_evaluation/test_metrics/test_reid_metric.py, Apache-2.0.

    Every item is searched for among the others by squared Euclidean distance.  The file writes the ranked lists beside
    the features; the mean is published with three digits.
    """
    features = [[1, 0, 0.1], [0.8, 0, 0], [0.1, 1, 0.1], [0, 0.9, 0.1], [0.9, 0.1, 0], [0, 0.1, 1]]
    items = FeatureSet.from_arrays(np.array(features, np.float32), [0, 0, 1, 1, 1, 1], item_ids=np.arange(6))
    report = evaluate(
        items, items, protocol="same_set", distance="sqeuclidean", metrics=["mAP", "CMC@1", "CMC@5"], confidence=None
    )
    assert_metrics(report, {"mAP": 0.719}, tolerance=5e-4)
    assert_metrics(report, {"CMC@1": 0.5, "CMC@5": 1.0})
    written = ["xVxxx", "xVxxx", "VVxVx", "VVVxx", "xxVVV", "VVxVx"]
    assert_per_query(report, {"AP": [0.50, 0.50, 0.92, 1.00, 0.48, 0.92]}, tolerance=5e-3)
    assert report.per_query["first_rank"].tolist() == [row.index("V") + 1 for row in written]
    assert report.per_query["last_rank"].tolist() == [row.rindex("V") + 1 for row in written]


# -------------------------------------------------------------------------------------------- open-metric-learning
# OML-Team/open-metric-learning, tests/test_oml/test_functional/test_metrics/, Apache-2.0.


def test_oml_exact_case():
    """test_outdated/test_retrieval_metrics.py: six lists of the other five items, and every value of every query.

    Its `map` at k divides by the positives found, ours by that name; its `cmc` is the first match.  Its `precision` at
    k divides by the smaller of k and the number of positives, as our P_min.
    """
    positions = [[0, 1, 3], [0, 3, 4], [1, 2, 4], [2, 3, 4], [0], [3]]
    hits = np.zeros((6, 5), bool)
    for row, places in zip(hits, positions, strict=True):
        row[places] = True
    third = 1 / 3
    published = {
        "CMC": {
            1: [1, 1, 0, 0, 1, 0], 2: [1, 1, 1, 0, 1, 0], 3: [1, 1, 1, 1, 1, 0],
            4: [1] * 6, 5: [1] * 6, 10: [1] * 6,
        },
        "AP_found": {
            1: [1, 1, 0, 0, 1, 0], 2: [1, 1, 1 / 2, 0, 1, 0], 3: [1, 1, 7 / 12, third, 1, 0],
            4: [11 / 12, 3 / 4, 7 / 12, 5 / 12, 1, 1 / 4], 5: [11 / 12, 21 / 30, 53 / 90, 43 / 90, 1, 1 / 4],
            10: [11 / 12, 21 / 30, 53 / 90, 43 / 90, 1, 1 / 4],
        },
        "P_min": {
            1: [1, 1, 0, 0, 1, 0], 2: [1, 1 / 2, 1 / 2, 0, 1, 0], 3: [2 / 3, third, 2 / 3, third, 1, 0],
            4: [1, 2 / 3, 2 / 3, 2 / 3, 1, 1], 5: [1] * 6, 10: [1] * 6,
        },
    }  # fmt: skip
    ranks = sorted(published["CMC"])
    names = [f"{family}@{k}" for family in ("CMC", "mAP_found", "P_min") for k in ranks]
    report = in_order(hits, names, max_rank=10)
    for k in ranks:
        assert_per_query(report, {f"{name}@{k}": published[name][k] for name in ("AP_found", "P_min")})
        assert_metrics(report, {f"CMC@{k}": np.mean(published["CMC"][k])})
        assert (report.per_query["first_rank"] <= k).tolist() == [bool(hit) for hit in published["CMC"][k]]


@pytest.mark.parametrize(
    ("distances", "relevant", "k", "cmc"),
    [
        ([[1, 2], [2, 1]], [[0, 1], [1, 0]], 1, 0.0),
        ([[0, 0.5], [0, 0.5]], [[0, 1], [1, 0]], 1, 0.5),
        ([[0, 0.5], [0, 0.5]], [[0, 1], [1, 0]], 2, 1.0),
        # The second of three queries alone has its item among the first two.
        ([[1, 0.5, 0.2], [2, 3, 4], [0.4, 3, 4]], np.eye(3), 2, 1 / 3),
    ],
)
def test_oml_cmc_of_distances(distances, relevant, k, cmc):
    """test_outdated/test_cmc_metric_old.py."""
    report = evaluate_marked(distances, np.asarray(relevant, bool), [f"CMC@{k}"])
    assert_metrics(report, {f"CMC@{k}": cmc})


@pytest.mark.parametrize(
    ("query", "gallery", "relevant", "there", "cmc"),
    [
        (
            [[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 1], [0, 0, 1, 1]],
            [[1, 1, 1, 0], [1, 1, 1, 1], [0, 1, 1, 0]],
            [[1, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, 1]],
            [[0, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 1]],
            0.75,
        ),
        (
            [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]],
            [[0, 1, 0], [0, 0, 1], [1, 0, 1]],
            [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]],
            [[1, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0]],
            0.25,
        ),
    ],
)
def test_oml_masked_cmc(query, gallery, relevant, there, cmc):
    """test_outdated/test_cmc_metric_old.py: items that a query does not see, and with them all of its positives.

    Such a query counts as 0 there.  Our oxford leaves it out, which is another number, and reports how many.
    """
    sides = [FeatureSet.from_arrays(np.array(side, np.float32), np.zeros(len(side), int)) for side in (query, gallery)]
    junk = ~np.array(there, bool)
    truth = lists_of(relevant, junk)
    options = {"distance": "euclidean", "metrics": ["CMC@1"], "ground_truth": truth, "confidence": None}
    with_zeros = evaluate(*sides, protocol=OXFORD_WITH_ZEROS, **options)
    assert_metrics(with_zeros, {"CMC@1": cmc})
    left_out = evaluate(*sides, protocol="oxford", **options)
    n_valid = (np.array(relevant, bool) & ~junk).any(axis=1).sum()
    assert left_out.counts["n_valid"] == n_valid < 4
    assert_metrics(left_out, {"CMC@1": cmc * 4 / n_valid})


OML_PAIRS = {
    "genuine": [0, 0, 1, 1, 2, 2, 5, 5, 9, 9],
    "impostor": [3, 3, 4, 4, 6, 6, 7, 7, 8, 8],
    "fnmr": {"0.1": 0.4, "0.5": 0.2},
}


def test_oml_verification():
    """test_outdated/test_retrieval_metrics.py: the false non-match rate at a false match rate is 1 - TAR@FAR."""
    distances = [OML_PAIRS["genuine"] + OML_PAIRS["impostor"]]
    relevant = np.arange(20) < 10
    expected = {f"TAR@FAR={far}": 1 - rate for far, rate in OML_PAIRS["fnmr"].items()}
    assert_metrics(evaluate_marked(distances, relevant, expected), expected)
    by_pid = evaluate_distances(
        DistanceBlock.from_array(np.array(distances, np.float64)), LabelledRows([1]), LabelledRows(2 - relevant),
        protocol="no_cameras", metrics=list(expected), confidence=None,
    )  # fmt: skip
    assert_metrics(by_pid, expected)


def test_oml_verification_of_two_queries():
    """The same pairs as two lists, of 13 and of 7 items: what is not in a list is not in the gallery of its query."""
    lists = ([0, 0, 1, 1, 2, 2, 5, 5, 7, 7, 8, 8, 9], [3, 3, 4, 4, 6, 6, 9])
    genuine = ([*range(8), 12], [6])
    distances = np.zeros((2, 13))
    relevant = np.zeros((2, 13), bool)
    junk = np.ones((2, 13), bool)
    for row, (values, places) in enumerate(zip(lists, genuine, strict=True)):
        distances[row, : len(values)] = values
        relevant[row, places] = True
        junk[row, : len(values)] = False
    expected = {f"TAR@FAR={far}": 1 - rate for far, rate in OML_PAIRS["fnmr"].items()}
    report = evaluate_marked(distances, relevant, expected, junk=junk)
    assert_metrics(report, expected)
    assert (report.verification["n_genuine"], report.verification["n_impostor"]) == (10, 10)


# KevinMusgrave/pytorch-metric-learning, tests/utils/test_calculate_accuracies.py, MIT.

# ------------------------------------------------------------------------------------------------------ torchmetrics
# Lightning-AI/torchmetrics, examples in src/torchmetrics/retrieval/ and .../functional/retrieval/, Apache-2.0.


def by_scores(queries, metrics, **options):
    """Evaluate (scores, relevant) of queries with galleries of their own; what others have is junk."""
    longest = max(len(scores) for scores, _ in queries)
    distances, relevant, junk = np.zeros((len(queries), longest)), *np.zeros((2, len(queries), longest), bool)
    for row, (scores, hits) in enumerate(queries):
        distances[row, : len(scores)] = -np.array(scores)
        relevant[row, : len(scores)] = hits
        junk[row, len(scores) :] = True
    return evaluate_marked(distances, relevant, metrics, junk=junk, **options)


@pytest.mark.parametrize(
    ("relevant", "expected"),
    [
        ([1, 0, 1], {"mAP": 0.8333, "P@2": 0.5, "R@2": 0.5, "CMC@2": 1, "Rprec": 0.5}),
        ([0, 1, 0], {"MRR": 0.5}),
    ],
)
def test_torchmetrics_of_one_query(relevant, expected):
    """Scores 0.2, 0.3, 0.5; values with four digits.  Its hit rate is our CMC."""
    assert_metrics(by_scores([([0.2, 0.3, 0.5], relevant)], expected), expected, tolerance=5e-5)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ([0, 0, 1], {"mAP": 0.7917, "P@2": 0.5, "R@2": 0.75, "Rprec": 0.75, "MRR": 0.75}),
        ([1, 0, 0], {"CMC@2": 0.5}),
    ],
)
def test_torchmetrics_of_two_queries(first, expected):
    queries = [([0.2, 0.3, 0.5], first), ([0.1, 0.3, 0.5, 0.2], [0, 1, 0, 1])]
    if "CMC@2" in expected:
        # The arithmetic: the first query has its item last of three, the second has one at rank 2.
        assert by_scores(queries, ["CMC@2"]).per_query["first_rank"].tolist() == [3, 2]
    assert_metrics(by_scores(queries, expected), expected, tolerance=5e-5)


def test_torchmetrics_curves():
    """Precision and recall at ranks 1 to 4; the second query has three items, and its precision at 4 divides by 4."""
    queries = [([0.4, 0.01, 0.5, 0.6], [1, 0, 0, 1]), ([0.2, 0.3, 0.5], [1, 0, 1])]
    report = by_scores(queries, ["mAP"], max_rank=4)
    np.testing.assert_allclose(report.curves["P"], [1, 0.5, 0.6667, 0.5], rtol=0, atol=5e-5)
    np.testing.assert_allclose(report.curves["R"], [0.5, 0.5, 1, 1], rtol=0, atol=5e-5)


# --------------------------------------------------------------------------------------------------- TREC, by others


def test_ir_measures():
    """terrierteam/ir_measures, tests/test_ranx.py, Apache-2.0: relevant are D1, D2, D3, the order D0 D2 D3 D1 D4."""
    expected = {
        "mAP": 0.6388888888888888, "mAP@10": 0.6388888888888888, "mAP@2": 0.16666666666666666, "P@5": 0.6,
        "R@5": 1.0, "R@2": 0.3333333333333333, "MRR": 0.5, "CMC@10": 1.0, "CMC@2": 1.0,
    }  # fmt: skip
    scores = [0.8, 0.3, 0.7, 0.4, 0.1]
    assert_metrics(by_scores([(scores, [0, 1, 1, 1, 0])], expected), expected)
    only_d3 = {"mAP": 1 / 3, "mAP@10": 1 / 3, "mAP@2": 0.0, "R@2": 0.0, "MRR": 1 / 3, "CMC@2": 0.0, "P@5": 0.2}
    assert_metrics(by_scores([(scores, [0, 0, 0, 1, 0])], only_d3), only_d3)


@pytest.mark.parametrize(
    ("least", "expected"),
    [(1, {25: [1, 0.25, 0.625], 50: [1, 0.25, 0.625]}), (2, {25: [2 / 3, 0.25, 0.4583], 50: [2 / 3, 0.25, 0.4583]})],
)
def test_ir_measures_interpolated_precision(least, expected):
    """tests/test_pytrec_eval.py: precision at a recall, of two queries and of their mean (four digits).

    A relevant document that a run lacks is never found in TREC.  Here it is last of a gallery of twenty, where its
    precision of one tenth is less than that of what was found.
    """
    grades = [[1, 1, 2, 2, 0], [1, 0, 0, 2, 0]]
    runs = [[0, 2, 3, 1, 4], [1, 4, 2, 3]]
    distances, relevant = np.full((2, 20), 50.0), np.zeros((2, 20), bool)
    for row, (run, grade) in enumerate(zip(runs, grades, strict=True)):
        distances[row, run] = np.arange(len(run))
        distances[row, 5:] = 20 + np.arange(15)
        relevant[row, :5] = np.array(grade) >= least
    for level, values in expected.items():
        each = [evaluate_marked(distances[[row]], relevant[[row]], ["mAP"]) for row in (0, 1)]
        for report, value in zip((*each, evaluate_marked(distances, relevant, ["mAP"])), values, strict=True):
            assert report.curves["precision_recall"][level] == pytest.approx(value, abs=5e-5)


# AmenRa/ranx, tests/unit/ranx/metrics_test.py and meta/evaluate_test.py, MIT.
RANX = {
    "average_precision": ([[1, 4, 5, 6]], [[1, 2, 3, 4, 5, 7]], {"mAP@6": 0.525}),
    "hit_rate": ([[9, 6, 8], [1, 2, 4]], [[1, 2, 3, 4, 5, 7], [1, 2, 4, 3, 5, 7]], {"CMC@5": 0.5}),
    "precision": ([[1, 4, 5, 6]], [[1, 2, 3, 4, 5, 7]], {"P@5": 3 / 5}),
    "r_precision": (
        [[1, 2, 3], [1, 2]], [[2, 4, 3, 1, 5, 6, 7]] * 2, {"Rprec": (2 / 3 + 1 / 2) / 2, "R@2": (1 / 3 + 1 / 2) / 2},
    ),
    "r_precision_of_one": ([[1, 2, 3]], [[2, 4, 3, 1, 5, 6, 7]], {"Rprec": 2 / 3, "R@2": 1 / 3}),
    "reciprocal_rank": ([[3]], [[2, 3, 1, 4, 5]], {"MRR": 0.5}),
}  # fmt: skip


@pytest.mark.parametrize("case", RANX)
def test_ranx(case):
    """Documents by number: the relevant ones of each query, and what was retrieved, as a list of neighbours."""
    relevant, retrieved, expected = RANX[case]
    shape = (len(relevant), 12)
    mask = np.array([np.isin(np.arange(shape[1]), row) for row in relevant])
    report = evaluate_lists(
        np.array(retrieved), *unlabelled(shape), protocol="oxford", ground_truth=lists_of(mask), metrics=list(expected),
        confidence=None,
    )  # fmt: skip
    assert_metrics(report, expected)


# ------------------------------------------------------------------------------------------------------- the oracle


@pytest.mark.parametrize("case", ["duplicate_ids", "duplicate_cams"])
def test_the_oracle_agrees(case):
    """What is published holds for the oracle of the other tests as well, by another road: features on a line."""
    distances, query, gallery, curve = OPEN_REID[case]
    rows = np.array(distances)
    near = ItemSet(np.zeros((len(rows), 1), np.float32), *map(np.array, query))
    far = ItemSet(rows[0].astype(np.float32)[:, None], *map(np.array, gallery))
    found = evaluation.evaluate(
        near, far, "allshots", "euclidean", [f"CMC_allshots@{k + 1}" for k in range(len(curve))]
    )
    assert list(found.metrics.values()) == pytest.approx(curve, abs=EXACT)
