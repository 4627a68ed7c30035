"""Comparison of a report with the oracle, and with another report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from oracles.protocols import LIST_PROTOCOLS
from oracles.rank_metrics import ALL_METRICS

from reid_dist import FeatureSet, evaluate

CLOSE = 1e-12
PER_QUERY = ("AP", "AP_trapezoid", "INP", "first_rank", "n_relevant")
SCORES = ("AP", "AP_trapezoid", "INP")
LIST_NAMES = {name: ("good" if name == "oxford" else "easy", "ok" if name == "oxford" else "hard", "junk")
              for name in LIST_PROTOCOLS}  # fmt: skip


def drawn_truth(protocol, n_query, n_gallery, seed, shares=(0.05, 0.1, 0.1)):
    """Ground truth at random, with the share of rows in each list; every fifth query has nothing to find."""
    rng = np.random.default_rng(seed)
    truth = []
    for number in range(n_query):
        of_lists = (0.0, 0.0, 0.3) if number % 5 == 4 else shares
        place = rng.choice(4, n_gallery, p=[*of_lists, 1.0 - sum(of_lists)])
        truth.append({name: np.flatnonzero(place == i).tolist() for i, name in enumerate(LIST_NAMES[protocol])})
    return truth


def as_feature_set(items):
    """Feature set of an oracle's `ItemSet`; zero rows are allowed."""
    return FeatureSet.from_arrays(
        items.features, items.pids, camids=items.camids, item_ids=items.item_ids, allow_zero=True
    )


def evaluate_items(
    query, gallery, protocol="market1501", distance="cosine", metrics=ALL_METRICS, *, confidence=None, **options
):
    """`reid_dist.evaluate` of two `ItemSet`, by default all metrics of the oracle.

    Intervals are left out: they take most of the time of a small evaluation, and have tests of their own.
    """
    return evaluate(
        as_feature_set(query),
        as_feature_set(gallery),
        protocol=protocol,
        distance=distance,
        metrics=None if metrics is None else list(metrics),
        confidence=confidence,
        **options,
    )


def assert_agrees(report, expected):
    """The report agrees with the oracle: ranks and counts exactly, scores to 1e-12."""
    counts = {name: report.counts[name] for name in expected.counts}
    assert counts == expected.counts

    invalid = np.isnan(expected.per_query["AP"])
    reason = [str(name) for name in report.per_query["reason"]]
    for row, admissible in enumerate(expected.reasons):
        assert reason[row] in admissible, (row, reason[row], admissible)
    tally = {name: n for name, n in report.counts["n_invalid_by_reason"].items() if n}
    assert tally == {name: reason.count(name) for name in set(reason) - {""}}

    for name in PER_QUERY:
        assert report.per_query[name].shape == invalid.shape, name
    assert np.array_equal(report.per_query["first_rank"], expected.per_query["first_rank"], equal_nan=True)
    assert np.array_equal(report.per_query["n_relevant"][~invalid], expected.per_query["n_relevant"][~invalid])
    assert not np.nan_to_num(np.asarray(report.per_query["n_relevant"], dtype=np.float64))[invalid].any()
    for name in SCORES:
        np.testing.assert_allclose(report.per_query[name], expected.per_query[name], rtol=0, atol=CLOSE, err_msg=name)

    assert set(expected.metrics) <= set(report.metrics)
    for name, value in expected.metrics.items():
        assert abs(report.metrics[name] - value) <= CLOSE, (name, report.metrics[name], value)
    for name, values in expected.curves.items():
        assert report.curves[name].shape == values.shape, name
        np.testing.assert_allclose(report.curves[name], values, rtol=0, atol=CLOSE, err_msg=name)


def assert_ties_agree(report, expected):
    """The report agrees with the oracle under each rule of ties: the best and the worst value over all orders.

    A positive that moves up past the cut may lower the mean precision of those found: neither of the oracle's two
    orders is the extreme of that metric.
    """
    best, worst = (expected.ties[rule] for rule in ("optimistic", "pessimistic"))
    for name in best:
        found = [report.ties[rule][name] for rule in ("optimistic", "pessimistic")]
        if name.startswith("mAP_found@"):
            assert found[0] + CLOSE >= max(best[name], worst[name]), name
            assert found[1] - CLOSE <= min(best[name], worst[name]), name
        else:
            assert found == pytest.approx([best[name], worst[name]], abs=CLOSE), name
        assert found[0] + CLOSE >= report.metrics[name] >= found[1] - CLOSE, name


def assert_lists_agree(topk, expected):
    """Lists by (distance, gallery row), junk included and marked."""
    n = min(topk.index.shape[1], expected.distances.shape[1])
    for i, row in enumerate(expected.distances):
        order = np.lexsort((np.arange(len(row)), row))[:n]
        assert topk.index[i].tolist() == [*order, *[-1] * (topk.index.shape[1] - n)]
        assert topk.relevant[i, :n].tolist() == expected.relevant[i, order].tolist()
        assert topk.junk[i, :n].tolist() == expected.junk[i, order].tolist()
        np.testing.assert_allclose(topk.distance[i, :n], row[order], rtol=CLOSE, atol=CLOSE)
        assert np.isposinf(topk.distance[i, n:]).all()


def summary_of(report):
    """Metrics and curves as exact bytes."""
    return (
        {name: np.float64(value).tobytes() for name, value in report.metrics.items()},
        {name: np.asarray(values).tobytes() for name, values in report.curves.items()},
    )


def rows_of(report, rows=slice(None)):
    """Per-query values of some rows as exact bytes, by name."""
    return {name: np.asarray(report.per_query[name])[rows].tobytes() for name in PER_QUERY}


def assert_same_scores(report: object, other: object) -> None:
    """Metrics, curves and per-query scores are the same bits."""
    assert summary_of(report) == summary_of(other)
    assert rows_of(report) == rows_of(other)


def assert_cell(found, expected, *where):
    """A number of a table: close to what is expected, and None where there is nothing."""
    if expected is None:
        assert found is None, (*where, found)
    else:
        assert found == pytest.approx(expected, abs=1e-12), (*where, found, expected)


def assert_groups(table, column, expected, metrics):
    """A table by a value of the query, against the oracle's."""
    assert list(table[column]) == sorted(expected)
    for row, value in enumerate(table[column]):
        n_query, n_valid, means = expected[value]
        assert (table["n_query"][row], table["n_valid"][row]) == (n_query, n_valid), value
        for name in metrics:
            assert_cell(table[name][row], None if means is None else means[name], value, name)
    known = [means for _, _, means in expected.values() if means is not None]
    for name in metrics:
        macro = sum(means[name] for means in known) / len(known) if known else None
        assert_cell(table["mean_of_groups"][name], macro, "mean of groups", name)


def assert_pairs(table, expected):
    """A table of camera pairs, against the oracle's."""
    near, far = (sorted({pair[side] for pair in expected}) for side in (0, 1))
    assert list(table["query_camid"]) == near
    assert list(table["gallery_camid"]) == far
    for i, query_camera in enumerate(near):
        for j, gallery_camera in enumerate(far):
            n_valid, means = expected[query_camera, gallery_camera]
            assert table["n_valid"][i][j] == n_valid
            for name in ("mAP", "CMC@1"):
                cell = None if means is None else means[name]
                assert_cell(table[name][i][j], cell, query_camera, gallery_camera, name)


def assert_sizes(table, expected_at, metrics):
    """A distractor curve, against the oracle at each of its sizes."""
    for row, n_rows in enumerate(table["n_rows"]):
        expected = expected_at(n_rows)
        for name in metrics:
            assert_cell(table[name][row], expected[name], n_rows, name)


def distinct_values(digests: Mapping[object, str]) -> int:
    """Number of different digests; 1 if results do not depend on the keys."""
    return len(set(digests.values()))
