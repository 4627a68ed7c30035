"""Places of the values of a tile row among the thresholds of its query.

A value that passes a threshold and not the one before it is placed there.  Values inside bands are *open*: they are
decided later, together with those of other rows and tiles (`reid_dist.kernels.deciding`).  Values of integers that lie
inside a band are refined, and compared once more, before they are open.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import Pending, make_pending, place_among
from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.compiled import inlined_kernel, inner_kernel, kernel
from reid_dist.kernels.deciding import Bands, OpenPairs, place_before
from reid_dist.kernels.prefetch import request_integers
from reid_dist.kernels.tiles import AHEAD, Marks, Tile, make_marks, mark_outside, marked_places, read_row, refined

# Up to so many values that reach the farthest threshold, all are refined.
FEW_REFINED = 64


class Row(NamedTuple):
    """Memory for one row of a tile, reused from row to row."""

    # Screening values, less what a column is spared, shape (columns,), and marks of some of them.
    values: NDArray[np.floating]
    marks: Marks
    # Biases, and what columns are spared, shape (kinds, columns), in the type of the values.
    less: NDArray[np.floating]
    # Edges of the thresholds as the values are compared with them, shape (most,), in the type of the values.
    lower: NDArray[np.floating]
    upper: NDArray[np.floating]
    # Values to be placed; then columns that are placed, and the thresholds that they are placed at.
    pending: Pending
    # Columns and values of pairs that products do not hold.
    known: NDArray[np.int64]
    known_value: NDArray[np.floating]


class PlacedPairs(NamedTuple):
    """Pairs that come before some threshold, by query; queries may repeat."""

    # Query of each row of pairs, shape (n_row,), int64.
    query: NDArray[np.int64]
    # Pairs of row ``i`` are ``start[i]:start[i + 1]``, shape (n_row + 1,), int64.
    start: NDArray[np.int64]
    # Numbers of their columns, and places, which begin with 0 in every query; int32.
    number: NDArray[np.int32]
    place: NDArray[np.int32]


@inner_kernel
def make_row(tile: Tile, bands: Bands) -> Row:
    """Allocate memory for the rows of a tile."""
    like, n_columns, most = tile.scale, tile.products.shape[1], 0
    for i in range(len(tile.query)):
        most = max(most, bands.indptr[tile.query[i] + 1] - bands.indptr[tile.query[i]])
    return Row(
        np.empty(n_columns, like.dtype),
        make_marks(n_columns),
        tile.bias + tile.spared,
        np.empty(most, like.dtype),
        np.empty(most, like.dtype),
        make_pending(n_columns, like),
        np.empty(n_columns + 1, np.int64),
        np.empty(n_columns + 1, like.dtype),
    )


@inlined_kernel
def hide_columns(
    q: int, indptr: NDArray[np.int64], column: NDArray[np.int64], start: int, values: NDArray[np.floating]
) -> None:
    """Set the values of columns that are hidden from a query, and listed by query, to minus infinity.

    `values` are those of the columns from `start` on.
    """
    stop = indptr[q + 1]
    hidden = first_at_least(column, indptr[q], stop, start)
    while hidden < stop and column[hidden] < start + len(values):
        values[column[hidden] - start] = -np.inf
        hidden += 1


@inlined_kernel
def take_known(
    tile: Tile, q: int, values: NDArray[np.floating], columns: NDArray[np.int64], known: NDArray[np.floating]
) -> int:
    """Move the visible known pairs of a query from the values to `columns` and `known`; return their number."""
    stop = tile.known_indptr[q + 1]
    place = first_at_least(tile.known_column, tile.known_indptr[q], stop, tile.column_start + tile.first_known)
    n = 0
    while place < stop:
        column = tile.known_column[place] - tile.first_known - tile.column_start
        if column >= len(values):
            break
        # Hidden columns hold minus infinity.
        columns[n], known[n] = column, tile.known[place]
        n += int(values[column] > -np.inf)
        values[column] = -np.inf
        place += 1
    return n


@inlined_kernel
def mark_reaching(values: NDArray[np.floating], lowest: np.floating, row: Row) -> int:
    """Find the columns whose values reach the farthest threshold, in ``row.marks.places``; return their number."""
    mark_outside(values, lowest, lowest + np.float32(np.nan), row.marks)
    return marked_places(row.marks)


@inlined_kernel
def note_marked(values: NDArray[np.floating], n: int, row: Row) -> None:
    """Note the values of the first `n` marked columns as pending."""
    pending = row.pending
    for p in range(n):
        column = row.marks.places[p]
        pending.column[p], pending.place[p], pending.value[p] = column, 0, values[column]


@inlined_kernel
def settle_row(
    tile: Tile,
    i: int,
    n_pending: int,
    n_known: int,
    are_open: bool,
    limit: int,
    row: Row,
    wide_lower: NDArray[np.floating],
    wide_upper: NDArray[np.floating],
    bands: Bands,
    last: int,
    pairs: OpenPairs,
    n: int,
) -> tuple[int, int, int]:
    """Place the pending values of a row, which were compared with the wide edges, among the thresholds up to `last`.

    Adds its open pairs to the `n` before them.  Returns the number of values that passed a threshold, or -1 if more
    than `limit` values were inside bands; the number of open pairs; and that of the values inside bands.  `row.pending`
    then holds the columns of the former, and their thresholds, numbered within the query.  With `are_open`, the pending
    values are those of marked columns, which are taken to be inside bands without a comparison.
    """
    q = tile.query[i]
    first = bands.indptr[q]
    lower, upper = bands.lower[first:last], bands.upper[first:last]
    are_floats = tile.products.dtype == row.values.dtype
    columns, places, values = row.pending.column, row.pending.place, row.pending.value
    column_start, within = tile.column_start, row.marks.places
    less, spared, near, far, fine = tile.bias[tile.bias_of[i]], tile.spared, tile.near, tile.far, tile.fine[i]
    products, shift, scale, factor = tile.products[i], tile.shift, tile.scale, tile.factor[i]
    open_query, open_column, open_threshold = pairs.query, pairs.column, pairs.place
    n_settled, inside = 0, n_pending if are_open else 0
    for p in range(0 if are_open else n_pending):
        column, value, a = columns[p], values[p], places[p]
        if a < last - first and wide_lower[a] > value:
            a = place_among(wide_lower, value)
        # The lower end of a value is nearer to it than the upper one by what its column is spared, twice.
        if a == last - first or value + 2 * spared[column] > wide_upper[a]:
            columns[n_settled], places[n_settled] = column, a
            n_settled += int(a < last - first)
            continue
        if are_floats:
            open_query[n + inside], open_column[n + inside] = q, column_start + column
            open_threshold[n + inside] = first + a
        else:
            within[inside] = column
        inside += 1
    if inside > limit:
        return -1, n, inside
    left = inside
    if are_floats:
        n, left = n + inside, 0
    # In a loop of its own, no branch depends on a value: the processor computes several at a time.
    for p in range(left):
        if p + AHEAD < left:
            request_integers(far, within[p + AHEAD])
        column = within[p]
        product = products[column] - shift[column]
        values[p] = refined(product, near, q, far, column, scale[column] * factor) - less[column]
    for p in range(left):
        column = within[p]
        a = place_among(lower, values[p] + fine)
        if a == last - first or values[p] - fine > upper[a]:
            columns[n_settled], places[n_settled] = column, a
            n_settled += int(a < last - first)
            continue
        open_query[n], open_column[n], open_threshold[n] = q, column_start + column, first + a
        n += 1
    for p in range(n_known):
        value = row.known_value[p]
        a = place_among(lower, value)
        if a == last - first or value > upper[a]:
            columns[n_settled], places[n_settled] = row.known[p], a
            n_settled += int(a < last - first)
            continue
        open_query[n], open_column[n], open_threshold[n] = q, column_start + row.known[p], first + a
        n += 1
    return n_settled, n, inside


@inner_kernel
def place_row(
    tile: Tile, i: int, bands: Bands, last: int, limit: int, row: Row, pairs: OpenPairs, n: int
) -> tuple[int, int, int]:
    """Place all values of row `i` of a tile that reach one of the thresholds up to `last`; as `settle_row`."""
    q, extra = tile.query[i], tile.extra[i]
    first, values = bands.indptr[q], row.values
    lowest = bands.lower[last - 1] - extra
    none = lowest + np.float32(np.nan)
    less = row.less[tile.bias_of[i]]
    reached = read_row(tile.products[i], tile.shift, tile.scale, tile.factor[i], less, lowest, none, values)
    if reached == 0 and len(tile.known) == 0:
        return 0, n, 0
    lower, upper = bands.lower[first:last], bands.upper[first:last]
    if extra > 0:
        for u in range(len(lower)):
            row.lower[u], row.upper[u] = lower[u] - extra, upper[u] + extra
        lower, upper = row.lower[: last - first], row.upper[: last - first]
    hide_columns(q, bands.hidden_indptr, bands.hidden_column, tile.column_start, values)
    n_known = take_known(tile, q, values, row.known, row.known_value) if len(tile.known) > 0 else 0
    n_pending = mark_reaching(values, lowest, row)
    # Bands of integers are so wide that most values lie in one.
    are_floats = tile.products.dtype == values.dtype
    are_open = n_pending <= FEW_REFINED and not are_floats
    if not are_open:
        note_marked(values, n_pending, row)
    return settle_row(tile, i, n_pending, n_known, are_open, limit, row, lower, upper, bands, last, pairs, n)


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
