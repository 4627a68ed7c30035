"""How a report is held against the oracle, and against another report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from reference import ALL_METRICS

from reid_dist import FeatureSet, evaluate

CLOSE = 1e-12
PER_QUERY = ("AP", "AP_trapezoid", "INP", "first_rank", "n_relevant")
SCORES = ("AP", "AP_trapezoid", "INP")


def as_feature_set(items):
    """The public form of an oracle's `ItemSet`; zero rows are welcome."""
    return FeatureSet.from_arrays(
        items.features, items.pids, camids=items.camids, item_ids=items.item_ids, allow_zero=True
    )


def evaluate_items(query, gallery, protocol="market1501", distance="cosine", metrics=ALL_METRICS, **options):
    """`reid_dist.evaluate` of two `ItemSet`, all metrics of the oracle unless told otherwise."""
    return evaluate(
        as_feature_set(query),
        as_feature_set(gallery),
        protocol=protocol,
        distance=distance,
        metrics=None if metrics is None else list(metrics),
        **options,
    )


def assert_agrees(report, expected):
    """The report says what the oracle says: ranks and counts exactly, scores to 1e-12."""
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


def distinct_values(digests: Mapping[object, str]) -> int:
    """How many different digests there are; 1 is what the promise says."""
    return len(set(digests.values()))
