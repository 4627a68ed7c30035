r"""Counts of the negatives nearer than each positive, over one tile of products.

Method
------
A rank is a count: one more than the number of kept items before the positive.  Counts add over tiles, so no list of
distances is ever kept or sorted.  The remaining work is to compare every value of a tile with every threshold of its
query (the distance of each relevant item), at the speed at which a matrix product writes them.

*Similarity, not distance.*  Screening values increase as the distance decreases.  Threshold ``u`` of a query has two
edges, ``lower[u] <= upper[u]``: a value above ``upper`` is certainly nearer than the threshold, one below ``lower`` is
certainly farther, and between them the canonical distance of the pair decides.  Thresholds of a query are sorted from
near to far, so that both edges fall from one to the next.  Values in eight bits are compared with edges that lie
*extra* farther apart (`reid_dist.kernels.tiles`).

*One query row.*  The values are written to a buffer that stays in the first-level cache, and those that reach the last,
farthest threshold are counted.  For a well-trained model there are none in most rows, and these are finished.
Otherwise relevant and junk columns are removed, and the way to place the values depends on their number and on that of
the thresholds:

- *Few values*: each is compared with all thresholds.
- *Few thresholds*: the values that reach the lower edge of each, and those above its upper edge, are counted in vector
  code.  If both numbers are equal, no value lies inside the band; otherwise these values are looked for.
- *Many of both*: a table of bins (`reid_dist.kernels.bins`) takes one pass over the values, whatever the number of
  thresholds.  Each is counted at the nearest threshold that it passes, and the counts are added up once per row.

*Row by row.*  Values inside a band are noted until the row is finished.  Values in eight bits are then refined, and
compared with the edges themselves.  What is still inside is *open*: it is decided later, together with the pairs of
other rows and tiles (`reid_dist.kernels.deciding`), and only then are the results of the row added to the counts.

*Limit on crowded bands.*  Before the pairs inside bands exceed a given number the kernel stops and returns the row:
products with narrower bands are cheaper for the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import Pending, Steps, fill_steps, make_pending, make_steps, place, place_among
from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.deciding import Bands, OpenPairs, RankCounts
from reid_dist.kernels.prefetch import request_row
from reid_dist.kernels.settings import inlined_kernel, inner_kernel, kernel
from reid_dist.kernels.tiles import (
    AHEAD,
    Marks,
    Tile,
    make_marks,
    mark_between,
    mark_outside,
    read_row,
    refined,
)

# Values that a table places together.
_BLOCK = 512

# Up to so many values that reach the farthest threshold, each is compared with all thresholds; the second number is for
# values of which most are refined, or where a table would have to be filled.
_FEW_REACHED, _FEW_REFINED = 16, 64

# Thresholds up to which comparisons of all values with all of them beat the table.
_FEW_THRESHOLDS = 32


class Row(NamedTuple):
    """Intermediate results of one row of a tile before they are added to the counts."""

    # Screening values, shape (columns,), and marks of some of them.
    values: NDArray[np.floating]
    marks: Marks
    # Edges of the thresholds as the values are compared with them, shape (most,), in the type of the values.
    lower: NDArray[np.floating]
    upper: NDArray[np.floating]
    # Values by the nearest threshold passed, shape (4, 2 * most + 2), int32; see `place`.
    placed: NDArray[np.int32]
    # Values inside bands.
    pending: Pending
    # Columns and values of pairs that products do not hold.
    known: NDArray[np.int64]
    known_value: NDArray[np.floating]


@inlined_kernel
def _take_known(tile: Tile, q: int, row: Row) -> int:
    """Move the visible known pairs of a query from the values to the known ones; return their number."""
    values, stop = row.values, tile.known_indptr[q + 1]
    place = first_at_least(tile.known_column, tile.known_indptr[q], stop, tile.column_start + tile.first_known)
    n = 0
    while place < stop:
        column = tile.known_column[place] - tile.first_known - tile.column_start
        if column >= len(values):
            break
        # Hidden columns hold minus infinity.
        row.known[n], row.known_value[n] = column, tile.known[place]
        n += int(values[column] > -np.inf)
        values[column] = -np.inf
        place += 1
    return n


@inlined_kernel
def _note_all(values: NDArray[np.floating], lowest: np.floating, row: Row) -> int:
    """Note all values that reach the farthest threshold as pending; return their number."""
    pending = row.pending
    n = mark_outside(values, lowest, lowest + np.float32(np.nan), row.marks)
    for p in range(n):
        column = row.marks.places[p]
        pending.column[p], pending.place[p], pending.value[p] = column, 0, values[column]
    return n


@inlined_kernel
def _compare(values: NDArray[np.floating], lower: NDArray[np.floating], upper: NDArray[np.floating], row: Row) -> int:
    """Count the values at each threshold, and note those inside bands as pending; return the number of these."""
    pending = row.pending
    n_pending = int(np.int64(0))
    nearer = int(np.int64(0))
    for u in range(len(lower)):
        least, most = lower[u], upper[u]
        reached = passed = np.int32(0)
        for k in range(len(values)):
            reached += np.int32(values[k] >= least)
            passed += np.int32(values[k] > most)
        # Bands may overlap: a value that reaches the threshold before is placed there.
        certain = max(int(passed), nearer)
        row.placed[0, u] = certain - nearer
        nearer = int(reached)
        if nearer == certain:
            continue
        for p in range(mark_between(values, least, most, row.marks)):
            column = row.marks.places[p]
            value = values[column]
            pending.column[n_pending], pending.place[n_pending], pending.value[n_pending] = column, u, value
            n_pending += int(u == 0 or value < lower[u - 1])
    return n_pending


@inlined_kernel
def _settle_row(
    tile: Tile,
    i: int,
    n_pending: int,
    n_known: int,
    few: bool,
    narrow: bool,
    limit: int,
    group_of: NDArray[np.int64],
    row: Row,
    wide_lower: NDArray[np.floating],
    wide_upper: NDArray[np.floating],
    bands: Bands,
    counts: RankCounts,
    pairs: OpenPairs,
    n: int,
) -> tuple[int, int]:
    """Add a row to the counts, and its open pairs to the `n` before them; values were compared with the wide edges.

    Returns the number of open pairs, -1 if more than `limit` values were inside bands, and the number of these.
    """
    q = tile.query[i]
    first, last = bands.indptr[q], bands.indptr[q + 1]
    lower, upper = bands.lower[first:last], bands.upper[first:last]
    extra = tile.extra[i]
    placed, columns, places, values = row.placed, row.pending.column, row.pending.place, row.pending.value
    column_start = tile.column_start
    less, near_rows, far = tile.bias[tile.bias_of[i]], tile.near, tile.far
    open_query, open_column, open_threshold = pairs.query, pairs.column, pairs.threshold
    inside = int(np.int64(0))
    n_settled = 0
    for p in range(n_pending):
        value = values[p]
        a = places[p]
        # Few values of integers are all refined: nearly all are inside bands.
        if narrow or not few:
            if a < last - first and wide_lower[a] > value:
                a = place_among(wide_lower, value)
            if a == last - first or value > wide_upper[a]:
                columns[n_settled], places[n_settled] = columns[p], a
                n_settled += int(a < last - first)
                continue
        inside += 1
        if inside > limit:
            return -1, inside
        if extra > 0:
            if p + AHEAD < n_pending:
                request_row(far[columns[p + AHEAD]])
            value = refined(near_rows[q], far[columns[p]]) - less[columns[p]]
            a = place_among(lower, value)
            if a == last - first or value > upper[a]:
                columns[n_settled], places[n_settled] = columns[p], a
                n_settled += int(a < last - first)
                continue
        open_query[n], open_column[n], open_threshold[n] = q, column_start + columns[p], first + a
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
    near = counts.near[:, first:last]
    are_grouped = len(group_of) > 0
    for p in range(n_settled):
        near[group_of[columns[p]] if are_grouped else 0, places[p]] += 1
    if not are_grouped:
        for u in range(last - first):
            near[0, u] += placed[0, u] + placed[1, u] + placed[2, u] + placed[3, u]
    return n, inside


@inner_kernel
def _count_rows(
    tile: Tile,
    bands: Bands,
    counts: RankCounts,
    pairs: OpenPairs,
    n_open: int,
    first_row: int,
    limit: int,
    group_of: NDArray[np.int64],
    row: Row,
    steps: Steps | None,
) -> tuple[int, int, int]:
    """Do as `count_tile` does, in given memory; `steps` is None if no query has many thresholds."""
    n_columns = tile.products.shape[1]
    # Unpacked once, outside of the loop over rows: passing tuples takes long, and reading their fields some time.
    values, factors, extras, queries = row.values, tile.factor, tile.extra, tile.query
    products, shift, scale, bias, bias_of = tile.products, tile.shift, tile.scale, tile.bias, tile.bias_of
    indptr, lowers, uppers = bands.indptr, bands.lower, bands.upper
    has_known, room = len(tile.known) > 0, len(pairs.query) - n_columns
    # Bands of integers are so wide that most values lie in one.
    narrow = products.dtype == values.dtype
    inside = int(np.int64(0))
    for i in range(first_row, tile.products.shape[0]):
        q = queries[i]
        first, last = indptr[q], indptr[q + 1]
        if first == last:
            continue
        extra = extras[i]
        lowest = lowers[last - 1] - extra
        none = lowest + np.float32(np.nan)
        reached = read_row(products[i], shift, scale, factors[i], bias[bias_of[i]], lowest, none, values)
        if reached == 0 and not has_known:
            continue
        if n_open > room:
            return i, n_open, inside
        lower, upper = lowers[first:last], uppers[first:last]
        if extra > 0:
            for u in range(len(lower)):
                row.lower[u], row.upper[u] = lower[u] - extra, upper[u] + extra
            lower, upper = row.lower[: last - first], row.upper[: last - first]
        hidden_stop = bands.hidden_indptr[q + 1]
        hidden = first_at_least(bands.hidden_column, bands.hidden_indptr[q], hidden_stop, tile.column_start)
        while hidden < hidden_stop and bands.hidden_column[hidden] < tile.column_start + n_columns:
            values[bands.hidden_column[hidden] - tile.column_start] = -np.inf
            hidden += 1
        n_known = _take_known(tile, q, row) if has_known else 0
        row.placed[:, : last - first + 1] = 0
        n_pending = int(np.int64(0))
        few = bool(reached <= (_FEW_REACHED if steps is None and narrow else _FEW_REFINED))
        if few or len(group_of) or (not narrow and last - first <= _FEW_THRESHOLDS):
            n_pending = _note_all(values, lowest, row)
        # Without a table, its code is not compiled.
        elif steps is None or last - first <= _FEW_THRESHOLDS:
            n_pending = _compare(values, lower, upper, row)
        else:
            base, per_bin = fill_steps(lower, upper, values, steps)
            for start in range(0, n_columns, _BLOCK):
                block = values[start : min(start + _BLOCK, n_columns)]
                n_pending = place(block, start, lowest, base, per_bin, steps, row.placed, row.pending, n_pending)
        found, more = _settle_row(
            tile,
            i,
            n_pending,
            n_known,
            few,
            narrow,
            limit - inside,
            group_of,
            row,
            lower,
            upper,
            bands,
            counts,
            pairs,
            n_open,
        )
        inside += more
        if found < 0:
            return i, n_open, inside
        n_open = found
    return tile.products.shape[0], n_open, inside


def most_of_many(indptr: NDArray[np.int64]) -> int | None:
    """Most thresholds of a query, by the offsets of those of all; None if they are so few that values are compared."""
    most = int(np.diff(indptr).max(initial=0))
    return most if most > _FEW_THRESHOLDS else None


@kernel
def count_tile(
    tile: Tile,
    bands: Bands,
    counts: RankCounts,
    pairs: OpenPairs,
    n_open: int,
    first_row: int,
    limit: int,
    group_of: NDArray[np.int64],
    many: int | None,
) -> tuple[int, int, int]:
    """Add rows of a tile to the counts of its queries, and pairs that values leave open to `pairs`, from `n_open` on.

    Ends before a row whose pairs may find no room, and before one with which more than `limit` values lie inside bands.
    `group_of` holds the place of the group of each column among the counts, and is empty if all are of the first.
    `many` is `most_of_many` of the thresholds: None has machine code of its own, which most runs need alone.  Returns
    the number of the first row that was not added, of open pairs, and of values inside bands.
    """
    n_columns = tile.products.shape[1]
    most = _FEW_THRESHOLDS if many is None else many
    like = tile.scale
    row = Row(
        np.empty(n_columns, like.dtype),
        make_marks(n_columns),
        np.empty(most, like.dtype),
        np.empty(most, like.dtype),
        np.empty((4, 2 * most + 2), np.int32),
        make_pending(n_columns, like),
        np.empty(n_columns + 1, np.int64),
        np.empty(n_columns + 1, like.dtype),
    )
    if many is None:
        return _count_rows(tile, bands, counts, pairs, n_open, first_row, limit, group_of, row, None)
    return _count_rows(
        tile, bands, counts, pairs, n_open, first_row, limit, group_of, row, make_steps(many, _BLOCK, like)
    )
