"""The metric of a training loop, fed batch by batch: the report of `evaluate` for the same rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reid_dist import evaluate
from reid_dist.errors import InputError
from reid_dist.torch import ReIDMetric

N = 90


@pytest.fixture
def rows():
    rng = np.random.default_rng(4)
    return {
        "features": rng.standard_normal((N, 5)).astype(np.float32),
        "pids": rng.integers(0, 12, N),
        "camids": rng.integers(0, 3, N),
        "is_query": rng.random(N) < 0.3,
        "item_ids": rng.permutation(10 * N)[:N],
    }


def sides(rows, *names):
    """Queries and gallery rows as tuples, in the order of the rows or of their item ids."""
    order = np.argsort(rows["item_ids"]) if "item_ids" in names else np.arange(N)
    return [
        tuple(rows[name][order][rows["is_query"][order] == side] for name in ("features", "pids", *names))
        for side in (True, False)
    ]


def feed(metric, rows, *names, cuts=(0, 7, 7, 40, N)):
    for start, stop in itertools.pairwise(cuts):
        metric.update(
            rows["features"][start:stop],
            rows["pids"][start:stop],
            **{name: rows[name][start:stop] for name in names},
        )


@pytest.mark.parametrize("items", [(), ("item_ids",)])
def test_batches_give_the_report_of_all_rows(rows, items):
    metric = ReIDMetric(metrics=["mAP", "CMC@3"], distance="euclidean")
    feed(metric, rows, "camids", "is_query", *items)
    found = metric.compute()
    expected = evaluate(*sides(rows, "camids", *items), metrics=["mAP", "CMC@3"], distance="euclidean")
    assert found == expected.metrics
    assert all(type(value) is float for value in found.values())
    assert metric.report.result_digest == expected.result_digest


def test_rows_that_a_sampler_repeats_count_once(rows):
    metric, repeated = ReIDMetric(prefix="val/"), ReIDMetric(prefix="val/")
    names = ("camids", "is_query", "item_ids")
    feed(metric, rows, *names)
    feed(repeated, rows, *names)
    feed(repeated, rows, *names, cuts=(0, 30))
    assert repeated.compute() == metric.compute()
    assert metric.compute().keys() == {f"val/{name}" for name in metric.report.metrics}
    assert repeated.report.result_digest == metric.report.result_digest


def test_the_order_of_batches_does_not_matter_with_item_ids(rows):
    names = ("camids", "is_query", "item_ids")
    rows["features"][:] = np.round(rows["features"])
    first, second = ReIDMetric(), ReIDMetric()
    feed(first, rows, *names)
    feed(second, {name: values[::-1] for name, values in rows.items()}, *names)
    assert first.compute() == second.compute()
    assert first.report.result_digest == second.report.result_digest


def test_every_row_is_searched_for_without_is_query(rows):
    metric = ReIDMetric(protocol="same_set")
    feed(metric, rows, "camids", "item_ids")
    order = np.argsort(rows["item_ids"])
    both = tuple(rows[name][order] for name in ("features", "pids", "camids", "item_ids"))
    assert metric.compute() == evaluate(both, both, protocol="same_set").metrics


def test_a_bool_stands_for_a_whole_batch_and_texts_are_labels(rows):
    metric, chosen = ReIDMetric(), rows["is_query"]
    names = np.array([f"p{pid}" for pid in rows["pids"]])
    for side in (True, False):
        own = chosen == side
        metric.update(rows["features"][own], names[own], [f"c{each}" for each in rows["camids"][own]], is_query=side)
    assert metric.compute() == evaluate(*sides(rows, "camids")).metrics


def test_buffers_may_be_used_again(rows):
    metric, buffer = ReIDMetric(), {name: values.copy() for name, values in rows.items()}
    feed(metric, buffer, "camids", "is_query")
    for values in buffer.values():
        values[:] = 0
    assert metric.compute() == evaluate(*sides(rows, "camids")).metrics


def test_reset_forgets_all_rows(rows):
    metric = ReIDMetric()
    feed(metric, rows, "camids", "is_query")
    first = metric.compute()
    metric.reset()
    with pytest.raises(InputError, match="call update before compute"):
        metric.compute()
    feed(metric, rows, "camids", "is_query")
    assert metric.compute() == first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pids": np.zeros(3)}, r"pids must have one entry per row of features, \(4,\), found shape \(3,\)"),
        ({"features": np.zeros((4, 6))}, "5 and 6 columns"),
        ({"features": np.zeros(4)}, "2-D"),
        ({"camids": None}, "camids is given in some updates and left out of others"),
        ({"item_ids": np.arange(4)}, "item_ids is given in some updates"),
        ({"is_query": np.arange(4)}, "is_query must be True, False"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_not_taken(rows, change, message):
    metric = ReIDMetric()
    feed(metric, rows, "camids", "is_query")
    batch = {"features": np.zeros((4, 5)), "pids": np.zeros(4), "camids": np.zeros(4), "is_query": True}
    with pytest.raises(InputError, match=message):
        metric.update(**{**batch, **change})
    assert metric.compute() == evaluate(*sides(rows, "camids")).metrics


def test_an_item_has_one_identity(rows):
    rows["item_ids"][:2], rows["is_query"][:2], rows["pids"][:2] = 7, True, (1, 2)
    metric = ReIDMetric()
    feed(metric, rows, "camids", "is_query", "item_ids")
    with pytest.raises(InputError, match="several items 7 of different pids"):
        metric.compute()


@pytest.mark.parametrize(("is_query", "lacking"), [(True, "gallery rows"), (False, "queries")])
def test_a_side_without_rows_is_named(rows, is_query, lacking):
    metric = ReIDMetric()
    metric.update(rows["features"], rows["pids"], rows["camids"], is_query=is_query)
    with pytest.raises(InputError, match=f"none of the 90 rows are {lacking}"):
        metric.compute()
