"""Values of every precision lie within their bounds of canonical distances, for rows that are hard to quantise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.exact_products import use_integers
from support.row_blocks import block_of, canonical_matrix

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.distances.quantised import IntegerRows
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.backends import Pairs
from reid_dist.engine.reductions.costs import Precision
from reid_dist.engine.reductions.tile_products import BlockPair

pytest.importorskip("onnxruntime")

HARD = {
    "noise": lambda rng, shape: rng.normal(size=shape),
    "constant": lambda rng, shape: np.ones(shape),
    "signs": lambda rng, shape: np.sign(rng.normal(size=shape)),
    "one huge element": lambda rng, shape: np.where(np.arange(shape[1]) == 0, 1e8, rng.normal(size=shape)),
    "of all lengths": lambda rng, shape: rng.normal(size=shape) * 10.0 ** rng.integers(-18, 15, (shape[0], 1)),
    "of all sizes": lambda rng, shape: 10.0 ** rng.uniform(-30, 15, shape),
    "near one row": lambda rng, shape: 1.0 + 1e-6 * rng.normal(size=shape),
    "far from zero": lambda rng, shape: rng.normal(size=shape) + 1e4 * rng.normal(size=shape[1]),
    # Residuals of nearly half a step, of one sign.
    "between integers": lambda rng, shape: np.where(
        np.arange(shape[1]) == 0, 127.0, rng.integers(1, 9, shape) + 0.4999
    ),
    # About the size from which rows are their own residuals.
    "tiny": lambda rng, shape: rng.choice([0.99, 1.01], shape) * 1e-15,
    "longest": lambda rng, shape: np.full(shape, 9.9e17 / np.sqrt(shape[1])) * rng.choice([-1, 1], shape),
}


@pytest.mark.parametrize("distance", ["cosine", "sqeuclidean"])
@pytest.mark.parametrize("dim", [1, 3, 64, pytest.param(8000, marks=pytest.mark.slow)])
def test_values_lie_within_their_bounds(dim: int, distance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_integers(monkeypatch)
    rng, measure = np.random.default_rng(dim), DISTANCES.get(distance)
    kinds = list(HARD)
    for near in kinds:
        for far in (near, kinds[(kinds.index(near) + 1) % len(kinds)], "noise"):
            rows = [HARD[kind](rng, (n, dim)).astype(np.float32) for kind, n in ((near, 7), (far, 30))]
            rows[1][:7] = rows[0]
            query, gallery = map(block_of, rows)
            pair = BlockPair(query, gallery, measure, TileShape(7, 30), Policy("int8"))
            exact = canonical_matrix(query, gallery, measure)
            for precision in (Precision.INTEGERS, Precision.PLAIN, Precision.WIDE):
                backend = pair.backend(precision)
                tile, screen = backend.tile(Pairs(np.arange(7), RowRange(0, 30))), backend.screen
                value = (tile.products - tile.shift).astype(tile.scale.dtype) * (tile.scale * tile.factor[:, None])
                off = (value - tile.bias[tile.bias_of]) - (screen.centre[:, None] - screen.slope * exact)
                limit = screen.epsilon + tile.extra.astype(np.float64)
                assert (np.abs(off) <= limit[:, None]).all(), (near, far, precision)


def _refined(near: IntegerRows, far: IntegerRows) -> np.ndarray:
    """Refined values of all pairs by their definition, in float64."""
    (own, left), (other, right) = (np.hsplit(each.both.astype(np.float64), 2) for each in (near, far))
    scale = np.outer(near.scale.astype(np.float64), far.scale.astype(np.float64))
    return scale * (own @ other.T + (own @ right.T + left @ other.T) / 254.0)


@pytest.mark.parametrize("dim", [64, 700])
def test_refined_values_lie_within_their_bounds(dim: int) -> None:
    product = Policy("int8").integer_product()
    assert product is not None
    rng = np.random.default_rng(dim)
    rows = {kind: make(rng, (7, dim)) for kind, make in HARD.items() if kind not in ("longest", "of all sizes")}
    # Exact in eight bits, beside rows whose residuals are half a step from eight bits, all on one side.
    rows |= {"exact": np.ones((7, dim)), "half steps": 3.0 + (rng.integers(-90, 90, (7, dim)) + 0.499) / 254.0}
    rows["half steps"][:, 0] = 127.0
    made = {kind: IntegerRows(each.astype(np.float32), product) for kind, each in rows.items()}
    exact = {kind: each.astype(np.float32).astype(np.float64) for kind, each in rows.items()}
    every = np.arange(7)
    for near, far in itertools.product(made, repeat=2):
        off = np.abs(exact[near] @ exact[far].T - _refined(made[near], made[far]))
        assert (off <= made[near].refined_error(every, made[far], 0.0)[:, None]).all(), (near, far)
    # Bounds that are twice as wide would be of no use.
    tight = np.abs(exact["exact"] @ exact["half steps"].T - _refined(made["exact"], made["half steps"]))
    assert tight.max() >= 0.5 * made["exact"].refined_error(every, made["half steps"], 0.0).max()
