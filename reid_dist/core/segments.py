"""Sums over the positives of each query, in stored order: one definite float64 each; and their order.

Plain NumPy, one addition per place over all queries that reach it: metrics of ranks need no
compiler, and elementwise additions have one result on every machine, which `numpy.add.reduceat` does not guarantee.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def _longest_first(indptr: Int64) -> tuple[Int64, Int64]:
    """Segments by falling length, and how many of them reach each place 0, 1, 2, …."""
    sizes = np.diff(indptr)
    order = np.argsort(-sizes, kind="stable")
    longest = int(sizes.max(initial=0))
    reaching = np.searchsorted(-sizes[order], -np.arange(longest), "left")
    return order, reaching


def segment_sums(values: Float64, indptr: Int64) -> Float64:
    """Sum ``values[indptr[i]:indptr[i + 1]]`` from left to right for every ``i``; shape (n,), float64."""
    order, reaching = _longest_first(indptr)
    start = indptr[order]
    sums = np.zeros(len(order))
    for place, count in enumerate(reaching.tolist()):
        sums[:count] += values[start[:count] + place]
    out = np.empty_like(sums)
    out[order] = sums
    return out


def segment_running_sums(values: Int64, indptr: Int64) -> Int64:
    """Running sums that start anew in every segment; shape of `values`, int64."""
    total: Int64 = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    return total[1:] - np.repeat(total[indptr[:-1]], np.diff(indptr))


def segment_suffix_maxima(values: Float64, indptr: Int64) -> Float64:
    """Largest of each value and those after it in its segment; shape of `values`, float64."""
    maxima = np.empty_like(values)
    order, reaching = _longest_first(indptr)
    last = indptr[order + 1] - 1
    largest = np.full(len(order), -np.inf)
    for place, count in enumerate(reaching.tolist()):
        at = last[:count] - place
        maxima[at] = largest[:count] = np.maximum(largest[:count], values[at])
    return maxima


def order_of_rows(row: Int64) -> Int64:
    """Stable order of row numbers, int64.

    NumPy sorts numbers of 16 bits in linear time; most blocks have fewer rows than that.
    """
    if not len(row):
        return np.empty(0, np.int64)
    least = row.min()
    if row.max() - least < 2**16:
        return np.argsort((row - least).astype(np.uint16), kind="stable")
    return np.argsort(row, kind="stable")


def owners(place: Int64, indptr: Int64) -> Int64:
    """Segment of each of some places, shape (n,), which ascend; int64."""
    bounds = np.searchsorted(place, indptr)
    return np.repeat(np.arange(len(indptr) - 1), np.diff(bounds))


def take_segments(indptr: Int64, which: Int64) -> tuple[Int64, Int64]:
    """Start offsets of some segments one after the other, and the places of their elements; int64."""
    sizes = np.diff(indptr)[which]
    taken = np.zeros(len(which) + 1, np.int64)
    np.cumsum(sizes, out=taken[1:])
    return taken, np.repeat(indptr[which] - taken[:-1], sizes) + np.arange(taken[-1])
