"""Kernels of Triton that read a tile once: they place values, or mark those that pass levels, and list what is left.

Without them, torch does the same in several passes over the tile; results are the same.  The module is imported only
where Triton is installed.
"""

# ruff: noqa: N803 (constants of a compilation, as in the documentation of Triton)

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from typing import Any, Final

from reid_dist.engine.distances.devices import TorchDevice
from reid_dist.engine.reductions.scans import Kinds, Listed, Side, Thresholds

triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

Tensor = Any

_BLOCK: Final = 1024

# Its interpreter, for tests without a GPU, runs one kernel at a time.
_ALONE: Final[contextlib.AbstractContextManager[object]] = (
    threading.Lock() if os.environ.get("TRITON_INTERPRET") == "1" else contextlib.nullcontext()
)

# Thresholds of a query at most, for which values are counted by a histogram of each block.
_MOST_THRESHOLDS: Final = 1023
# Not fewer than the threads that fill it together.
_LEAST_BINS: Final = 64


@triton.jit  # type: ignore[untyped-decorator]
def _place(
    values: Any,
    lower: Any,
    upper: Any,
    indptr: Any,
    kind_of: Any,
    is_hidden: Any,
    counts: Any,
    n_listed: Any,
    listed_at: Any,
    listed_what: Any,
    n_columns: Any,
    capacity: Any,
    HAS_KINDS: tl.constexpr,
    STEPS: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < n_columns
    first = tl.load(indptr + row)
    last = tl.load(indptr + row + 1)
    value = tl.load(values + row * n_columns + column, mask=inside, other=float("-inf"))
    if last > first:
        lowest = tl.load(lower + last - 1)
        if tl.max(value) >= lowest:
            low = tl.zeros([BLOCK], tl.int32) + first
            high = tl.zeros([BLOCK], tl.int32) + last
            for _ in range(STEPS):
                is_open = low < high
                middle = (low + high) // 2
                edge = tl.load(lower + middle, mask=is_open, other=0.0)
                reaches = edge <= value
                high = tl.where(is_open & reaches, middle, high)
                low = tl.where(is_open & (edge > value), middle + 1, low)
            reached = (low < last) & (value > float("-inf"))
            if HAS_KINDS:
                kind = tl.load(kind_of + row)
                hidden = tl.load(is_hidden + kind * n_columns + column, mask=inside, other=1)
                reached = reached & (hidden == 0)
            top = tl.load(upper + low, mask=reached, other=float("inf"))
            passed = reached & (value > top)
            left = reached & (value <= top)
            numbers = tl.histogram(tl.where(passed, low - first, BINS - 1), BINS)
            bins = tl.arange(0, BINS)
            tl.atomic_add(counts + first + bins, numbers, mask=(bins < last - first) & (numbers > 0))
            n = tl.sum(left.to(tl.int32))
            if n > 0:
                at = tl.atomic_add(n_listed, n) + tl.cumsum(left.to(tl.int32)) - 1
                room = left & (at < capacity)
                tl.store(listed_at + at, row * n_columns + column, mask=room)
                tl.store(listed_what + at, low, mask=room)


@triton.jit  # type: ignore[untyped-decorator]
def _mark(
    values: Any,
    row_level: Any,
    row_least: Any,
    row_bias: Any,
    column_level: Any,
    column_least: Any,
    column_bias: Any,
    kind_of: Any,
    is_hidden: Any,
    n_listed: Any,
    listed_at: Any,
    listed_what: Any,
    n_columns: Any,
    capacity: Any,
    HAS_KINDS: tl.constexpr,
    BOTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < n_columns
    value = tl.load(values + row * n_columns + column, mask=inside, other=float("-inf"))
    mine = value
    if BOTH:
        mine = value - tl.load(column_bias + column, mask=inside, other=0.0)
        theirs = value - tl.load(row_bias + row)
        marked = theirs >= tl.load(column_level + column, mask=inside, other=float("inf"))
        marked = marked | (theirs <= tl.load(column_least + column, mask=inside, other=float("-inf")))
        marked = marked | (mine >= tl.load(row_level + row)) | (mine <= tl.load(row_least + row))
    else:
        marked = (mine >= tl.load(row_level + row)) | (mine <= tl.load(row_least + row))
    marked = marked & (value > float("-inf"))
    if HAS_KINDS:
        kind = tl.load(kind_of + row)
        marked = marked & (tl.load(is_hidden + kind * n_columns + column, mask=inside, other=1) == 0)
    n = tl.sum(marked.to(tl.int32))
    if n > 0:
        at = tl.atomic_add(n_listed, n) + tl.cumsum(marked.to(tl.int32)) - 1
        room = marked & (at < capacity)
        tl.store(listed_at + at, row * n_columns + column, mask=room)
        tl.store(listed_what + at, value, mask=room)


# Pairs that are listed: one of so many, and at least so many.
_LISTED_ONE_OF, _LEAST_LISTED = 32, 1 << 16


def place(device: TorchDevice, values: Tensor, of: Thresholds, kinds: Kinds) -> tuple[Tensor, Listed] | None:
    """As `reid_dist.engine.reductions.scans.place` for one group of columns; None for too many thresholds or pairs."""
    torch, most = device.torch, of.most
    if most > _MOST_THRESHOLDS:
        return None
    counts = torch.zeros(len(of.place), dtype=torch.int32, device=values.device)
    room = _Room(torch, values, torch.int32)
    kind_of, is_hidden = _kinds(torch, values, kinds)
    with _ALONE:
        _place[room.grid](
            values, of.lower, of.upper, of.offsets, kind_of, is_hidden, counts,
            room.n, room.at, room.what, values.shape[1], len(room.at),
            HAS_KINDS=kinds is not None, STEPS=max(1, most.bit_length()),
            BINS=max(_LEAST_BINS, triton.next_power_of_2(most + 1)), BLOCK=_BLOCK,
        )  # fmt: skip
    listed = room.listed()
    return None if listed is None else (counts, listed)


def mark(device: TorchDevice, values: Tensor, rows: Side, columns: Side | None, kinds: Kinds) -> Listed | None:
    """As `reid_dist.engine.reductions.scans.mark`, but for hidden values, which are not listed; None for too many."""
    torch = device.torch
    room = _Room(torch, values, values.dtype)
    kind_of, is_hidden = _kinds(torch, values, kinds)
    with _ALONE:
        _mark[room.grid](
            values, *rows, *(rows if columns is None else columns), kind_of, is_hidden,
            room.n, room.at, room.what, values.shape[1], len(room.at),
            HAS_KINDS=kinds is not None, BOTH=columns is not None, BLOCK=_BLOCK,
        )  # fmt: skip
    return room.listed()


class _Room:
    """Room for pairs of a tile that are listed in any order."""

    def __init__(self, torch: Any, values: Tensor, dtype: Any) -> None:
        (n_rows, self._n_columns), where = values.shape, values.device
        self._torch, self.grid = torch, (n_rows, triton.cdiv(self._n_columns, _BLOCK))
        capacity = max(_LEAST_LISTED, n_rows * self._n_columns // _LISTED_ONE_OF)
        self.n = torch.zeros(1, dtype=torch.int32, device=where)
        self.at = torch.empty(capacity, dtype=torch.int64, device=where)
        self.what = torch.empty(capacity, dtype=dtype, device=where)

    def listed(self) -> Listed | None:
        """The pairs in order; None if they found no room."""
        n = int(self.n.item())
        if n > len(self.at):
            return None
        place, order = self._torch.sort(self.at[:n])
        return Listed(place // self._n_columns, place % self._n_columns, self.what[:n][order])


def _kinds(torch: Any, values: Tensor, kinds: Kinds) -> tuple[Tensor, Tensor]:
    """Kinds of rows and columns that are hidden from each; any tensors where none is."""
    return (values, values) if kinds is None else (kinds[0], kinds[1].to(torch.uint8))
