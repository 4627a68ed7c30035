"""Chunks of features as they lie in storage: raw bytes, read without Zarr where that is possible.

A chunk is its rows and a checksum, so reading it by Zarr comes to the same, by way of an event loop, a copy and a
checksum that is weaker than the digest which is compared here.  What is not as it should be is not explained here: the
caller reads it again by Zarr, and finds out.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from reid_dist.stores.digests import digest_rows
from reid_dist.stores.links import Bounds
from reid_dist.stores.locations import local_path
from reid_dist.stores.manifest import Manifest
from reid_dist.stores.objects import ObjectFolder, ahead, is_object_uri
from reid_dist.stores.rows import FeatureArray

__all__ = ["Chunks", "chunks_at"]

# What the crc32c codec appends to a chunk.
_CHECKSUM_BYTES = 4
# When one row in this many is wanted, the whole chunk is read ahead.
_ROWS_PER_FAULT = 32


class Chunks(Protocol):
    """The files of the chunks of one store."""

    def read(self, first: int, last: int) -> FeatureArray | None:
        """Read whole chunks, compared with their digests, or None if anything is not as it should be."""

    def read_unverified(self, wanted: list[tuple[int, NDArray[np.int64]]]) -> Iterator[FeatureArray | None]:
        """Give rows by chunk and row in it, not verified; None for a chunk that is not as it should be."""

    def size(self, file: str) -> int | None:
        """Size of a file of the store in bytes, or None if it is missing."""


def chunks_at(uri: str, manifest: Manifest) -> Chunks:
    """Return the reader of chunks for a canonical URI."""
    if is_object_uri(uri):
        return ObjectChunks(ObjectFolder(uri), manifest)
    return LocalChunks(Bounds(local_path(uri)), manifest)


@dataclass(frozen=True)
class LocalChunks:
    """Chunks in files.

    Attributes
    ----------
    bounds
        The store, which no link may lead out of.
    manifest
        Its manifest.
    """

    bounds: Bounds
    manifest: Manifest

    def read(self, first: int, last: int) -> FeatureArray | None:
        """Read whole chunks, straight into the array."""
        if self.manifest.shard_rows is not None:
            return None
        rows = _empty(self.manifest, first, last)
        for chunk in range(first, last + 1):
            part = _part(rows, self.manifest, first, chunk)
            try:
                with self.bounds.open_raw(self.manifest.file_of_chunk(chunk)) as file:
                    view = part.data.cast("B")
                    while len(view) and (count := file.readinto(view)):
                        view = view[count:]
            except OSError:
                return None
            if len(view) or digest_rows(part) != self.manifest.chunk_digests[chunk]:
                return None
        return rows

    def read_unverified(self, wanted: list[tuple[int, NDArray[np.int64]]]) -> Iterator[FeatureArray | None]:
        """Map the file of each chunk: a row is found by arithmetic."""
        for chunk, inside in wanted:
            mapped = None if self.manifest.shard_rows is not None else self._map(chunk, len(inside))
            yield None if mapped is None else mapped[inside]

    def _map(self, chunk: int, n_wanted: int) -> FeatureArray | None:
        size = self.manifest.chunk_bytes
        try:
            with self.bounds.open(self.manifest.file_of_chunk(chunk)) as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        if len(mapped) != size + _CHECKSUM_BYTES:
            return None
        if n_wanted * _ROWS_PER_FAULT > self.manifest.chunk_rows:
            # Most pages are wanted: one read-ahead beats a fault for each, above all on network file systems.
            mapped.madvise(mmap.MADV_WILLNEED)
        dtype = self.manifest.numpy_dtype
        return np.frombuffer(mapped, dtype, size // dtype.itemsize).reshape(-1, self.manifest.dim)

    def size(self, file: str) -> int | None:
        """Size of a file."""
        path = self.bounds.folder / file
        return path.stat().st_size if path.exists() else None


@dataclass(frozen=True)
class ObjectChunks:
    """Chunks in objects: several are under way at a time, since each takes a while to begin.

    Attributes
    ----------
    folder
        The store.
    manifest
        Its manifest.
    """

    folder: ObjectFolder
    manifest: Manifest

    def read(self, first: int, last: int) -> FeatureArray | None:
        """Read whole chunks, each thread into its part of the array."""
        if self.manifest.shard_rows is not None:
            return None
        rows = _empty(self.manifest, first, last)

        def fetch(chunk: int) -> bool:
            part = _part(rows, self.manifest, first, chunk)
            content = self._read(chunk)
            if content is None:
                return False
            part.data.cast("B")[:] = memoryview(content)[: part.nbytes]
            return digest_rows(part) == self.manifest.chunk_digests[chunk]

        return rows if all(ahead(fetch, range(first, last + 1), self.manifest.chunk_bytes)) else None

    def _read(self, chunk: int) -> bytes | None:
        content = self.folder.read(self.manifest.file_of_chunk(chunk))
        # The bytes are the rows, padded to a whole chunk, and the checksum.
        whole = content is not None and len(content) == self.manifest.chunk_bytes + _CHECKSUM_BYTES
        return content if whole else None

    def read_unverified(self, wanted: list[tuple[int, NDArray[np.int64]]]) -> Iterator[FeatureArray | None]:
        """Read whole chunks where many of their rows are wanted, and ranges of bytes where few are."""
        if self.manifest.shard_rows is not None:
            yield from (None for _ in wanted)
            return
        most = max((len(inside) for _, inside in wanted), default=0) * self.manifest.row_bytes
        many = any(self._whole(len(inside)) for _, inside in wanted)
        yield from ahead(lambda item: self._peek(*item), wanted, self.manifest.chunk_bytes if many else most)

    def _whole(self, n_wanted: int) -> bool:
        return n_wanted * _ROWS_PER_FAULT > self.manifest.chunk_rows

    def _peek(self, chunk: int, inside: NDArray[np.int64]) -> FeatureArray | None:
        dtype, dim, row_bytes = self.manifest.numpy_dtype, self.manifest.dim, self.manifest.row_bytes
        if self._whole(len(inside)):
            content = self._read(chunk)
            if content is None:
                return None
            whole = np.frombuffer(content, dtype, self.manifest.chunk_bytes // dtype.itemsize).reshape(-1, dim)
            return cast("FeatureArray", whole[inside])
        file = self.manifest.file_of_chunk(chunk)
        pieces = self.folder.read_ranges(file, (inside * row_bytes).tolist(), row_bytes)
        if pieces is None or any(len(piece) != row_bytes for piece in pieces):
            return None
        return np.frombuffer(b"".join(pieces), dtype).reshape(-1, dim)

    def size(self, file: str) -> int | None:
        """Size of an object."""
        return self.folder.size(file)


def _empty(manifest: Manifest, first: int, last: int) -> FeatureArray:
    n_rows = manifest.rows_of_chunk(last).stop - first * manifest.chunk_rows
    return np.empty((n_rows, manifest.dim), manifest.numpy_dtype)


def _part(rows: FeatureArray, manifest: Manifest, first: int, chunk: int) -> FeatureArray:
    held, begin = manifest.rows_of_chunk(chunk), first * manifest.chunk_rows
    return rows[held.start - begin : held.stop - begin]
