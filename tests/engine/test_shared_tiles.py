"""Reductions that share tiles: each gives what it gives alone, whatever precision the others ask for."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from exact_products import use_integers, use_precisions
from hypothesis import given, settings
from hypothesis import strategies as st
from row_blocks import block_of, canonical_matrix
from sampling import examples

from reid_dist.core.model import GalleryMask, Hidden, Labels
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions import (
    CollectImpostors,
    CountGroups,
    CountImpostors,
    CountNearer,
    FallingScale,
    Identities,
    KeepNearest,
    KnownPairs,
    ListBefore,
    ListedItems,
    Precision,
    SingleShot,
    Visibility,
    bands,
    costs,
    group_targets,
    make_targets,
)
from reid_dist.engine.reductions.costs import OF_INTEGERS
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.impostors import key_edges
from reid_dist.relevance.assignment import GalleryIndex, assign_relevance
from reid_dist.relevance.groups import GroupIndex
from reid_dist.relevance.protocols import PROTOCOLS

MULTIPLIED = (Precision.INTEGERS, Precision.RESIDUALS, Precision.PLAIN, Precision.WIDE)
COSINE = DISTANCES.get("cosine")


class Problem:
    """Queries, a gallery, and reductions of different thresholds."""

    def __init__(self, seed: int, is_reranked: bool) -> None:
        rng = np.random.default_rng(seed)
        n_query, n_gallery, dim = 12, 90, int(rng.choice([3, 40]))
        centres = rng.normal(size=(6, dim))
        pids = [rng.integers(0, 6, n) for n in (n_query, n_gallery)]
        rows = [centres[pid] + rng.choice([0.1, 1.0]) * rng.normal(size=(len(pid), dim)) for pid in pids]
        rows[1][rng.integers(0, n_gallery, 30)] = rows[1][rng.integers(0, n_gallery)]
        near, self.far = block_of(rows[0]), block_of(rows[1])
        if is_reranked:
            # Known pairs are nearer than all others, as where neighbours are shared.
            shares = rng.random((n_query, n_gallery)) < rng.choice([0.05, 0.5])
            indptr, known = np.concatenate([[0], np.cumsum(shares.sum(axis=1))]), rng.integers(1, 9, shares.sum()) / 10
            near = replace(
                near, reranked=KnownPairs(0.3, False, np.full(n_query, 2.0), indptr, np.nonzero(shares)[1], known)
            )
        self.near, self.exact = near, canonical_matrix(near, self.far, COSINE)
        labels = [Labels(pid, rng.integers(0, 3, len(pid)), np.arange(len(pid))) for pid in pids]
        labels[1] = replace(labels[1], columns={"track": rng.integers(0, 25, n_gallery)})
        rules = PROTOCOLS.get("cuhk03")
        index = GalleryIndex(labels[1], rules)
        relevance = assign_relevance(rules, labels[0], index)
        tracks = GroupIndex(labels[1], "track", index.mask)
        members = tracks.with_members(relevance, listed=False)

        def distances(indptr, row):
            return self.exact[np.repeat(np.arange(n_query), np.diff(indptr)), row]

        targets = make_targets(relevance, distances(relevance.relevant_indptr, relevance.relevant_row))
        groups = group_targets(members, distances(*members.listed), first_alone=False)
        # The same positives at a third of their distances: thresholds among other pairs.
        nearer = replace(targets, distance=targets.distance / 3)
        scale = FallingScale(False, 0.3, 1.0, 2.0) if is_reranked else FallingScale(False)
        seen = Visibility(targets.hidden, index.mask, np.ones(n_query, bool), COSINE, scale)
        edges = np.quantile(self.exact, [0.05, 0.1, 0.5, 0.6]).tolist()
        none = Hidden(np.zeros(n_query + 1, np.int64), np.empty(0, np.int64), None, False)
        self.reductions = {
            "counts": CountNearer(targets, index.mask, COSINE),
            "nearer": CountNearer(nearer, index.mask, COSINE),
            "groups": CountGroups(groups, index.mask, COSINE, tracks.groups),
            "single-shot": ListBefore(
                targets, index.mask, COSINE, Identities.make(pids[1], index.mask), SingleShot(5)
            ),
            "single-shot of nearer": ListBefore(
                nearer, index.mask, COSINE, Identities.make(pids[1], index.mask), SingleShot(5)
            ),
            "lists": KeepNearest(4, COSINE, none, GalleryMask(np.arange(n_gallery) % 7 == 0, None)),
            "impostors": CollectImpostors(seen, tuple(edges), 1000),
            "histogram": CountImpostors(seen),
        }  # fmt: skip

    def run(self, names, tile):
        found = run_tiles(
            self.near, self.far, COSINE, tile, [self.reductions[name] for name in names], policy=Policy.in_force()
        )
        return dict(zip(names, found, strict=True))


def content(found):
    """Everything in a partial result, as nested lists; entries of single-shot lists are in no order."""
    if isinstance(found, ListedItems):
        owner = np.repeat(np.arange(len(found.active)), np.diff(found.indptr))
        found = replace(found, entry=found.entry[np.lexsort((found.entry, owner))])
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, dict):
        return {key: content(value) for key, value in found.items()}
    if isinstance(found, tuple | list):
        return [content(each) for each in found]
    slots = getattr(type(found), "__slots__", None)
    return {name: content(getattr(found, name)) for name in slots} if slots else found


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
        mixed = data.draw(st.sampled_from([MULTIPLIED[:1], MULTIPLIED[1:2], MULTIPLIED]))
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
    assert found.error == expected.error
    edges = []
    for each in (found, expected):
        near, far = key_edges(np.repeat(each.counts.key, each.counts.count))
        edges.append((near - each.error, far + each.error))
    # Both ascend, and the values of each pair lie between the edges of both.
    assert len(edges[0][0]) == len(edges[1][0])
    assert (edges[0][0] <= edges[1][1]).all()
    assert (edges[1][0] <= edges[0][1]).all()


@pytest.mark.parametrize("precision", OF_INTEGERS)
@pytest.mark.parametrize("beside", [(), ("counts",)])
@pytest.mark.parametrize("name", ["single-shot", "single-shot of nearer", "groups", "lists", "impostors"])
def test_known_pairs_beside_products_of_integers(name, beside, precision, monkeypatch):
    """All that is nearer than its thresholds may be known pairs, where others are counted among products."""
    pytest.importorskip("onnxruntime")
    use_integers(monkeypatch)
    use_precisions(monkeypatch, lambda n: np.full(n, precision))
    monkeypatch.setattr(costs, "cost_of", lambda precision, dim, share, table=None: int(precision) + 0.0 * share)
    for seed in range(4):
        problem, shape = Problem(seed, True), TileShape(5, 64)
        found = problem.run([name, *beside], shape)[name]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REID_DIST_SCREEN", "float32")
            alone = problem.run([name], shape)[name]
        assert content(found) == content(alone), seed
