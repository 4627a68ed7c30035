"""Few identities with many images each: many thresholds a query, in whose bands much of the gallery lies."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import assert_agrees, evaluate_items
from oracles import evaluation
from reference import ItemSet

from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.reductions import Precision, Products, Tile


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
    computed = []
    multiplied = Products.tile

    def noted(self: Products, *place):
        computed.append(self.screen.dtype)
        return multiplied(self, *place)

    monkeypatch.setattr(Products, "tile", noted)
    query, gallery = sets("two heaps", 12)
    large = query.take(range(8))
    evaluate_items(large, gallery)
    assert set(computed) == {np.dtype(np.float64)}
    computed.clear()
    evaluate_items(*sets("random", 12))
    assert set(computed) == {np.dtype(np.float32)}


def test_products_are_computed_in_parts_where_some_pairs_are_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    original = Tile.read

    def noted(self: Tile, precision: Precision):
        read.append(precision)
        return original(self, precision)

    monkeypatch.setattr(Tile, "read", noted)
    rng = np.random.default_rng(15)
    pids = rng.integers(0, 6, 1500)
    gallery = ItemSet(rng.standard_normal((1500, 400)).astype(np.float32), pids, rng.integers(0, 5, 1500))
    query = ItemSet(rng.standard_normal((9, 400)).astype(np.float32), pids[:9], rng.integers(0, 5, 9))
    report = evaluate_items(query, gallery)
    assert set(read) == {Precision.IN_PARTS}
    assert_agrees(report, evaluation.evaluate(query, gallery, "market1501", "cosine"))
    # Neighbours are read from plain products, beside which those in parts are not worth their time.
    read.clear()
    assert evaluate_items(query, gallery, topk=3).result_digest == report.result_digest
    assert set(read) == {Precision.PLAIN}
