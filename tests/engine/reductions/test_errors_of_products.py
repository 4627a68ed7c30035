"""Values of every precision lie within their bounds of canonical distances, for rows that are hard to quantise."""

from __future__ import annotations

import numpy as np
import pytest
from support.exact_products import use_integers
from support.row_blocks import block_of, canonical_matrix

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import DISTANCES
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
