"""A tile screened again in float64, where too much of it lies within the error of a float32 product."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.distances import Distance, Screen
from reid_dist.model import RowRange
from reid_dist.reductions.base import FeatureBlock

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


def screen_again(
    distance: Distance, query: FeatureBlock, gallery: FeatureBlock, queries: RowRange, columns: slice
) -> WideTile:
    """Compute a tile by a product in float64, whose bands are some 2^29 times narrower.

    Parameters
    ----------
    distance
        The distance.
    query, gallery
        The blocks that the tile belongs to.
    queries, columns
        Where it lies in them.
    """
    near, far = query.features[queries.start : queries.stop], gallery.features[columns]
    norms = query.norm[queries.start : queries.stop], gallery.norm[columns]
    screen = distance.screen(near, far, *norms, np.float64)
    matrix, bias = screen.gallery_tile(0, len(far), np.empty(far.shape, np.float64))
    values: NDArray[np.floating] = np.empty((len(near), len(far)), np.float64)
    screen.multiply(RowRange(0, len(near)), matrix, values)
    return WideTile(screen, values, bias)
