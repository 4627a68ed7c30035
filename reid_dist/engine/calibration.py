"""Calibration of run-time estimates: measured times of small products and tile loops on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import DEFAULT_TILE, MERGED_AT_ONCE
from reid_dist.engine.policy import UNFORCED, Policy
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.reductions.surroundings import KeepNearest, Seed, Surroundings, merge_surroundings
from reid_dist.engine.tile_loop import run_symmetric_tiles, run_tiles
from reid_dist.kernels.canonical import squared_norms

_ROWS = 3072
_TILE_ROWS = 1024

# Queries, and maximal gallery rows and list length, of the timed lists.  Blocks of more gallery rows take little longer
# for their lists, as later rows enter them ever more rarely.  The time of a longer list is scaled in proportion.
_LISTED_ROWS = 256
_MOST_BLOCK_ROWS = 8192
_MOST_LISTED = 1024
# Rows of either side of the products whose times are compared.
_SAVED_ROWS = 512


@dataclass(frozen=True, slots=True)
class Rates:
    """CPU seconds of one thread for symmetric tile loops."""

    # Seconds per pair of rows, for the matrix product alone.
    product: float
    # Seconds per pair of rows, for a tile loop that reduces both sides.
    both_ways: float
    # Seconds per row and pair of blocks, to compute the canonical distances of the row's list.
    settling: float


def calibrate(dim: int, distance: Distance, k: int, policy: Policy = UNFORCED) -> Rates:
    """Time products and symmetric tile loops of random rows of `dim` features, with one thread, in about a second."""
    policy, rows = replace(policy, torch_device=None), _random_rows(2 * _ROWS, dim)
    near, far, out = rows.features[:_ROWS], rows.features[_ROWS:], np.empty((_TILE_ROWS, _TILE_ROWS), np.float32)

    def multiply() -> None:
        for row in range(0, _ROWS, _TILE_ROWS):
            for column in range(0, _ROWS, _TILE_ROWS):
                np.dot(near[row : row + _TILE_ROWS], far[column : column + _TILE_ROWS].T, out=out)

    with one_blas_thread():
        product = min(_seconds(multiply) for _ in range(3))
        whole, third = (_time_both_ways(rows, n_far, distance, k, policy) for n_far in (_ROWS, _ROWS // 3))
    # The time is linear in the pairs and in the rows of both blocks; two sizes determine both coefficients.
    settling = max(0.0, (3 * third - whole) / (2 * _ROWS))
    return Rates(product / _ROWS**2, max(whole / _ROWS**2 - 2 * settling / _ROWS, product / _ROWS**2), settling)


@dataclass(frozen=True, slots=True)
class ListRates:
    """CPU seconds of one thread for lists of nearest gallery rows, in addition to the matrix product."""

    # Seconds per query and gallery block, to select the nearest rows of the block and compute their canonical
    # distances.
    keeping: float
    # Seconds per query and list entry, to merge lists.
    merging: float


def calibrate_lists(
    dim: int, distance: Distance, k: int, block_rows: int, product: float, policy: Policy = UNFORCED
) -> ListRates:
    """Time lists of `k` nearest rows among random features, with one thread, in less than a second.

    `block_rows` are the rows of a gallery block, `product` the seconds per pair of rows as in `Rates`.
    """
    policy, n_gallery = replace(policy, torch_device=None), min(block_rows, _MOST_BLOCK_ROWS)
    query, gallery = _cut(_random_rows(_LISTED_ROWS + n_gallery, dim), _LISTED_ROWS, n_gallery)
    timed = min(k, _MOST_LISTED)

    def keep() -> Surroundings:
        found: list[Surroundings] = run_tiles(query, gallery, distance, DEFAULT_TILE, [KeepNearest(timed)], policy)
        return found[0]

    with one_blas_thread():
        found = [keep()] * MERGED_AT_ONCE
        kept = min(_seconds(keep) for _ in range(2))
    merged = _seconds(lambda: merge_surroundings(found))
    keeping = max(0.0, kept / _LISTED_ROWS - product * n_gallery)
    return ListRates(keeping * k / timed, merged / (_LISTED_ROWS * MERGED_AT_ONCE * timed))


def seconds_saved(dim: int, policy: Policy) -> float:
    """CPU seconds per pair of rows of `dim` elements that integers save where they decide it; 0 if they are unused."""
    product = policy.integer_product()
    if product is None:
        return 0.0
    n = _SAVED_ROWS
    near, far, values = np.ones((n, dim), np.float32), np.ones((dim, n), np.float32), np.empty((n, n), np.float32)
    left, right, whole = np.ones((n, dim), np.uint8), np.ones((dim, n), np.int8), np.empty((n, n), np.int32)
    kinds = (lambda: np.dot(near, far, out=values)), (lambda: product.multiply(left, right, whole))
    with one_blas_thread():
        floats, integers = (min(_seconds(multiply) for _ in range(4)) for multiply in kinds)
    return max(0.0, floats - integers) / n**2


def _random_rows(n: int, dim: int) -> FeatureBlock:
    features = np.random.default_rng(0).standard_normal((n, dim), dtype=np.float32)
    return FeatureBlock(np.arange(n), features, squared_norms(features))


def _cut(rows: FeatureBlock, *sizes: int) -> list[FeatureBlock]:
    """Consecutive blocks of so many rows."""
    return [rows.take(np.arange(stop - size, stop)) for size, stop in zip(sizes, np.cumsum(sizes), strict=True)]


def _seconds(compute: Callable[[], object]) -> float:
    """CPU time of this thread."""
    begin = time.thread_time()
    compute()
    return time.thread_time() - begin


def _time_both_ways(rows: FeatureBlock, n_far: int, distance: Distance, k: int, policy: Policy) -> float:
    """Time the tile loop of a block against `n_far` rows, seeded with the lists of each block against itself."""
    near, far = _cut(rows, _ROWS, n_far)
    own = [run_symmetric_tiles(block, None, distance, _TILE_ROWS, k, policy=policy)[0] for block in (near, far)]
    seeds = Seed(own[0].distance[:, -1], own[0].farthest), Seed(own[1].distance[:, -1], own[1].farthest)
    return _seconds(lambda: run_symmetric_tiles(near, far, distance, _TILE_ROWS, k, seeds, policy=policy))
