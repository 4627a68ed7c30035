"""Numbers that peers publish in their own tests and examples, under our name for their convention.

Quoted are inputs and expected values alone; every test names the repository, the file and the licence that it stands
under (each read in that repository's own licence file).  How the numbers are put to the evaluator is ours.  Where a
peer counts otherwise than any of our names, the test says so and holds what the arithmetic gives.

Not quoted: torchreid (MIT) and fast-reid (Apache-2.0), whose tests draw their inputs at random and expect no number;
revisitop, whose repository carries no licence file.
"""

from __future__ import annotations

import numpy as np
import pytest
from oracles import evaluation
from reference import ItemSet

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    LabelledRows,
    compose_protocol,
    evaluate,
    evaluate_distances,
    evaluate_lists,
)
from reid_dist.relevance.protocols import PROTOCOLS

# As close as a mean of such fractions can be told from another.
EXACT = 1e-12
NOTHING = {"good": [], "ok": [], "junk": []}
# A query without relevant items counts, as one that found nothing.
OXFORD_WITH_ZEROS = compose_protocol("oxford_with_zeros", base=PROTOCOLS.get("oxford"), invalid_query="counts as 0")


def assert_says(report, expected, tolerance=EXACT):
    """Metrics of a report, by our names."""
    assert set(expected) <= set(report.metrics)
    for name, value in expected.items():
        assert report.metrics[name] == pytest.approx(value, abs=tolerance), name


def assert_queries_say(report, expected, tolerance=EXACT):
    """Values of every query, by our names."""
    for name, values in expected.items():
        np.testing.assert_allclose(report.per_query[name], values, rtol=0, atol=tolerance, err_msg=name)


def lists_of(relevant, junk=None):
    """Ground truth of every query, from masks of shape (n_query, n_gallery)."""
    relevant = np.asarray(relevant, bool)
    junk = np.zeros_like(relevant) if junk is None else np.asarray(junk, bool)
    return [
        NOTHING | {"ok": np.flatnonzero(row).tolist(), "junk": np.flatnonzero(hidden).tolist()}
        for row, hidden in zip(relevant & ~junk, junk, strict=True)
    ]


def unlabelled(shape):
    return tuple(LabelledRows(np.zeros(n, int)) for n in shape)


def judged(distances, relevant, metrics, *, junk=None, protocol="oxford", **options):
    """Evaluate distances whose relevant items are told one by one."""
    block = np.asarray(distances, np.float64)
    truth = lists_of(np.broadcast_to(relevant, block.shape), junk)
    return evaluate_distances(
        DistanceBlock.from_array(block), *unlabelled(block.shape), protocol=protocol, ground_truth=truth,
        metrics=list(metrics), confidence=None, **options,
    )  # fmt: skip


def in_order(hits, metrics, **options):
    """Evaluate ranked lists of hits and misses; rows of one length."""
    hits = np.asarray(hits, bool)
    return judged(np.broadcast_to(np.arange(hits.shape[1]), hits.shape), hits, metrics, **options)


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
    assert_says(report, {"mAP": 0.719}, tolerance=5e-4)
    assert_says(report, {"CMC@1": 0.5, "CMC@5": 1.0})
    written = ["xVxxx", "xVxxx", "VVxVx", "VVVxx", "xxVVV", "VVxVx"]
    assert_queries_say(report, {"AP": [0.50, 0.50, 0.92, 1.00, 0.48, 0.92]}, tolerance=5e-3)
    assert report.per_query["first_rank"].tolist() == [row.index("V") + 1 for row in written]
    assert report.per_query["last_rank"].tolist() == [row.rindex("V") + 1 for row in written]


# -------------------------------------------------------------------------------------------- open-metric-learning
# OML-Team/open-metric-learning, tests/test_oml/test_functional/test_metrics/, Apache-2.0.


def test_oml_exact_case():
    """test_outdated/test_retrieval_metrics.py: six lists of the other five items, and every value of every query.

    Its `map` at k divides by the positives found, ours by that name; its `cmc` is the first match.  Its `precision` at
    k divides by the smaller of k and the number of positives, which no name of ours does; multiplied out it is P@k.
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
        "precision": {
            1: [1, 1, 0, 0, 1, 0], 2: [1, 1 / 2, 1 / 2, 0, 1, 0], 3: [2 / 3, third, 2 / 3, third, 1, 0],
            4: [1, 2 / 3, 2 / 3, 2 / 3, 1, 1], 5: [1] * 6, 10: [1] * 6,
        },
    }  # fmt: skip
    ranks = sorted(published["CMC"])
    names = [f"{family}@{k}" for family in ("CMC", "mAP_found", "P") for k in ranks]
    report = in_order(hits, names, max_rank=10)
    n_relevant = hits.sum(axis=1)
    for k in ranks:
        assert_queries_say(report, {f"AP_found@{k}": published["AP_found"][k]})
        assert_says(report, {f"CMC@{k}": np.mean(published["CMC"][k])})
        assert (report.per_query["first_rank"] <= k).tolist() == [bool(hit) for hit in published["CMC"][k]]
        found = report.per_query[f"P@{k}"] * k / np.minimum(n_relevant, k)
        np.testing.assert_allclose(found, published["precision"][k], rtol=0, atol=EXACT)


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
    report = judged(distances, np.asarray(relevant, bool), [f"CMC@{k}"])
    assert_says(report, {f"CMC@{k}": cmc})


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

    Such a query counts as 0 there.  Our oxford leaves it out, which is another number, and says how many it left out.
    """
    sides = [FeatureSet.from_arrays(np.array(side, np.float32), np.zeros(len(side), int)) for side in (query, gallery)]
    junk = ~np.array(there, bool)
    truth = lists_of(relevant, junk)
    options = {"distance": "euclidean", "metrics": ["CMC@1"], "ground_truth": truth, "confidence": None}
    with_zeros = evaluate(*sides, protocol=OXFORD_WITH_ZEROS, **options)
    assert_says(with_zeros, {"CMC@1": cmc})
    left_out = evaluate(*sides, protocol="oxford", **options)
    n_valid = (np.array(relevant, bool) & ~junk).any(axis=1).sum()
    assert left_out.counts["n_valid"] == n_valid < 4
    assert_says(left_out, {"CMC@1": cmc * 4 / n_valid})


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
    assert_says(judged(distances, relevant, expected), expected)
    by_pid = evaluate_distances(
        DistanceBlock.from_array(np.array(distances, np.float64)), LabelledRows([1]), LabelledRows(2 - relevant),
        protocol="no_cameras", metrics=list(expected), confidence=None,
    )  # fmt: skip
    assert_says(by_pid, expected)


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
    report = judged(distances, relevant, expected, junk=junk)
    assert_says(report, expected)
    assert (report.verification["n_genuine"], report.verification["n_impostor"]) == (10, 10)


# ------------------------------------------------------------------------------------------ pytorch-metric-learning
# KevinMusgrave/pytorch-metric-learning, tests/utils/test_calculate_accuracies.py, MIT.

PML_QUERIES = [1, 1, 2, 3, 4, 0]
PML_LISTS = [[0, 1, 1, 2, 2], [1, 0, 1, 1, 3], [4, 4, 4, 4, 2], [3, 1, 3, 1, 3], [0, 0, 4, 2, 2], [1, 2, 3, 4, 5]]
PML_COUNTS = {0: 2, 1: 3, 2: 5, 3: 4, 4: 5, 5: 1}


def rows_of(lists, labels):
    """Gallery rows of the labels of lists, no row twice in a list."""
    index = np.empty(np.shape(lists), np.int64)
    for at, wanted in enumerate(lists):
        left = {label: np.flatnonzero(labels == label).tolist() for label in np.unique(labels)}
        index[at] = [left[label].pop() for label in wanted]
    return index


@pytest.mark.parametrize("own_row_first", [False, True])
def test_pytorch_metric_learning_lists(own_row_first):
    """Labels of the five nearest items, and how many items have each label.

    Its `mean_average_precision` divides by all positives and ends with the list, which is mAP at the length of the
    list.  MAP@R is the same at as many items as a query has positives.  Where the lists hold the query itself, its
    first column is dropped, and every label has one item less.  The mean reciprocal rank is there 0 for a list without
    a hit, and here known to lie between two bounds.
    """
    labels = np.repeat(list(PML_COUNTS), list(PML_COUNTS.values()))
    lists = [row[own_row_first:] for row in PML_LISTS]
    index = rows_of(lists, labels)
    length = index.shape[1]
    relevant = np.array(PML_QUERIES)[:, None] == labels
    junk = np.zeros_like(relevant)
    if own_row_first:
        for row, (hidden, same) in enumerate(zip(junk, relevant, strict=True)):
            hidden[np.setdiff1d(np.flatnonzero(same), index[row])[0]] = True
    n_relevant = (relevant & ~junk).sum(axis=1)
    if own_row_first:
        precision_at_1 = 1 / 6
        r_precision = [1, 1 / 2, 1 / 4, 1 / 3, 1 / 4, 0]
        average = [1, (1 / 2 + 2 / 3) / 2, (1 / 4) / 4, (1 / 2 + 2 / 4) / 3, (1 / 2) / 4, 0]
        average_at_r = [1, (1 / 2) / 2, (1 / 4) / 4, (1 / 2) / 3, (1 / 2) / 4, 0]
        reciprocal_rank = [1, 1 / 2, 1 / 4, 1 / 2, 1 / 2, 0]
    else:
        precision_at_1 = 2 / 6
        r_precision = [2 / 3, 2 / 3, 1 / 5, 2 / 4, 1 / 5, 0]
        average = [
            *((1 / 2 + 2 / 3) / 3, (1 + 2 / 3 + 3 / 4) / 3, (1 / 5) / 5, (1 + 2 / 3 + 3 / 5) / 4, (1 / 3) / 5, 0)
        ]
        average_at_r = [(1 / 2 + 2 / 3) / 3, (1 + 2 / 3) / 3, (1 / 5) / 5, (1 + 2 / 3) / 4, (1 / 3) / 5, 0]
        reciprocal_rank = [1 / 2, 1, 1 / 5, 1, 1 / 3, 0]
    names = ["P@1", "Rprec", "MRR", *(f"mAP@{k}" for k in range(1, length + 1))]
    report = evaluate_lists(
        index, *unlabelled(relevant.shape), protocol="oxford", ground_truth=lists_of(relevant, junk), metrics=names,
        confidence=None,
    )  # fmt: skip
    assert_says(report, {"P@1": precision_at_1, "Rprec": np.mean(r_precision), f"mAP@{length}": np.mean(average)})
    assert_queries_say(report, {"Rprec": r_precision, f"AP@{length}": average})
    at_r = [report.per_query[f"AP@{min(r, length)}"][row] for row, r in enumerate(n_relevant)]
    np.testing.assert_allclose(at_r, average_at_r, rtol=0, atol=EXACT)
    np.testing.assert_allclose(np.nan_to_num(1 / report.per_query["first_rank"]), reciprocal_rank, rtol=0, atol=EXACT)
    low, high = report.bounds["MRR"]
    # The last query's item comes behind its list at the earliest, and as the last of the gallery at the latest.
    n_kept = len(labels) - own_row_first
    n_last = n_relevant[-1]
    assert low == pytest.approx(np.mean(reciprocal_rank) + 1 / (n_kept - n_last + 1) / 6, abs=EXACT)
    assert high == pytest.approx(np.mean(reciprocal_rank) + 1 / (length + 1) / 6, abs=EXACT)


def test_pytorch_metric_learning_by_class():
    """The mean of the means of classes is that of the breakdown by identity."""
    labels = np.repeat(list(PML_COUNTS), list(PML_COUNTS.values()))
    index = rows_of(PML_LISTS, labels)
    distances = np.full((6, len(labels)), 9.0)
    np.put_along_axis(distances, index, np.arange(5.0)[None], axis=1)
    report = evaluate_distances(
        DistanceBlock.from_array(distances), LabelledRows(PML_QUERIES), LabelledRows(labels), protocol="no_cameras",
        metrics=["P@1", "Rprec"], breakdowns=["identity"], confidence=None,
    )  # fmt: skip
    table = report.breakdowns["identity"]
    assert table["pid"] == [0, 1, 2, 3, 4]
    assert table["P@1"] == pytest.approx([0, 0.5, 0, 1, 0], abs=EXACT)
    assert table["Rprec"] == pytest.approx([0, (2 / 3 + 2 / 3) / 2, 1 / 5, 2 / 4, 1 / 5], abs=EXACT)


def on_a_line(places, labels, ids=None):
    return FeatureSet.from_arrays(
        np.array(places, np.float32)[:, None], np.array(labels), item_ids=ids, allow_zero=True
    )


def line_report(query, gallery, protocol="no_cameras", **options):
    return evaluate(
        query, gallery, protocol=protocol, distance="sqeuclidean", metrics=["P@1", "Rprec", "mAP"], confidence=None,
        **options,
    )  # fmt: skip


def test_pytorch_metric_learning_features():
    """Ten items among themselves, then among twenty of which the query's own is one and half are of one label."""
    query = on_a_line(range(10), range(10), np.arange(10))
    assert_says(line_report(query, query), {"P@1": 1, "Rprec": 1, "mAP": 1})
    places = np.concatenate([np.arange(10), np.arange(10) + 0.5])
    gallery = on_a_line(places, [*range(10), *[1] * 10], np.arange(20))
    report = line_report(query, gallery, "same_set")
    ranks = [1, 2, 5, 7, 9, 11, 13, 15, 17, 19]
    expected = {"P@1": 1, "Rprec": 0.5, "mAP": sum((place + 1) / rank for place, rank in enumerate(ranks)) / 10}
    assert_says(report, expected)
    # Nine queries have nothing to find, and are left out there as well.
    assert report.counts["n_valid"] == 1


def test_pytorch_metric_learning_classes_of_different_size():
    """One of ten queries finds its only item last: a mean over queries, and one over classes."""
    query = on_a_line([*range(9), 100], [0] * 9 + [1])
    gallery = on_a_line([-100, *range(1, 10)], [1] + [0] * 9)
    report = line_report(query, gallery, breakdowns=["identity"])
    assert_says(report, {"P@1": 0.9, "Rprec": 0.9, "mAP": 0.9 + 0.01})
    table = report.breakdowns["identity"]
    by_class = {name: np.mean(table[name]) for name in ("P@1", "Rprec", "mAP")}
    assert by_class == pytest.approx({"P@1": 0.5, "Rprec": 0.5, "mAP": (1 + 0.1) / 2}, abs=EXACT)


def test_pytorch_metric_learning_labels_that_are_close():
    """Labels that differ by less than 1 are one there; here they are one number from the start."""
    report = line_report(on_a_line([0, 3], [0, 0]), on_a_line([0, 3, 1, 2], [10, 0, 0, 0]))
    expected = {
        "P@1": 1 / 2,
        "Rprec": (2 / 3 + 3 / 3) / 2,
        "mAP": ((1 / 2 + 2 / 3 + 3 / 4) / 3 + 1) / 2,
    }
    assert_says(report, expected)
    ids = np.arange(4)
    report = line_report(on_a_line([0, 3], [0, 0], ids[:2]), on_a_line([0, 3, 1, 2], [0, 0, 10, 0], ids), "same_set")
    expected = {"P@1": 0.5, "Rprec": 0.5, "mAP": ((1 / 2 + 2 / 3) / 2 + (1 + 2 / 3) / 2) / 2}
    assert_says(report, expected)


def test_pytorch_metric_learning_relations_between_labels():
    """Relevant is an item of the query's class and of another group; one of its group is a negative, and no junk."""
    query, gallery = np.array([[1, 3], [7, 3]]), np.array([[1, 3], [7, 4], [1, 4], [1, 5], [1, 6]])
    same_class, same_group = (query[:, None, at] == gallery[None, :, at] for at in (0, 1))
    distances = np.abs(np.arange(2)[:, None] - np.arange(5))
    report = judged(distances, same_class & ~same_group, ["P@1", "Rprec", "mAP", "mAP@3"])
    expected = {
        "P@1": 0.5,
        "Rprec": (1 / 3 + 1) / 2,
        "mAP": ((1 / 3 + 2 / 4 + 3 / 5) / 3 + 1) / 2,
        "mAP@3": ((1 / 3) / 3 + 1) / 2,  # MAP@R: the first query has three positives, the other's one is the nearest
    }
    assert_says(report, expected)


def test_pytorch_metric_learning_ties():
    """Items of two labels in one place: each is nearest to the one of the other label, not to itself."""
    items = on_a_line([10, 10, 20, 20], [1, 0, 1, 0], np.arange(4))
    assert_says(line_report(items, items, "same_set"), {"P@1": 0})


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
    return judged(distances, relevant, metrics, junk=junk, **options)


@pytest.mark.parametrize(
    ("relevant", "expected"),
    [
        ([1, 0, 1], {"mAP": 0.8333, "P@2": 0.5, "R@2": 0.5, "CMC@2": 1, "Rprec": 0.5}),
        ([0, 1, 0], {"MRR": 0.5}),
    ],
)
def test_torchmetrics_of_one_query(relevant, expected):
    """Scores 0.2, 0.3, 0.5; values with four digits.  Its hit rate is our CMC."""
    assert_says(by_scores([([0.2, 0.3, 0.5], relevant)], expected), expected, tolerance=5e-5)


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
    assert_says(by_scores(queries, expected), expected, tolerance=5e-5)


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
    assert_says(by_scores([(scores, [0, 1, 1, 1, 0])], expected), expected)
    only_d3 = {"mAP": 1 / 3, "mAP@10": 1 / 3, "mAP@2": 0.0, "R@2": 0.0, "MRR": 1 / 3, "CMC@2": 0.0, "P@5": 0.2}
    assert_says(by_scores([(scores, [0, 0, 0, 1, 0])], only_d3), only_d3)


@pytest.mark.parametrize(
    ("least", "expected"),
    [(1, {25: [1, 0.25, 0.625], 50: [1, 0.25, 0.625]}), (2, {25: [2 / 3, 0.25, 0.4583], 50: [2 / 3, 0.25, 0.4583]})],
)
def test_ir_measures_interpolated_precision(least, expected):
    """tests/test_pytrec_eval.py: precision at a recall, of two queries and of their mean (four digits).

    A relevant document that a run lacks is never found in TREC.  Here it stands last of a gallery of twenty, where its
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
        each = [judged(distances[[row]], relevant[[row]], ["mAP"]) for row in (0, 1)]
        for report, value in zip((*each, judged(distances, relevant, ["mAP"])), values, strict=True):
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
    assert_says(report, expected)


# ------------------------------------------------------------------------------------------------------- the oracle


@pytest.mark.parametrize("case", ["duplicate_ids", "duplicate_cams"])
def test_the_oracle_says_the_same(case):
    """What is published holds for the oracle of the other tests as well, by another road: features on a line."""
    distances, query, gallery, curve = OPEN_REID[case]
    rows = np.array(distances)
    near = ItemSet(np.zeros((len(rows), 1), np.float32), *map(np.array, query))
    far = ItemSet(rows[0].astype(np.float32)[:, None], *map(np.array, gallery))
    found = evaluation.evaluate(
        near, far, "allshots", "euclidean", [f"CMC_allshots@{k + 1}" for k in range(len(curve))]
    )
    assert list(found.metrics.values()) == pytest.approx(curve, abs=EXACT)
