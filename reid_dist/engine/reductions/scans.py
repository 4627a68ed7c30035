"""Reading tiles on a device: values are placed among thresholds, or those that pass levels are listed.

Written in operations of torch, several passes over a tile each.

*Places.*  The values that reach the farthest threshold of their query are listed.  Thresholds of a tile are numbered in
order of value, and each value by the first one that is not nearer.  With the row before this number, both are integer
keys, among which one search finds the nearest threshold that a value reaches.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import entry_owners, take_segments
from reid_dist.engine.distances.devices import TorchDevice
from reid_dist.kernels.deciding import Bands

Int64 = NDArray[np.int64]
Tensor = Any

Kinds = tuple[Tensor, Tensor] | None
"""The kind of each row, and marks of the columns that are hidden from each kind; None where none is."""


class Listed(NamedTuple):
    """Pairs of a tile in order of rows and columns, and a number of each: a threshold, or the value."""

    row: Tensor
    column: Tensor
    what: Tensor


class Side(NamedTuple):
    """What marks the values of one side of a tile: tensors by row, or by column."""

    # A value less the bias of the other side is listed that reaches the level, or does not exceed the lower bound (NaN
    # for none).
    level: Tensor
    least: Tensor
    bias: Tensor


class Thresholds:
    """Thresholds of the queries of a tile, on the device.

    Attributes
    ----------
    place
        Their places among those of the block, shape (n,), int64.
    indptr
        Offsets of those of each row, shape (rows + 1,), int64.
    bands, queries
        What they are made of.
    """

    def __init__(self, device: TorchDevice, bands: Bands, queries: Int64) -> None:
        self._device, self.queries, self.bands = device, queries, bands
        self.indptr, self.place = take_segments(bands.indptr, queries)
        # Edges fall within a query.
        self.lower, self.upper = (device.upload(edges[self.place]) for edges in (bands.lower, bands.upper))

    def widened(self, by: Tensor) -> Thresholds:
        """The same with wider bands, by a number for each row, which rounds once."""
        found, more = copy.copy(self), by[self.owner]
        for computed in ("lowest", "keys"):
            vars(found).pop(computed, None)
        found.lower, found.upper = self.lower - more, self.upper + more
        return found

    @cached_property
    def owner(self) -> Tensor:
        """Row of each threshold."""
        return self._device.upload(entry_owners(self.indptr))

    @cached_property
    def lowest(self) -> Tensor:
        """The lower edge of the farthest threshold of each row; infinite without thresholds."""
        found = self.lower.new_full((len(self.queries),), np.inf)
        has = np.flatnonzero(self.indptr[1:] > self.indptr[:-1])
        found[self._device.upload(has)] = self.lower[self._device.upload(self.indptr[1:][has] - 1)]
        return found

    @cached_property
    def keys(self) -> tuple[Tensor, Tensor]:
        """Falling values of all thresholds, sorted, and the keys of the thresholds."""
        torch = self._device.torch
        ordered = torch.sort(-self.lower).values
        return ordered, (self.owner << 32) | torch.searchsorted(ordered, -self.lower)


def place(device: TorchDevice, values: Tensor, of: Thresholds, kinds: Kinds, group_of: Int64) -> tuple[Tensor, Listed]:
    """Count values by group of columns and nearest threshold that they pass, and list the pairs inside bands.

    Counts have shape (n_groups * n_thresholds,) at least as far as the last one that is not 0; `group_of` is empty for
    one group.
    """
    row, column = seen(device.torch.nonzero(values >= of.lowest[:, None]).unbind(1), kinds)
    return place_listed(device, Listed(row, column, values[row, column]), of, group_of)


def place_listed(device: TorchDevice, listed: Listed, of: Thresholds, group_of: Int64) -> tuple[Tensor, Listed]:
    """As `place`, for listed values that all reach the farthest thresholds of their queries."""
    torch, (row, column, value), (ordered, keys) = device.torch, listed, of.keys
    threshold = torch.searchsorted(keys, (row << 32) | torch.searchsorted(ordered, -value))
    is_open = value <= of.upper[threshold]
    passed = torch.nonzero(~is_open)[:, 0]
    at = threshold[passed]
    if len(group_of):
        at = device.upload(group_of)[column[passed]] * len(of.place) + at
    return torch.bincount(at), Listed(row[is_open], column[is_open], threshold[is_open])


def mark(device: TorchDevice, values: Tensor, rows: Side, columns: Side | None, kinds: Kinds) -> Listed:
    """List the values that pass levels of rows, and of columns unless they are None.

    Without columns, values have no bias.
    """
    torch = device.torch
    mine = values
    if columns is not None and bool(columns.bias.any()):
        mine = values - columns.bias
    marks = mine >= rows.level[:, None]
    if not bool(torch.isnan(rows.least).all()):
        marks |= mine <= rows.least[:, None]
    del mine
    if columns is not None:
        theirs = values - rows.bias[:, None] if bool(rows.bias.any()) else values
        marks |= theirs >= columns.level
        if not bool(torch.isnan(columns.least).all()):
            marks |= theirs <= columns.least
        del theirs
    row, column = seen(torch.nonzero(marks).unbind(1), kinds)
    return Listed(row, column, values[row, column])


def passing(listed: Listed, rows: Side, columns: Side | None, error: Tensor | float) -> Listed:
    """The visible ones of listed values that may pass levels, if they are off by an error at most; else as `mark`."""
    row, column, value = listed
    mine = value if columns is None else value - columns.bias[column]
    may = (mine + error >= rows.level[row]) | (mine - error <= rows.least[row])
    if columns is not None:
        theirs = value - rows.bias[row]
        may |= (theirs + error >= columns.level[column]) | (theirs - error <= columns.least[column])
    may &= ~value.isneginf()
    return Listed(*(each[may] for each in listed))


def seen(pairs: tuple[Tensor, ...], kinds: Kinds) -> tuple[Tensor, ...]:
    """Pairs, their rows and columns first, that are not hidden by kind."""
    if kinds is None:
        return pairs
    visible = ~kinds[1][kinds[0][pairs[0]], pairs[1]]
    return tuple(each[visible] for each in pairs)
