"""Re-ranking of distances that are given, against whole matrices."""

from __future__ import annotations

import doctest
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import reranking as oracle
from support.reference import DISTANCES, canonical_distances
from support.reranking_runs import CLOSE, bare, usable_weight
from support.sampling import examples
from support.strategies import crowded_sets, reranking_problems, seeds

from reid_dist import rerank_blocks, reranked_distances
from reid_dist.errors import InputError, PlanError, UnknownNameError
from reid_dist.stages.reranking import precomputed as module
from reid_dist.stages.reranking.k_reciprocal import KReciprocal

CROOKED = "crooked"


def blocks_of(query, gallery, distance):
    """Blocks (Q, G), (Q, Q) and (G, G)."""
    return tuple(canonical_distances(a, b, distance) for a, b in ((query, gallery), (query, query), (gallery, gallery)))


def reordered(blocks):
    """As the oracle takes them."""
    return blocks[1], blocks[0], blocks[2]


def crooked_blocks(n_query, n_gallery, seed):
    """Any numbers, few of them different, far from symmetric, and no item nearest to itself."""
    rng = np.random.default_rng(seed)
    shapes = ((n_query, n_gallery), (n_query, n_query), (n_gallery, n_gallery))
    return tuple(rng.integers(0, 12, shape) / 4 for shape in shapes)


def clipped(blocks):
    return tuple(np.maximum(block, 0) for block in blocks)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("variant", oracle.VARIANTS)
def test_random_blocks(variant, distance, monkeypatch):
    """Sets of rows, and blocks that no rows have; whole, and in pieces of five rows."""
    seen, n_examples = Counter(), examples(25)

    @settings(max_examples=n_examples)
    @given(reranking_problems(), st.booleans(), st.booleans(), st.sampled_from([1024, 5]), st.booleans(), seeds())
    def check(problem, inclusive, binary, rows, crooked, seed):
        monkeypatch.setattr(module, "_ROWS_AT_ONCE", rows)
        sizes = len(problem.query), len(problem.gallery)
        blocks = crooked_blocks(*sizes, seed) if crooked else blocks_of(problem.query, problem.gallery, distance)
        blocks = clipped(blocks)
        shared = {
            "variant": variant,
            "inclusive": inclusive or variant == "paper",
            "weights": "binary" if binary and variant == "paper" else "gaussian",
            "k1": problem.k1,
            "k2": problem.k2,
            "lambda_value": usable_weight(problem.lambda_value),
        }
        found = rerank_blocks(*blocks, rerank=KReciprocal(**shared), distance=distance)
        expected = oracle.ranklist(*reordered(blocks), distance=distance, **shared)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE, err_msg=str(problem))
        seen[CROOKED if crooked else "of rows"] += 1

    check()
    assert min(seen.values()) >= n_examples // 5, seen


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
def test_is_what_features_give(distance):
    """Canonical distances of the same rows; the graph of faiss_k1 alone is on the sphere."""
    query, gallery = crowded_sets(20, 90, 5, 1)
    blocks = clipped(blocks_of(query.features, gallery.features, distance))
    for variant in oracle.VARIANTS:
        if variant == "faiss_k1" and distance != "cosine":
            continue
        rerank = f"k_reciprocal(k1=7,k2=3,variant={variant})"
        found = rerank_blocks(*blocks, rerank=rerank, distance=distance)
        expected = reranked_distances(bare(query.features), bare(gallery.features), rerank=rerank, distance=distance)
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


def test_other_types_of_numbers():
    blocks = [np.rint(4 * block) for block in crooked_blocks(6, 9, 3)]
    expected = rerank_blocks(*blocks, rerank="k_reciprocal(k1=3,k2=2)")
    for kind in (np.float32, np.float16, np.int64, np.uint8):
        found = rerank_blocks(*(block.astype(kind) for block in blocks), rerank="k_reciprocal(k1=3,k2=2)")
        np.testing.assert_array_equal(found, expected)
    found = rerank_blocks(*(block.tolist() for block in blocks), rerank="k_reciprocal(k1=3,k2=2)")
    np.testing.assert_array_equal(found, expected)


def test_the_example():
    assert doctest.testmod(module).attempted > 5
    assert doctest.testmod(module).failed == 0


def refusal(expected=InputError, *, blocks=None, **options):
    given_blocks = crooked_blocks(3, 4, 0) if blocks is None else blocks
    with pytest.raises(expected) as caught:
        rerank_blocks(*given_blocks, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_value(place, value):
    blocks = [block.copy() for block in crooked_blocks(3, 4, 0)]
    blocks[place][1, 2] = value
    return blocks


def test_what_is_refused():
    qg, qq, gg = crooked_blocks(3, 4, 0)
    assert "query_query must be 3 x 3, as query_gallery is 3 x 4; found 4 x 4" in refusal(blocks=(qg, gg, qq))
    assert "gallery_gallery must be 4 x 4" in refusal(blocks=(qg, qq, qg))
    assert "gallery_gallery must be a matrix of distances, found float64 (4,)" in refusal(blocks=(qg, qq, gg[0]))
    assert "query_gallery must be a matrix of distances, found <U1" in refusal(blocks=([["a"]], qq, gg))
    assert "query_gallery must be a matrix" in refusal(blocks=([[1.0], [1.0, 2.0]], qq, gg))
    assert "a gallery item at least, found 3 x 0" in refusal(blocks=(qg[:, :0], qq, gg[:0, :0]))
    assert "query_gallery holds nan at row 1, column 2" in refusal(blocks=with_value(0, np.nan))
    assert "query_query holds inf at row 1, column 2" in refusal(blocks=with_value(1, np.inf))
    negative = refusal(blocks=with_value(2, -1e-7))
    assert "gallery_gallery holds -1e-07 at row 1, column 2" in negative
    assert "numpy.maximum(block, 0)" in negative
    assert "only with mode=transductive" in refusal(rerank="k_reciprocal(mode=inductive)")
    assert "did you mean 'cosine'" in refusal(UnknownNameError, distance="cosin")


def test_too_many_items_are_refused_before_any_work():
    # Not a byte of these is there.
    blocks = (np.broadcast_to(np.float32(0), shape) for shape in ((5_000, 20_000), (5_000, 5_000), (20_000, 20_000)))
    message = refusal(PlanError, blocks=blocks)
    assert "distances of 25000 items take 4.7 GiB" in message
    assert "evaluate(..., rerank=...)" in message
