"""The backend of a device: places, gaps and lists are found there by torch, and counts and open pairs come back.

Values are compared with the thresholds or levels of their queries, in the same type as on the CPU.  Those that pass are
listed on the device, and entered on the CPU.

For other needs, tiles come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import owner_offsets
from reid_dist.engine.distances import Screen
from reid_dist.engine.distances.devices import TorchDevice
from reid_dist.engine.reductions import device_keys, scans
from reid_dist.engine.reductions.backends import Advance, Pairs, Rest, Seen
from reid_dist.engine.reductions.base import HiddenColumns
from reid_dist.engine.reductions.device_tiles import DeviceTiles, Sample, Tensor, UploadedRows
from reid_dist.engine.reductions.scans import Kinds, Listed, Thresholds
from reid_dist.engine.reductions.scans import Side as Marking
from reid_dist.kernels.canonical import PairRows
from reid_dist.kernels.deciding import Bands
from reid_dist.kernels.impostors import Brackets
from reid_dist.kernels.symmetric import Side, enter_rows

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

# Groups of columns whose largest values bound the nearest items, at least; and per item of a list.
_LEAST_GROUPS, _GROUPS_PER_NEIGHBOUR = 256, 4


class Placing(NamedTuple):
    """Values of a tile that were placed among thresholds."""

    # Counts as of `reid_dist.engine.reductions.scans.place`, and open pairs of the rows that fit.
    counts: Tensor
    opened: Listed
    # Rows up to one with which more values lie inside bands than is worth it, and the number of all that do.
    n_fitting: int
    n_inside: int
    # Values that were computed singly.
    refined: Sample | None = None


class Marked(NamedTuple):
    """Values of a tile that pass a level, how many were computed singly, and a sample of these."""

    listed: Listed
    n_refined: int = 0
    refined: Sample | None = None


class _Found(NamedTuple):
    """What was found in some rows of a tile, on the CPU."""

    samples: tuple[Sample | None, ...]
    # Open pairs: rows and columns in the piece, and thresholds.
    opened: tuple[Int64, Int64, Int64]
    # As of `Placing`.
    n_fitting: int
    n_inside: int
    # Adds what was counted.
    add: Callable[[], None]


class _Placed(NamedTuple):
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


class DeviceProducts(DeviceTiles):
    """Products on a device; see `reid_dist.engine.reductions.backends.Backend`."""

    def __init__(self, screen: Screen, rows: PairRows, device: TorchDevice, uploaded: UploadedRows) -> None:
        super().__init__(screen, rows, device, uploaded)
        self._thresholds: list[Thresholds] = []
        self._table: device_keys.Table | None = None
        self._placed: _Placed | None = None

    def place(
        self, pairs: Pairs, bands: Bands, rest: Rest, counts: NDArray[np.int32], group_of: Int64, many: int | None
    ) -> Advance:
        """Count pairs by place and by group of columns."""
        device, (queries, _, hidden) = self.device, pairs
        n_groups = max(1, len(counts))
        place_of = bands.positive_start[:-1] + 2 * np.arange(len(bands.positive_start) - 1)

        def find(rows: slice, limit: int) -> _Found:
            bias, kinds = self._seen(hidden, queries[rows])
            values, own = self._products(queries, rows, bias), queries[rows]
            sample, thresholds = self._sample(values, self._errors(own)), self._thresholds_of(bands, queries, rows)
            self._hide(values, bands.hidden_indptr, bands.hidden_column, own)
            placing = self._placed_values(values, own, thresholds, kinds, group_of, limit)
            del values
            numbers = np.zeros((n_groups, len(thresholds.place)), np.int32)
            numbers.reshape(-1)[: len(placing.counts)] = device.download(placing.counts)
            numbers[:, thresholds.indptr[placing.n_fitting] :] = 0
            row, column, threshold = (device.download(each) for each in placing.opened)

            def add() -> None:
                # Positives between them make places of thresholds differ.
                counts[:, place_of[thresholds.place]] += numbers

            opened = row, column, thresholds.place[threshold]
            return _Found((sample, placing.refined), opened, placing.n_fitting, placing.n_inside, add)

        return self._advance(pairs, rest, find)

    def _advance(self, pairs: Pairs, rest: Rest, find: Callable[[slice, int], _Found]) -> Advance:
        """Hand over the open pairs of as many rows as find room.

        Those of all rows are found at once: `find` takes rows, and how many values may lie inside bands.
        """
        if self._placed is None or self._placed.pairs is not pairs:
            self._placed = self._placed_rows(pairs, rest, find)
        placed = self._placed
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

    def _placed_rows(self, pairs: Pairs, rest: Rest, find: Callable[[slice, int], _Found]) -> _Placed:
        """Find pairs up to a row with which too many values lie inside bands."""
        queries, columns, _ = pairs
        parts: list[tuple[Int64, Int64, Int64]] = []
        n_inside, stop = 0, len(queries)

        def take(rows: slice, found: _Found) -> bool:
            nonlocal n_inside, stop
            self._check(found.samples, queries[rows])
            found.add()
            row, column, threshold = found.opened
            parts.append((row + rows.start, column, threshold))
            n_inside += found.n_inside
            stop = rows.start + found.n_fitting
            return bool(found.n_fitting == rows.stop - rows.start)

        # Rows before it were added in another precision.
        self._in_pieces(len(queries), columns, lambda rows: find(rows, rest.limit - n_inside), take, rest.first)
        row, column, threshold = (np.concatenate(each) for each in zip(*parts, strict=True))
        offsets = owner_offsets(row, len(queries))
        return _Placed(pairs, queries[row], columns.start + column, threshold, offsets, stop, n_inside)

    def _thresholds_of(self, bands: Bands, queries: Int64, rows: slice) -> Thresholds:
        """Thresholds of some queries of a tile, which further tiles mostly need again."""
        whole = rows.stop - rows.start == len(queries)
        if not whole:
            return Thresholds(self.device, bands, queries[rows])
        found = next((each for each in self._thresholds if each.bands is bands and each.queries is queries), None)
        if found is None:
            found = Thresholds(self.device, bands, queries)
            self._thresholds.append(found)
        return found

    def nearest(self, pairs: Pairs, side: Side) -> int:
        """Add pairs to the lists of their queries."""
        device, (queries, _, hidden) = self.device, pairs

        def mark(rows: slice) -> tuple[Sample, Marked]:
            bias, kinds = self._seen(hidden, queries[rows])
            values, own = self._products(queries, rows, bias), queries[rows]
            sample = self._sample(values, self._errors(own))
            self._hide(values, side.struck_indptr, side.struck, own)
            self._put_known(values, own)
            self._begin(values, own, side, kinds)
            level, least = (device.upload(each[own]) for each in (side.lists.level, side.lower_bound))
            return sample, self._marked_values(values, own, Marking(level, least, level), None, kinds)

        def enter(item: Int32, other: Int32, value: NDArray[np.floating]) -> None:
            enter_rows(item, other, value, np.empty(0, value.dtype), side)

        return self._enter(pairs, mark, enter)

    def _enter(
        self,
        pairs: Pairs,
        mark: Callable[[slice], tuple[Sample, Marked]],
        enter: Callable[[Int32, Int32, NDArray[np.floating]], None],
        bias: NDArray[np.floating] | None = None,
    ) -> int:
        """Mark values of some rows at a time, and enter them by query, column and value; `bias` is as of `_check`."""
        device, (queries, columns, _), n_refined = self.device, pairs, 0

        def compute(rows: slice) -> tuple[tuple[Sample | None, ...], int, list[NDArray[Any]]]:
            sample, marked = mark(rows)
            row, column, value = marked.listed
            found = [device.download(each) for each in (row.int(), column.int(), value)]
            return (sample, marked.refined), marked.n_refined, found

        def take(rows: slice, given: tuple[tuple[Sample | None, ...], int, list[NDArray[Any]]]) -> bool:
            nonlocal n_refined
            samples, n, (row, column, value) = given
            own = queries[rows]
            self._check(samples, own, bias)
            enter(own[row].astype(np.int32), column + np.int32(columns.start), value)
            n_refined += n
            return True

        self._in_pieces(len(queries), columns, compute, take)
        return n_refined

    def _errors(self, queries: Int64) -> NDArray[np.float32] | None:
        """How far the values of some queries and the current columns may be off, beyond the bound of the screen."""
        return None

    def _placed_values(
        self, values: Tensor, own: Int64, thresholds: Thresholds, kinds: Kinds, group_of: Int64, limit: int
    ) -> Placing:
        """Place values, of which `limit` may lie inside bands."""
        self._put_known(values, own)
        return self._placed_once(values, thresholds, kinds, group_of, limit)

    def _placed_once(
        self, values: Tensor, thresholds: Thresholds, kinds: Kinds, group_of: Int64, limit: int
    ) -> Placing:
        """Place values, those that lie inside bands in no narrower ones."""
        counts, opened = scans.place(self.device, values, thresholds, kinds, group_of)
        opened, n_fitting, n_inside = self._fitting(opened, len(values), limit)
        return Placing(counts, opened, n_fitting, n_inside)

    def _fitting(self, opened: Listed, n_rows: int, limit: int) -> tuple[Listed, int, int]:
        """Open pairs of the rows up to one with which they exceed a limit; how many rows that is, and all pairs."""
        sums = np.cumsum(np.bincount(self.device.download(opened.row), minlength=n_rows))
        n_fitting = int(np.searchsorted(sums, limit, "right"))
        n_kept = int(sums[n_fitting - 1]) if n_fitting else 0
        return Listed(*(each[:n_kept] for each in opened)), n_fitting, int(sums[-1])

    def error(self, pairs: Pairs) -> float:
        """None beyond that of the screen: these values are not in eight bits."""
        return 0.0

    def _impostors(
        self, queries: Int64, rows: slice, hidden: HiddenColumns | None, seen: Seen
    ) -> tuple[Tensor, Sample]:
        """Values of some rows of a tile, minus infinity for all pairs that are not counted, and a sample of them."""
        torch, own = self.device.torch, queries[rows]
        bias, kinds = self._seen(hidden, own)
        values = self._products(queries, rows, bias)
        sample = self._sample(values)
        self._hide(values, seen.hidden_indptr, seen.hidden_column, own)
        self._put_known(values, own)
        if kinds is not None:
            values.masked_fill_(kinds[1][kinds[0]], -torch.inf)
        values[self.device.upload(np.flatnonzero(~seen.counted[own]))] = -torch.inf
        return values, sample

    def histogram(self, pairs: Pairs, seen: Seen, counts: Int64, span: NDArray[np.uint32]) -> None:
        """Count pairs by the keys of their values."""
        queries, columns, hidden = pairs

        def compute(rows: slice) -> tuple[Sample, int, Int64]:
            values, sample = self._impostors(queries, rows, hidden, seen)
            return (sample, *device_keys.count_keys(self.device, values, seen, queries[rows]))

        def take(rows: slice, given: tuple[Sample, int, Int64]) -> bool:
            sample, first, found = given
            self._check((sample,), queries[rows])
            if len(found):
                counts[first : first + len(found)] += found
                span[:] = min(span[0], first), max(span[1], first + len(found) - 1)
            return True

        self._in_pieces(len(queries), columns, compute, take)

    def split(
        self, pairs: Pairs, seen: Seen, brackets: Brackets, rest: Rest, below: Int64, tally: NDArray[np.int32]
    ) -> Advance:
        """Count pairs by brackets of distances."""
        device, (queries, _, hidden), by_row = self.device, pairs, bool(len(tally))
        if self._table is None or self._table.brackets.at_place is not brackets.at_place:
            self._table = device_keys.Table.of(device, brackets)
        table = self._table

        def find(rows: slice, limit: int) -> _Found:
            values, sample = self._impostors(queries, rows, hidden, seen)
            split = device_keys.split(device, values, seen, table, queries[rows])
            del values
            opened, n_fitting, inside = self._fitting(split.opened, rows.stop - rows.start, limit)
            numbers = device_keys.count_gaps(device, split, n_fitting, len(below), by_row=by_row)
            row, column, gap = (device.download(each) for each in opened)

            def add() -> None:
                if by_row:
                    tally[queries[rows][:n_fitting], 0] += numbers.astype(np.int32)
                below[:] += numbers.sum(axis=0) if by_row else numbers

            return _Found((sample,), (row, column, gap), n_fitting, inside, add)

        return self._advance(pairs, rest, find)

    def _marked_values(
        self, values: Tensor, own: Int64, rows: Marking, columns: Marking | None, kinds: Kinds
    ) -> Marked:
        """Mark values."""
        return Marked(scans.mark(self.device, values, rows, columns, kinds))

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
        errors = self._errors(items)
        band = 2.0 * lists.epsilon[items] + (0.0 if errors is None else errors)
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
        device, (queries, columns, _) = self.device, pairs
        there = slice(columns.start, columns.stop)

        def mark(rows: slice) -> tuple[Sample, Marked]:
            own = queries[rows]
            values = self._products(queries, rows, None)
            sample = self._sample(values, self._errors(own))
            rows_of, columns_of = (
                Marking(*(device.upload(each[at]) for each in (side.lists.level, side.lower_bound, side.bias)))
                for side, at in ((near, own), (far, there))
            )
            return sample, self._marked_values(values, own, rows_of, columns_of, None)

        def enter(item: Int32, other: Int32, value: NDArray[np.floating]) -> None:
            enter_rows(item, other, value, far.bias, near)
            enter_rows(other, item, value, near.bias, far)

        return self._enter(pairs, mark, enter, far.bias[there])
