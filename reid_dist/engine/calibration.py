"""How fast this machine is: small products and sweeps, timed, from which the time of a large one is estimated."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import DEFAULT_TILE, MERGED_AT_ONCE
from reid_dist.engine.reductions import FeatureBlock, KeepNearest, Seed, run_symmetric_tiles
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.canonical import squared_norms

__all__ = ["ListRates", "Rates", "calibrate", "calibrate_lists"]

_ROWS = 3072
_TILE_ROWS = 1024

# Queries that lists are timed with, and gallery rows at the most: a block of more takes little longer for its lists,
# whose entries come ever more rarely.  A longer list takes its part more than a shorter one.
_LISTED_ROWS = 256
_MOST_BLOCK_ROWS = 8192
_MOST_LISTED = 1024


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of one thread.

    Attributes
    ----------
    product
        Per pair of rows, for the bare product.
    both_ways
        Per pair of rows, for a sweep that serves both sides.
    settling
        Per row and pair of blocks, for its list.
    """

    product: float
    both_ways: float
    settling: float


def calibrate(dim: int, distance: Distance, k: int) -> Rates:
    """Time products and sweeps of random rows of a dimension, with one thread; takes about a second."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((2 * _ROWS, dim), dtype=np.float32)
    with one_blas_thread():
        product = min(_time_product(features[:_ROWS], features[_ROWS:]) for _ in range(3))
        whole = _time_both_ways(features, _ROWS, distance, k)
        third = _time_both_ways(features, _ROWS // 3, distance, k)
    # Time is a part per pair and a part per row of both blocks: two sizes tell them apart.
    settling = max(0.0, (3 * third - whole) / (2 * _ROWS))
    return Rates(product / _ROWS**2, max(whole / _ROWS**2 - 2 * settling / _ROWS, product / _ROWS**2), settling)


@dataclass(frozen=True, slots=True)
class ListRates:
    """Seconds that the lists of the nearest take one thread, besides the product.

    Attributes
    ----------
    keeping
        Per query and gallery block, to find the nearest of the block and to settle their distances.
    merging
        Per query and entry of a list that is merged with others.
    """

    keeping: float
    merging: float


def calibrate_lists(dim: int, distance: Distance, k: int, block_rows: int, product: float) -> ListRates:
    """Time lists of the nearest of random rows, with one thread; takes less than a second.

    Parameters
    ----------
    dim
        Features per row.
    distance
        The distance.
    k
        Length of a list.
    block_rows
        Gallery rows of a block.
    product
        Seconds per pair of rows, for the bare product.
    """
    n_gallery = min(block_rows, _MOST_BLOCK_ROWS)
    features = np.random.default_rng(0).standard_normal((_LISTED_ROWS + n_gallery, dim), dtype=np.float32)
    norm = squared_norms(features)
    query, gallery = (
        FeatureBlock(np.arange(start, stop), features[start:stop], norm[start:stop])
        for start, stop in ((0, _LISTED_ROWS), (_LISTED_ROWS, _LISTED_ROWS + n_gallery))
    )
    timed = min(k, _MOST_LISTED)
    nearest = KeepNearest(timed, False, distance)
    with one_blas_thread():
        (found,) = run_tiles(query, gallery, distance, DEFAULT_TILE, [nearest])
        seconds = []
        for _ in range(2):
            begin = time.thread_time()
            run_tiles(query, gallery, distance, DEFAULT_TILE, [nearest])
            seconds.append(time.thread_time() - begin)
    begin = time.thread_time()
    nearest.combine([found] * MERGED_AT_ONCE)
    merged = time.thread_time() - begin
    keeping = max(0.0, min(seconds) / _LISTED_ROWS - product * n_gallery)
    return ListRates(keeping * k / timed, merged / (_LISTED_ROWS * MERGED_AT_ONCE * timed))


def _time_both_ways(features: NDArray[np.float32], n_far: int, distance: Distance, k: int) -> float:
    """Time a sweep of one block against some rows, once both have met themselves."""
    norm = squared_norms(features)
    near, far = (
        FeatureBlock(np.arange(start, stop), features[start:stop], norm[start:stop])
        for start, stop in ((0, _ROWS), (_ROWS, _ROWS + n_far))
    )
    own = [run_symmetric_tiles(block, None, distance, _TILE_ROWS, k)[0] for block in (near, far)]
    seeds = Seed(own[0].distance[:, -1], own[0].farthest), Seed(own[1].distance[:, -1], own[1].farthest)
    begin = time.thread_time()
    run_symmetric_tiles(near, far, distance, _TILE_ROWS, k, seeds)
    return time.thread_time() - begin


def _time_product(near: NDArray[np.floating], far: NDArray[np.floating]) -> float:
    out = np.empty((_TILE_ROWS, _TILE_ROWS), np.float32)
    begin = time.thread_time()
    for row in range(0, _ROWS, _TILE_ROWS):
        for column in range(0, _ROWS, _TILE_ROWS):
            np.dot(near[row : row + _TILE_ROWS], far[column : column + _TILE_ROWS].T, out=out)
    return time.thread_time() - begin
