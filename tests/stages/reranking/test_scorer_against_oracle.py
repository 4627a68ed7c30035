"""Re-ranked distances, and every stage on the way to them, are those of whole matrices."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import reranking as oracle
from support.reference import DISTANCES
from support.reranking_runs import CLOSE, bare, stages, usable_weight
from support.strategies import reranking_problems

from reid_dist import reranked_distances
from reid_dist.stages.reranking.k_reciprocal import KReciprocal

CHUNKS = (None, 1, 3, 8)
N_EXAMPLES = 11


def assert_close(found, expected, what=""):
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE, err_msg=str(what))


def asked_of(variant, problem, inclusive, binary):
    """A re-ranking, and the equivalent options of the oracle."""
    shared = {
        "variant": variant,
        "k1": problem.k1,
        "k2": problem.k2,
        "inclusive": inclusive or variant == "paper",
        "weights": "binary" if binary and variant == "paper" else "gaussian",
        "lambda_value": usable_weight(problem.lambda_value),
    }
    return KReciprocal(**shared), shared


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("variant", oracle.VARIANTS)
def test_random_sets(variant, distance, tmp_path_factory):
    """Twelve times eleven sets, with four weights of the distance each; tiny ones, duplicates, k1 beyond N."""
    seen = Counter()

    @settings(max_examples=N_EXAMPLES)
    @given(reranking_problems(), st.booleans(), st.booleans(), st.sampled_from(CHUNKS))
    def check(problem, inclusive, binary, chunk):
        query, gallery = problem.query, problem.gallery
        if not oracle.order_is_unambiguous(query, gallery, distance, variant):
            seen["skipped"] += 1
            return
        spec, options = asked_of(variant, problem, inclusive, binary)
        workspace = tmp_path_factory.mktemp("workspace")
        expected = oracle.steps(query, gallery, distance=distance, **options)
        compare_stages(stages(query, gallery, distance, spec, workspace, chunk), expected, spec)
        for weight in (0.0, 0.3, 1.0, spec.lambda_value):
            block = reranked_distances(
                bare(query),
                bare(gallery),
                rerank=KReciprocal(**{**options, "lambda_value": weight}),
                distance=distance,
                chunk_rows=chunk,
                workspace=workspace,
            )
            blended = oracle.reranked(query, gallery, distance=distance, **{**options, "lambda_value": weight})
            assert_close(block, blended, (weight, problem))
        seen["compared"] += 1
        seen["odd k1"] += problem.k1 % 2
        seen["k1 beyond N"] += problem.k1 >= len(query) + len(gallery)
        seen["k2 = k1 + 1"] += problem.k2 == problem.k1 + 1
        seen[problem.kind] += 1

    check()
    assert seen["compared"] >= 0.8 * N_EXAMPLES, seen
    for what in ("odd k1", "k1 beyond N", "k2 = k1 + 1"):
        assert seen[what], (what, seen)


def compare_stages(found, expected, spec):
    """Lists, R*, weights and their means of all items."""
    n_items = len(expected.distances)
    lists = [[j for j in row if j >= 0] for row in found.index.tolist()]
    length, half_length = min(spec.n_near, n_items), min(spec.n_half, n_items)
    assert [row[:length] for row in lists] == expected.neighbours
    assert [row[:half_length] for row in lists] == expected.half_neighbours
    assert found.grown == expected.grown
    assert_close(found.weights, expected.weights)
    assert_close(found.mean_weights, expected.mean_weights)
    assert (np.isinf(found.distance) == (found.index < 0)).all()
