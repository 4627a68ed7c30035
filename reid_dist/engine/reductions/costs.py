"""Costs of the products of a tile, and of what they leave open: the policy by which precisions are chosen.

Costs are nanoseconds of one thread of a Zen 5 with products of BLAS and ONNX Runtime; their ratios alone matter, and
are alike on processors with instructions for products of integers.  They are constants, so that a block pair takes the
same path on every machine that has these products.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.policy import Policy

S = TypeVar("S", float, NDArray[np.float64])


class Precision(IntEnum):
    """Precision of products, from the cheapest to the one that decides most pairs."""

    # Queries whose pairs are not read.
    NOTHING = 0
    # No products: known pairs alone, where no other can matter.
    KNOWN = 1
    INTEGERS = 2
    PLAIN = 3
    WIDE = 4


# Of a pair of a tile, and of a pair that is looked at singly: a constant, and a number per element of the rows.
_PER_PAIR = {Precision.INTEGERS: (0.6, 0.003), Precision.PLAIN: (1.0, 0.0155), Precision.WIDE: (2.0, 0.031)}
_PER_OPEN = {Precision.INTEGERS: (25.0, 0.08), Precision.PLAIN: (40.0, 0.15), Precision.WIDE: (40.0, 0.15)}
# Listing an entry, besides.
_PER_ENTRY = 30.0

# Elements of the rows that an item is compared with, per row of its list, with which integers pay for lists.
_ELEMENTS_PER_NEIGHBOUR = 49152
# Share of what integers save that lists may spend, and entries of lists without bounds that are spent in any case.
_SPENT, _MOST_BEGUN, _LEAST_ENTRIES = 0.5, 12, 1 << 14


def _at(cost: tuple[float, float], dim: int) -> float:
    return cost[0] + cost[1] * dim


def cost_of(precision: Precision, dim: int, share: S) -> S:
    """Cost of a pair of rows of `dim` elements where a share of the pairs is left open."""
    return _at(_PER_PAIR[precision], dim) + _at(_PER_OPEN[precision], dim) * share


def pay_for_lists(n_others: float, dim: int, k: int, policy: Policy) -> bool:
    """Whether integers pay for lists of `k` of so many other items, or are forced."""
    return n_others * dim >= _ELEMENTS_PER_NEIGHBOUR * k or policy.forced == "int8"


class ListWork:
    """Whether integers still pay for lists: they do unless too many values are refined, or are forced.

    `n_begun` is the number of entries of the lists that begin without bounds.
    """

    def __init__(self, dim: int, n_begun: int, policy: Policy) -> None:
        self._is_forced = policy.forced == "int8"
        self._saved = _SPENT * (_at(_PER_PAIR[Precision.PLAIN], dim) - _at(_PER_PAIR[Precision.INTEGERS], dim))
        self._entry = _at(_PER_OPEN[Precision.INTEGERS], dim) + _PER_ENTRY
        self._left = self._entry * (_LEAST_ENTRIES + _MOST_BEGUN * n_begun)

    def exceeds(self, n_refined: int, n_pairs: int) -> bool:
        """Add values that were refined, and pairs that were compared; whether products of float32 are faster."""
        self._left += self._saved * n_pairs - self._entry * n_refined
        return self._left < 0 and not self._is_forced
