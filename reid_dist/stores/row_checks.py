"""Single rows, verified: how a few rows of a chunk are read without reading the chunk each time.

A store has one digest per chunk, so a row is verified by reading its chunk.  A process does that once per chunk: while
it compares the chunk with its digest, it keeps a checksum of every row.  Each row of that chunk that it reads singly
afterwards is compared with its own before it is returned.  A row that differs is not used: the chunk is read whole
again, which gives the row that was written or names the damage.

So every row that a `FeatureSet` returns, whether a range or single rows are read, was compared with a checksum in the
read that brought it.  By induction, whatever a task computes from rows, and keeps in a workspace or a result, is
computed from the rows that were written: nothing needs to be compared again later, and a part that a failed run left
behind is as good as one of a run that ended well.  Damage may end a run; it never changes a number.

The checksum of a row whose numbers have the bit patterns w_0 … w_(n-1), as unsigned integers, is the sum of w_j · f_j
modulo 2^64, with fixed odd factors f_j (multilinear hashing: Lemire and Kaser, Strongly universal string hashing is
fast, The Computer Journal 2014).  An odd factor has an inverse modulo 2^64: rows that differ in one number never have
equal checksums.  Of rows whose differences are all multiples of 2^v, which for float32 is v <= 31, one pair in
2^(63 - v) has.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.checksums import weighted_sums
from reid_dist.stores.rows import FeatureArray

Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
Read = TypeVar("Read")

_WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def row_checksums(rows: FeatureArray) -> UInt64:
    """Checksums of rows, shape (n, dim), C-contiguous floats of 2, 4 or 8 bytes: shape (n,), uint64."""
    words = read_only(rows.view(_WORDS[rows.dtype.itemsize]))
    # Sums modulo 2^64 are meant; without compilation, NumPy would warn of each.
    with np.errstate(over="ignore"):
        return weighted_sums(words, _factors(rows.shape[1]))


@lru_cache(maxsize=16)
def _factors(dim: int) -> UInt64:
    """Odd numbers, shape (dim,), equal in every process."""
    return read_only(np.frombuffer(blake3(b"reid_dist row checksums").digest(length=8 * dim), "<u8") | np.uint64(1))


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether the elements of an array are those of a mapped file."""
    base: Any = array
    while base is not None:
        if isinstance(base, mmap.mmap | np.memmap):
            return True
        base = getattr(base, "base", None) if isinstance(base, np.ndarray) else getattr(base, "obj", None)
    return False


class RowChecks:
    """Checksums of the rows of verified chunks, and which chunks are being verified; for several threads at once."""

    def __init__(self, n_rows: int, n_chunks: int) -> None:
        # Pages of the array are taken as they are written.
        self._checksums: UInt64 = np.empty(n_rows, np.uint64)
        self._known = np.zeros(n_chunks, np.bool_)
        self._begun: set[int] = set()
        self._ended = threading.Condition()

    def knows(self, chunk: int) -> bool:
        """Whether a chunk has been verified."""
        return bool(self._known[chunk])

    def agree(self, rows: slice | Int64, checksums: UInt64) -> bool:
        """Whether rows of verified chunks, by their numbers, have these checksums, shape (n,)."""
        return bool((checksums == self._checksums[rows]).all())

    def put(self, first: int, checksums: UInt64) -> None:
        """Put the checksums of consecutive rows, the first of which is row `first`; `verify` calls what calls this."""
        self._checksums[first : first + len(checksums)] = checksums

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
