"""The answer of worker processes is the answer of this process, bit for bit."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from agreement import as_feature_set, drawn_truth, evaluate_items
from distributed import Client
from oracles.protocols import CMC_FAMILY, LIST_PROTOCOLS, PID_PROTOCOLS
from support.local_workers import started
from support.reference import DISTANCES, ItemSet
from support.strategies import crowded_sets, scattered_sets

from reid_dist import (
    FeatureSet,
    conventions,
    evaluate,
    evaluate_splits,
    nearest,
    operating_points,
    sweep_parameters,
)
from reid_dist.errors import InputError

PAIR_METRICS = ("TAR@FAR=0.01", "TAR@FAR=0.2", "EER", "DIR@FAR=0.1")


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
def sets(dtype=np.float32):
    """Thousands of exact duplicates, of positives too, junk, and queries without relevant items."""
    query, gallery = crowded_sets(40, 2500, 16, seed=121, n_distinct=60, dtype=dtype)
    return query + ItemSet(query.features[:5], np.arange(800, 805), query.camids[:5], np.arange(9000, 9005)), gallery


def outputs_of(protocol):
    """All outputs of a protocol at once."""
    names = ("mAP", "mAP_trapezoid", "mAP_found@5", "P_clipped@5", f"{CMC_FAMILY.get(protocol, 'CMC')}@3")
    options = {"ties": True, "topk": 9, "breakdowns": ["camera", "identity", "gallery_size"]}
    if protocol in LIST_PROTOCOLS:
        return {**options, "metrics": names, "ground_truth": drawn_truth(protocol, 45, 2500, seed=122)}
    options["breakdowns"].append("camera_pair")
    return {
        **options,
        "metrics": (*names, "CMC_allshots@2", *PAIR_METRICS[: 4 - (protocol == "same_set")]),
        "roc": True,
    }


def assert_same(there, here):
    """All that both hold are the same bits."""
    assert there.result_digest == here.result_digest
    assert there.topk.digest == here.topk.digest
    for name in ("breakdowns", "ties", "counts", "verification"):
        assert getattr(there, name) == getattr(here, name), name


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("chunk", [None, 300, 37])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", [*PID_PROTOCOLS, *LIST_PROTOCOLS])
def test_reports(client, protocol, distance, chunk):
    query, gallery = sets()
    if protocol == "same_set":
        query = gallery.take(range(0, 2500, 60))
    options = {"confidence": None, **outputs_of(protocol)}
    here = evaluate_items(query, gallery, protocol, distance, **options)
    assert_same(evaluate_items(query, gallery, protocol, distance, chunk_rows=chunk, client=client, **options), here)


def test_draws_of_half_precision(two_workers):
    options = {"metrics": ["CMC_single_shot@1"], "single_shot_draws": 5, "seed": 9, "topk": 3}
    here = evaluate_items(*sets(np.float16), "cuhk03", **options)
    assert_same(evaluate_items(*sets(np.float16), "cuhk03", chunk_rows=400, client=two_workers, **options), here)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("within", [False, True])
def test_neighbours(two_workers, distance, within):
    query, gallery = map(as_feature_set, sets())
    pair = (gallery, gallery) if within else (query, gallery)
    here = nearest(*pair, k=25, distance=distance)
    there = nearest(*pair, k=25, distance=distance, client=two_workers, chunk_rows=300)
    assert np.array_equal(here.index, there.index)
    assert here.distance.tobytes() == there.distance.tobytes()


def test_sets_and_views_of_them_in_stores(two_workers, tmp_path):
    """A view goes to workers as a reference, and evaluates as the rows do at once."""
    query, gallery = map(as_feature_set, sets())
    near = query.save(tmp_path / "query.zarr", chunk_rows=16)
    far = gallery.save(tmp_path / "gallery.zarr", chunk_rows=300)
    expected = evaluate(query, gallery).result_digest
    for pair in ((near, far), (query, far), (near, gallery)):
        assert evaluate(*pair, client=two_workers).result_digest == expected
    rows = np.random.default_rng(5).permutation(gallery.n_rows)[:2000]
    taken = FeatureSet.from_arrays(gallery.read(0, gallery.n_rows)[rows], gallery.pids[rows], gallery.camids[rows])
    view = FeatureSet.concat([far.take(rows[:900]), far.take(rows[900:])])
    assert evaluate(query, view, client=two_workers).result_digest == evaluate(query, taken).result_digest


def test_one_set_without_names(two_workers):
    """The same set twice, matched by symmetry."""
    items = sets()[1].take(range(500))
    unnamed = FeatureSet.from_arrays(items.features, items.pids)
    there = evaluate(unnamed, unnamed, protocol="same_set", client=two_workers)
    assert there.result_digest == evaluate(unnamed, unnamed, protocol="same_set").result_digest


@pytest.mark.slow
def test_runs_of_several_passes(two_workers, tmp_path):
    query, gallery = map(as_feature_set, scattered_sets(40, 600, 12, seed=5, n_pids=25))
    calls = {
        "sweep": partial(sweep_parameters, expand="alpha_qe", k="0:2", alpha="0,2"),
        "splits": partial(evaluate_splits, repeats=2, per_identity=3),
        "conventions": partial(conventions, distances="cosine", also=["k_reciprocal(k1=5,k2=2)", "float16"]),
        "operating points": partial(operating_points, prior=0.1),
    }
    for name, call in calls.items():
        there = call(query, gallery, client=two_workers, workspace=tmp_path)
        assert there.result_digest == call(query, gallery).result_digest, name


def test_what_is_refused_here_is_refused_there(two_workers):
    query, gallery = sets()
    unmatched = ItemSet(query.features, query.pids + 1000, query.camids)
    messages = []
    for where in (None, two_workers):
        with pytest.raises(InputError) as caught:
            evaluate_items(unmatched, gallery, client=where)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_any_client_that_also_forgets_its_workers(two_workers, monkeypatch):
    """One that is not the default; it replaces its information about the scheduler every two seconds."""
    query, gallery = map(as_feature_set, sets())
    expected = evaluate(query, gallery).result_digest
    with Client(two_workers.scheduler.address, set_as_default=False) as client:
        monkeypatch.setattr(client, "scheduler_info", lambda **_: {"workers": {}})
        assert evaluate(query, gallery, client=client).result_digest == expected
        # What stays on the workers has no effect on the next evaluation.
        other = query.take(np.arange(20)), gallery
        assert evaluate(*other, client=client).result_digest == evaluate(*other).result_digest != expected
