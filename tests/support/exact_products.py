"""Products of eight-bit integers on any machine, and precisions of one's own choice for the queries of a block pair."""

from __future__ import annotations

from functools import cache

import numpy as np

from reid_dist.core.environment import SCREEN_VARIABLE
from reid_dist.engine import policy
from reid_dist.engine.distances import integers, quantised
from reid_dist.engine.reductions import costs
from reid_dist.engine.reductions.bands import PlacingTiles
from reid_dist.engine.reductions.tile_products import Precision


class InFloat64:
    """Products by float64, of which all integers below 2^53 are exact."""

    def multiply(self, left, right, out):
        out[:] = left.astype(np.float64) @ right.astype(np.float64)


@cache
def _product():
    """The library's product, or one in float64 where that is not exact on this machine."""
    product = integers.OnnxProduct()
    return product if integers._is_exact(product) else InFloat64()


def use_integers(monkeypatch):
    """Force products of integers for all jobs that this process defines, and let any machine have exact ones."""
    monkeypatch.setenv(SCREEN_VARIABLE, "int8")
    monkeypatch.setattr(policy, "exact_product", lambda name: _product())


def free_integers(monkeypatch):
    """A policy that forces nothing, with which blocks of any size may be read as integers."""
    monkeypatch.setattr(policy, "exact_product", lambda name: _product())
    monkeypatch.setattr(quantised, "lacks_integers", lambda: False)
    for name in ("_LEAST_QUERIES", "_LEAST_ROWS"):
        monkeypatch.setattr(quantised, name, 0)
    monkeypatch.setattr(costs, "_ELEMENTS_PER_NEIGHBOUR", 0)
    return policy.UNFORCED


def use_precisions(monkeypatch, choose):
    """Let ``choose(n)`` give the first precision of each query that has thresholds, where products are computed."""
    estimated = PlacingTiles.precisions.fget

    def chosen(thresholds):
        found, pair = estimated(thresholds), thresholds._pair
        wanted = np.asarray(choose(len(found)), np.uint8)
        if not pair.has_integers:
            wanted = np.maximum(wanted, Precision.PLAIN)
        if pair.screen().exact:
            wanted = np.minimum(wanted, Precision.PLAIN)
        return np.where(found == Precision.NOTHING, found, wanted).astype(np.uint8)

    monkeypatch.setattr(PlacingTiles, "precisions", property(chosen))


def begin_with_integers(monkeypatch):
    """Read every query as integers first, where there are any."""
    use_integers(monkeypatch)
    use_precisions(monkeypatch, lambda n: np.full(n, Precision.INTEGERS))
