"""Weighted sums of listed items, whose features are read piece by piece."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import cut_rows
from reid_dist.kernels.averaging import add_rows
from reid_dist.stages.expansion.plan import GATHERED_BYTES
from reid_dist.stages.neighbours import Items

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def entries_of(index: Int64, weight: Float64) -> tuple[Int64, Int64, Float64]:
    """Entries of lists, shape (n, k), in order: position of the list, item and weight, (m,) each."""
    owner, place = np.nonzero(index >= 0)
    return owner, index[owner, place], weight[owner, place]


def add_listed(total: Float64, owner: Int64, item: Int64, weight: Float64, items: Items, unit: bool) -> None:
    """Add weighted items to the rows of `total`, shape (n, dim), in order; arguments as of `entries_of`."""
    for cut in cut_rows(len(item), max(1, GATHERED_BYTES // (4 * items.dim))):
        piece = slice(cut.start, cut.stop)
        needed, place = np.unique(item[piece], return_inverse=True)
        add_rows(total, owner[piece], place, weight[piece], items.read_unverified(needed), unit)
