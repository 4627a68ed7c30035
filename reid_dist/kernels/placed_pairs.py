"""Pairs of a tile at their places, one after the other, for reductions that take more of a pair than its place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.deciding import Bands, OpenPairs, place_before
from reid_dist.kernels.placing import make_row, place_row
from reid_dist.kernels.settings import kernel
from reid_dist.kernels.tiles import Tile


class PlacedPairs(NamedTuple):
    """Pairs that come before some threshold, by query; queries may repeat."""

    # Query of each row of pairs, shape (n_row,), int64.
    query: NDArray[np.int64]
    # Pairs of row ``i`` are ``start[i]:start[i + 1]``, shape (n_row + 1,), int64.
    start: NDArray[np.int64]
    # Numbers of their columns, and places, which begin with 0 in every query; int32.
    number: NDArray[np.int32]
    place: NDArray[np.int32]


@kernel
def place_pairs(
    tile: Tile,
    bands: Bands,
    pairs: OpenPairs,
    n_open: int,
    first_row: int,
    limit: int,
    stop: NDArray[np.int64],
    ties: int,
    number_of: NDArray[np.int32],
    placed: PlacedPairs,
) -> tuple[int, int, int, int]:
    """Write the pairs of a tile that values place before some threshold, and add those left open to `pairs`.

    Thresholds of query ``q`` from ``stop[q]`` on are left out, shape (n_query,); `number_of` are the numbers of the
    columns of the tile, shape (columns,).  The kernel ends also before a row whose pairs may find no room in `placed`,
    and returns the number of rows there behind the other results, which are those of
    `reid_dist.kernels.counting.count_tile`, as are the other parameters.
    """
    row, n_column = make_row(tile, bands), tile.products.shape[1]
    column, threshold, positive_start = row.pending.column, row.pending.place, bands.positive_start
    number, place = placed.number, placed.place
    room, room_of_placed = len(pairs.query) - n_column, len(place) - n_column
    inside, at, n_row = int(np.int64(0)), int(np.int64(0)), int(np.int64(0))
    placed.start[0] = 0
    for i in range(first_row, len(tile.query)):
        q = tile.query[i]
        first = bands.indptr[q]
        if first == stop[q]:
            continue
        if n_open > room or at > room_of_placed or n_row == len(placed.query):
            return i, n_open, inside, n_row
        n, n_open, more = place_row(tile, i, bands, stop[q], limit - inside, row, pairs, n_open)
        inside += more
        if n < 0:
            return i, n_open, inside, n_row
        if n == 0:
            continue
        own = place_before(first, positive_start, ties)
        for c in range(n):
            number[at + c] = number_of[column[c]]
            place[at + c] = place_before(first + threshold[c], positive_start, ties) - own
        at += n
        placed.query[n_row] = q
        n_row += 1
        placed.start[n_row] = at
    return len(tile.query), n_open, inside, n_row
