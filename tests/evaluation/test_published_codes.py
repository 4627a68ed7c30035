"""What `conventions` says of published code: its formulas, walked down one sorted list after the other."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.rank_metrics import walk_average_precision, walk_trapezoid
from oracles.single_shot import expected_curve
from published import evaluate_marked
from support.reference import canonical_distances

from reid_dist import FeatureSet, conventions
from reid_dist.evaluation.convention_settings import CODES

K = 4


def n_hits(hits):
    return int(np.sum(hits))


def first_match(hits, n):
    """A match among the first k."""
    return float(any(hits[:K]))


def each_match(hits, n):
    """Share of the matches that fewer than k other items precede."""
    return np.mean([np.sum(~hits[:place]) < K for place in np.flatnonzero(hits)])


def inverse_negative_penalty(hits, n):
    """Number of matches by the place of the last one."""
    return n / (np.flatnonzero(hits)[-1] + 1)


def average_by_recall(hits, n):
    """Area under the steps of precision over recall: what scikit-learn's average precision adds."""
    return walk_average_precision(hits, n)


def average_of_all(hits, n):
    """Precisions at the hits among the first k, by all relevant items."""
    return walk_average_precision(hits[:K], n)


def average_of_found(hits, n):
    """The same by the hits among the first k; 0 without any."""
    return walk_average_precision(hits[:K], max(1, n_hits(hits[:K])))


def average_of_possible(hits, n):
    """The same by the largest number of hits that the first k can hold."""
    return walk_average_precision(hits[:K], min(n, K))


def average_at_r(hits, n):
    """Precisions at the hits among as many items as are relevant, by their number."""
    return walk_average_precision(hits[:n], n)


def precision_at_r(hits, n):
    return n_hits(hits[:n]) / n


def precision_of_possible(hits, n):
    """Hits among the first k by the largest number of them that the first k can hold."""
    return n_hits(hits[:K]) / min(n, K)


def reciprocal_of_first(hits, n):
    return 1 / (np.flatnonzero(hits)[0] + 1)


MARKET = {"mAP": average_by_recall, "CMC@k": first_match}
LEARNING = {"mAP_R": average_at_r, "Rprec": precision_at_r, "CMC@k": first_match}
TRAPEZOID = {"mAP_trapezoid": walk_trapezoid, "CMC@k": first_match}
# By the name of a code; single-shot curves are expectations over draws and no function of one list.
FORMULAS = {
    "torchreid and fast-reid eval_cuhk03": {"mAP": average_by_recall, "CMC_single_shot@k": None},
    "open-reid with separate_camera_set": {"CMC_single_shot@k": None},
    "torchreid": MARKET,
    "fast-reid": MARKET | {"mINP": inverse_negative_penalty},
    "reid-strong-baseline": MARKET,
    "ReID-Survey (AGW)": MARKET | {"mINP": inverse_negative_penalty},
    "open-reid": MARKET | {"CMC_allshots@k": each_match},
    "cluster-contrast": MARKET,
    "Market-1501 MATLAB": TRAPEZOID,
    "layumi's baseline": TRAPEZOID,
    "pytorch-metric-learning": {
        "mAP": average_by_recall, "mAP@k": average_of_all, "MRR": reciprocal_of_first, **LEARNING
    },
    "pytorch-metric-learning to 1.6.1": {
        "mAP_found@k": average_of_found, "mAP_min@k": average_of_possible, **LEARNING
    },
    "OML": {"mAP_found@k": average_of_found, "P_min@k": precision_of_possible, "CMC@k": first_match},
    "Google Landmarks v2": {"mAP_min@k": average_of_possible},
    "torchmetrics": {"mAP": average_by_recall, "mAP_found@k": average_of_found},
}  # fmt: skip
# Items that a query does not see, for the settings of the codes; and what a query without matches is worth.
KEPT = {
    "market1501": lambda q, g, i: (g.pids != -1) & ~((g.pids == q.pids[i]) & (g.camids == q.camids[i])),
    "market1501, pid -1 kept": lambda q, g, i: ~((g.pids == q.pids[i]) & (g.camids == q.camids[i])),
    "cuhk03_separate_cameras": lambda q, g, i: (g.pids != -1) & (g.camids != q.camids[i]),
    "same_set": lambda q, g, i: (g.pids != -1) & (np.arange(g.n_rows) != i),
    "no_cameras": lambda q, g, i: g.pids != -1,
}
KEPT |= dict.fromkeys(("market1501_matlab", "cuhk03"), KEPT["market1501"])
KEPT["no_cameras, invalid at 0"] = KEPT["no_cameras"]
AT_ZERO = ("market1501_matlab", "no_cameras, invalid at 0")


def side(seed, n):
    """Items of pids from -1, in three cameras; no distances are tied."""
    rng = np.random.default_rng([5, seed])
    pids = rng.integers(-1, 7, n)
    features = np.random.default_rng(5).standard_normal((8, 9))[pids + 1] + 1.4 * rng.standard_normal((n, 9))
    return FeatureSet.from_arrays(features.astype(np.float32), pids, rng.integers(0, 3, n))


def value_of(formula, setting, distances, query, gallery):
    """Mean over the queries with a match, or over all, of a formula of their sorted lists."""
    found = []
    for i, row in enumerate(distances):
        kept = KEPT[setting](query, gallery, i)
        relevant = kept & (gallery.pids == query.pids[i])
        if not relevant.any():
            found += [0.0] * (setting in AT_ZERO)
        elif formula is None:
            found.append(float(expected_curve(row, relevant, ~kept, gallery.pids, K)[-1]))
        else:
            order = np.argsort(row)
            found.append(formula(relevant[order[kept[order]]], int(relevant.sum())))
    return np.mean(found)


@pytest.mark.parametrize("is_one_set", [False, True])
def test_values_are_those_of_the_codes_that_are_named(is_one_set):
    gallery = side(1, 60)
    query = gallery if is_one_set else side(2, 25)
    names = {name for code in CODES for name in code.metrics} - {"CMC_single_shot@k"}
    metrics = [*sorted(name.replace("@k", f"@{K}") for name in names), f"CMC_single_shot@{K}"]
    features = [each.read(0, each.n_rows) for each in (query, gallery)]
    seen = set()
    for row in conventions(query, gallery, metrics=metrics, single_shot=True).rows:
        distances = canonical_distances(*features, row.distance)
        for code in row.codes:
            assert row.distance in code.distances
            family = row.metric.replace(f"@{K}", "@k")
            for setting in {row.setting.name, *row.same_as} & set(code.settings):
                expected = value_of(FORMULAS[code.name][family], setting, distances, query, gallery)
                assert row.value == pytest.approx(expected, abs=1e-12), (code.name, row.metric, setting)
                seen.add((code.name, family))
    codes = (
        {code.name for code in CODES if "same_set" in code.settings} if is_one_set else {code.name for code in CODES}
    )
    assert seen >= {(name, family) for name in codes for family in FORMULAS[name]}


def test_every_metric_of_every_code_has_a_formula():
    assert {code.name: set(code.metrics) for code in CODES} == {name: set(each) for name, each in FORMULAS.items()}


def test_torchmetrics_drops_relevant_items_without_a_score_above_0():
    """From 1.7.4 on.  Of cosines it is another number, of scores above 0, such as 1 + cosine, the same."""

    def by_scores(scores, relevant):
        hits = (relevant & (scores > 0))[np.argsort(-scores)]
        return walk_average_precision(hits, n_hits(hits)) if hits.any() else 0.0

    query, gallery = side(2, 25), side(1, 60)
    distances = canonical_distances(*(each.read(0, each.n_rows) for each in (query, gallery)), "cosine")
    relevant = query.pids[:, None] == gallery.pids
    values = [[by_scores(*row) for row in zip(base - distances, relevant, strict=True)] for base in (1, 2)]
    of_cosines, of_positive = np.mean(values, axis=1)
    valid = relevant.any(axis=1)
    report = evaluate_marked(distances, relevant, ["mAP"])
    assert report.metrics["mAP"] * valid.mean() == pytest.approx(of_positive, abs=1e-12)
    assert of_cosines > of_positive + 0.01
