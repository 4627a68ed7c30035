"""Examples of the arguments of kernels: machine code is made for their types before the first run needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.canonical import PairRows, read_only
from reid_dist.kernels.counting import count_tile
from reid_dist.kernels.deciding import Bands, decide, make_open_pairs
from reid_dist.kernels.entries import enter_rows
from reid_dist.kernels.jaccard import overlap_block, overlap_pairs
from reid_dist.kernels.lists import listed_distances, merge_lists
from reid_dist.kernels.quantising import quantise_rows
from reid_dist.kernels.reciprocal import SparseRows, gaussian_rows, mean_rows, reciprocal_sets
from reid_dist.kernels.rescoring import known_values, mixed_values, put_values
from reid_dist.kernels.residuals import add_residuals, quantise_residuals
from reid_dist.kernels.screening import band_edges, count_in_bands
from reid_dist.kernels.symmetric import Side, collect_both, collect_rows
from reid_dist.kernels.tiles import Tile
from reid_dist.kernels.topk import make_candidates

Example = tuple[Any, tuple[Any, ...]]
"""A kernel, and arguments of the types that it is called with."""

_MERGED: Example = merge_lists, (np.empty((1, 1), np.int64), np.empty((1, 1))) * 3


def evaluation() -> Iterator[Example]:
    """Large kernels of an evaluation without re-ranking; those that it calls last come first."""
    products = np.empty((1, 1), np.float32)
    yield collect_rows, (_tile(products), _side())
    yield _MERGED
    yield decide, (make_open_pairs(1), 1, np.empty(1, np.int64), _bands(), _rows(), 0)
    yield _counting(products)


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
    yield known_values, (_rows(), float64s, value)
    yield band_edges, (ints, float64s, float64s, float64s, value, value, value, floats, floats)
    yield put_values, (ints, ints, ints, float64s, n, floats, tile)
    yield count_in_bands, (tile, ints, floats, _bands(), float64s)


def integers() -> Iterator[Example]:
    """Kernels for products of integers; that which prepares rows for all of them comes last."""
    products, side = np.empty((1, 1), np.int32), _side()
    yield _counting(products)
    yield collect_rows, (_tile(products), side)
    yield collect_both, (_tile(products), side, side)
    floats, integers = np.empty(1, np.float32), np.empty(1, np.int32)
    rows, small, bounds = np.empty((1, 1), np.float32), np.empty((1, 1), np.int8), np.empty((1, 2))
    yield quantise_residuals, (rows, small, floats, bounds, small, np.empty(1), integers)
    yield add_residuals, (products, products, integers, integers, floats, floats, rows)
    yield quantise_rows, (rows, small, floats, bounds, integers)


def device() -> Iterator[Example]:
    """Kernels of products on a device, besides those of an evaluation."""
    found, floats = np.empty(1, np.int32), np.empty(1, np.float32)
    yield enter_rows, (found, found, floats, floats, _side())


def _counting(products: NDArray[np.number]) -> Example:
    counts, n, group_of = np.empty((1, 1), np.int32), 1, np.empty(1, np.int64)
    return count_tile, (_tile(products), _bands(), counts, make_open_pairs(1), n, n, n, group_of, None)


def _rows() -> PairRows:
    features = read_only(np.empty((1, 1), np.float32))
    return PairRows(0, features, features, np.empty(1), np.empty(1))


def _bands() -> Bands:
    ints, floats = np.empty(1, np.int64), np.empty(1, np.float32)
    return Bands(ints, floats, floats, np.empty(1), ints, ints, ints, ints)


def _side() -> Side:
    ints, floats, float64s = np.empty(1, np.int64), np.empty(1, np.float32), np.empty(1)
    lists = make_candidates(1, _rows(), float64s, float64s, 0.0)
    return Side(lists, float64s, floats, floats, read_only(ints), read_only(ints), ints, ints)


def _tile(products: NDArray[np.number]) -> Tile:
    ints, floats, rows = np.empty(1, np.int64), np.empty(1, np.float32), np.empty((1, 1), np.float32)
    own, known = (products, np.empty(1, products.dtype), floats, floats, floats, floats), (ints, ints, np.empty(1), 0)
    return Tile(*own, rows, rows, rows, ints, ints, 0, *known)
