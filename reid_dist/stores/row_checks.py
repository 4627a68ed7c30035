"""Single rows, verified: how a few rows of a chunk are read without reading the chunk each time.

A store has one digest per chunk, so a row is verified by reading its chunk.  A process does that once per chunk: while
it compares the chunk with its digest, it keeps a checksum of every row.  Each row of that chunk that it reads singly
afterwards is compared with its own before it is returned.  A row that differs is not used: the chunk is read whole
again, which gives the row that was written or names the damage.

So every row of a store, whether a range or single rows are read, was compared with a checksum in the read that brought
it.  Whatever a task computes from rows, and keeps in a workspace or a result, is computed from the rows that were
written; nothing is compared again later, and parts that a failed run left behind are as sound as any.  Arrays that this
process does not own, such as mapped files, are treated alike: their rows are compared with the checksums of those that
the content digest was taken of.  Arrays in memory of this process are taken as they are.

The checksum of a row is a sum modulo 2^64: its bytes as unsigned integers w_0 … w_(n-1) of 32 bits, or of 16 for half
precision, each times a fixed odd factor f_j (multilinear hashing: Lemire and Kaser, Strongly universal string hashing
is fast, The Computer Journal 2014).  An odd factor has an inverse modulo 2^64: rows that differ in one integer never
have equal checksums.  Of rows whose differences are all multiples of 2^v, v <= 31, one pair in 2^(63 - v) has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.checksums import weighted_sums

Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
Floats = NDArray[np.floating[Any]]
Read = TypeVar("Read")

# Integers of the bytes of a row by the size of its numbers.
_WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint32}


def row_checksums(rows: Floats) -> UInt64:
    """Checksums of rows, shape (n, dim), C-contiguous floats of 2, 4 or 8 bytes: shape (n,), uint64."""
    words = read_only(rows.view(_WORDS[rows.dtype.itemsize]))
    # Sums modulo 2^64 are meant; without compilation, NumPy would warn of each.
    with np.errstate(over="ignore"):
        return weighted_sums(words, _factors(words.shape[1]))


@lru_cache(maxsize=16)
def _factors(n: int) -> UInt64:
    """Odd numbers, shape (n,), equal in every process."""
    return read_only(np.frombuffer(blake3(b"reid_dist row checksums").digest(length=8 * n), "<u8") | np.uint64(1))


def is_owned(array: NDArray[Any]) -> bool:
    """Whether the elements of an array are in memory that NumPy or Python has for them, and not in a mapped file."""
    held: Any = array
    while not isinstance(held, bytes | bytearray):
        if isinstance(held, np.ndarray) and held.flags.owndata:
            return True
        held = held.obj if isinstance(held, memoryview) else getattr(held, "base", None)
        if held is None:
            return False
    return True


class RowChecksums:
    """Checksums of rows by their numbers."""

    def __init__(self, n_rows: int) -> None:
        # Pages of the array are taken as they are written.
        self._checksums: UInt64 = np.empty(n_rows, np.uint64)

    def put(self, first: int, checksums: UInt64) -> None:
        """Put the checksums of consecutive rows, the first of which is row `first`."""
        self._checksums[first : first + len(checksums)] = checksums

    def agree(self, rows: slice | Int64, checksums: UInt64) -> bool:
        """Whether rows, by their numbers, have these checksums, shape (n,)."""
        return bool((checksums == self._checksums[rows]).all())


class RowChecks(RowChecksums):
    """Checksums of the rows of verified chunks, and which chunks are being verified; for several threads at once.

    What `verify` calls puts the checksums.
    """

    def __init__(self, n_rows: int, n_chunks: int) -> None:
        super().__init__(n_rows)
        self._known = np.zeros(n_chunks, np.bool_)
        self._begun: set[int] = set()
        self._ended = threading.Condition()

    def knows(self, chunk: int) -> bool:
        """Whether a chunk has been verified."""
        return bool(self._known[chunk])

    def ensure(self, chunk: int, read: Callable[[], object]) -> None:
        """Have a chunk verified by `read`, in this thread or another one."""
        while not self.knows(chunk):
            if self.verify(chunk, read) is None:
                self.wait(chunk)

    def verify(self, chunk: int, read: Callable[[], Read]) -> Read | None:
        """Call `read`, which verifies a chunk and puts its checksums; None if another thread does so or has done so."""
        with self._ended:
            # Checksums of a known chunk are never put again: these bytes may be damaged by now.
            if self._known[chunk] or chunk in self._begun:
                return None
            self._begun.add(chunk)
        verified = False
        try:
            found = read()
            verified = True
        finally:
            with self._ended:
                self._known[chunk] = verified
                self._begun.discard(chunk)
                self._ended.notify_all()
        return found

    def wait(self, chunk: int) -> None:
        """Wait until no thread is verifying a chunk."""
        with self._ended:
            self._ended.wait_for(lambda: chunk not in self._begun)
