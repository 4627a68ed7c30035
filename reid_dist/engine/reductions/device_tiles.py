"""Tiles of products on a device, by torch.

Rows of both sides are uploaded once, as they are stored, and prepared there.  Values are those of the CPU up to the
same bounds, which hold for every order of summation.

*Memory.*  A tile that is too large for the memory of the device is computed in parts.

*Trust.*  A sample of the values of every tile is compared with canonical distances.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.segments import entry_owners
from reid_dist.engine.distances import Screen
from reid_dist.engine.distances.devices import LEAST_SAMPLED, SAMPLED_ONE_OF, TorchDevice
from reid_dist.engine.distances.screening import RescoredScreen, ScreenedRows, consecutive
from reid_dist.engine.reductions.backends import Backend
from reid_dist.engine.reductions.base import FeatureBlock, HiddenColumns
from reid_dist.engine.reductions.products import float_tile
from reid_dist.errors import RunFailedError
from reid_dist.kernels.canonical import PLAIN, PairRows, pair_distances
from reid_dist.kernels.rescoring import falling_values
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]
T = TypeVar("T")
Tensor = Any
"""A tensor of torch, which has no types where torch is not installed."""


class Sample(NamedTuple):
    """Some values of a tile: their rows and columns, int64, and the values."""

    row: Int64
    column: Int64
    value: NDArray[np.floating]
    # How far they may be off, beyond the bound of the screen.
    error: NDArray[np.floating] | float = 0.0


class _SinglePairs:
    """Listed pairs of a block pair on a device."""

    def __init__(self, device: TorchDevice, indptr: Int64, column: Int64) -> None:
        self._device, n = device, int(indptr[-1])
        self._owner, self._column = device.upload(entry_owners(indptr)), device.upload(column[:n])

    def within(self, queries: Int64, columns: RowRange, n_query: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows and columns in a tile of the pairs that are in it, and their places in the list."""
        row_of = np.full(n_query, -1)
        row_of[queries] = np.arange(len(queries))
        row, column = self._device.upload(row_of)[self._owner], self._column - columns.start
        inside = (row >= 0) & (column >= 0) & (column < len(columns))
        place = self._device.torch.nonzero(inside)[:, 0]
        return row[place], column[place], place


class UploadedRows:
    """The rows of both sides on a device, for products in several precisions.

    Blocks that are read from a set stay there while there is room.
    """

    def __init__(self, device: TorchDevice, query: FeatureBlock, gallery: FeatureBlock) -> None:
        self._device, self._query, self._gallery = device, query, gallery
        self._far: tuple[RowRange, Tensor] | None = None

    @cached_property
    def near(self) -> Tensor:
        """All queries as they are stored."""
        return self._whole(self._query)

    @cached_property
    def _block(self) -> Tensor:
        return self._whole(self._gallery)

    def _whole(self, block: FeatureBlock) -> Tensor:
        stored = block.stored
        return self._device.uploads.send(block.features) if stored is None else self._device.resident.get(stored)

    def far(self, columns: RowRange) -> Tensor:
        """Gallery rows as they are stored."""
        here, stored = slice(columns.start, columns.stop), self._gallery.stored
        if self._far is None or self._far[0] != columns:
            if stored is not None and self._device.resident.fits(stored):
                self._far = columns, self._block[here]
            else:
                rows = self._gallery.features if stored is None else stored.rows
                self._far = columns, self._device.uploads.send(rows[here])
        return self._far[1]


class DeviceTiles(Backend):
    """Products on a device, which come back as tiles."""

    def __init__(self, screen: Screen, rows: PairRows, device: TorchDevice, uploaded: UploadedRows) -> None:
        super().__init__(screen)
        self.device = device
        # Products are those of the plain distance.
        self._plain = rows._replace(rescoring=PLAIN)
        self._dtype = getattr(device.torch, screen.dtype.name)
        self._uploaded = uploaded
        self._columns = RowRange(0, 0)
        self._far: Tensor = None
        self._bias: NDArray[np.floating] = np.empty(0, screen.dtype)
        # By the identity of their columns, which are kept with them.
        self._hidden: dict[int, tuple[Int64, _SinglePairs]] = {}
        self._known: tuple[_SinglePairs, Tensor] | None = None
        # Rows and columns of the sample of a tile of some shape, and their places on the device.
        self._sampled: dict[tuple[int, int], tuple[Int64, Int64, Tensor]] = {}

    def prepare(self, columns: RowRange) -> None:
        """Prepare gallery rows, unless they are the latest."""
        if columns != self._columns:
            here, far = slice(columns.start, columns.stop), self.screen.far
            self._far = self._prepared(self._uploaded.far(columns), far, here)
            self._bias, self._columns = far.bias[here], columns

    def _prepared(self, stored: Tensor, side: ScreenedRows, here: slice | Int64) -> Tensor:
        """Some rows on the device, prepared in float64 and rounded once, as kernels of the CPU do."""
        rows, device = stored.double(), self.device
        if side.origin is not None:
            rows -= device.upload(side.origin).double()
        if side.factor is not None:
            rows *= device.upload(side.factor[here])[:, None]
        return rows.to(self._dtype)

    @cached_property
    def _near(self) -> Tensor:
        """Prepared rows of all queries."""
        return self._prepared(self._uploaded.near, self.screen.near, slice(None))

    def _at(self, queries: Int64) -> slice | Tensor:
        """Places of some queries among all, on the device."""
        place = consecutive(queries)
        return place if isinstance(place, slice) else self.device.upload(place)

    def _products(self, queries: Int64, rows: slice, bias: NDArray[np.floating] | None) -> Tensor:
        """Products of some rows of a tile, less a bias unless it is 0."""
        torch, near = self.device.torch, self._near[self._at(queries[rows])]
        with self.device.exactly():
            if bias is None or not bias.any():
                return torch.mm(near, self._far.T)
            return torch.addmm(self.device.upload(-bias), near, self._far.T)

    def _sample(self, values: Tensor, errors: NDArray[np.floating] | None = None) -> Sample:
        """Some values of a tile; those of hidden pairs are infinite.  `errors` are those of its rows."""
        n, m = values.shape
        if (n, m) not in self._sampled:
            rng, size = np.random.default_rng((n, m)), max(LEAST_SAMPLED, n * m // SAMPLED_ONE_OF)
            places = rng.integers(0, n, size), rng.integers(0, m, size)
            self._sampled[n, m] = *places, self.device.upload(places[0] * m + places[1])
        row, column, place = self._sampled[n, m]
        return Sample(row, column, self.device.download(values.view(-1)[place]), 0.0 if errors is None else errors[row])

    def _check(
        self, samples: tuple[Sample | None, ...], queries: Int64, bias: NDArray[np.floating] | None = None
    ) -> None:
        """Compare samples with canonical distances; `bias` is what has not been subtracted.

        Raises `RunFailedError` where a value is farther from them than the bound.
        """
        for row, column, value, error in filter(None, samples):
            shown = (value if bias is None else value - bias[column]).astype(np.float64)
            visible, query = np.isfinite(shown), queries[row]
            distance = pair_distances(self._plain, query, self._columns.start + column)
            falling = falling_values(self._plain, query, distance, 0.0)
            right, bound = self.screen.centre[query] - self.screen.slope * falling, self.screen.epsilon[query] + error
            wrong = np.flatnonzero(visible & ~(np.abs(shown - right) <= bound))
            if len(wrong):
                at = wrong[0]
                raise RunFailedError(
                    f"{self.device.name} ({self.device.driver}) computed {float(shown[at])!r} where "
                    f"{float(right[at])!r} is right, which differs by more than the bound {float(bound[at]):.3g}: its "
                    "results cannot be trusted; compute on the CPU (--device cpu), and test the device"
                )

    def _in_pieces(
        self,
        n_rows: int,
        columns: RowRange,
        compute: Callable[[slice], T],
        take: Callable[[slice, T], bool],
        first: int = 0,
    ) -> None:
        """Compute the rows of a tile from `first` on, in pieces that the device has memory for; take what comes back.

        Rows are taken without a turn, until `take` returns false.  Raises `RunFailedError` if the device has not even
        memory for small pieces.
        """
        start, step = first, n_rows - first
        while start < n_rows:
            rows = slice(start, min(start + step, n_rows))

            def piece(rows: slice = rows) -> T:
                self.prepare(columns)
                return compute(rows)

            found = self._in_turn(piece, step, len(columns))
            if found is None:
                step = max(1, step // 2)
            elif not take(rows, found):
                return
            else:
                start += step

    def _in_turn(self, compute: Callable[[], T], n_rows: int, n_columns: int) -> T | None:
        """What is computed in a turn; None where memory is too short, and is worth another try with less.

        Raises `RunFailedError` if it is not.
        """
        try:
            with self.device.turn():
                return compute()
        except self.device.torch.OutOfMemoryError:
            pass
        # Behind the handler, nothing refers to what was computed any more.
        if self.device.halve():
            return None
        raise RunFailedError(
            f"{self.device.name} has no memory for tiles of {n_rows} x {n_columns} rows; end other processes "
            "that use it, or compute on the CPU (--device cpu)"
        )

    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns, in memory of this process."""
        values = np.empty((len(queries), len(columns)), self.screen.dtype)

        def compute(rows: slice) -> Sample:
            products = self._products(queries, rows, None)
            values[rows] = self.device.download(products)
            return self._sample(products)

        def take(rows: slice, sample: Sample) -> bool:
            self._check((sample,), queries[rows], self._bias)
            return True

        self._in_pieces(len(queries), columns, compute, take)
        self.screen.correct(queries, columns.start, self._bias, values)
        return float_tile(values, self._bias, queries, columns.start)

    def _seen(self, hidden: HiddenColumns | None, queries: Int64) -> tuple[NDArray[np.floating], Tensor | None]:
        """Bias of the columns, infinite for those that are hidden from all queries; and those hidden by kind of query.

        The second are the places of the kinds of the rows, and marks, shape (kinds, columns); None for a single kind.
        """
        if hidden is None:
            return self._bias, None
        bias, bias_of = hidden.bias(self._bias, self._columns, queries)
        if len(bias) == 1:
            return bias[0], None
        return self._bias, (self.device.upload(bias_of), self.device.upload(np.isinf(bias)))

    def _hide(self, values: Tensor, indptr: Int64, hidden: Int64, queries: Int64) -> None:
        """Set the values of single pairs to minus infinity: listed columns of each query."""
        if id(hidden) not in self._hidden:
            self._hidden[id(hidden)] = hidden, _SinglePairs(self.device, indptr, hidden)
        row, column, _ = self._hidden[id(hidden)][1].within(queries, self._columns, self.screen.shape[0])
        values[row, column] = -self.device.torch.inf

    def _known_of(self, values: Tensor, queries: Int64) -> tuple[Tensor, Tensor, Tensor] | None:
        """Rows and columns of pairs of known distance, and their values: minus infinity where they are hidden."""
        if not isinstance(self.screen, RescoredScreen):
            return None
        if self._known is None:
            indptr, column, known = self.screen.known_pairs
            pairs = _SinglePairs(self.device, indptr, column - self.screen.first_column)
            self._known = pairs, self.device.upload(known.astype(self.screen.dtype))
        row, column, place = self._known[0].within(queries, self._columns, self.screen.shape[0])
        hidden = values[row, column] == -self.device.torch.inf
        return row, column, self._known[1][place].masked_fill(hidden, -self.device.torch.inf)

    def _put_known(self, values: Tensor, queries: Int64) -> None:
        """Overwrite the values of pairs of known distance, unless they are hidden."""
        if (known := self._known_of(values, queries)) is not None:
            values[known[0], known[1]] = known[2]
