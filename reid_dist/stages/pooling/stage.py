"""Pooling stage: reads a feature set and writes a store of pooled rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.formatting import first_few
from reid_dist.core.registry import did_you_mean
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.stages.pooling.definition import POOLINGS, Pooling
from reid_dist.stages.pooling.groups import CamidRule, RowGroups, group_rows, pooled_labels, share
from reid_dist.stores import FeatureSet, FeatureSource, FeatureWriter, as_feature_set
from reid_dist.stores.featureset import Progress, ranges_with
from reid_dist.stores.rows import Offenders, convert_rows, kept_dtype

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Bytes of float64 rows that are processed at a time.
_WORK_BYTES = 4 << 20
_ACCUMULATOR_BYTES = 256 << 20


def pool(
    features: FeatureSource,
    uri: str | os.PathLike[str],
    *,
    by: str = "tracklet",
    method: str = "mean",
    normalise: bool = True,
    normalise_rows: bool = False,
    camids: CamidRule = "keep",
    allow_zero: bool = False,
    dtype: DTypeLike = "float32",
    chunk_rows: int | None = None,
    shard_rows: int | None = None,
    overwrite: bool = False,
    accumulator_bytes: int = _ACCUMULATOR_BYTES,
    progress: Progress | None = None,
) -> FeatureSet:
    """Pool every group of rows that share a label into one row, and write the rows to a store.

    The defaults follow common practice: rows enter the mean as stored, and the mean is scaled to length 1.  If a model
    normalises features before they are stored, the result is the mean of unit vectors; for features of other lengths,
    `normalise_rows` gives every row the same weight.  A mean of exactly zero has no direction and is refused; the
    direction of a mean that cancels except for rounding errors is that of the rounding errors.

    Pooled rows are in the order of the first rows of their groups.  Their labels are: the pid of the group; its camid;
    as item id the label of the group; every column with one value within every group (others are dropped, with a
    note); the image path of the group's first row.

    Parameters
    ----------
    features
        Feature set, in memory or stored, or its path.
    uri
        Location of the new store.
    by
        Name of the label, as in `group_rows`.
    method
        ``"mean"``, or ``"max"`` for the largest value of each dimension.
    normalise
        Scale every pooled row to length 1.
    normalise_rows
        Scale every row to length 1 before it is pooled.
    camids
        ``"keep"`` refuses groups of several cameras; ``"drop"`` leaves cameras out of the pooled set.
    allow_zero
        Keep pooled rows of zeros, and leave rows of zeros unchanged under `normalise_rows`; both are refused otherwise.
        Recorded in the pooled set.
    dtype
        Stored dtype of the pooled rows: ``"float32"`` or ``"float16"``.  The default stores float32 for a float16
        source as well: the mean of many rows has the higher precision.
    chunk_rows, shard_rows, overwrite
        As in `FeatureSet.save`, for the pooled set.
    accumulator_bytes
        Memory for the sums, in bytes: ``8 * dim`` per group of a block.  The result does not depend on it.
    progress
        Callback after every piece read, with rows read and rows to read, over all blocks of groups.

    Returns
    -------
    The pooled set, (n_groups, dim).

    Raises
    ------
    UnknownNameError
        If the label or the method does not exist.
    InputError
        If a group holds several identities, or several cameras under ``camids="keep"``; for rows of zeros without
        `allow_zero`.
    StoreExistsError, StoreError
        If the store exists, or cannot be written.
    DamagedStoreError
        If a chunk of the source does not match its checksum.
    """
    how = POOLINGS.get(method)
    target = kept_dtype(dtype)
    if camids not in get_args(CamidRule):
        raise UnknownNameError(did_you_mean("rule for camids", str(camids), get_args(CamidRule)))
    if accumulator_bytes < 1:
        raise InputError(f"accumulator_bytes must be a positive number of bytes, not {accumulator_bytes}")
    features = as_feature_set(features)
    if normalise_rows and features.n_zero_rows and not allow_zero:
        zero = Offenders(features.n_zero_rows, features.first_zero_rows)
        raise InputError(
            f"rows of zeros cannot be scaled to length 1: found {zero}; leave them out, or let them be "
            "(allow_zero=True, --allow-zero)"
        )
    groups = group_rows(features, by)
    labels, notes = pooled_labels(features, groups, camids)
    scaled = ", scaled to length 1" if normalise else ""
    rows = "rows of length 1" if normalise_rows else "rows"
    summary = f"pooled by {by}: {how.name} of {features.n_rows:,} {rows} into {len(groups):,}{scaled}"
    with FeatureWriter(
        uri,
        dim=features.dim,
        n_rows=len(groups),
        dtype=target,
        chunk_rows=chunk_rows,
        shard_rows=shard_rows,
        allow_zero=allow_zero,
        overwrite=overwrite,
        notes=[*features.notes, summary, *notes],
        source={
            "uri": features.uri,
            "content_digest": features.content_digest,
            "pooling": {
                "by": by,
                "method": how.name,
                "normalise": normalise,
                "normalise_rows": normalise_rows,
                "camids": camids,
            },
        },
    ) as writer:
        zero_groups: list[int] = []
        blocks = _cut_groups(groups, max(1, accumulator_bytes // (8 * features.dim)))
        n_rows = sum(stop - start for block in blocks for start, stop in ranges_with(features, block.rows))
        n_done = 0

        def advance(rows: int) -> None:
            nonlocal n_done
            n_done += rows
            if progress is not None:
                progress(n_done, n_rows, writer.uri)

        work_rows = max(1, _WORK_BYTES // (8 * features.dim))
        for block in blocks:
            accumulators = _accumulate_block(features, groups, block, how, normalise_rows, advance)
            for start in range(0, len(accumulators), work_rows):
                some = slice(start, start + work_rows)
                sizes = groups.size[block.start : block.stop][some].astype(np.float64)[:, None]
                pooled = how.finish(accumulators[some], sizes)
                kept = convert_rows(_unit_rows(pooled) if normalise else pooled, target, block.start + start)
                zero_groups += (np.flatnonzero(~kept.any(axis=1)) + block.start + start).tolist()
                writer.append(kept)
        if zero_groups and not allow_zero:
            raise InputError(_zero_groups(groups, zero_groups, how))
        writer.set_labels(labels)
    return FeatureSet.open(writer.uri)


def _zero_groups(groups: RowGroups, zero: list[int], how: Pooling) -> str:
    rows = groups.rows_of(zero[0])
    named = first_few(list(map(str, rows.tolist())), 10)
    return (
        f"the {how.name} of {share(len(zero), len(groups))} is a zero vector, which has no direction: the first is "
        f"{groups.name(zero[0])} (rows {named}); leave these rows out, or keep zero vectors (allow_zero=True, "
        "--allow-zero)"
    )


@dataclass(frozen=True)
class _Block:
    """Groups ``start`` to ``stop`` (exclusive), and all their rows, ascending."""

    start: int
    stop: int
    rows: Int64


def _cut_groups(groups: RowGroups, largest: int) -> list[_Block]:
    """Cut the groups into blocks of at most `largest`; all blocks together hold every row once."""
    by_group = np.argsort(groups.of_row, kind="stable")
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(groups.size)])
    blocks = []
    for start in range(0, len(groups), largest):
        stop = min(start + largest, len(groups))
        blocks.append(_Block(start, stop, np.sort(by_group[ends[start] : ends[stop]])))
    return blocks


def _accumulate_block(
    features: FeatureSet,
    groups: RowGroups,
    block: _Block,
    how: Pooling,
    normalise_rows: bool,
    advance: Callable[[int], None],
) -> Float64:
    """Accumulators of a block of groups, (n_groups, dim) float64, over all their rows in row order."""
    accumulators = np.full((block.stop - block.start, features.dim), how.start)
    work_rows = max(1, _WORK_BYTES // (8 * features.dim))
    for start, stop in ranges_with(features, block.rows):
        low, high = np.searchsorted(block.rows, [start, stop])
        piece = features.read(start, stop)
        for at in range(low, high, work_rows):
            rows = block.rows[at : min(at + work_rows, high)]
            values = piece[rows - start].astype(np.float64)
            if normalise_rows:
                values = _unit_rows(values)
            _join(accumulators, groups.of_row[rows] - block.start, values, how)
        advance(stop - start)
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
