"""Definitions of pooling methods: reductions of several rows to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.registry import Registry

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Pooling:
    """Pooling method: an elementwise reduction of rows.

    Attributes
    ----------
    name, summary, source
        Texts for lists of methods.
    start
        Initial value of every element of an accumulator.
    join
        Combines accumulators and rows, both (n, dim) float64, into accumulators, element by element.
    finish
        Converts accumulators, (n, dim) float64, and sums of weights, (n, 1) float64, into pooled rows.
    weighs
        Whether rows may have weights, by which they are multiplied; without any, each has the weight 1.
    """

    name: str
    summary: str
    source: str
    start: float
    join: Callable[[Float64, Float64], Float64]
    finish: Callable[[Float64, Float64], Float64]
    weighs: bool = False


POOLINGS: Registry[Pooling] = Registry("pooling method")

POOLINGS.register(
    Pooling(
        "mean",
        "arithmetic mean of the rows of a group",
        "Zheng et al., ECCV 2016 (MARS); multi-query of Zheng et al., ICCV 2015 (Market-1501)",
        start=0.0,
        join=lambda sums, rows: sums + rows,
        finish=lambda sums, weight: sums / weight,
        weighs=True,
    )
)
POOLINGS.register(
    Pooling(
        "max",
        "largest value of each dimension over the rows of a group",
        "Zheng et al., ECCV 2016 (MARS)",
        start=-np.inf,
        join=lambda largest, rows: np.maximum(largest, rows),
        # The maximum of +0 and -0 depends on the processor; adding zero gives +0.
        finish=lambda largest, _: largest + 0.0,
    )
)
