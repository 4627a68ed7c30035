"""A tile screened again in float64, where too much of it lies within the error of a float32 product."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.distances import Distance, Screen
from reid_dist.kernels.canonical import PairRows
from reid_dist.model import RowRange
from reid_dist.reductions.base import cut_pairs
from reid_dist.reductions.screens import screen_pairs

__all__ = ["WideTile", "screen_again"]


class WideTile(NamedTuple):
    """A tile in float64.

    Attributes
    ----------
    screen
        Of the queries and gallery rows of the tile alone.
    values
        Screening values, shape (n_query, n_column), float64.
    bias
        Shape (n_column,), float64.
    """

    screen: Screen
    values: NDArray[np.floating]
    bias: NDArray[np.floating]


def screen_again(distance: Distance, whole: PairRows, queries: RowRange, columns: slice) -> WideTile:
    """Compute a tile by a product in float64, whose bands are some 2^29 times narrower.

    Parameters
    ----------
    distance
        The distance.
    whole
        The blocks that the tile belongs to.
    queries, columns
        Where it lies in them.
    """
    pairs = cut_pairs(whole, queries, columns)
    screen = screen_pairs(distance, pairs, np.float64)
    matrix, bias = screen.gallery_tile(0, len(pairs.gallery), np.empty(pairs.gallery.shape, np.float64))
    values: NDArray[np.floating] = np.empty((len(pairs.query), len(pairs.gallery)), np.float64)
    every = RowRange(0, len(pairs.query))
    screen.multiply(every, matrix, values)
    screen.correct(every, 0, bias, values)
    return WideTile(screen, values, bias)
