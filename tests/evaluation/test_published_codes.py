"""What `conventions` says of published code: its formulas, walked down one sorted list after the other."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.rank_metrics import walk_average_precision, walk_trapezoid
from oracles.single_shot import expected_curve
from support.reference import canonical_distances

from reid_dist import FeatureSet, conventions
from reid_dist.evaluation.convention_settings import CODES

K = 4


# Of the hits and misses of a sorted list, and the number of relevant items.
FORMULA = {
    "CMC@k": lambda hits, n: float(any(hits[:K])),
    # Share of the matches that fewer than k other items precede.
    "CMC_allshots@k": lambda hits, n: np.mean([np.sum(~hits[:place]) < K for place in np.flatnonzero(hits)]),
    "CMC_single_shot@k": None,
    "mINP": lambda hits, n: n / (np.flatnonzero(hits)[-1] + 1),
    # Area under the steps of precision over recall: what scikit-learn's average precision adds.
    "mAP": walk_average_precision,
    "mAP_trapezoid": walk_trapezoid,
    # Precisions at the hits among the first k, by all relevant items, by these hits, or by as many as k can hold.
    "mAP@k": lambda hits, n: walk_average_precision(hits[:K], n),
    "mAP_found@k": lambda hits, n: walk_average_precision(hits[:K], max(1, int(np.sum(hits[:K])))),
    "mAP_min@k": lambda hits, n: walk_average_precision(hits[:K], min(n, K)),
    "mAP_R": lambda hits, n: walk_average_precision(hits[:n], n),
    "Rprec": lambda hits, n: np.sum(hits[:n]) / n,
    "P_min@k": lambda hits, n: np.sum(hits[:K]) / min(n, K),
    "MRR": lambda hits, n: 1 / (np.flatnonzero(hits)[0] + 1),
}
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
                expected = value_of(FORMULA[family], setting, distances, query, gallery)
                assert row.value == pytest.approx(expected, abs=1e-12), (code.name, row.metric, setting)
                seen.add((code.name, family))
    codes = [code for code in CODES if not is_one_set or "same_set" in code.settings]
    assert seen >= {(code.name, family) for code in codes for family in code.metrics}
