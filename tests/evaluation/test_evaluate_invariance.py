"""One result, bit for bit, for all tiles, layouts and repetitions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from agreement import as_feature_set, assert_agrees, assert_same_scores, distinct_values, evaluate_items
from oracles import evaluation
from support.reference import DISTANCES, PROTOCOLS
from support.strategies import crowded_sets
from threadpoolctl import threadpool_limits

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.errors import InputError

CHUNKS = (None, 1, 7, 37, 333, 10_000)


@cache
def small_sets():
    """Few enough rows for tiles of one row: each positive tied with negatives, queries copied from the gallery."""
    return crowded_sets(12, 500, 33, seed=21)


@cache
def large_sets():
    """Thousands of exact duplicates."""
    return crowded_sets(64, 6000, 20, seed=22, n_distinct=50)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_chunks_of_a_small_set(protocol, distance):
    query, gallery = small_sets()
    if protocol == "same_set":
        query = gallery.take(range(0, 500, 40))
    reports = {chunk: evaluate_items(query, gallery, protocol, distance, chunk_rows=chunk) for chunk in CHUNKS}
    assert distinct_values({chunk: report.result_digest for chunk, report in reports.items()}) == 1
    assert_agrees(reports[7], evaluation.evaluate(query, gallery, protocol, distance))


@pytest.mark.parametrize("order", ["C", "F", "strided", "readonly"])
def test_memory_layout(order):
    query, gallery = small_sets()
    if order == "strided":
        wide = np.zeros((len(gallery), 66), np.float32)
        wide[:, ::2] = gallery.features
        laid_out = wide[:, ::2]
    elif order == "readonly":
        laid_out = gallery.features.copy()
        laid_out.flags.writeable = False
    else:
        laid_out = np.array(gallery.features, order=order)
    other = evaluate_items(query, gallery.with_features(laid_out))
    assert other.result_digest == evaluate_items(query, gallery).result_digest


def test_inputs_are_left_alone():
    query, gallery = small_sets()
    before = [array.copy() for items in (query, gallery) for array in (items.features, items.pids, items.camids)]
    evaluate_items(query, gallery, chunk_rows=37)
    after = [array for items in (query, gallery) for array in (items.features, items.pids, items.camids)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("store_rows", [7, 1000, 1, 64])
def test_sets_in_stores(store_rows, tmp_path):
    """Chunks of a store, tiles that do not divide them, and sets of which only one is stored."""
    query, gallery = small_sets()
    near, far = (
        as_feature_set(items).save(tmp_path / name, chunk_rows=store_rows)
        for name, items in (("query.zarr", query), ("gallery.zarr", gallery))
    )
    expected = evaluate_items(query, gallery, metrics=None)
    for chunk in (None, 37, 333):
        assert evaluate(near, far, chunk_rows=chunk).result_digest == expected.result_digest
    assert evaluate(FeatureSet.open(near.uri), FeatureSet.open(far.uri)).result_digest == expected.result_digest
    assert evaluate(as_feature_set(query), far).result_digest == expected.result_digest
    assert evaluate(near, as_feature_set(gallery)).result_digest == expected.result_digest


def test_one_path_of_both_sets(tmp_path):
    query, gallery = small_sets()
    for name, items in (("query.zarr", query), ("gallery.zarr", gallery)):
        as_feature_set(items).save(tmp_path / name)
    assert evaluate(tmp_path).result_digest == evaluate_items(query, gallery, metrics=None).result_digest
    with pytest.raises(InputError, match="there is no gallery"):
        evaluate(as_feature_set(query))


def test_neighbours_of_sets_in_stores(tmp_path):
    items = as_feature_set(small_sets()[1])
    stored = items.save(tmp_path / "items.zarr", chunk_rows=64)
    expected = nearest(items, items, k=9)
    for one, other in ((stored, stored), (stored, FeatureSet.open(stored.uri)), (items, stored)):
        found = nearest(one, other, k=9, chunk_rows=50)
        assert np.array_equal(found.index, expected.index)
        assert found.distance.tobytes() == expected.distance.tobytes()


@pytest.mark.slow
def test_evaluations_at_the_same_time():
    """Threads of one process that evaluate different sets do not disturb each other."""
    pairs = [crowded_sets(15, 300, 16, seed=seed) for seed in range(70, 76)]
    one_by_one = [evaluate_items(*pair).result_digest for pair in pairs]
    assert len(set(one_by_one)) == len(pairs)
    with ThreadPoolExecutor(6) as pool:
        at_once = list(pool.map(lambda pair: evaluate_items(*pair).result_digest, pairs * 4))
    assert at_once == one_by_one * 4


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_threads_of_the_products(n_threads):
    query, gallery = large_sets()
    with threadpool_limits(n_threads):
        digest = evaluate_items(query, gallery).result_digest
    assert digest == evaluate_items(query, gallery).result_digest


@pytest.mark.parametrize("chunk", [None, 37])
def test_lists_of_neighbours_change_nothing_else(chunk):
    query, gallery = small_sets()
    assert_same_scores(
        evaluate_items(query, gallery, topk=10, chunk_rows=chunk), evaluate_items(query, gallery, chunk_rows=333)
    )
