"""The backend of a device: products, marks and their compaction by torch; counts and open pairs come back.

Tiles stay on the device.  Values are compared there with the thresholds or levels of their queries, in the same type as
on the CPU and with the same bounds, which hold for every order of summation.

*Places.*  The values that reach the farthest threshold of their query are listed.  Thresholds of a tile are numbered in
order of value, and each value by the first one that is not nearer.  With the query before this number, both are integer
keys, among which one search finds the nearest threshold that a value reaches.

*Memory.*  A tile that is too large for the memory of the device is computed in two halves.

*Trust.*  A sample of the values of every tile is compared with canonical distances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.segments import entry_owners, take_segments
from reid_dist.engine.distances import Screen
from reid_dist.engine.distances.devices import LEAST_SAMPLED, SAMPLED_ONE_OF, TorchDevice
from reid_dist.engine.distances.screening import Affine
from reid_dist.engine.reductions.backends import Advance, Pairs, Rest
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.products import TileProducts, float_tile
from reid_dist.errors import RunFailedError
from reid_dist.kernels.canonical import PLAIN, PairRows, pair_distances
from reid_dist.kernels.deciding import Bands
from reid_dist.kernels.entries import enter_rows
from reid_dist.kernels.rescoring import falling_values
from reid_dist.kernels.symmetric import Side
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]
T = TypeVar("T")
Tensor = Any
"""A tensor of torch, which has no types where torch is not installed."""

# Groups of columns whose largest values bound the nearest items, at least; and per item of a list.
_LEAST_GROUPS, _GROUPS_PER_NEIGHBOUR = 256, 4


class _Sample(NamedTuple):
    """Some values of a tile: their rows and columns, int64, and the values."""

    row: Int64
    column: Int64
    value: NDArray[np.floating]


class _Entries(NamedTuple):
    """Values that pass a level, by row and column, int32, and a sample of all."""

    sample: _Sample
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: NDArray[np.floating]


@dataclass
class _Placed:
    """What is left to hand over of pairs that were placed on the device."""

    pairs: Pairs
    # Open pairs by row: places in the block, and thresholds.
    query: Int64
    column: Int64
    threshold: Int64
    # Offsets of the open pairs of each row, shape (rows + 1,), and the first row that was not added.
    offsets: Int64
    stop: int
    inside: int


class _Thresholds:
    """Thresholds of the queries of a tile on the device."""

    def __init__(self, device: TorchDevice, bands: Bands, queries: Int64) -> None:
        torch = device.torch
        indptr, self.place = take_segments(bands.indptr, queries)
        owner = entry_owners(indptr)
        self.n, self.queries, self.bands = len(self.place), queries, bands
        lower = device.upload(-bands.lower[self.place])
        self.upper = device.upload(bands.upper[self.place])
        # Falling values rise within a query; each is numbered by its place among all.
        self.sorted = torch.sort(lower).values
        self.keys = (device.upload(owner) << 32) | torch.searchsorted(self.sorted, lower)
        has = indptr[1:] > indptr[:-1]
        lowest = np.full(len(queries), np.inf, bands.lower.dtype)
        lowest[has] = bands.lower[self.place[indptr[1:][has] - 1]]
        self.lowest = device.upload(lowest)


class UploadedRows:
    """The latest rows of both sides on a device, for products in several precisions."""

    def __init__(self, device: TorchDevice) -> None:
        self._device = device
        self._near: tuple[Int64, Tensor] | None = None
        self._far: tuple[RowRange, Tensor] | None = None

    def near(self, queries: Int64, rows: NDArray[np.floating]) -> Tensor:
        """Rows of some queries as they are stored."""
        if self._near is None or self._near[0] is not queries:
            self._near = queries, self._device.upload(rows)
        return self._near[1]

    def far(self, columns: RowRange, rows: NDArray[np.floating]) -> Tensor:
        """Gallery rows as they are stored."""
        if self._far is None or self._far[0] != columns:
            self._far = columns, self._device.upload(rows)
        return self._far[1]


class DeviceProducts(TileProducts):
    """Products on a device; see `reid_dist.engine.reductions.backends.Backend`.

    Places and lists are found there.  For other needs, and where some pairs have known distances, tiles come back.
    """

    def __init__(self, screen: Screen, rows: PairRows, device: TorchDevice, uploaded: UploadedRows) -> None:
        super().__init__(screen)
        self.device, self._rows = device, rows
        # Products are those of the plain distance.
        self._plain = rows._replace(rescoring=PLAIN)
        self._dtype = getattr(device.torch, screen.dtype.name)
        self._uploaded = uploaded
        self._columns = RowRange(0, 0)
        self._far: Tensor = None
        self._bias: NDArray[np.floating] = np.empty(0, screen.dtype)
        self._near: tuple[Int64, Tensor] | None = None
        self._thresholds: list[_Thresholds] = []
        self._hidden: tuple[Bands | Side, Tensor, Tensor] | None = None
        self._placed: _Placed | None = None
        # Rows and columns of the sample of a tile of some shape, and their places on the device.
        self._sampled: dict[tuple[int, int], tuple[Int64, Int64, Tensor]] = {}

    def prepare(self, columns: RowRange) -> None:
        """Prepare gallery rows, unless they are the latest."""
        if columns != self._columns:
            here = slice(columns.start, columns.stop)
            affine = self.screen.affine(here, of_gallery=True)
            self._far = self._prepared(self._uploaded.far(columns, affine.rows), affine)
            self._bias, self._columns = self.screen.bias(here), columns

    def _prepared(self, stored: Tensor, affine: Affine) -> Tensor:
        """Rows on the device, prepared in float64 and rounded once, as kernels of the CPU do."""
        rows, device = stored.double(), self.device
        if affine.centre is not None:
            rows -= device.upload(affine.centre).double()
        if affine.factor is not None:
            rows *= device.upload(affine.factor)[:, None]
        return rows.to(self._dtype)

    def _query_rows(self, queries: Int64) -> Tensor:
        if self._near is None or self._near[0] is not queries:
            affine = self.screen.affine(queries, of_gallery=False)
            self._near = queries, self._prepared(self._uploaded.near(queries, affine.rows), affine)
        return self._near[1]

    def _products(self, queries: Int64, rows: slice, bias: NDArray[np.floating] | None) -> Tensor:
        """Products of some rows of a tile, less a bias unless it is 0."""
        torch, near = self.device.torch, self._query_rows(queries)[rows]
        with self.device.exactly():
            if bias is None or not bias.any():
                return torch.mm(near, self._far.T)
            return torch.addmm(self.device.upload(-bias), near, self._far.T)

    def _sample(self, values: Tensor) -> _Sample:
        """Some values of a tile; those of hidden pairs are infinite."""
        n, m = values.shape
        if (n, m) not in self._sampled:
            rng, size = np.random.default_rng((n, m)), max(LEAST_SAMPLED, n * m // SAMPLED_ONE_OF)
            places = rng.integers(0, n, size), rng.integers(0, m, size)
            self._sampled[n, m] = *places, self.device.upload(places[0] * m + places[1])
        row, column, place = self._sampled[n, m]
        return _Sample(row, column, self.device.download(values.view(-1)[place]))

    def _check(self, sample: _Sample, queries: Int64, bias: NDArray[np.floating] | None = None) -> None:
        """Compare a sample with canonical distances; `bias` is what has not been subtracted.

        Raises `RunFailedError` where a value is farther from them than the bound.
        """
        row, column, value = sample
        shown = (value if bias is None else value - bias[column]).astype(np.float64)
        visible, query = np.isfinite(shown), queries[row]
        distance = pair_distances(self._plain, query, self._columns.start + column)
        falling = falling_values(self._plain, query, distance, 0.0)
        right = self.screen.centre[query] - self.screen.slope * falling
        wrong = np.flatnonzero(visible & ~(np.abs(shown - right) <= self.screen.epsilon[query]))
        if len(wrong):
            at = wrong[0]
            raise RunFailedError(
                f"{self.device.name} ({self.device.driver}) computed {float(shown[at])!r} where {float(right[at])!r} "
                f"is right, which differs by more than the bound {float(self.screen.epsilon[query[at]]):.3g}: its "
                "results cannot be trusted; compute on the CPU (--device cpu), and test the device"
            )

    def _in_pieces(
        self, n_rows: int, columns: RowRange, compute: Callable[[slice], T], take: Callable[[slice, T], bool]
    ) -> None:
        """Compute the rows of a tile on the device, in pieces that it has memory for, and take what comes back.

        Rows are taken without a turn, until `take` returns false.  Raises `RunFailedError` if the device has not even
        memory for small pieces.
        """
        start, step = 0, n_rows
        while start < n_rows:
            rows = slice(start, min(start + step, n_rows))
            try:
                with self.device.turn():
                    self.prepare(columns)
                    found = compute(rows)
            except self.device.torch.OutOfMemoryError:
                found = None
            # Behind the handler, nothing refers to what was computed any more.
            if found is not None:
                if not take(rows, found):
                    return
                start += step
            elif not self.device.halve():
                raise RunFailedError(
                    f"{self.device.name} has no memory for tiles of {step} x {len(columns)} rows; end other processes "
                    "that use it, or compute on the CPU (--device cpu)"
                )
            else:
                step = max(1, step // 2)

    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns, in memory of this process."""
        values = np.empty((len(queries), len(columns)), self.screen.dtype)

        def compute(rows: slice) -> _Sample:
            products = self._products(queries, rows, None)
            values[rows] = self.device.download(products)
            return self._sample(products)

        def take(rows: slice, sample: _Sample) -> bool:
            self._check(sample, queries[rows], self._bias)
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

    def _hide(
        self, values: Tensor, key: Bands | Side, listed: tuple[Int64, Int64], queries: Int64, rows: slice
    ) -> None:
        """Set the values of single pairs to minus infinity."""
        torch, device = self.device.torch, self.device
        if self._hidden is None or self._hidden[0] is not key:
            self._hidden = key, device.upload(entry_owners(listed[0])), device.upload(listed[1][: listed[0][-1]])
        _, owner, column = self._hidden
        if not len(column):
            return
        row_of = np.full(self.screen.shape[0], -1)
        row_of[queries[rows]] = np.arange(len(values))
        row, place = device.upload(row_of)[owner], column - self._columns.start
        here = torch.nonzero((row >= 0) & (place >= 0) & (place < values.shape[1]))[:, 0]
        values[row[here], place[here]] = -torch.inf

    def _entries(self, marks: Tensor, shown: Tensor | None, rows: slice) -> tuple[Tensor, Tensor]:
        """Rows and columns of marked values, in order, that are not hidden by kind."""
        row, column = self.device.torch.nonzero(marks).unbind(1)
        if shown is None:
            return row, column
        kind_of, is_hidden = shown
        seen = ~is_hidden[kind_of[rows][row], column]
        return row[seen], column[seen]

    def place(
        self, pairs: Pairs, bands: Bands, rest: Rest, counts: NDArray[np.int32], group_of: Int64, many: int | None
    ) -> Advance:
        """Count pairs by place and by group of columns."""
        if self._rows.rescoring.active:
            return super().place(pairs, bands, rest, counts, group_of, many)
        if self._placed is None or self._placed.pairs is not pairs:
            self._placed = self._place(pairs, bands, rest, counts, group_of)
        placed = self._placed
        # As many rows as find room.
        room = len(rest.open.query) - rest.n_open
        first = rest.first
        stop = int(np.searchsorted(placed.offsets, placed.offsets[first] + room, "right")) - 1
        stop = min(max(stop, first), placed.stop)
        here = slice(int(placed.offsets[first]), int(placed.offsets[stop]))
        there = slice(rest.n_open, rest.n_open + here.stop - here.start)
        rest.open.query[there], rest.open.column[there] = placed.query[here], placed.column[here]
        rest.open.place[there] = placed.threshold[here]
        if stop == placed.stop:
            self._placed = None
            return stop, there.stop, placed.inside
        return stop, there.stop, 0

    def _place(self, pairs: Pairs, bands: Bands, rest: Rest, counts: NDArray[np.int32], group_of: Int64) -> _Placed:
        """Count the pairs whose values decide, up to a row with which too many do not."""
        device, torch = self.device, self.device.torch
        queries, columns, hidden = pairs
        n_groups = max(1, len(counts))
        place_of = bands.positive_start[:-1] + 2 * np.arange(len(bands.positive_start) - 1)
        parts: list[tuple[Int64, Int64, Int64]] = []
        n_inside, stop = 0, len(queries)

        def compute(rows: slice) -> tuple[_Sample, tuple[Int64, ...], int, int, Int64, Int64]:
            bias, kinds = self._seen(hidden, queries)
            values = self._products(queries, rows, bias)
            sample, thresholds = self._sample(values), self._thresholds_of(bands, queries, rows)
            self._hide(values, bands, (bands.hidden_indptr, bands.hidden_column), queries, rows)
            row, column = self._entries(values >= thresholds.lowest[:, None], kinds, rows)
            value = values[row, column]
            del values
            key = (row << 32) | torch.searchsorted(thresholds.sorted, -value)
            threshold = torch.searchsorted(thresholds.keys, key)
            is_open = value <= thresholds.upper[threshold]
            opened = device.download(row[is_open])
            sums = np.cumsum(np.bincount(opened, minlength=rows.stop - rows.start))
            # Rows up to one with which more pairs are open than is worth it.
            n_fitting = int(np.searchsorted(sums, rest.limit - n_inside, "right"))
            n_kept = int(sums[n_fitting - 1]) if n_fitting else 0
            passed = torch.nonzero(~is_open & (row < n_fitting))[:, 0]
            place = threshold[passed]
            if len(group_of):
                place = device.upload(group_of)[column[passed]] * thresholds.n + place
            found = device.download(torch.bincount(place, minlength=n_groups * thresholds.n))
            others = (device.download(each[is_open])[:n_kept] for each in (column, threshold))
            entries = (opened[:n_kept], *others)
            return sample, entries, n_fitting, int(sums[-1]), found, thresholds.place

        def take(rows: slice, given: tuple[_Sample, tuple[Int64, ...], int, int, Int64, Int64]) -> bool:
            nonlocal n_inside, stop
            sample, (row, column, threshold), n_fitting, inside, found, numbers = given
            self._check(sample, queries[rows])
            # Positives between them make places of thresholds differ.
            counts[:, place_of[numbers]] += found.reshape(n_groups, -1).astype(np.int32)
            parts.append((row + rows.start, column, numbers[threshold]))
            n_inside += inside
            stop = rows.start + n_fitting
            return bool(n_fitting == rows.stop - rows.start)

        self._in_pieces(len(queries), columns, compute, take)
        row, column, threshold = (np.concatenate(each) for each in zip(*parts, strict=True))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(queries)))])
        return _Placed(pairs, queries[row], columns.start + column, threshold, offsets, stop, n_inside)

    def _thresholds_of(self, bands: Bands, queries: Int64, rows: slice) -> _Thresholds:
        """Thresholds of some queries of a tile, which further tiles mostly need again."""
        whole = rows.stop - rows.start == len(queries)
        if not whole:
            return _Thresholds(self.device, bands, queries[rows])
        found = next((each for each in self._thresholds if each.bands is bands and each.queries is queries), None)
        if found is None:
            found = _Thresholds(self.device, bands, queries)
            self._thresholds.append(found)
        return found

    def nearest(self, pairs: Pairs, side: Side) -> int:
        """Add pairs to the lists of their queries."""
        if self._rows.rescoring.active:
            return super().nearest(pairs, side)
        device = self.device
        queries, columns, hidden = pairs

        def compute(rows: slice) -> _Entries:
            bias, kinds = self._seen(hidden, queries)
            values, own = self._products(queries, rows, bias), queries[rows]
            sample = self._sample(values)
            self._hide(values, side, (side.struck_indptr, side.struck), queries, rows)
            self._begin(values, own, side, None if kinds is None else (kinds[0][rows], kinds[1]))
            marks = values >= device.upload(side.lists.level[own])[:, None]
            if not np.isnan(side.lower_bound[own]).all():
                marks |= values <= device.upload(side.lower_bound[own])[:, None]
            return self._found(sample, values, *self._entries(marks, kinds, rows))

        def take(rows: slice, found: _Entries) -> bool:
            own = queries[rows]
            self._check(found.sample, own)
            item, other = own[found.row].astype(np.int32), found.column + np.int32(columns.start)
            enter_rows(item, other, found.value, np.empty(0, found.value.dtype), side)
            return True

        self._in_pieces(len(queries), columns, compute, take)
        return 0

    def _found(self, sample: _Sample, values: Tensor, row: Tensor, column: Tensor) -> _Entries:
        """Values at some places, on the CPU."""
        return _Entries(
            sample, *(self.device.download(each) for each in (row.int(), column.int(), values[row, column]))
        )

    def _begin(self, values: Tensor, own: Int64, side: Side, shown: tuple[Tensor, Tensor] | None) -> None:
        """Set the levels of lists that have none from the largest values of groups of columns."""
        device, torch, lists = self.device, self.device.torch, side.lists
        limits = np.finfo(self.screen.dtype)
        begins = np.flatnonzero((lists.level[own] == limits.min) | (side.lower_bound[own] == limits.max))
        if not len(begins):
            return
        first = values if len(begins) == len(own) else values[device.upload(begins)]
        left_out = None
        if shown is not None:
            left_out = shown[1][shown[0][device.upload(begins)]]
        if len(side.label):
            other = side.other_label[self._columns.start : self._columns.stop]
            equal = device.upload(side.label[own[begins]])[:, None] == device.upload(other)
            left_out = equal if left_out is None else left_out | equal
        if left_out is not None:
            first = first.masked_fill(left_out, -torch.inf)
        items, wanted = own[begins], lists.k + 1
        band = 2.0 * lists.epsilon[items]
        n_groups = min(first.shape[1], max(_LEAST_GROUPS, _GROUPS_PER_NEIGHBOUR * wanted))
        if n_groups >= wanted:
            size = first.shape[1] // n_groups
            largest = first[:, : size * n_groups].view(len(begins), size, n_groups).amax(1)
            reached = device.download(largest.topk(wanted).values[:, -1]).astype(np.float64)
            edge = reached - band
            level = np.maximum(edge - np.abs(edge) * 2.0**-22 - 2.0**-125, limits.min).astype(self.screen.dtype)
            lists.level[items] = np.where(lists.level[items] == limits.min, level, lists.level[items])
        if (side.lower_bound[items] == limits.max).any():
            least = device.download(torch.where(first == -torch.inf, torch.inf, first).amin(1)).astype(np.float64)
            edge = least + band
            bound = np.minimum(edge + np.abs(edge) * 2.0**-22 + 2.0**-125, limits.max).astype(self.screen.dtype)
            side.lower_bound[items] = np.where(side.lower_bound[items] == limits.max, bound, side.lower_bound[items])

    def nearest_both_ways(self, pairs: Pairs, near: Side, far: Side) -> int:
        """Add pairs of different items to the lists of queries and of columns."""
        device, torch = self.device, self.device.torch
        queries, columns, _ = pairs
        there = slice(columns.start, columns.stop)

        def compute(rows: slice) -> _Entries:
            own = queries[rows]
            values = self._products(queries, rows, None)
            sample = self._sample(values)
            less_column, less_row = far.bias[there], near.bias[own]
            mine = values - device.upload(less_column) if less_column.any() else values
            marks = mine >= device.upload(near.lists.level[own])[:, None]
            if not np.isnan(near.lower_bound[own]).all():
                marks |= mine <= device.upload(near.lower_bound[own])[:, None]
            del mine
            theirs = values - device.upload(less_row)[:, None] if less_row.any() else values
            marks |= theirs >= device.upload(far.lists.level[there])
            if not np.isnan(far.lower_bound[there]).all():
                marks |= theirs <= device.upload(far.lower_bound[there])
            del theirs
            return self._found(sample, values, *torch.nonzero(marks).unbind(1))

        def take(rows: slice, found: _Entries) -> bool:
            own = queries[rows]
            self._check(found.sample, own, far.bias[there])
            item, other = own[found.row].astype(np.int32), found.column + np.int32(columns.start)
            enter_rows(item, other, found.value, far.bias, near)
            enter_rows(other, item, found.value, near.bias, far)
            return True

        self._in_pieces(len(queries), columns, compute, take)
        return 0
