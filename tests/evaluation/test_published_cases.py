"""Numbers that peers publish in their own tests, or that their programs gave, under our name for their convention.

Quoted are inputs and expected values alone; every test names the repository, the file and its licence
(each read in that repository's own licence file).  How the numbers are put to the evaluator is ours.
"""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist import DistanceBlock, FeatureSet, LabelledRows, evaluate, evaluate_distances, evaluate_lists

# Smallest difference between the means of such fractions.
EXACT = 1e-12


def assert_metrics(report, expected, tolerance=EXACT):
    """Metrics of a report, by our names."""
    assert set(expected) <= set(report.metrics)
    for name, value in expected.items():
        assert report.metrics[name] == pytest.approx(value, abs=tolerance), name


def assert_per_query(report, expected, tolerance=EXACT):
    """Values of every query, by our names."""
    for name, values in expected.items():
        np.testing.assert_allclose(report.per_query[name], values, rtol=0, atol=tolerance, err_msg=name)


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


def test_oml_exact_case():
    """OML-Team/open-metric-learning, tests/test_oml/test_functional/test_metrics/, Apache-2.0.

    test_outdated/test_retrieval_metrics.py: six lists of the other five items, and every value of every query.

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
    truth = [{"good": [], "ok": np.flatnonzero(row).tolist(), "junk": []} for row in hits]
    block = np.broadcast_to(np.arange(5.0), hits.shape)
    sides = LabelledRows(np.zeros(6, int)), LabelledRows(np.zeros(5, int))
    options = {"protocol": "oxford", "ground_truth": truth, "metrics": names, "max_rank": 10, "confidence": None}
    report = evaluate_distances(DistanceBlock.from_array(block), *sides, **options)
    for k in ranks:
        assert_per_query(report, {f"{name}@{k}": published[name][k] for name in ("AP_found", "P_min")})
        assert_metrics(report, {f"CMC@{k}": np.mean(published["CMC"][k])})
        assert (report.per_query["first_rank"] <= k).tolist() == [bool(hit) for hit in published["CMC"][k]]


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
    truth = [{"good": [], "ok": row, "junk": []} for row in relevant]
    sides = LabelledRows(np.zeros(len(relevant), int)), LabelledRows(np.zeros(12, int))
    options = {"protocol": "oxford", "ground_truth": truth, "metrics": list(expected), "confidence": None}
    report = evaluate_lists(np.array(retrieved), *sides, **options)
    assert_metrics(report, expected)


# KevinMusgrave/pytorch-metric-learning, MIT.
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
