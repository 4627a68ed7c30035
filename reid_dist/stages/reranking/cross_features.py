"""Mean plain distance of each item of a pair and the other's expanded neighbourhood, as the distance of new features.

With unit rows ``x`` and ``p``, the mean of the unit rows of the items of E, the mean cosine distance is
``1 - (x_q p_g + p_q x_g) / 2``.  That is the cosine distance of the rows ``[x_q, p_q, r_q, 0]`` and
``[p_g, x_g, 0, r_g]``, where ``r`` makes the squared length 2.  So a pair costs one product of rows of twice the length
instead of ``2 (t + t q)`` distances.  Means are summed in float64 in the order of E and rounded to float32 once, which
changes a distance by some 1e-7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.blas import one_blas_thread
from reid_dist.kernels.canonical import squared_norms
from reid_dist.kernels.normalising import unit_rows
from reid_dist.stages.expansion.output import Made, Output, RowWork
from reid_dist.stages.neighbours import NeighbourLists, Resources, Table
from reid_dist.stores import FeatureSet

Int64 = NDArray[np.int64]
Features = NDArray[np.float32]

# Entries of the rows that a task sums.
_SUMMED_ENTRIES = 2**25


def features_of_a_row(dim: int) -> int:
    """Features of a new row."""
    return 2 * dim + 2


def neighbourhoods(table: NDArray[np.integer], rows: NDArray[np.integer], lengths: tuple[int, int]) -> Int64:
    """E of some items, shape (n, t + t q): the t nearest of each, then the q nearest of each of these; -1 for none.

    `table`, shape (n_items, k), holds the lists of all items, each item first in its own; `lengths` are t and q.
    """
    t, q = lengths
    near = table[rows, 1 : 1 + t].astype(np.int64)
    far = np.where(near[:, :, None] >= 0, table[near, 1 : 1 + q], -1)
    places = near.shape[1] + far.shape[1] * far.shape[2]
    return np.concatenate([near, far.reshape(len(near), places - near.shape[1])], axis=1)


def cross_features(own: Features, place: Int64, rows: Features, side: int) -> Features:
    """New features of queries (`side` 0) or gallery items (1), shape (n, 2 dim + 2).

    `own` are their features, and `place`, shape (n, places), their E by position in `rows`, -1 for none.
    """
    n, dim = own.shape
    unit = np.concatenate([unit_rows(rows), np.zeros((1, dim))])
    mean = np.zeros((n, dim))
    for column in place.T:
        mean += unit[column]
    mean /= np.maximum(np.count_nonzero(place >= 0, axis=1), 1)[:, None]
    new = np.zeros((n, features_of_a_row(dim)), np.float32)
    first, second = (unit_rows(own), mean) if side == 0 else (mean, unit_rows(own))
    new[:, :dim], new[:, dim:-2] = first, second
    new[:, 2 * dim + side] = np.sqrt(np.maximum(2.0 - squared_norms(new), 0.0))
    return new


@dataclass(frozen=True)
class _CrossWork(RowWork):
    """New features of one of two sets, whose first row is item `first` of the lists."""

    lists: NeighbourLists
    first: int
    side: int
    lengths: tuple[int, int]


def _cross_task(work: _CrossWork, block: int, _: None) -> None:
    """Compute the new features of a block of rows."""
    rows, items = work.rows(block), work.lists.items
    listed = RowRange(work.first + rows.start, work.first + rows.stop)
    with one_blas_thread():
        places = neighbourhoods(Table.of(work.lists), np.arange(listed.start, listed.stop), work.lengths)
        needed = np.unique(places[places >= 0])
        place = np.where(places >= 0, np.searchsorted(needed, places), -1)
        own = items.read(listed).features
        gathered = items.read_rows(needed) if len(needed) else own[:0]
        new = cross_features(own, place, gathered, work.side)
    work.stage.write(work.part(block), {"features": new})


def cross_sets(
    recipe: Made, lists: NeighbourLists, lengths: tuple[int, int], where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Make the new features of the query and the gallery set that the items of the lists are; `lengths` are t and q."""
    made, (query, gallery) = [], lists.items.sets
    n_places = lengths[0] * (1 + lengths[1])
    block_rows = max(64, _SUMMED_ENTRIES // (n_places * query.dim))
    for side, features in enumerate((query, gallery)):
        output = Output(features, (query, gallery), recipe, where, side)
        more = (lists, side * query.n_rows, side, lengths)
        found = output.ready()
        dim = features_of_a_row(features.dim)
        made.append(found or output.made("crossed", _CrossWork, more, block_rows, _cross_task, dim=dim))
    return made[0], made[1]
