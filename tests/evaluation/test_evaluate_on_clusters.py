"""The answer of worker processes is the answer of this process, bit for bit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import as_feature_set, evaluate_items
from distributed import Client
from support.local_workers import started
from support.reference import DISTANCES, PROTOCOLS, ItemSet
from support.strategies import crowded_sets

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.errors import InputError


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory):
    with started(1, tmp_path_factory.mktemp("one-worker")) as client:
        yield client


ONE, TWO = pytest.param("one_worker", marks=pytest.mark.slow), pytest.param("cluster_of_two", id="two_workers")


@pytest.fixture(params=[ONE, TWO])
def client(request):
    """Merges depend on the number of workers; everything else is tested on two."""
    return request.getfixturevalue(request.param)


@cache
def sets():
    """Thousands of exact duplicates, of positives too, and equal distances between positives and negatives."""
    return crowded_sets(60, 4000, 24, seed=31, n_distinct=50)


def sides(protocol):
    """Queries of `same_set` are rows of the gallery."""
    query, gallery = sets()
    return gallery.take(np.arange(60)) if protocol == "same_set" else query, gallery


@cache
def digest_here(protocol, distance):
    query, gallery = sides(protocol)
    return evaluate_items(query, gallery, protocol, distance).result_digest


def test_rows_of_a_stored_set(client, tmp_path):
    """A view goes to workers as a reference, and evaluates as the rows do at once."""
    query, gallery = (as_feature_set(each) for each in sides("market1501"))
    stored = gallery.save(tmp_path / "gallery.zarr", chunk_rows=300)
    rows = np.random.default_rng(5).permutation(gallery.n_rows)[:2500]
    expected = evaluate(
        query, FeatureSet.from_arrays(gallery.read(0, gallery.n_rows)[rows], gallery.pids[rows], gallery.camids[rows])
    )
    report = evaluate(query, FeatureSet.concat([stored.take(rows[:900]), stored.take(rows[900:])]), client=client)
    assert report.result_digest == expected.result_digest


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_digest(client, protocol, distance):
    query, gallery = sides(protocol)
    report = evaluate_items(query, gallery, protocol, distance, client=client)
    assert report.result_digest == digest_here(protocol, distance)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("chunk", [37, 333, 10_000])
def test_digest_with_tiles(client, chunk):
    query, gallery = sets()
    report = evaluate_items(query, gallery, client=client, chunk_rows=chunk)
    assert report.result_digest == digest_here("market1501", "cosine")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("chunk", [1, 7])
def test_digest_with_tiny_tiles(client, chunk):
    query, gallery = crowded_sets(6, 60, 17, seed=32, n_distinct=9)
    report = evaluate_items(query, gallery, client=client, chunk_rows=chunk)
    assert report.result_digest == evaluate_items(query, gallery).result_digest


def test_half_precision(two_workers):
    query, gallery = crowded_sets(20, 800, 24, seed=33, dtype=np.float16)
    report = evaluate_items(query, gallery, client=two_workers)
    assert report.result_digest == evaluate_items(query, gallery).result_digest


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("distance", DISTANCES)
def test_neighbours(two_workers, distance):
    query, gallery = map(as_feature_set, sets())
    here = nearest(query, gallery, k=25, distance=distance)
    there = nearest(query, gallery, k=25, distance=distance, client=two_workers)
    assert np.array_equal(here.index, there.index)
    assert here.distance.tobytes() == there.distance.tobytes()


@pytest.mark.slow
def test_neighbours_within_one_set(two_workers):
    items = as_feature_set(sets()[1].take(range(700)))
    here = nearest(items, items, k=12)
    there = nearest(items, items, k=12, client=two_workers, chunk_rows=100)
    assert np.array_equal(here.index[:, 0], np.arange(700))
    assert np.array_equal(here.index, there.index)
    assert here.distance.tobytes() == there.distance.tobytes()


@pytest.mark.slow
def test_sets_in_stores(two_workers, tmp_path):
    query, gallery = sets()
    near = as_feature_set(query).save(tmp_path / "query.zarr", chunk_rows=16)
    far = as_feature_set(gallery).save(tmp_path / "gallery.zarr", chunk_rows=300)
    expected = evaluate_items(query, gallery, metrics=None).result_digest
    for pair in ((near, far), (as_feature_set(query), far), (near, as_feature_set(gallery))):
        assert evaluate(*pair, client=two_workers).result_digest == expected


def test_one_set_without_names(two_workers):
    """The same set twice, matched by symmetry."""
    items = sets()[1].take(range(500))
    unnamed = FeatureSet.from_arrays(items.features, items.pids)
    there = evaluate(unnamed, unnamed, protocol="same_set", client=two_workers)
    assert there.result_digest == evaluate(unnamed, unnamed, protocol="same_set").result_digest


def test_lists_in_a_report(two_workers):
    query, gallery = sets()
    here = evaluate_items(query, gallery, topk=15).topk
    there = evaluate_items(query, gallery, topk=15, client=two_workers).topk
    assert here.digest == there.digest


def test_what_is_refused_here_is_refused_there(two_workers):
    query, gallery = sets()
    unmatched = ItemSet(query.features, query.pids + 1000, query.camids)
    messages = []
    for where in (None, two_workers):
        with pytest.raises(InputError) as caught:
            evaluate_items(unmatched, gallery, client=where)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.slow
def test_two_evaluations_of_one_client(two_workers):
    """What stays on the workers has no effect on the next evaluation."""
    query, gallery = map(as_feature_set, crowded_sets(20, 800, 24, seed=34))
    other = as_feature_set(crowded_sets(20, 800, 24, seed=35)[0])
    first = evaluate(query, gallery, client=two_workers).result_digest
    between = evaluate(other, gallery, client=two_workers).result_digest
    assert evaluate(query, gallery, client=two_workers).result_digest == first == evaluate(query, gallery).result_digest
    assert between == evaluate(other, gallery).result_digest != first


def test_workers_are_there_though_the_client_forgets_them(two_workers, monkeypatch):
    """A client replaces its information about the scheduler every two seconds, without the workers."""
    monkeypatch.setattr(two_workers, "scheduler_info", lambda **_: {"workers": {}})
    query, gallery = crowded_sets(6, 60, 17, seed=34)
    assert (
        evaluate_items(query, gallery, client=two_workers).result_digest == evaluate_items(query, gallery).result_digest
    )


def test_a_client_that_is_not_the_default_one(two_workers):
    query, gallery = crowded_sets(6, 60, 17, seed=35)
    with Client(two_workers.scheduler.address, set_as_default=False) as client:
        report = evaluate_items(query, gallery, client=client)
    assert report.result_digest == evaluate_items(query, gallery).result_digest
