"""Examples of the arguments of kernels: machine code is made for their types before the first run needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from reid_dist.kernels.canonical import PairRows, read_only
from reid_dist.kernels.coarse import Factors, make_upper_ends, residual_values
from reid_dist.kernels.coarse_counting import CoarseTile, count_coarse
from reid_dist.kernels.coarse_lists import CoarseSide, collect_coarse, collect_coarse_rows, settle_coarse
from reid_dist.kernels.counting import count_tile
from reid_dist.kernels.deciding import Bands, RankCounts, ScreenedTile
from reid_dist.kernels.jaccard import overlap_block, overlap_pairs
from reid_dist.kernels.lists import listed_distances, merge_lists
from reid_dist.kernels.quantising import quantise_rows
from reid_dist.kernels.reciprocal import SparseRows, gaussian_rows, mean_rows, reciprocal_sets
from reid_dist.kernels.rescoring import falling_values, known_values, mixed_values, put_values
from reid_dist.kernels.screening import band_edges, count_in_bands
from reid_dist.kernels.symmetric import Side
from reid_dist.kernels.topk import collect_tile, make_candidates

Example = tuple[Any, tuple[Any, ...]]
"""A kernel, and arguments of the types that it is called with."""

_MERGED: Example = merge_lists, (np.empty((1, 1), np.int64), np.empty((1, 1))) * 3


def evaluation() -> Iterator[Example]:
    """Large kernels of an evaluation without re-ranking; those that it calls last come first."""
    float64s, tile = np.empty(1, np.float64), np.empty((1, 1), np.float32)
    ints, small = np.empty(1, np.int64), np.empty(1, np.int32)
    screened = _screened()
    yield collect_tile, (tile, tile, ints, 1, 1, make_candidates(1, screened.rows, float64s, float64s, 0.0))
    yield _MERGED
    yield count_tile, (screened, RankCounts(small, small, small), 1, None)


def reranking() -> Iterator[Example]:
    """Kernels of k-reciprocal re-ranking after the neighbours, in the order of their stages."""
    n, value = 1, 0.0
    ints, member, float64s = np.empty(1, np.int64), np.empty(1, np.int32), np.empty(1, np.float64)
    table, listed, distance = np.empty((1, 1), np.int64), np.empty((1, 1), np.int32), np.empty((1, 1))
    rows = SparseRows(ints, member, float64s)
    yield reciprocal_sets, (listed, n, n, n, n, False)
    yield _MERGED
    yield listed_distances, (ints, member, listed, distance)
    yield gaussian_rows, (ints, member, float64s, False)
    yield mean_rows, (table, ints, rows)
    yield overlap_pairs, (rows, rows, ints, ints, False)
    yield mixed_values, (0.0, False, float64s, float64s, float64s)
    yield overlap_block, (rows, rows, n, False)
    # For the first tasks that count ranks: a core would be idle while a worker compiled these.
    floats, tile = np.empty(1, np.float32), np.empty((1, 1), np.float32)
    yield known_values, (_screened().rows, float64s, value)
    yield band_edges, (ints, float64s, float64s, float64s, value, value, value, floats, floats)
    yield put_values, (ints, ints, float64s, n, floats, tile)
    yield count_in_bands, (ints, ints, floats, ints, floats, floats, ints, ints)


def integers() -> Iterator[Example]:
    """Kernels for products of integers."""
    n = 1
    ints, small, float64s = np.empty(1, np.int64), np.empty(1, np.int32), np.empty(1, np.float64)
    floats, tile = np.empty(1, np.float32), np.empty((1, 1), np.float32)
    values, pairs = np.empty((2, 2, 2), np.int8), np.empty((1, 1), np.int32)
    screened, listed = _screened(), read_only(ints)
    factors = Factors(values, floats, floats, floats, floats, floats, tile, small)
    side = Side(make_candidates(n, screened.rows, float64s, float64s, 0.0), float64s, floats, floats, listed, listed)
    coarse = CoarseSide(side, factors, factors)
    counts, ends = RankCounts(small, small, small), make_upper_ends(1, 1)
    yield quantise_rows, (tile, 1, values, floats, floats, np.empty((1, 3)), pairs)
    yield residual_values, (pairs, pairs, floats, floats, small, small, tile)
    yield collect_coarse, (pairs, n, n, coarse, coarse)
    yield collect_coarse_rows, (pairs, tile, ints, ints, n, coarse, ends)
    yield settle_coarse, (side.lists, np.empty((1, 1), np.int64), np.empty((1, 1)))
    coarse_tile = CoarseTile(pairs, ints, factors, factors, float64s)
    yield count_coarse, (coarse_tile, screened, counts, n, small, ends)
    yield falling_values, (screened.rows, ints, float64s, 0.0)


def _screened() -> ScreenedTile:
    """Tile of screened values, with the rows and thresholds that it belongs to."""
    ints, float64s = np.empty(1, np.int64), np.empty(1, np.float64)
    floats, tile = np.empty(1, np.float32), np.empty((1, 1), np.float32)
    features = read_only(tile)
    rows = PairRows(0, features, features, float64s, float64s)
    bands = Bands(ints, floats, floats, float64s, ints, ints, ints, ints)
    return ScreenedTile(tile, tile, ints, 1, ints, bands, rows, 0)
