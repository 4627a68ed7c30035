"""Keys of values on a device: histograms, and counts between brackets, as of `reid_dist.kernels.impostors`.

Values of hidden pairs are minus infinity: their keys are those of infinity, beyond all brackets that are counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.distances.devices import TorchDevice
from reid_dist.engine.reductions.backends import Seen
from reid_dist.engine.reductions.device_tiles import Tensor
from reid_dist.engine.reductions.scans import Listed
from reid_dist.kernels.impostors import DROPPED_BITS, LARGEST_KEY, Brackets

Int64 = NDArray[np.int64]


def _places(device: TorchDevice, values: Tensor, seen: Seen, own: Int64) -> Tensor:
    """Places of the keys of the falling values of a tile, int32."""
    falling = device.upload(seen.centre[own])[:, None] - values
    falling *= float(seen.scale)
    bits = falling.float().view(device.torch.int32)
    sign = bits >> 31
    bits &= 0x7FFFFFFF
    bits >>= DROPPED_BITS
    # Two's complement: negative where the sign is -1.
    bits ^= sign
    bits -= sign
    bits += LARGEST_KEY
    return bits


def count_keys(device: TorchDevice, values: Tensor, seen: Seen, own: Int64) -> tuple[int, Int64]:
    """Count the finite values of a tile by place of key; the first place, and counts from it on."""
    places = _places(device, values, seen, own).view(-1)
    places = places[places < 2 * LARGEST_KEY]
    if not len(places):
        return 0, np.empty(0, np.int64)
    first = int(places.min())
    places -= first
    return first, device.download(device.torch.bincount(places))


class Table(NamedTuple):
    """Brackets on a device."""

    brackets: Brackets
    at_place: Tensor
    falling: Tensor

    @classmethod
    def of(cls, device: TorchDevice, brackets: Brackets) -> Table:
        """Copy brackets to a device."""
        return cls(brackets, device.upload(brackets.at_place.astype(np.int32)), device.upload(brackets.falling))


class Split(NamedTuple):
    """Values of a tile by entry: those of a key that lies in one gap, and those that were compared."""

    # Shape of the tile, int32; an odd one for values that were compared.
    entry: Tensor
    # Compared values that are in a gap, by its entry, and those that may be inside a bracket.
    settled: Listed
    opened: Listed


def split(device: TorchDevice, values: Tensor, seen: Seen, table: Table, own: Int64) -> Split:
    """Find the gaps of the values of a tile: the entry of gap ``g`` is ``2 g``."""
    torch, (brackets, at_place, edges) = device.torch, table
    entry = at_place[_places(device, values, seen, own)]
    row, column = torch.nonzero((entry % 2 == 1) & (values > -torch.inf)).unbind(1)
    centre, epsilon = (device.upload(each[own])[row] for each in (brackets.centre, brackets.epsilon))
    fall = centre - values[row, column].double()
    # Covers the roundings of this line and of the edges, in float64.
    width, scale = epsilon + 2.0**-50 * (centre.abs() + fall.abs()), float(seen.scale)
    near, far = (torch.searchsorted(edges, (fall + side * width) * scale, right=True) for side in (-1, 1))
    is_open = (near != far) | (near % 2 == 1)
    opened, settled = (Listed(row[which], column[which], near[which]) for which in (is_open, ~is_open))
    return Split(entry, settled, opened)


def count_gaps(device: TorchDevice, found: Split, n_rows: int, n_gaps: int, *, by_row: bool) -> Int64:
    """Count the values of the first rows by gap, or by row and gap: shape (n_gaps,) or (n_rows, n_gaps)."""
    torch, size = device.torch, 2 * n_gaps + 2
    entry, settled = found.entry[:n_rows], found.settled
    own, row = settled.what[settled.row < n_rows], settled.row[settled.row < n_rows]
    if not by_row:
        counts = torch.bincount(entry.reshape(-1), minlength=size) + torch.bincount(own, minlength=size)
        return device.download(counts)[: 2 * n_gaps : 2]
    # A tile has at most 2^14 rows and 2^16 gaps.
    first = size * torch.arange(n_rows, dtype=torch.int64, device=entry.device)
    counts = torch.bincount((entry + first[:, None]).view(-1), minlength=size * n_rows)
    counts += torch.bincount(own + size * row, minlength=size * n_rows)
    return device.download(counts).reshape(n_rows, size)[:, : 2 * n_gaps : 2]
