"""Rows on a device of torch: how they travel there, and which of them stay.

*Travel.*  Rows go as they are stored, float16 as float16, in pieces: each is copied to one of two buffers in pinned
memory, from which the device takes it on a stream of its own, while the other buffer is filled and tiles are computed.
Widening float16 is exact wherever it is done.

*Stay.*  Rows are found again by the digest of their set, for all tasks of a process, as long as they take no more than
half of the memory that nobody else uses; those of least recent use leave first.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

Tensor = Any

# Bytes of a buffer; smaller arrays do not need one.
_STAGED_BYTES: Final = 1 << 24
_BUFFERS: Final = 2
# Seconds without use after which rows give their memory back.
_IDLE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows as they are stored, shape (n, dim), float32 or float16, and what tells them from others."""

    key: tuple[str | int, ...]
    rows: NDArray[np.floating]


class Uploads:
    """Copies arrays to a device by buffers, of which each is filled while the other one is read."""

    def __init__(self, torch: Any, where: Any) -> None:
        self._torch, self._where, self._is_cuda = torch, where, where.type == "cuda"
        self._stream: Any = self._torch.cuda.Stream(self._where) if self._is_cuda else None
        # Each with what tells that the device has read it.
        self._buffers: SimpleQueue[tuple[Tensor, Any]] = SimpleQueue()
        self._making = threading.Lock()
        self._are_made = False

    def _make_buffers(self) -> None:
        with self._making:
            for _ in range(0 if self._are_made else _BUFFERS):
                buffer = self._torch.empty(_STAGED_BYTES, dtype=self._torch.uint8, pin_memory=self._is_cuda)
                self._buffers.put((buffer, self._torch.cuda.Event() if self._is_cuda else None))
            self._are_made = True

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self._stream is None else self._torch.cuda.stream(self._stream)

    def send(self, array: NDArray[np.floating]) -> Tensor:
        """Copy an array, which is read before the call returns; the current stream waits for the copy."""
        self._make_buffers()
        source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self._on_stream():
            made = self._torch.empty(source.size, dtype=self._torch.uint8, device=self._where)
        for start in range(0, source.size, _STAGED_BYTES):
            piece = source[start : start + _STAGED_BYTES]
            buffer, is_read = self._buffers.get()
            try:
                if is_read is not None:
                    is_read.synchronize()
                buffer.numpy()[: piece.size] = piece
                with self._on_stream():
                    made[start : start + piece.size].copy_(buffer[: piece.size], non_blocking=True)
                    if is_read is not None:
                        is_read.record(self._stream)
            finally:
                self._buffers.put((buffer, is_read))
        if self._stream is not None:
            current = self._torch.cuda.current_stream(self._where)
            current.wait_stream(self._stream)
            made.record_stream(current)
        return made.view(getattr(self._torch, array.dtype.name)).view(array.shape)


class Memory(Protocol):
    """What a device tells of its memory."""

    uploads: Uploads

    def free_bytes(self) -> int:
        """Memory that this process could still use."""

    def give_back(self) -> None:
        """Return memory that this process does not use to others."""


class ResidentRows:
    """Rows that stay on a device while it has room."""

    def __init__(self, device: Memory) -> None:
        self._device = device
        self._rows: OrderedDict[tuple[str | int, ...], Tensor] = OrderedDict()
        self._lock = threading.Lock()
        self._used = 0.0
        self._is_watched = False

    def _bytes(self) -> int:
        return sum(each.nbytes for each in self._rows.values())

    def fits(self, stored: StoredRows) -> bool:
        """Whether rows may stay, when others leave; those that are there do."""
        with self._lock:
            return stored.key in self._rows or 2 * stored.rows.nbytes <= self._bytes() + self._device.free_bytes()

    def get(self, stored: StoredRows) -> Tensor:
        """Rows on the device, which are sent unless they are there."""
        with self._lock:
            if stored.key not in self._rows:
                self._rows[stored.key] = self._device.uploads.send(stored.rows)
            found = self._rows[stored.key]
            self._rows.move_to_end(stored.key)
            while self._rows and self._bytes() > self._device.free_bytes():
                self._rows.popitem(last=False)
            self._used = time.monotonic()
            if not self._is_watched:
                self._watch()
        return found

    def _watch(self) -> None:
        self._is_watched = True
        timer = threading.Timer(_IDLE_S, self._forget_unless_used)
        timer.daemon = True
        timer.start()

    def _forget_unless_used(self) -> None:
        with self._lock:
            is_idle = time.monotonic() - self._used >= _IDLE_S
            self._is_watched = False
            if not is_idle:
                self._watch()
        if is_idle and self.forget():
            self._device.give_back()

    def forget(self) -> bool:
        """Let all rows go that no task uses; whether there were any."""
        with self._lock:
            had = bool(self._rows)
            self._rows.clear()
        return had
