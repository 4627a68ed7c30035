"""Average precision and CMC of random orders: what a ranking that knows nothing scores.

A query has n relevant items among M kept ones, and every order of these is equally likely.  With x_r = 1 for a relevant
item at rank r, n AP is the sum of x_r / r over ranks and of x_i x_r / r over ranks i < r.  The mean of a product of k
different x is p_k = n (n - 1) … (n - k + 1) / (M (M - 1) … (M - k + 1)).  So, with H the sum of 1 / r up to M and H2
that of 1 / r^2, n E[AP] = H p_1 + (M - H) p_2.

The mean of (n AP)^2 is a sum over pairs of such terms, by the number of ranks that occur in both:

* both single: H2 p_1 + (H^2 - H2) p_2;
* one single, one double, counted twice: the single rank is the lower or the upper one of the double,
  (H^2 - H2) / 2 + H - H2 times p_2, or neither, the rest of H (M - H) times p_3;
* both double: the same one, (H - H2) p_2; with one rank in common, T p_3, where T is M - 3 H + 2 H2 for the upper ranks
  and four times M - H - (H^2 - H2) / 2 for all others; the rest of (M - H)^2 times p_4.

CMC@k is 1 less the share of orders without a relevant item among the first k: the product of (M - n - i) / (M - i) for
i < k.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Int64

Float64 = NDArray[np.float64]

# From here on, the asymptotic series are exact to the last bit.
_SUMMED: Final = 1 << 10


class Moments(NamedTuple):
    """Mean and variance of a metric over random orders, of every query, (n_query,) each."""

    mean: Float64
    variance: Float64


def chance_average_precision(n_relevant: Int64, n_kept: Int64) -> Moments:
    """Moments of AP by the rectangle rule over all orders of the kept items, ``1 <= n_relevant <= n_kept``."""
    n, m = n_relevant.astype(np.float64), n_kept.astype(np.float64)
    once, twice = _harmonic(n_kept)
    p1 = n / m
    p2 = p1 * _ratio(n - 1, m - 1)
    p3 = p2 * _ratio(n - 2, m - 2)
    p4 = p3 * _ratio(n - 3, m - 3)
    mean = (once * p1 + (m - once) * p2) / n
    pairs = once**2 - twice
    single = twice * p1 + pairs * p2
    within = pairs / 2 + once - twice
    mixed = within * p2 + (once * (m - once) - within) * p3
    shared = m - 3 * once + 2 * twice + 4 * (m - once - pairs / 2)
    double = (once - twice) * p2 + shared * p3 + ((m - once) ** 2 - (once - twice) - shared) * p4
    return Moments(mean, np.maximum((single + 2 * mixed + double) / n**2 - mean**2, 0.0))


def chance_cmc(n_relevant: Int64, n_kept: Int64, k: int) -> Moments:
    """Moments of CMC@k over all orders of the kept items, ``1 <= n_relevant <= n_kept``."""
    without = np.ones(len(n_kept))
    for i in range(k):
        without *= np.maximum(n_kept - n_relevant - i, 0) / np.maximum(n_kept - i, 1)
    return Moments(1.0 - without, without * (1.0 - without))


def _ratio(above: Float64, below: Float64) -> Float64:
    """Share of the relevant among the items that are left; 0 where none is left."""
    return np.maximum(above, 0.0) / np.maximum(below, 1.0)


def _harmonic(number: Int64) -> tuple[Float64, Float64]:
    """Sums of 1 / r and of 1 / r^2 for r from 1 to each number, (n,) each."""
    r = np.arange(1, _SUMMED + 1, dtype=np.float64)
    table = np.cumsum(1.0 / r), np.cumsum(1.0 / r**2)
    small, x = np.minimum(number, _SUMMED) - 1, 1.0 / np.maximum(number, _SUMMED)
    once = np.euler_gamma - np.log(x) + x / 2 - x**2 / 12 + x**4 / 120
    twice = np.pi**2 / 6 - x + x**2 / 2 - x**3 / 6 + x**5 / 30
    is_small = number <= _SUMMED
    return np.where(is_small, table[0][small], once), np.where(is_small, table[1][small], twice)
