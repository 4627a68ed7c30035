"""The ways to make one row of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.registry import Registry

__all__ = ["POOLINGS", "Pooling"]

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Pooling:
    """One way to make one row of several.

    Attributes
    ----------
    name, summary, source
        For lists.
    start
        What an accumulator holds before the first row.
    join
        Takes accumulators and rows, both (n, dim) float64, to accumulators, element by element.
    finish
        Takes accumulators, (n, dim) float64, and numbers of rows, (n, 1) float64, to pooled rows.
    """

    name: str
    summary: str
    source: str
    start: float
    join: Callable[[Float64, Float64], Float64]
    finish: Callable[[Float64, Float64], Float64]


POOLINGS: Registry[Pooling] = Registry("pooling method")

POOLINGS.register(
    Pooling(
        "mean",
        "arithmetic mean of the rows of a group",
        "Zheng et al., ECCV 2016 (MARS); multi-query of Zheng et al., ICCV 2015 (Market-1501)",
        start=0.0,
        join=lambda sums, rows: sums + rows,
        finish=lambda sums, counts: sums / counts,
    )
)
POOLINGS.register(
    Pooling(
        "max",
        "largest value of each dimension over the rows of a group",
        "Zheng et al., ECCV 2016 (MARS)",
        start=-np.inf,
        join=lambda largest, rows: np.maximum(largest, rows),
        # Which of two zeros is the larger one depends on the processor; adding zero leaves +0.
        finish=lambda largest, counts: largest + 0.0,
    )
)
