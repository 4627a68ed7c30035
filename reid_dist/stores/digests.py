"""Digests: one for each stored chunk, one for each label array, and one for the content as a whole.

The content digest covers the rows and labels of a set and not their storage: it is the same in memory
and in a store, whatever the chunks or the sizes of the blocks in which the rows came.  To that end rows are
hashed in blocks of a fixed number of rows (the last one may be shorter), and the digest of the set is the digest of a
header and of the block digests::

    content = blake3( JSON{kind, shape, dtype, block_rows, labels: {name: digest}} ‖ block digest 0 ‖ block digest 1 … )

Blocks, unlike one long hash, can be hashed by several threads at once (blake3 releases the GIL), and a block is looked
at for NaN, infinities and zero rows while it is still in cache.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from reid_dist.core.environment import usable_cores
from reid_dist.stores.kept_rows import FeatureArray, RowFaults, find_faults
from reid_dist.stores.row_checks import RowChecksums, row_checksums

BLOCK_ROWS = 1024
"""Rows per hashed block.  Part of the format: another number gives other content digests."""

_TASK_BYTES = 16 << 20
_BLOCK_TEXTS = 65_536


def bytes_of(array: NDArray[Any]) -> memoryview:
    """View a C-contiguous array as bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def digest_rows(rows: FeatureArray) -> str:
    """Return the BLAKE3 digest, in hex, of (rows, dim) C-contiguous floats as they are stored."""
    return blake3(bytes_of(rows)).hexdigest()


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
