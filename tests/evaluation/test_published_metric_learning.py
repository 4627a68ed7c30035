"""Numbers that pytorch-metric-learning publishes in its own tests, under our name for its convention."""

from __future__ import annotations

import numpy as np
import pytest
from published import EXACT, assert_metrics, assert_per_query, evaluate_marked, lists_of, unlabelled

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    LabelledRows,
    evaluate,
    evaluate_distances,
    evaluate_lists,
)

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
    a hit, and here a pair of bounds.
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
    names = ["P@1", "Rprec", "MRR", "mAP_R", *(f"mAP@{k}" for k in range(1, length + 1))]
    report = evaluate_lists(
        index, *unlabelled(relevant.shape), protocol="oxford", ground_truth=lists_of(relevant, junk), metrics=names,
        confidence=None,
    )  # fmt: skip
    assert_metrics(report, {"P@1": precision_at_1, "Rprec": np.mean(r_precision), f"mAP@{length}": np.mean(average)})
    assert_per_query(report, {"Rprec": r_precision, f"AP@{length}": average, "AP_R": average_at_r})
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


# Of `AccuracyCalculator` of pytorch-metric-learning 2.9.0 on the sets below, with k="max_bin_count", and k=None for mAP
# and MRR, whose reciprocals it adds in single precision.
PML_VALUES = {
    "no_cameras": {"mAP_R": 0.17325894532281888, "Rprec": 0.32382720642055685, "CMC@1": 0.4,
                   "mAP": 0.323305598407204, "MRR": 0.5726261734962463},
    "same_set": {"mAP_R": 0.12538753020987073, "Rprec": 0.2505704922769383, "CMC@1": 0.38,
                 "mAP": 0.27095965315549775, "MRR": 0.5456796288490295},
}  # fmt: skip
PML_BY_CLASS = {"mAP_R": 0.13143399549758591, "Rprec": 0.25620624290532756, "CMC@1": 0.38708149506813894}


@pytest.mark.parametrize("protocol", PML_VALUES)
def test_numbers_that_pytorch_metric_learning_gave(protocol):
    """Forty queries against two hundred items, and these among themselves; no distances are tied."""
    centres = np.random.default_rng(7).standard_normal((9, 8))
    sets = []
    for seed, n in enumerate((40, 200)):
        rng = np.random.default_rng([7, seed])
        pids = rng.integers(0, 9, n)
        features = centres[pids] + 1.5 * rng.standard_normal((n, 8))
        sets.append(FeatureSet.from_arrays(features.astype(np.float32), pids, item_ids=np.arange(n)))
    query, gallery = sets if protocol == "no_cameras" else (sets[1], sets[1])
    expected = PML_VALUES[protocol]
    report = evaluate(
        query, gallery, protocol=protocol, distance="sqeuclidean", metrics=[*expected], breakdowns=["identity"],
        confidence=None,
    )  # fmt: skip
    for name, value in expected.items():
        assert report.metrics[name] == pytest.approx(value, abs=1e-7 if name == "MRR" else 1e-15)
    if protocol == "same_set":
        table = report.breakdowns["identity"]
        assert {name: np.mean(table[name]) for name in PML_BY_CLASS} == pytest.approx(PML_BY_CLASS, abs=1e-15)


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
    assert_metrics(line_report(query, query), {"P@1": 1, "Rprec": 1, "mAP": 1})
    places = np.concatenate([np.arange(10), np.arange(10) + 0.5])
    gallery = on_a_line(places, [*range(10), *[1] * 10], np.arange(20))
    report = line_report(query, gallery, "same_set")
    ranks = [1, 2, 5, 7, 9, 11, 13, 15, 17, 19]
    expected = {"P@1": 1, "Rprec": 0.5, "mAP": sum((place + 1) / rank for place, rank in enumerate(ranks)) / 10}
    assert_metrics(report, expected)
    # Nine queries have nothing to find, and are left out there as well.
    assert report.counts["n_valid"] == 1


def test_pytorch_metric_learning_classes_of_different_size():
    """One of ten queries finds its only item last: a mean over queries, and one over classes."""
    query = on_a_line([*range(9), 100], [0] * 9 + [1])
    gallery = on_a_line([-100, *range(1, 10)], [1] + [0] * 9)
    report = line_report(query, gallery, breakdowns=["identity"])
    assert_metrics(report, {"P@1": 0.9, "Rprec": 0.9, "mAP": 0.9 + 0.01})
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
    assert_metrics(report, expected)
    ids = np.arange(4)
    report = line_report(on_a_line([0, 3], [0, 0], ids[:2]), on_a_line([0, 3, 1, 2], [0, 0, 10, 0], ids), "same_set")
    expected = {"P@1": 0.5, "Rprec": 0.5, "mAP": ((1 / 2 + 2 / 3) / 2 + (1 + 2 / 3) / 2) / 2}
    assert_metrics(report, expected)


def test_pytorch_metric_learning_relations_between_labels():
    """Relevant is an item of the query's class and of another group; one of its group is a negative, and no junk."""
    query, gallery = np.array([[1, 3], [7, 3]]), np.array([[1, 3], [7, 4], [1, 4], [1, 5], [1, 6]])
    same_class, same_group = (query[:, None, at] == gallery[None, :, at] for at in (0, 1))
    distances = np.abs(np.arange(2)[:, None] - np.arange(5))
    report = evaluate_marked(distances, same_class & ~same_group, ["P@1", "Rprec", "mAP", "mAP@3"])
    expected = {
        "P@1": 0.5,
        "Rprec": (1 / 3 + 1) / 2,
        "mAP": ((1 / 3 + 2 / 4 + 3 / 5) / 3 + 1) / 2,
        "mAP@3": ((1 / 3) / 3 + 1) / 2,  # MAP@R: the first query has three positives, the other's one is the nearest
    }
    assert_metrics(report, expected)


def test_pytorch_metric_learning_ties():
    """Items of two labels in one place: each is nearest to the one of the other label, not to itself."""
    items = on_a_line([10, 10, 20, 20], [1, 0, 1, 0], np.arange(4))
    assert_metrics(line_report(items, items, "same_set"), {"P@1": 0})
