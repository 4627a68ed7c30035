"""Queries for which the pairs that share neighbours are all that counts need no product of features."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist.core.model import GalleryMask, Hidden, Targets
from reid_dist.engine.distances import DISTANCES, Screen
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.costs import Precision
from reid_dist.engine.reductions.counts import CountNearer
from reid_dist.engine.reductions.tile_products import BlockPair
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.canonical import Rescoring, pair_distances, squared_norms

N_QUERY, N_GALLERY = 6, 9


def make_blocks(weight: float) -> tuple[FeatureBlock, FeatureBlock]:
    """Queries and gallery rows of which each query shares neighbours with the first row alone."""
    rng = np.random.default_rng(3)
    features = [rng.standard_normal((n, 8)).astype(np.float32) for n in (N_QUERY, N_GALLERY)]
    known = Rescoring(
        True,
        weight,
        False,
        np.ones(N_QUERY),
        np.arange(N_QUERY + 1),
        np.zeros(N_QUERY, np.int64),
        np.full(N_QUERY, 0.25),
    )
    query, gallery = (FeatureBlock(np.arange(len(rows)), rows, squared_norms(rows)) for rows in features)
    return FeatureBlock(query.numbers, query.features, query.norm, 0, known), gallery


def count(query: FeatureBlock, gallery: FeatureBlock, thresholds: np.ndarray) -> tuple[list[int], list[int]]:
    """First precisions of the queries, and the gallery rows nearer than a threshold of each."""
    cosine, none = DISTANCES.get("cosine"), np.empty(0, np.int64)
    hidden = Hidden(np.zeros(N_QUERY + 1, np.int64), none, None, False)
    each = np.arange(N_QUERY + 1)
    targets = Targets(each, thresholds, each, np.full(N_QUERY, N_GALLERY), hidden)
    reduction = CountNearer(targets, GalleryMask(np.zeros(N_GALLERY, bool), None))
    tile = TileShape(4, 4)
    precisions = reduction.start(BlockPair(query, gallery, cosine, tile)).precisions
    (found,) = run_tiles(query, gallery, cosine, tile, [reduction])
    return precisions.tolist(), found[0][::3].tolist()


def nearer(query: FeatureBlock, gallery: FeatureBlock, thresholds: np.ndarray) -> list[int]:
    """The same, by comparing all distances."""
    i, j = np.divmod(np.arange(N_QUERY * N_GALLERY), N_GALLERY)
    exact = pair_distances(pair_rows(DISTANCES.get("cosine"), query, gallery), i, j).reshape(N_QUERY, N_GALLERY)
    return (exact < thresholds[:, None]).sum(axis=1).tolist()


def test_only_queries_that_look_beyond_known_pairs_are_multiplied() -> None:
    query, gallery = make_blocks(0.3)
    # Whoever shares nothing is at 1 - weight at least: the first and the fourth query look that far.
    thresholds = np.array([0.71, 0.69, 0.25, 0.7, 0.0, 0.699])
    precisions, found = count(query, gallery, thresholds)
    spared = [each == Precision.KNOWN for each in precisions]
    assert spared == [False, True, True, False, True, True]
    assert found == nearer(query, gallery, thresholds)


def test_tiles_without_use_are_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    query, gallery = make_blocks(0.3)
    near, far = np.full(N_QUERY, 0.5), np.full(N_QUERY, 0.9)
    expected = nearer(query, gallery, near)
    computed = Screen.multiply
    shapes = []

    def multiply(self: Screen, queries: np.ndarray, matrix: np.ndarray, out: np.ndarray) -> None:
        shapes.append(out.shape)
        computed(self, queries, matrix, out)

    monkeypatch.setattr(Screen, "multiply", multiply)
    # A sample of rows is multiplied to choose the precision, and no tile is.
    sample = (N_QUERY, N_GALLERY)
    assert count(query, gallery, near)[1] == expected
    assert set(shapes) <= {sample}
    assert count(query, gallery, far)[1] == nearer(query, gallery, far)
    assert not set(shapes) <= {sample}
