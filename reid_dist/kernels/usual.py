"""Kernels of a usual evaluation, compiled from examples of their arguments, by a process beside the workers.

The first tasks of the workers need the canonical distances and the last ones the k nearest rows: the list begins with
kernels that need neither.  With re-ranking, whose neighbours take the workers a while, it begins with the kernels that
come after these.  A kernel that another process compiles meanwhile is loaded from the cache.  The workers come to
`count_tile` when all that it calls is compiled; this process compiles `collect_tile` beside it.  With re-ranking, where
no worker compiles `count_tile` and few runs collect tiles, it omits `collect_tile` and `thin_and_add`.

Products of integers have kernels of their own, which take as long again and save less than that in a short run.  Blocks
are screened in float32 while they are not compiled: see `reid_dist.engine.distances.quantised`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from reid_dist.kernels.bins import Pending
from reid_dist.kernels.canonical import PairRows, falling_at, read_only
from reid_dist.kernels.coarse import Factors, make_upper_ends, residual_values
from reid_dist.kernels.coarse_counting import CoarseTile, count_coarse
from reid_dist.kernels.coarse_lists import CoarseSide, collect_coarse, collect_coarse_rows, settle_coarse
from reid_dist.kernels.compilations import INTEGERS, LATEST
from reid_dist.kernels.counting import Row, compare, count_rows, count_tile, settle_row
from reid_dist.kernels.deciding import Bands, Doubts, RankCounts, ScreenedTile, decide
from reid_dist.kernels.jaccard import overlap_block, overlap_pairs
from reid_dist.kernels.lists import listed_distances, merge_lists
from reid_dist.kernels.quantising import quantise_rows
from reid_dist.kernels.reciprocal import SparseRows, gaussian_rows, mean_rows, reciprocal_sets
from reid_dist.kernels.rescoring import known_values, mixed_values, put_values
from reid_dist.kernels.screening import band_edges, count_in_bands
from reid_dist.kernels.symmetric import Side
from reid_dist.kernels.topk import Scratch, collect_tile, make_candidates, thin_and_add
from reid_dist.kernels.transposing import transpose_integers

_Example = tuple[Any, tuple[Any, ...]]

_MERGED = merge_lists, (np.empty((1, 1), np.int64), np.empty((1, 1))) * 3


# Those that Python calls, in order.
_CALLED = (
    "checksums.weighted_sums",
    "canonical._squared_norms",
    "canonical.pair_distances",
    "screening.scale_rows",
    "rescoring.falling_values",
    "screening.band_edges",
    "screening.count_in_bands",
    "counting.count_tile",
    "topk.collect_tile",
    "lists.merge_lists",
)


def lacks_usual(*, reranks: bool = False) -> bool:
    """Whether the kernels of a usual evaluation have no current machine code in the cache."""
    return _lacks(LATEST[reranks])


def lacks_integers() -> bool:
    """Whether a kernel for products of integers has no current machine code."""
    return _lacks(INTEGERS)


def _lacks(kernels: Iterable[str]) -> bool:
    from reid_dist.kernels.dispatchers import is_compiled

    return not all(is_compiled(_named(each)) for each in kernels)


def _named(kernel: str) -> Any:
    module, _, name = kernel.partition(".")
    return getattr(importlib.import_module(f"reid_dist.kernels.{module}"), name)


def load_usual() -> None:
    """Load the machine code that the cache holds of the kernels of a usual evaluation without re-ranking."""
    from reid_dist.kernels.dispatchers import load_compiled

    for kernel in (*_CALLED, *INTEGERS):
        load_compiled(_named(kernel))


def compile_usual(*, reranks: bool = False) -> None:
    """Compile the kernels of a usual evaluation that the cache lacks, with re-ranking or without."""
    examples = [*_examples()]
    if reranks:
        examples = [*_reranking(), *(example for example in examples if example[0] not in (thin_and_add, collect_tile))]
    _compile(examples)


def compile_integers() -> None:
    """Compile the kernels for products of integers that the cache lacks."""
    _compile(_integers())


def _compile(examples: Iterable[_Example]) -> None:
    from numba import typeof

    # Untyped.
    type_of: Any = typeof
    for function, arguments in examples:
        function.compile(tuple(type_of(argument) for argument in arguments))


def _reranking() -> Iterator[_Example]:
    """Kernels of k-reciprocal re-ranking after the neighbours, in the order of their stages; as `_examples`."""
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


def _examples() -> Iterator[_Example]:
    """Kernels with arguments of the types that they are called with."""
    q = k = n = limit = 1
    ints, small, float64s = np.empty(1, np.int64), np.empty(1, np.int32), np.empty(1, np.float64)
    floats, tile = np.empty(1, np.float32), np.empty((1, 1), np.float32)
    screened = _screened()
    rows, bands = screened.rows, screened.bands
    edge, value = np.float32(0.0), 0.0
    lists = make_candidates(k, rows, float64s, float64s, value)
    pending = Pending(ints, ints, floats)
    row = Row(floats, np.empty(1, np.uint64), ints, np.empty((1, 1), np.int32), pending)
    counts = RankCounts(small, small, small)
    doubts = Doubts(ints, ints, ints, float64s, float64s)
    yield compare, (floats, floats, floats, False, row)
    yield settle_row, (q, n, limit, row, doubts, n, bands, counts)
    yield falling_at, (rows, q, value, value)
    yield decide, (doubts, n, ints, bands, rows, counts)
    yield count_rows, (screened, counts, limit, row, None, doubts)
    yield _MERGED
    yield thin_and_add, (q, n, edge, lists, Scratch(float64s, float64s, ints))
    yield collect_tile, (tile, tile, ints, q, n, lists)
    yield count_tile, (screened, counts, limit, None)


def _integers() -> Iterator[_Example]:
    """Kernels for products of integers; as `_examples`."""
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
    yield transpose_integers, (values, n, np.empty((1, 1), np.int8))
    yield residual_values, (pairs, pairs, floats, floats, small, small, tile)
    yield collect_coarse, (pairs, n, n, coarse, coarse)
    yield collect_coarse_rows, (pairs, tile, ints, ints, n, coarse, ends)
    yield settle_coarse, (side.lists, np.empty((1, 1), np.int64), np.empty((1, 1)))
    coarse_tile = CoarseTile(pairs, ints, factors, factors, float64s)
    yield count_coarse, (coarse_tile, screened, counts, n, small, ends)


def _screened() -> ScreenedTile:
    """Tile of screened values, with the rows and thresholds that it belongs to."""
    ints, float64s = np.empty(1, np.int64), np.empty(1, np.float64)
    floats, tile = np.empty(1, np.float32), np.empty((1, 1), np.float32)
    features = read_only(tile)
    rows = PairRows(0, features, features, float64s, float64s)
    bands = Bands(ints, floats, floats, float64s, ints, ints, ints, ints)
    return ScreenedTile(tile, tile, ints, 1, ints, bands, rows, 0)
