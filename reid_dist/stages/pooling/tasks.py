"""Tasks of a pooling: each pools a block of groups into a part of a workspace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from reid_dist.stages.pooling.definition import POOLINGS, Pooling
from reid_dist.stages.pooling.job import Recipe
from reid_dist.stores import Stage
from reid_dist.stores.featureset import ranges_with
from reid_dist.stores.kept_rows import KEPT_DTYPES, convert_rows

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Bytes of float64 rows that are processed at a time.
_WORK_BYTES = 4 << 20


def part_of(block: int) -> str:
    """Name of the part of a block."""
    return f"rows-{block:05d}"


def pool_task(
    recipe: Recipe, stage: Stage, block: int, ends: tuple[int, int], count: Callable[[int], None] | None
) -> None:
    """Pool the groups of a block, from the first to the end (exclusive), and write their rows to the stage.

    `count` is called with the number of rows after every piece of the set that has been read.
    """
    groups, how, dtype = recipe.groups, POOLINGS.get(recipe.method), KEPT_DTYPES[recipe.dtype]
    block_rows = groups.rows_of(*ends)
    weights, totals = recipe.weights(block_rows, *ends)
    accumulators = _accumulate(recipe, block_rows, weights, ends, count)
    kept = np.empty(accumulators.shape, dtype)
    work_rows = max(1, _WORK_BYTES // (8 * recipe.features.dim))
    for start in range(0, len(accumulators), work_rows):
        some = slice(start, start + work_rows)
        first_row = ends[0] + start
        pooled = how.finish(accumulators[some], totals[some, None])
        kept[some] = convert_rows(_unit_rows(pooled) if recipe.normalise else pooled, dtype, first_row)
    stage.write(part_of(block), {"features": kept})


def _accumulate(
    recipe: Recipe,
    block_rows: Int64,
    weights: Float64 | None,
    ends: tuple[int, int],
    count: Callable[[int], None] | None,
) -> Float64:
    """Accumulators of a block of groups, (n_groups, dim) float64, over all their rows in row order.

    `block_rows` are these rows, ascending, and `weights` theirs, both (n_rows,).
    """
    features, groups, how, (first, end) = recipe.features, recipe.groups, POOLINGS.get(recipe.method), ends
    accumulators = np.full((end - first, features.dim), how.start)
    work_rows = max(1, _WORK_BYTES // (8 * features.dim))
    for start, stop in ranges_with(features, block_rows):
        low, high = np.searchsorted(block_rows, [start, stop])
        piece = features.read(start, stop)
        for at in range(low, high, work_rows):
            rows = block_rows[at : min(at + work_rows, high)]
            values = piece[rows - start].astype(np.float64)
            if recipe.normalise_rows:
                values = _unit_rows(values)
            if weights is not None:
                values *= weights[at : at + len(rows), None]
            _join(accumulators, groups.of_row[rows] - first, values, how)
        if count is not None:
            count(stop - start)
    return accumulators


def _join(accumulators: Float64, places: Int64, values: Float64, how: Pooling) -> None:
    """Join every row to the accumulator at its place, rows of one place in row order.

    The first rows of all places are joined at once, then the second ones, …: a fixed order within every place, which
    `numpy.add.reduceat` does not guarantee.
    """
    by_place = np.argsort(places, kind="stable")
    found, starts, sizes = np.unique(places[by_place], return_index=True, return_counts=True)
    fullest = np.argsort(-sizes, kind="stable")
    reaching = np.searchsorted(-sizes[fullest], -np.arange(sizes[fullest[0]]), "left")
    for turn, count in enumerate(reaching):
        some = fullest[:count]
        to = found[some]
        accumulators[to] = how.join(accumulators[to], values[by_place[starts[some] + turn]])


def _unit_rows(rows: Float64) -> Float64:
    """Rows scaled to length 1, (n, dim) float64; rows of zeros are unchanged."""
    length = np.sqrt(_squared_lengths(rows))
    return rows / np.where(length > 0, length, 1.0)[:, None]


def _squared_lengths(rows: Float64) -> Float64:
    """Sums of squares, shape (n,), float64: the right half of the terms is added to the left half until one remains.

    Elementwise additions give the same result on every machine, which `numpy.sum` over a row does not guarantee.
    """
    terms = rows * rows
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    return terms[:, 0]
