"""The inductive mode: each query beside a gallery that does not know of it, whatever other queries there are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import reranking as oracle
from support.local_workers import started
from support.real_sets import read_sides
from support.reference import DISTANCES, canonical_distances
from support.reranking_runs import CLOSE, bare, labelled, usable_weight
from support.sampling import examples
from support.strategies import crowded_sets, reranking_problems, scattered_sets

from reid_dist import DistanceBlock, evaluate, evaluate_distances, reranked_distances
from reid_dist.core.model import RowRange
from reid_dist.engine.distances import DISTANCES as MEASURES
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions.surroundings import KeepNearest
from reid_dist.engine.scorers import read_block
from reid_dist.engine.tile_loop import run_symmetric_tiles, run_tiles
from reid_dist.kernels.reciprocal import grown_sets
from reid_dist.stages.reranking.rerankers import parse_rerank

CHUNKS = (None, 1, 3, 8)
N_EXAMPLES = 8
SPEC = "k_reciprocal(k1={},k2={},lambda_value={},variant={},mode=inductive)"


def spec_of(k1=5, k2=3, lambda_value=0.3, variant="zhong"):
    return SPEC.format(k1, k2, lambda_value, variant)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("variant", oracle.VARIANTS)
def test_random_sets(variant, distance, tmp_path_factory):
    """Twelve times eight sets, with three weights of the distance each; duplicates, k1 beyond the gallery."""
    seen = Counter()

    @settings(max_examples=N_EXAMPLES)
    @given(reranking_problems(), st.booleans(), st.booleans(), st.sampled_from(CHUNKS))
    def check(problem, inclusive, binary, chunk):
        if not oracle.order_is_unambiguous(problem.query, problem.gallery, distance, variant):
            return
        options = {
            "variant": variant,
            "k1": problem.k1,
            "k2": problem.k2,
            "inclusive": inclusive or variant == "paper",
            "weights": "binary" if binary and variant == "paper" else "gaussian",
        }
        workspace = tmp_path_factory.mktemp("workspace")
        shown = ",".join(f"{name}={str(value).lower()}" for name, value in options.items())
        for weight in (0.0, 1.0, usable_weight(problem.lambda_value)):
            expected = oracle.inductive(
                problem.query, problem.gallery, distance=distance, lambda_value=weight, **options
            )
            found = reranked_distances(
                bare(problem.query),
                bare(problem.gallery),
                rerank=f"k_reciprocal({shown},lambda_value={weight!r},mode=inductive)",
                distance=distance,
                chunk_rows=chunk,
                workspace=workspace,
            )
            np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE, err_msg=str(problem))
        seen["compared"] += 1
        seen["k1 beyond the gallery"] += problem.k1 >= len(problem.gallery)
        seen["lists of one"] += problem.k1 == 1

    check()
    assert seen["compared"] >= 0.6 * N_EXAMPLES, seen
    assert seen["k1 beyond the gallery"], seen


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("variant", oracle.VARIANTS)
@pytest.mark.parametrize("make", [crowded_sets, scattered_sets])
def test_larger_sets(make, variant):
    query, gallery = make(30, 160, 8, 5)
    options = {"variant": variant, "k1": 12, "k2": 4, "lambda_value": 0.3}
    if not oracle.order_is_unambiguous(query.features, gallery.features, "cosine", variant):
        pytest.fail("the sets were to be unambiguous")
    expected = oracle.inductive(query.features, gallery.features, **options)
    found = reranked_distances(labelled(query), labelled(gallery), rerank=spec_of(12, 4, 0.3, variant), chunk_rows=32)
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE)
    # Not the transductive ones by another name.
    together = reranked_distances(labelled(query), labelled(gallery), rerank=parse_rerank("k_reciprocal(k1=12,k2=4)"))
    assert np.abs(found - together).max() > 1e-3


@pytest.mark.slow
def test_no_query_depends_on_the_others(tmp_path):
    """One by one, in another order, with copies of themselves: the same bits."""
    query, gallery = crowded_sets(17, 90, 6, 2)
    features = query.features
    far = labelled(gallery)
    for distance in DISTANCES:
        rerank = spec_of(7, 3, 0.25)
        together = reranked_distances(bare(features), far, rerank=rerank, distance=distance, workspace=tmp_path)
        for row in range(len(features)):
            alone = reranked_distances(
                bare(features[row : row + 1]), far, rerank=rerank, distance=distance, workspace=tmp_path
            )
            np.testing.assert_array_equal(alone[0], together[row])
        order = np.random.default_rng(0).permutation(np.repeat(np.arange(17), 2))
        mixed = reranked_distances(bare(features[order]), far, rerank=rerank, distance=distance, chunk_rows=4)
        np.testing.assert_array_equal(mixed, together[order])


@pytest.mark.slow
def test_no_result_depends_on_chunks_or_workers(tmp_path):
    query, gallery = crowded_sets(23, 140, 6, 3)
    near, far = labelled(query), labelled(gallery)
    rerank = spec_of(6, 3, 0.3)
    whole = reranked_distances(near, far, rerank=rerank)
    digests = set()
    for chunk in (1, 7, 50):
        cut = reranked_distances(near, far, rerank=rerank, chunk_rows=chunk, workspace=tmp_path / str(chunk))
        np.testing.assert_array_equal(cut, whole)
        digests.add(evaluate(near, far, rerank=rerank, chunk_rows=chunk).result_digest)
    with started(2, tmp_path) as client:
        report = evaluate(near, far, rerank=rerank, client=client, workspace=tmp_path / "there", chunk_rows=16)
        digests.add(report.result_digest)
    assert len(digests) == 1


def stage_times(workspace):
    """When each part of each stage was written."""
    return {path.relative_to(workspace): path.stat().st_mtime_ns for path in workspace.rglob("*.npz")}


def test_the_gallery_is_prepared_once(tmp_path):
    first, gallery = crowded_sets(11, 80, 6, 7)
    other, _ = crowded_sets(9, 80, 6, 8)
    far = labelled(gallery)
    reranked_distances(labelled(first), far, rerank=spec_of(), workspace=tmp_path)
    before = stage_times(tmp_path)
    again = reranked_distances(labelled(other), far, rerank=spec_of(), workspace=tmp_path)
    after = stage_times(tmp_path)
    assert {path: after[path] for path in before} == before
    assert {path.parts[0].rpartition("-")[0] for path in after.keys() - before.keys()} == {
        "query_neighbours",
        "query_weights",
    }
    np.testing.assert_array_equal(again, reranked_distances(labelled(other), far, rerank=spec_of()))
    # The weight of the plain distance needs no new stage, and a shorter list is cut from a longer one.
    reranked_distances(labelled(other), far, rerank=spec_of(lambda_value=0.5), workspace=tmp_path)
    assert stage_times(tmp_path) == after
    shorter = reranked_distances(labelled(other), far, rerank=spec_of(k1=3), workspace=tmp_path)
    kinds = {path.parts[0].rpartition("-")[0] for path in stage_times(tmp_path).keys() - after.keys()}
    assert kinds == {"weights", "means", "query_weights"}
    np.testing.assert_array_equal(shorter, reranked_distances(labelled(other), far, rerank=spec_of(k1=3)))


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from reid_dist.stages import neighbour_search

    query, gallery = crowded_sets(40, 90, 6, 7)
    run = {"rerank": spec_of(), "workspace": tmp_path, "chunk_rows": 16}
    real, done, repeated = neighbour_search.tile_task, [], []

    def breaks(search, parts, first, second, before):
        of_queries = not search.is_symmetric
        if of_queries and len(done) >= 3:
            raise KeyboardInterrupt
        real(search, parts, first, second, before)
        if of_queries:
            done.append((first, second))

    def records(search, parts, first, second, before):
        if not search.is_symmetric:
            repeated.append((first, second))
        real(search, parts, first, second, before)

    monkeypatch.setattr(neighbour_search, "tile_task", breaks)
    with pytest.raises(KeyboardInterrupt):
        reranked_distances(labelled(query), labelled(gallery), **run)
    # Another thread may be at work yet: what is done by now must not be done again.
    before = set(done)
    monkeypatch.setattr(neighbour_search, "tile_task", records)
    found = reranked_distances(labelled(query), labelled(gallery), **run)
    assert repeated
    assert not set(repeated) & before
    np.testing.assert_array_equal(found, reranked_distances(labelled(query), labelled(gallery), rerank=spec_of()))
    assert not list(tmp_path.rglob("tile-*"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("lambda_value", [0.0, 0.3, 1.0])
def test_an_evaluation_ranks_by_these_distances(lambda_value):
    query, gallery = crowded_sets(40, 260, 8, 4)
    rerank = spec_of(8, 4, lambda_value)
    near, far = labelled(query), labelled(gallery)
    options = {"metrics": ["mAP", "mINP", "CMC@1", "P@5"], "topk": 7, "confidence": None}
    report = evaluate(near, far, rerank=rerank, chunk_rows=64, **options)
    block = DistanceBlock.from_array(reranked_distances(near, far, rerank=rerank))
    assert report.result_digest == evaluate_distances(block, near, far, **options).result_digest
    assert report.rerank is not None
    assert report.rerank["mode"] == "inductive"
    assert {"k1", "k2", "lambda_value", "variant", "inclusive", "weights", "definition"} <= set(report.rerank)


@settings(max_examples=examples(20))
@given(reranking_problems(), st.sampled_from(DISTANCES), st.sampled_from(CHUNKS))
def test_a_sweep_of_one_side_is_half_a_sweep_of_both(problem, distance, chunk):
    measure = MEASURES.get(distance)
    near, far = (read_block(bare(each), RowRange(0, len(each))) for each in (problem.query, problem.gallery))
    tile = TileShape(chunk or 1024, chunk or 1024)
    (one,) = run_tiles(near, far, measure, tile, [KeepNearest(problem.k1, farthest=True)])
    both, _ = run_symmetric_tiles(near, far, measure, chunk or 1024, problem.k1)
    np.testing.assert_array_equal(one.index, both.index)
    np.testing.assert_array_equal(one.distance, both.distance)
    np.testing.assert_array_equal(one.farthest, both.farthest)
    expected = canonical_distances(problem.query, problem.gallery, distance)
    np.testing.assert_allclose(one.farthest, expected.max(axis=1).clip(0), rtol=1e-12, atol=1e-12)


def test_sets_without_common_members_hold_the_query_last():
    """By hand: 4 is a query; half lists of two."""
    index = np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0], [3, 2, 1]], np.int32)
    reciprocal = np.array([[0, 1], [3, -1], [-1, -1]], np.int32)
    # R(0, h) = R(1, h) = {0, 1}, R(3, h) = {3} and R(2, h) = {2}, since 1 does not list 2 within two.
    indptr, member = grown_sets(index, reciprocal, 2, False, 4)
    assert indptr.tolist() == [0, 3, 5, 6]
    assert member.tolist() == [0, 1, 4, 3, 4, 4]
    # R(0, 3) = {0, 1, 2} has two of three in {0, 1}: enough only where two thirds are.
    exact = grown_sets(index, reciprocal[:1], 3, True, 4)[1]
    assert exact.tolist() == [0, 1, 2, 4]
    assert grown_sets(index, reciprocal[:1], 3, False, 4)[1].tolist() == [0, 1, 4]


@pytest.mark.slow
@pytest.mark.parametrize("variant", oracle.VARIANTS)
def test_real_features(shared_data, variant):
    query, gallery = (side.features for side in read_sides(shared_data("market1501_sample.mat")))
    query, gallery = query[::7][:12], gallery[:260]
    options = {"variant": variant, "k1": 20, "k2": 6, "lambda_value": 0.3}
    for distance in ("cosine", "euclidean"):
        expected = oracle.inductive(query, gallery, distance=distance, **options)
        found = reranked_distances(bare(query), bare(gallery), rerank=spec_of(20, 6, 0.3, variant), distance=distance)
        np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE)
