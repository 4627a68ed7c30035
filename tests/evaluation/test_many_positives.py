"""Few identities with many images each: many thresholds a query, in whose bands much of the gallery lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreement import assert_agrees, evaluate_items
from oracles import evaluation
from support.reference import ItemSet

from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.reductions.costs import Precision
from reid_dist.engine.reductions.tile_products import TileView


def features(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    normal = rng.standard_normal((n, 48))
    if kind == "two heaps":
        # Whole numbers: their sums are exact in any order, in float64.
        normal = rng.choice([-1.0, 1.0], (n, 1)) * (4096 + rng.integers(0, 3, (n, 48)))
    if kind == "duplicates":
        normal = normal[rng.integers(0, min(n, 60), n)]
    if kind == "constant rows":
        normal = np.ones((n, 48)) * rng.integers(1, 40, (n, 1))
    return normal.astype(np.float32)


def sets(kind: str, seed: int) -> tuple[ItemSet, ItemSet]:
    rng = np.random.default_rng(seed)
    # Three large identities and many small ones: queries of one tile have few thresholds or hundreds.
    pids = np.concatenate([np.repeat([1, 2, 3], 250), rng.integers(4, 200, 300)])
    gallery = ItemSet(features(kind, rng, len(pids)), pids, rng.integers(0, 5, len(pids)))
    chosen = np.concatenate([rng.integers(1, 4, 8), rng.choice(pids[750:], 4)])
    return ItemSet(features(kind, rng, 12), chosen, rng.integers(0, 5, 12)), gallery


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("distance", DISTANCES.names())
@pytest.mark.parametrize("kind", ["random", "two heaps", "duplicates", "constant rows"])
def test_results_are_those_of_the_definition(kind: str, distance: str) -> None:
    query, gallery = sets(kind, 11)
    reports = [evaluate_items(query, gallery, "market1501", distance, chunk_rows=rows) for rows in (None, 5, 333)]
    assert len({report.result_digest for report in reports}) == 1
    assert_agrees(reports[0], evaluation.evaluate(query, gallery, "market1501", distance))


def test_crowded_tiles_are_computed_in_float64_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    original = TileView.read

    def noted(self: TileView, precision: Precision, *needed: Any):
        read.append(precision)
        return original(self, precision, *needed)

    monkeypatch.setattr(TileView, "read", noted)
    query, gallery = sets("two heaps", 12)
    large = query.take(range(8))
    evaluate_items(large, gallery)
    assert set(read) == {Precision.WIDE}
    read.clear()
    evaluate_items(*sets("random", 12))
    assert set(read) == {Precision.PLAIN}
