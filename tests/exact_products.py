"""Products of eight-bit integers of any range on any machine."""

from __future__ import annotations

from functools import cache

import numpy as np

from reid_dist.engine.distances import integers


class _InFloat64:
    """Products by float64, of which all integers below 2^53 are exact."""

    def __init__(self, largest):
        self.largest = largest

    def multiply(self, left, right, out):
        out[:] = left.astype(np.float64) @ right.astype(np.float64)


@cache
def product_of(largest):
    """The library's product for integers of a range, or one in float64 where that is not exact on this machine."""
    product = integers.IntegerProduct(largest)
    return product if integers._is_exact(product) else _InFloat64(largest)


def use_products_of(monkeypatch, largest):
    """Force products of integers of a range, for all blocks, however small."""
    monkeypatch.setenv(integers.VARIABLE, "int8")
    monkeypatch.setattr(integers, "_exact_product", lambda: product_of(largest))
