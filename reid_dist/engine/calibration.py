"""Calibration of run-time estimates: measured times of small products and tile loops on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import DEFAULT_TILE, MERGED_AT_ONCE
from reid_dist.engine.policy import UNFORCED, Policy
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.reductions.nearest import KeepNearest
from reid_dist.engine.reductions.surroundings import Seed, merge_surroundings
from reid_dist.engine.tile_loop import run_symmetric_tiles, run_tiles
from reid_dist.kernels.canonical import squared_norms

_ROWS = 3072
_TILE_ROWS = 1024

# Queries, and maximal gallery rows and list length, of the timed lists.  Blocks of more gallery rows take little longer
# for their lists, as later rows enter them ever more rarely.  The time of a longer list is scaled in proportion.
_LISTED_ROWS = 256
_MOST_BLOCK_ROWS = 8192
_MOST_LISTED = 1024


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
    policy = replace(policy, torch_device=None)
    rng = np.random.default_rng(0)
    features = rng.standard_normal((2 * _ROWS, dim), dtype=np.float32)
    with one_blas_thread():
        product = min(_time_product(features[:_ROWS], features[_ROWS:]) for _ in range(3))
        whole = _time_both_ways(features, _ROWS, distance, k, policy)
        third = _time_both_ways(features, _ROWS // 3, distance, k, policy)
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
    features = np.random.default_rng(0).standard_normal((_LISTED_ROWS + n_gallery, dim), dtype=np.float32)
    norm = squared_norms(features)
    query, gallery = (
        FeatureBlock(np.arange(start, stop), features[start:stop], norm[start:stop])
        for start, stop in ((0, _LISTED_ROWS), (_LISTED_ROWS, _LISTED_ROWS + n_gallery))
    )
    timed = min(k, _MOST_LISTED)
    nearest = KeepNearest(timed)
    with one_blas_thread():
        (found,) = run_tiles(query, gallery, distance, DEFAULT_TILE, [nearest], policy)
        seconds = []
        for _ in range(2):
            begin = time.thread_time()
            run_tiles(query, gallery, distance, DEFAULT_TILE, [nearest], policy)
            seconds.append(time.thread_time() - begin)
    begin = time.thread_time()
    merge_surroundings([found] * MERGED_AT_ONCE)
    merged = time.thread_time() - begin
    keeping = max(0.0, min(seconds) / _LISTED_ROWS - product * n_gallery)
    return ListRates(keeping * k / timed, merged / (_LISTED_ROWS * MERGED_AT_ONCE * timed))


def _time_both_ways(features: NDArray[np.float32], n_far: int, distance: Distance, k: int, policy: Policy) -> float:
    """Time the tile loop of a block against `n_far` rows, seeded with the lists of each block against itself."""
    norm = squared_norms(features)
    near, far = (
        FeatureBlock(np.arange(start, stop), features[start:stop], norm[start:stop])
        for start, stop in ((0, _ROWS), (_ROWS, _ROWS + n_far))
    )
    own = [run_symmetric_tiles(block, None, distance, _TILE_ROWS, k, policy=policy)[0] for block in (near, far)]
    seeds = Seed(own[0].distance[:, -1], own[0].farthest), Seed(own[1].distance[:, -1], own[1].farthest)
    begin = time.thread_time()
    run_symmetric_tiles(near, far, distance, _TILE_ROWS, k, seeds, policy=policy)
    return time.thread_time() - begin


def _time_product(near: NDArray[np.floating], far: NDArray[np.floating]) -> float:
    out = np.empty((_TILE_ROWS, _TILE_ROWS), np.float32)
    begin = time.thread_time()
    for row in range(0, _ROWS, _TILE_ROWS):
        for column in range(0, _ROWS, _TILE_ROWS):
            np.dot(near[row : row + _TILE_ROWS], far[column : column + _TILE_ROWS].T, out=out)
    return time.thread_time() - begin
