"""The backend of a device in eight bits: rows are quantised there, and values that stay undecided are refined there.

Bounds are those of `reid_dist.engine.distances.quantised`: bands and levels are widened by them.  A value inside is
computed once more from prepared rows, elementwise in float32, which the bound of the screen covers as it covers any
order of summation; only what is still open comes back.

*Rows.*  Lengths of rows and residuals are computed in float64, in which a product of a scale and an integer is exact.
They carry fewer than ``dim + 4`` roundings, of a relative 2^-53 each.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances.devices import LEAST_SAMPLED, TorchDevice
from reid_dist.engine.distances.quantised import QuantisedRows, slack_of
from reid_dist.engine.reductions import scans
from reid_dist.engine.reductions.device_products import DeviceProducts, Marked, Placing
from reid_dist.engine.reductions.device_tiles import Sample, Tensor
from reid_dist.engine.reductions.scans import Kinds, Listed, Thresholds
from reid_dist.engine.reductions.scans import Side as Marking
from reid_dist.kernels.quantising import LARGEST_INTEGER, SMALLEST
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]

# Elements that are quantised at once, in float64, and of rows whose products are computed singly at once.
_QUANTISED_AT_ONCE: Final = 1 << 22
_REFINED_AT_ONCE: Final = 1 << 24


class IntegersOnDevice(QuantisedRows):
    """Prepared rows of a device, shape (n, dim), float32, in eight bits.

    Attributes
    ----------
    integers
        Shape (n, dim), int8.
    scale
        Shape (n,), float32.
    """

    def __init__(self, device: TorchDevice, prepared: Tensor) -> None:
        torch, dim = device.torch, prepared.shape[1]
        largest = prepared.abs().amax(1)
        self.scale: Tensor = torch.where(largest > SMALLEST, largest / LARGEST_INTEGER, torch.zeros_like(largest))
        self.integers: Tensor = torch.empty(prepared.shape, dtype=torch.int8, device=prepared.device)
        bounds = torch.empty(len(prepared), 2, dtype=torch.float64, device=prepared.device)
        step = max(1, _QUANTISED_AT_ONCE // dim)
        for start in range(0, len(prepared), step):
            here = slice(start, start + step)
            rows, scale = prepared[here].double(), self.scale[here, None].double()
            whole = torch.where(scale > 0, rows / scale, 0.0).round()
            self.integers[here] = whole.to(torch.int8)
            bounds[here, 0], bounds[here, 1] = rows.norm(dim=1), (rows - whole * scale).norm(dim=1)
        super().__init__((1.0 + 2.0**-36) * device.download(bounds))


class DeviceIntegers(DeviceProducts):
    """Products of eight-bit integers on a device, for needs whose values do not leave it.

    `screen` is that of products in float32, whose prepared rows are quantised.
    """

    def prepare(self, columns: RowRange) -> None:
        """Prepare gallery rows, unless they are the latest."""
        if columns != self._columns:
            super().prepare(columns)
            self._other = IntegersOnDevice(self.device, self._far)

    @cached_property
    def _own(self) -> IntegersOnDevice:
        """All queries in eight bits."""
        return IntegersOnDevice(self.device, self._near)

    def _products(self, queries: Int64, rows: slice, bias: NDArray[np.floating] | None) -> Tensor:
        """Values of some rows of a tile, less a bias unless it is 0."""
        own, other, at = self._own, self._other, self._at(queries[rows])
        values = self.device.integer_values(own.integers[at], other.integers, own.scale[at], other.scale)
        if bias is not None and bias.any():
            values -= self.device.upload(bias)
        return values

    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        raise AssertionError("values in eight bits do not leave a device")

    def _errors(self, queries: Int64) -> NDArray[np.float32]:
        """How far the values of some queries and the current columns may be off, beyond the bound of the screen."""
        return self._own.error(queries, self._other, slack_of(self.screen))

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """Errors of the values of all queries, as some columns show them, shape (n_query,), rounded up."""
        every, far = np.arange(self.screen.shape[0]), self.screen.far

        def compute() -> NDArray[np.float32]:
            some = IntegersOnDevice(self.device, self._prepared(self.device.upload(far.rows[columns]), far, columns))
            return self._own.error(every, some, slack_of(self.screen))

        while (found := self._in_turn(compute, len(every), len(columns))) is None:
            pass
        return found

    def _refined(self, own: Int64, row: Tensor, column: Tensor) -> Tensor:
        """Products in float32 of listed rows and columns of a tile, no bias subtracted."""
        torch, near, far = self.device.torch, self._near[self._at(own)], self._far
        step = max(1, _REFINED_AT_ONCE // far.shape[1])
        values = torch.empty(len(row), dtype=far.dtype, device=far.device)
        for start in range(0, len(row), step):
            here = slice(start, start + step)
            # A product of matrices might be computed in less precision.
            values[here] = (near[row[here]] * far[column[here]]).sum(1)
        return values

    def _sample_listed(self, listed: Listed) -> Sample:
        """Some of the values that were refined."""
        step = max(1, len(listed.row) // LEAST_SAMPLED)
        return Sample(*(self.device.download(each[::step]) for each in listed))

    def _placed_values(
        self, values: Tensor, own: Int64, thresholds: Thresholds, kinds: Kinds, group_of: Int64, limit: int
    ) -> Placing:
        """Place values, and again those that lie inside wider bands."""
        torch, device = self.device.torch, self.device
        known = self._known_of(values, own)
        if known is not None:
            # Their values are not those of products.
            values[known[0], known[1]] = -torch.inf
        wide = thresholds.widened(device.upload(self._errors(own)))
        first = self._placed_once(values, wide, kinds, group_of, limit)
        row, column, _ = first.opened
        bias = device.upload(self._bias)
        refined = Listed(row, column, self._refined(own, row, column) - bias[column])
        sample = self._sample_listed(refined)
        if known is not None:
            shown = Listed(*scans.seen(known, kinds))
            shown = Listed(*(each[shown.row < first.n_fitting] for each in shown))
            refined = Listed(*(torch.cat(both) for both in zip(refined, shown, strict=True)))
            order = torch.argsort((refined.row << 32) | refined.column)
            refined = Listed(*(each[order] for each in refined))
        reaching = refined.what >= thresholds.lowest[refined.row]
        reached = Listed(*(each[reaching] for each in refined))
        counts, opened = scans.place_listed(device, reached, thresholds, group_of)
        longer, shorter = (first.counts, counts) if len(first.counts) >= len(counts) else (counts, first.counts)
        longer[: len(shorter)] += shorter
        return Placing(longer, opened, first.n_fitting, first.n_inside, sample)

    def _marked_values(
        self, values: Tensor, own: Int64, rows: Marking, columns: Marking | None, kinds: Kinds
    ) -> Marked:
        """Mark values, and again those that pass lower levels."""
        error, spared = self._errors(own), self._own.spared(own, self._other)
        most, of_row = float(error.max(initial=0.0)), self.device.upload(error)
        low = Marking(rows.level - of_row, rows.least + of_row, rows.bias)
        others = None if columns is None else Marking(columns.level - most, columns.least + most, columns.bias)
        listed = super()._marked_values(values, own, low, others, kinds).listed
        left = of_row[listed.row] - self.device.upload(spared)[listed.column]
        row, column, _ = scans.passing(listed, rows, columns, left)
        value = self._refined(own, row, column)
        if columns is None:
            value -= self.device.upload(self._bias)[column]
        refined = Listed(row, column, value)
        return Marked(scans.passing(refined, rows, columns, 0.0), len(row), self._sample_listed(refined))
