"""Mean, spread and interval of one value from each of several repetitions: splits, models, parts of a benchmark.

The spread is the sample standard deviation (ddof 1).  The interval of the mean is that of Student's t ::

    mean -+ t((1 + level) / 2, n - 1) * spread / sqrt(n)

It takes the repetitions for independent and their values for roughly normal.  A bootstrap of so few values would be too
narrow (see :data:`reid_dist.metrics.confidence.FEW_UNITS`).  Repetitions that share training or test images are not
independent, and their interval is too narrow as well.

Sources: Student, Biometrika 1908; Abramowitz and Stegun 26.7.3 and 26.7.4 (t); Nadeau and Bengio, Machine Learning 2003
(repetitions that share data).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from reid_dist.metrics.confidence import Interval


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation, from exact sums; NaN where a value, or a second one, is missing."""
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan


def mean_interval(values: Sequence[float], level: float) -> Interval:
    """Student's t interval of the mean; not known where a value, or a second one, is missing."""
    mean, spread = mean_and_spread(values)
    if math.isnan(spread):
        return Interval(math.nan, math.nan)
    half = t_quantile((1 + level) / 2, len(values) - 1) * spread / math.sqrt(len(values))
    return Interval(mean - half, mean + half)


# Gates of many nights need the quantiles of few levels, again and again.
@lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t, for a probability of at least 0.5 and below 1, and whole degrees of freedom."""
    # In terms of the angle, t = sqrt(degrees) tan(angle), the range is finite, and bisection needs no first guess.
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        if _central_probability(middle, degrees) < 2 * probability - 1:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _central_probability(angle: float, degrees: int) -> float:
    """P(-t < T < t) for t = sqrt(degrees) tan(angle): a finite sum for whole degrees of freedom."""
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees == 1:
        return 2 * angle / math.pi
    if degrees % 2:
        term = total = cosine
        for j in range(3, degrees - 1, 2):
            term *= cosine**2 * (j - 1) / j
            total += term
        return 2 / math.pi * (angle + sine * total)
    term = total = 1.0
    for j in range(2, degrees - 1, 2):
        term *= cosine**2 * (j - 1) / j
        total += term
    return sine * total
