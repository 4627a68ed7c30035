"""Segments of flat arrays, such as the positives of each query: offsets, owners, and sums in stored order.

Entries of segment ``i`` are ``indptr[i]:indptr[i + 1]``.  Sums are one definite float64 each: plain NumPy, one addition
per place over all queries that reach it.  Metrics of ranks need no compiler, and elementwise additions have one result
on every machine, which `numpy.add.reduceat` does not guarantee.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def segment_offsets(sizes: ArrayLike) -> Int64:
    """Start offsets of segments of some sizes, (n,), which follow each other; shape (n + 1,), int64."""
    indptr = np.zeros(len(np.asarray(sizes)) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    return indptr


def owner_offsets(owner: Int64, n_segments: int) -> Int64:
    """Start offsets of the segments of entries that ascend by their segment `owner`; shape (n_segments + 1,), int64."""
    return segment_offsets(np.bincount(owner, minlength=n_segments))


def run_offsets(*keys: NDArray[Any]) -> Int64:
    """Start offsets of runs of entries, each of which is equal in all of some arrays, (n,); shape (n_runs + 1,), int64.

    Sorted keys make a run of all entries that are equal.
    """
    opens = np.ones(len(keys[0]), np.bool_)
    opens[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return np.append(np.flatnonzero(opens), len(opens))


def entry_owners(indptr: Int64) -> Int64:
    """Segment of every entry, shape (n,), int64."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def entry_numbers(indptr: Int64) -> Int64:
    """Number of every entry within its segment, from 0, shape (n,), int64; the first offset is 0."""
    return np.arange(indptr[-1]) - np.repeat(indptr[:-1], np.diff(indptr))


def entry_keys(indptr: Int64, values: NDArray[np.signedinteger], n_values: int) -> Int64:
    """One number of segment and value, ``owner * n_values + value``, of every entry, shape (n,), int64.

    They ascend where values do within their segments.
    """
    return entry_owners(indptr) * n_values + values


def range_entries(start: Int64, sizes: Int64) -> tuple[Int64, Int64]:
    """Places of ranges ``start[i]:start[i] + sizes[i]``, one after the other: their start offsets, and the places."""
    indptr = segment_offsets(sizes)
    return indptr, np.repeat(start - indptr[:-1], sizes) + np.arange(indptr[-1])


def _longest_first(indptr: Int64) -> tuple[Int64, Int64]:
    """Segments by falling length, and how many of them reach each place 0, 1, 2, …."""
    sizes = np.diff(indptr)
    order = np.argsort(-sizes, kind="stable")
    longest = int(sizes.max(initial=0))
    reaching = np.searchsorted(-sizes[order], -np.arange(longest), "left")
    return order, reaching


def segment_sums(values: Float64, indptr: Int64) -> Float64:
    """Sum ``values[indptr[i]:indptr[i + 1]]`` from left to right for every ``i``; float64.

    Values (m,) have sums (n,), and rows (m, dim) have (n, dim).
    """
    order, reaching = _longest_first(indptr)
    start = indptr[order]
    sums = np.zeros((len(order), *values.shape[1:]))
    for place, count in enumerate(reaching.tolist()):
        sums[:count] += values[start[:count] + place]
    out = np.empty_like(sums)
    out[order] = sums
    return out


def segment_running_sums(values: NDArray[np.integer | np.bool_], indptr: Int64) -> Int64:
    """Running sums that start anew in every segment; shape of `values`, int64."""
    total = segment_offsets(values)
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
    return range_entries(indptr[which], np.diff(indptr)[which])
