"""Queries for which the pairs that share neighbours are all that counts need no product of features."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import DISTANCES, UnitScreen
from reid_dist.engine.reductions import FeatureBlock, KnownPairs, pair_rows, screen_pairs
from reid_dist.kernels.canonical import squared_norms

N_QUERY, N_GALLERY = 6, 9


def make_blocks(weight: float) -> tuple[FeatureBlock, FeatureBlock]:
    """Queries and gallery rows of which each query shares neighbours with the first row alone."""
    rng = np.random.default_rng(3)
    features = [rng.standard_normal((n, 8)).astype(np.float32) for n in (N_QUERY, N_GALLERY)]
    known = KnownPairs(
        weight, False, np.ones(N_QUERY), np.arange(N_QUERY + 1), np.zeros(N_QUERY, np.int64), np.full(N_QUERY, 0.25)
    )
    query, gallery = (FeatureBlock(np.arange(len(rows)), rows, squared_norms(rows)) for rows in features)
    return FeatureBlock(query.numbers, query.features, query.norm, 0, known), gallery


def screened(query: FeatureBlock, gallery: FeatureBlock, thresholds: np.ndarray | None) -> np.ndarray:
    """The tile of two blocks, when values matter down to the band of a distance of each query."""
    cosine = DISTANCES.get("cosine")
    screen = screen_pairs(cosine, pair_rows(cosine, query, gallery), np.float32)
    if thresholds is not None:
        screen.spare(screen.edges(np.arange(N_QUERY), thresholds, False)[0])
    matrix, bias = screen.gallery_tile(0, N_GALLERY, np.empty((N_GALLERY, 8), screen.dtype))
    values = np.empty((N_QUERY, N_GALLERY), screen.dtype)
    screen.multiply(RowRange(0, N_QUERY), matrix, values)
    screen.correct(RowRange(0, N_QUERY), 0, bias, values)
    return values


def test_only_queries_that_look_beyond_known_pairs_are_multiplied() -> None:
    weight = 0.3
    query, gallery = make_blocks(weight)
    whole = screened(query, gallery, None)
    # Whoever shares nothing is at 1 - weight at least: the first and the fourth query look that far.
    thresholds = np.array([0.71, 0.69, 0.25, 0.7, 0.0, 0.699])
    some = screened(query, gallery, thresholds)
    np.testing.assert_array_equal(some[:, 0], whole[:, 0])
    np.testing.assert_array_equal(np.isneginf(some[:, 1:]).all(axis=1), [False, True, True, False, True, True])
    # Sums of other shapes are rounded in another order.
    np.testing.assert_allclose(some[[0, 3]], whole[[0, 3]], rtol=1e-6, atol=1e-6)


def test_tiles_without_use_are_not_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    query, gallery = make_blocks(0.3)

    def multiply(*_: object) -> None:
        raise AssertionError("a product was made")

    monkeypatch.setattr(UnitScreen, "multiply", multiply)
    assert np.isneginf(screened(query, gallery, np.full(N_QUERY, 0.5))[:, 1:]).all()
    with pytest.raises(AssertionError, match="product"):
        screened(query, gallery, np.full(N_QUERY, 0.9))
