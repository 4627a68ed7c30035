"""Reductions that share tiles: each gives what it gives alone, whatever precision the others ask for."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact_products import use_integers, use_precisions
from support.sampling import examples
from support.tile_problems import Problem, content

from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import bands, costs
from reid_dist.engine.reductions.costs import Precision
from reid_dist.kernels.impostors import key_edges

MULTIPLIED = (Precision.INTEGERS, Precision.PLAIN, Precision.WIDE)


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 2**32 - 1),
    is_reranked=st.booleans(),
    tile=st.sampled_from([(3, 17), (5, 64), (64, 200)]),
    data=st.data(),
)
def test_each_gives_what_it_gives_alone(seed, is_reranked, tile, data):
    pytest.importorskip("onnxruntime")
    problem, shape = Problem(seed, is_reranked), TileShape(*tile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REID_DIST_SCREEN", "float32")
        alone = {name: problem.run([name], shape)[name] for name in problem.reductions}
    names = data.draw(st.permutations(list(problem.reductions)))[: data.draw(st.integers(2, len(problem.reductions)))]
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        use_integers(patch)
        mixed = data.draw(st.sampled_from([MULTIPLIED[:1], MULTIPLIED]))
        use_precisions(patch, lambda n: rng.choice(mixed, n))
        most = data.draw(st.sampled_from([0, 5, 10**9]))
        patch.setattr(bands, "most_inside", lambda size, given_up: most)
        patch.setattr(bands, "OPEN_PAIRS", data.draw(st.sampled_from([0, 1 << 16])))
        together = problem.run(names, shape)
    for name in names:
        if name == "histogram":
            assert_same_histogram(together[name], alone[name])
        else:
            assert content(together[name]) == content(alone[name]), name


@pytest.mark.parametrize("screen", ["float32", "int8"])
def test_blocks_are_freed_when_they_are_reduced(screen, monkeypatch):
    """Without a collection of garbage, which may come many blocks later."""
    if screen == "int8":
        pytest.importorskip("onnxruntime")
        use_integers(monkeypatch)
    else:
        monkeypatch.setenv("REID_DIST_SCREEN", screen)
    for name in Problem(0, False).reductions:
        problem = Problem(0, False)
        block = weakref.ref(problem.far)
        gc.disable()
        try:
            problem.run([name], TileShape(5, 64))
            del problem
            assert block() is None, name
        finally:
            gc.enable()


def assert_same_histogram(found, expected):
    """Its values are those of products in float32, whose last bits depend on the rows that are multiplied together."""
    edges = []
    for each in (found, expected):
        near, far = key_edges(np.repeat(each.key, each.count))
        edges.append((near - 1e-5, far + 1e-5))
    # Both ascend, and the values of each pair lie between the edges of both.
    assert len(edges[0][0]) == len(edges[1][0])
    assert (edges[0][0] <= edges[1][1]).all()
    assert (edges[1][0] <= edges[0][1]).all()


@pytest.mark.parametrize("beside", [(), ("counts",)])
@pytest.mark.parametrize("name", ["single-shot", "single-shot of nearer", "groups", "lists", "impostors"])
def test_known_pairs_beside_products_of_integers(name, beside, monkeypatch):
    """All that is nearer than its thresholds may be known pairs, where others are counted among products."""
    pytest.importorskip("onnxruntime")
    use_integers(monkeypatch)
    use_precisions(monkeypatch, lambda n: np.full(n, Precision.INTEGERS))
    monkeypatch.setattr(costs.Costs, "of", lambda _, precision, share: int(precision) + 0.0 * share)
    for seed in range(4):
        problem, shape = Problem(seed, True), TileShape(5, 64)
        found = problem.run([name, *beside], shape)[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REID_DIST_SCREEN", "float32")
            alone = problem.run([name], shape)[name]
        assert content(found) == content(alone), seed
