"""Every metric with all ties settled for the positives, and against them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from agreement import evaluate_items
from oracles.rank_metrics import value
from oracles.single_shot import expected_curve
from support.sampling import examples
from support.strategies import crowded_sets

from reid_dist import DistanceBlock, FeatureSet, LabelledRows, Report, evaluate, evaluate_distances
from reid_dist.metrics.metric import METRICS as REGISTERED


def test_drawn_galleries_have_ties_too():
    """Seeded draws: the same galleries under each order, so the values are in order as well."""
    query, gallery = crowded_sets(12, 200, 9, seed=66, n_distinct=12, n_pids=20)
    names = ["CMC_single_shot@1", "CMC_single_shot@3"]
    reports = [
        evaluate_items(
            query, gallery, "cuhk03", "cosine", names, ties=True, single_shot_draws=7, seed=4, chunk_rows=chunk
        )
        for chunk in (None, 33)
    ]
    assert reports[0].ties == reports[1].ties
    for name in names:
        best, worst = (reports[0].ties[order][name] for order in ("optimistic", "pessimistic"))
        assert best > reports[0].metrics[name] > worst
        n_draws = reports[0].counts["n_valid"] * 7
        for mean in (best, reports[0].metrics[name], worst):
            assert mean * n_draws == pytest.approx(round(mean * n_draws), abs=1e-9)


def test_bounds_change_nothing_else():
    query, gallery = crowded_sets(20, 300, 12, seed=62)
    plain = evaluate_items(query, gallery, metrics=RANK_METRICS + SINGLE_SHOT)
    requested = evaluate_items(query, gallery, metrics=RANK_METRICS + SINGLE_SHOT, ties=True)
    assert requested.result_digest == plain.result_digest
    assert {"optimistic", "pessimistic"} & set(plain.ties) == set()
    assert requested.ties["n_tied_positives"] == plain.ties["n_tied_positives"] > 0


def test_open_set_rates_depend_on_rank_one() -> None:
    """A mate at the distance of an item of another identity is first under one rule and second under the other."""
    gallery = FeatureSet.from_arrays(np.array([[1.0], [1.0], [5.0]], np.float32), [9, 1, 8])
    query = FeatureSet.from_arrays(np.array([[0.0], [0.0]], np.float32), [1, 7])
    report = evaluate(query, gallery, protocol="no_cameras", distance="euclidean", metrics=["DIR@FAR=1"], ties=True)
    assert report.metrics["DIR@FAR=1"] == 0.0
    assert report.ties["optimistic"]["DIR@FAR=1"] == 1.0
    assert report.ties["pessimistic"]["DIR@FAR=1"] == 0.0


# ------------------------------------------------- the extremes over all orders of tied items, one by one

RANK_METRICS = (
    *("mAP", "mAP_trapezoid", "mINP", "MRR", "Rprec", "CMC@1", "CMC@2", "CMC_allshots@1", "CMC_allshots@2"),
    *("mAP@2", "mAP@4", "mAP_found@1", "mAP_found@2", "mAP_found@3", "mAP_found@4", "mAP_found@9"),
    *("P@2", "R@3", "P_clipped@1", "P_clipped@3", "P_clipped@5", "mAP_min@2", "mAP_min@4", "mAP_R"),
    *("P_min@2", "P_min@4", "nDCG@2", "nDCG@4", "AUC"),
)
SINGLE_SHOT = ("CMC_single_shot@1", "CMC_single_shot@2")


def test_every_rank_metric_is_tried():
    """A metric that is added must be tried here; those without values per query have tests of their own."""
    families = {name.partition("@")[0] for name in RANK_METRICS + SINGLE_SHOT}
    assert families == {family.stem for family in REGISTERED if family.has_per_query_values}


def orders_of(distances):
    """Gallery rows from near to far in every order of tied items."""
    groups = [np.flatnonzero(distances == each) for each in np.unique(distances)]
    for parts in itertools.product(*map(itertools.permutations, groups)):
        yield [row for part in parts for row in part]


def extremes(distances, pids, pid, name):
    """The lowest and the highest value of one query."""
    found = []
    for order in orders_of(distances):
        relevant = pids == pid
        if name.startswith("CMC_single_shot"):
            place = np.argsort(order).astype(float)
            k = int(name.partition("@")[2])
            found.append(float(expected_curve(place, relevant, np.zeros(len(pids), bool), pids, k)[-1]))
        else:
            found.append(value(name, [rank for rank, row in enumerate(order, 1) if relevant[row]], len(order)))
    return min(found), max(found)


def evaluated(distances, query_pids, pids, metrics) -> Report:
    return evaluate_distances(
        DistanceBlock.from_array(np.asarray(distances, float)),
        LabelledRows(query_pids),
        LabelledRows(pids),
        protocol="no_cameras",
        metrics=list(metrics),
        ties=True,
        confidence=None,
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("metrics", "seeds"), [(RANK_METRICS, range(examples(32))), (SINGLE_SHOT, range(3))], ids=["ranks", "single-shot"]
)
def test_bounds_are_the_extremes_over_all_orders(metrics, seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n_gallery = 6
        pids = rng.integers(1, 3 + seed % 2, n_gallery)
        pids[:2] = 1, 2
        # From one tie group of everything to several.
        distances = rng.integers(0, 1 + seed % 4, (2, n_gallery)).astype(float)
        report = evaluated(distances, [1, 2], pids, metrics)
        for name in metrics:
            each = [extremes(distances[i], pids, pid, name) for i, pid in enumerate((1, 2))]
            lowest, highest = np.mean(each, axis=0)
            assert report.ties["pessimistic"][name] == pytest.approx(lowest, abs=1e-12), (seed, name)
            assert report.ties["optimistic"][name] == pytest.approx(highest, abs=1e-12), (seed, name)


def test_a_cut_through_a_tie_by_hand():
    """Among the first three: the first item, and the other positive at place 2, at place 3, or not at all."""
    report = evaluated([[0.1, 0.5, 0.5, 0.5]], [1], [1, 2, 1, 2], ["mAP_found@3"])
    assert report.metrics["mAP_found@3"] == pytest.approx((1 + 2 / 3) / 2)
    assert report.ties["optimistic"]["mAP_found@3"] == 1.0
    assert report.ties["pessimistic"]["mAP_found@3"] == pytest.approx((1 + 2 / 3) / 2)
    # With the only positive tied at the cut, an order in which none is found is worth 0.
    report = evaluated([[0.5, 0.5]], [1], [2, 1], ["mAP_found@1"])
    assert (report.ties["pessimistic"]["mAP_found@1"], report.ties["optimistic"]["mAP_found@1"]) == (0.0, 1.0)
