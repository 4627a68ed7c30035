"""Digests of chunks, of label arrays and of the content as a whole, and checksums of single rows.

The content digest covers the rows and labels of a set and not their storage: it is the same in memory
and in a store, whatever the chunks or the sizes of the blocks in which the rows came.  To that end rows are
hashed in blocks of a fixed number of rows (the last one may be shorter), and the digest of the set is the digest of a
header and of the block digests::

    content = blake3( JSON{kind, shape, dtype, block_rows, labels: {name: digest}} ‖ block digest 0 ‖ block digest 1 … )

Blocks, unlike one long hash, can be hashed by several threads at once (blake3 releases the GIL), and a block is looked
at for NaN, infinities and zero rows while it is still in cache.

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

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from reid_dist.core.environment import usable_cores
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.checksums import weighted_sums
from reid_dist.stores.kept_rows import FeatureArray, RowFaults, find_faults

if TYPE_CHECKING:
    from typing import Self

Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]
Floats = NDArray[np.floating[Any]]
Read = TypeVar("Read")

BLOCK_ROWS = 1024
"""Rows per hashed block.  Part of the format: another number gives other content digests."""

_DIGEST_BYTES = 32
_TASK_BYTES = 16 << 20
_BLOCK_TEXTS = 65_536
# Integers of the bytes of a row by the size of its numbers.
_WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint32}


HASH: Final = np.dtype("V16")
"""Hash of a row."""


def bytes_of(array: NDArray[Any]) -> memoryview:
    """View a C-contiguous array as bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def digest_rows(rows: FeatureArray) -> str:
    """Return the BLAKE3 digest, in hex, of (rows, dim) C-contiguous floats as they are stored."""
    return blake3(bytes_of(rows)).hexdigest()


def row_hashes(rows: FeatureArray) -> NDArray[np.void]:
    """Return 128-bit hashes, (rows,) of `HASH`: equal for equal rows, and different ones do not meet by chance."""
    data = bytes_of(rows)
    width = len(data) // len(rows)
    digests = b"".join(blake3(data[start : start + width]).digest(length=16) for start in range(0, len(data), width))
    return np.frombuffer(digests, HASH)


def encoded_blocks(array: NDArray[np.str_]) -> Iterator[list[bytes]]:
    """Texts of an (n,) ``<U`` array in UTF-8, block by block, for the memory of one block."""
    for start in range(0, len(array), _BLOCK_TEXTS):
        yield [text.encode() for text in array[start : start + _BLOCK_TEXTS].tolist()]


def digest_label(array: NDArray[Any]) -> str:
    """Return the BLAKE3 digest, in hex, of an (n,) int64 or ``<U`` array; integers and text never share one."""
    hasher = blake3()
    if array.dtype.kind == "U":
        hasher.update(f"utf8:{array.size}:".encode())
        for texts in encoded_blocks(array):
            hasher.update(np.fromiter(map(len, texts), dtype="<i8", count=len(texts)).tobytes())
        for texts in encoded_blocks(array):
            hasher.update(b"".join(texts))
    else:
        hasher.update(f"int64:{array.size}:".encode())
        hasher.update(bytes_of(np.ascontiguousarray(array, dtype="<i8")))
    return hasher.hexdigest()


def digest_json(entry: Mapping[str, Any]) -> str:
    """Return the BLAKE3 digest, in hex, of a mapping as JSON with sorted keys and no blanks."""
    return blake3(_json_bytes(entry)).hexdigest()


def _json_bytes(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()


class ContentHasher:
    """Hash rows that come in blocks of any sizes into one content digest."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._open = blake3()
        self._open_rows = 0
        self.n_rows = 0

    @classmethod
    def after(cls, whole_blocks: bytes) -> Self:
        """Return a hasher that has taken whole blocks already, given their digests as `whole_blocks` returns them."""
        hasher = cls()
        hasher._blocks = [whole_blocks[at : at + _DIGEST_BYTES] for at in range(0, len(whole_blocks), _DIGEST_BYTES)]
        hasher.n_rows = BLOCK_ROWS * len(hasher._blocks)
        return hasher

    @property
    def whole_blocks(self) -> bytes:
        """Digests of the blocks of `BLOCK_ROWS` rows that were taken so far, one after the other."""
        return b"".join(self._blocks)

    def update(self, rows: FeatureArray) -> None:
        """Take the next rows, (rows, dim) C-contiguous, in the dtype in which they are kept."""
        start = 0
        while start < len(rows):
            take = min(BLOCK_ROWS - self._open_rows, len(rows) - start)
            self._open.update(bytes_of(rows[start : start + take]))
            self._open_rows += take
            start += take
            if self._open_rows == BLOCK_ROWS:
                self._close_block()
        self.n_rows += len(rows)

    def _close_block(self) -> None:
        self._blocks.append(self._open.digest())
        self._open, self._open_rows = blake3(), 0

    def extend(self, block_digests: list[bytes]) -> None:
        """Take digests of whole blocks that were hashed elsewhere; only the last one may be of a shorter block."""
        self._blocks.extend(block_digests)

    def finish(self, dim: int, dtype: np.dtype[Any], label_digests: Mapping[str, str]) -> str:
        """Return the content digest in hex; `label_digests` are `digest_label` by name."""
        if self._open_rows:
            self._close_block()
        header = {
            "kind": "reid_dist content 1",
            "shape": [self.n_rows, dim],
            "dtype": dtype.name,
            "block_rows": BLOCK_ROWS,
            "labels": dict(label_digests),
        }
        hasher = blake3(_json_bytes(header))
        hasher.update(b"".join(self._blocks))
        return hasher.hexdigest()


def scan(features: FeatureArray, checks: RowChecksums | None = None) -> tuple[ContentHasher, RowFaults]:
    """Hash an array (n, dim), C-contiguous, and look for faulty rows in one pass, on all cores.

    With `checks`, for an array whose bytes may change, each block is copied before, and the checksums of its rows are
    put.
    """
    row_bytes = max(1, features.shape[1] * features.dtype.itemsize)
    step = BLOCK_ROWS * max(1, _TASK_BYTES // (BLOCK_ROWS * row_bytes))

    def scan_rows(start: int) -> tuple[list[bytes], RowFaults]:
        digests, faults = [], RowFaults()
        for first in range(start, min(start + step, len(features)), BLOCK_ROWS):
            block = features[first : min(first + BLOCK_ROWS, start + step)]
            if checks is not None:
                block = np.array(block)
                checks.put(first, row_checksums(block))
            digests.append(blake3(bytes_of(block)).digest())
            faults += find_faults(block, first)
        return digests, faults

    starts = range(0, len(features), step)
    hasher, faults = ContentHasher(), RowFaults()
    n_threads = min(usable_cores(), len(starts))
    with ThreadPoolExecutor(n_threads, thread_name_prefix="scan") as pool:
        # One thread is no faster than this one.
        for digests, found in (pool.map if n_threads > 1 else map)(scan_rows, starts):
            hasher.extend(digests)
            faults += found
    hasher.n_rows = len(features)
    return hasher, faults


# ---- single rows -----------------------------------------------------------------------------------------------------


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
