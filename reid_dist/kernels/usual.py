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
from numpy.typing import NDArray

from reid_dist.kernels.canonical import PairRows, read_only
from reid_dist.kernels.compilations import INTEGERS, LATEST
from reid_dist.kernels.counting import count_tile
from reid_dist.kernels.deciding import Bands, RankCounts, make_open_pairs
from reid_dist.kernels.jaccard import overlap_block, overlap_pairs
from reid_dist.kernels.lists import listed_distances, merge_lists
from reid_dist.kernels.quantising import quantise_rows
from reid_dist.kernels.reciprocal import SparseRows, gaussian_rows, mean_rows, reciprocal_sets
from reid_dist.kernels.rescoring import known_values, mixed_values, put_values
from reid_dist.kernels.screening import band_edges, count_in_bands
from reid_dist.kernels.symmetric import Side, collect_both, collect_rows
from reid_dist.kernels.tiles import Tile
from reid_dist.kernels.topk import make_candidates
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
    "symmetric.collect_rows",
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
        examples = [*_reranking(), *(example for example in examples if example[0] is not collect_rows)]
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
    yield known_values, (_rows(), float64s, value)
    yield band_edges, (ints, float64s, float64s, float64s, value, value, value, floats, floats)
    yield put_values, (ints, ints, ints, float64s, n, floats, tile)
    yield count_in_bands, (tile, ints, floats, _bands(), float64s)


def _examples() -> Iterator[_Example]:
    """Kernels with arguments of the types that they are called with."""
    yield from _of(np.empty((1, 1), np.float32))
    yield _MERGED


def _integers() -> Iterator[_Example]:
    """Kernels for products of integers; as `_examples`."""
    ints, floats = np.empty(1, np.int32), np.empty(1, np.float32)
    values = np.empty((1, 1), np.int8)
    yield quantise_rows, (read_only(np.empty((1, 1), np.float32)), values, floats, np.empty((1, 2)), ints)
    yield transpose_integers, (values, values)
    yield from _of(np.empty((1, 1), np.int32))


def _of(products: NDArray[np.number]) -> Iterator[_Example]:
    """Kernels for tiles of products."""
    n = 1
    tile, side = _tile(products), _side()
    small = np.empty((1, 1), np.int32)
    counts, pairs = RankCounts(small, small, small), make_open_pairs(1)
    yield count_tile, (tile, _bands(), counts, pairs, n, n, n, np.empty(1, np.int64), None)
    yield collect_rows, (tile, side)
    if products.dtype == np.int32:
        yield collect_both, (tile, side, side)


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
    own, known = (products, np.empty(1, products.dtype), floats, floats, floats), (ints, ints, np.empty(1), 0)
    return Tile(*own, rows, rows, rows, ints, ints, 0, *known)
