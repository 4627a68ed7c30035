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

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import Steps, fill_steps, make_steps, place
from reid_dist.kernels.compiled import inlined_kernel, inner_kernel, kernel
from reid_dist.kernels.deciding import APART, Bands, OpenPairs, place_before
from reid_dist.kernels.placing import (
    FEW_REFINED,
    Row,
    hide_columns,
    make_row,
    mark_reaching,
    note_marked,
    settle_row,
    take_known,
)
from reid_dist.kernels.tiles import Tile, marked_places, read_row

# Values that a table places together.
_BLOCK = 512

# Up to so many values that reach the farthest threshold, each is compared with all thresholds; `FEW_REFINED` where a
# table would have to be filled.
_FEW_REACHED = 16

# Thresholds up to which comparisons of all values with all of them beat the table.
_FEW_THRESHOLDS = 32


@inlined_kernel
def _compare(
    values: NDArray[np.floating],
    lower: NDArray[np.floating],
    upper: NDArray[np.floating],
    row: Row,
    placed: NDArray[np.int32],
) -> int:
    """Count the values at each threshold, and note those inside bands as pending; return the number of these."""
    flags, nearer = row.marks.flags, int(np.int64(0))
    flags[: len(values)] = 0
    for u in range(len(lower)):
        least, most = lower[u], upper[u]
        reached = passed = np.int32(0)
        for k in range(len(values)):
            reached = np.int32(reached + np.int32(values[k] >= least))
            passed = np.int32(passed + np.int32(values[k] > most))
        # Bands may overlap: a value that reaches the threshold before is placed there.
        certain = max(int(passed), nearer)
        placed[0, u] = certain - nearer
        nearer = int(reached)
        if nearer > certain:
            for k in range(len(values)):
                flags[k] |= np.uint8((values[k] >= least) & (values[k] <= most))
    n_pending = marked_places(row.marks)
    note_marked(values, n_pending, row)
    return n_pending


@inner_kernel
def _count_rows(
    tile: Tile,
    bands: Bands,
    counts: NDArray[np.int32],
    pairs: OpenPairs,
    n_open: int,
    first_row: int,
    limit: int,
    group_of: NDArray[np.int64],
    row: Row,
    placed: NDArray[np.int32],
    steps: Steps | None,
) -> tuple[int, int, int]:
    """Do as `count_tile` does, in given memory; `steps` is None if no query has many thresholds.

    `placed` takes the values of a row by the nearest threshold passed, as `place` counts them.
    """
    n_columns = tile.products.shape[1]
    # Unpacked once, outside of the loop over rows: passing tuples takes long, and reading their fields some time.
    values, factors, extras, queries = row.values, tile.factor, tile.extra, tile.query
    products, shift, scale, less, bias_of = tile.products, tile.shift, tile.scale, row.less, tile.bias_of
    indptr, lowers, uppers, positive_start = bands.indptr, bands.lower, bands.upper, bands.positive_start
    has_known, room, are_grouped = len(tile.known) > 0, len(pairs.query) - n_columns, len(group_of) > 0
    # Bands of integers are so wide that most values lie in one.
    are_floats = products.dtype == values.dtype
    inside = int(np.int64(0))
    for i in range(first_row, tile.products.shape[0]):
        q = queries[i]
        first, last = indptr[q], indptr[q + 1]
        if first == last:
            continue
        extra = extras[i]
        lowest = lowers[last - 1] - extra
        none = lowest + np.float32(np.nan)
        reached = read_row(products[i], shift, scale, factors[i], less[bias_of[i]], lowest, none, values)
        if reached == 0 and not has_known:
            continue
        if n_open > room:
            return i, n_open, inside
        lower, upper = lowers[first:last], uppers[first:last]
        if extra > 0:
            for u in range(len(lower)):
                row.lower[u], row.upper[u] = lower[u] - extra, upper[u] + extra
            lower, upper = row.lower[: last - first], row.upper[: last - first]
        hide_columns(q, bands.hidden_indptr, bands.hidden_column, tile.column_start, values)
        n_known = take_known(tile, q, values, row.known, row.known_value) if has_known else 0
        few = bool(reached <= (_FEW_REACHED if steps is None and are_floats else FEW_REFINED))
        singly = few or are_grouped or (not are_floats and last - first <= _FEW_THRESHOLDS)
        are_open = few and not are_floats
        if singly:
            n_pending = mark_reaching(values, lowest, row)
            if not are_open:
                note_marked(values, n_pending, row)
        else:
            placed[:, : last - first + 1] = 0
            n_pending = int(np.int64(0))
            # Without a table, its code is not compiled.
            if steps is None or last - first <= _FEW_THRESHOLDS:
                n_pending = _compare(values, lower, upper, row, placed)
            else:
                base, per_bin = fill_steps(lower, upper, values, steps)
                for start in range(0, n_columns, _BLOCK):
                    block = values[start : min(start + _BLOCK, n_columns)]
                    n_pending = place(block, start, lowest, base, per_bin, steps, placed, row.pending, n_pending)
        n_settled, n_open, more = settle_row(
            tile, i, n_pending, n_known, are_open, limit - inside, row, lower, upper, bands, last, pairs, n_open
        )
        inside += more
        if n_settled < 0:
            return i, n_open, inside
        columns, thresholds = row.pending.column, row.pending.place
        for p in range(n_settled):
            group = group_of[columns[p]] if are_grouped else 0
            counts[group, place_before(first + thresholds[p], positive_start, APART)] += 1
        if not singly:
            for u in range(last - first):
                nearer = placed[0, u] + placed[1, u] + placed[2, u] + placed[3, u]
                counts[0, place_before(first + u, positive_start, APART)] += nearer
    return tile.products.shape[0], n_open, inside


def most_of_many(indptr: NDArray[np.int64]) -> int | None:
    """Most thresholds of a query, by the offsets of those of all; None if they are so few that values are compared."""
    most = int(np.diff(indptr).max(initial=0))
    return most if most > _FEW_THRESHOLDS else None


@kernel
def count_tile(
    tile: Tile,
    bands: Bands,
    counts: NDArray[np.int32],
    pairs: OpenPairs,
    n_open: int,
    first_row: int,
    limit: int,
    group_of: NDArray[np.int64],
    many: int | None,
) -> tuple[int, int, int]:
    """Count the pairs of a tile by place, and add those that values leave open to `pairs`, from `n_open` on.

    Ends before a row whose pairs may find no room, and before one with which more than `limit` values lie inside bands.
    `counts` has shape (groups, places), by places of ``APART``.  `group_of` holds the place of the group of each column
    among the counts, and is empty if all are of the first.  `many` is `most_of_many` of the thresholds: None has
    machine code of its own, which most runs need alone.  Returns the number of the first row that was not added, of
    open pairs, and of values inside bands.
    """
    row = make_row(tile, bands)
    placed = np.empty((4, 2 * (_FEW_THRESHOLDS if many is None else many) + 2), np.int32)
    if many is None:
        return _count_rows(tile, bands, counts, pairs, n_open, first_row, limit, group_of, row, placed, None)
    steps = make_steps(many, _BLOCK, tile.scale)
    return _count_rows(tile, bands, counts, pairs, n_open, first_row, limit, group_of, row, placed, steps)
