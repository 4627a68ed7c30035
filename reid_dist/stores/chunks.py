"""Chunks of features in storage: raw bytes, read without Zarr where that is possible.

A chunk is its rows and a checksum.  Reading it by Zarr gives the same bytes through an event loop, a copy and a
checksum that is weaker than the digest compared here.  A chunk that is missing or damaged gives None: the caller reads
it again by Zarr, which names the damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from reid_dist.stores.digests import digest_rows
from reid_dist.stores.folders import Folder
from reid_dist.stores.manifest import Manifest
from reid_dist.stores.objects import is_read_whole
from reid_dist.stores.rows import FeatureArray

# What the crc32c codec appends to a chunk.
_CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class Chunks:
    """Chunks of one store."""

    folder: Folder
    manifest: Manifest

    def read(self, first: int, last: int) -> FeatureArray | None:
        """Read whole chunks, compared with their digests, (rows, dim); None if one is missing or damaged."""
        manifest = self.manifest
        if manifest.shard_rows is not None:
            return None
        begin = first * manifest.chunk_rows
        rows = np.empty((manifest.rows_of_chunk(last).stop - begin, manifest.dim), manifest.numpy_dtype)

        def fetch(chunk: int) -> bool:
            held = manifest.rows_of_chunk(chunk)
            part = rows[held.start - begin : held.stop - begin]
            is_read = self.folder.read_into(manifest.file_of_chunk(chunk), part.data.cast("B"))
            return is_read and digest_rows(part) == manifest.chunk_digests[chunk]

        return rows if all(self.folder.map(fetch, range(first, last + 1), manifest.chunk_bytes)) else None

    def read_unverified(self, wanted: list[tuple[int, NDArray[np.int64]]]) -> Iterator[FeatureArray | None]:
        """Gather rows by chunk and row in it, not verified; None for a chunk that is missing or of another size."""
        manifest = self.manifest
        if manifest.shard_rows is not None:
            return iter([None] * len(wanted))

        def gather(item: tuple[int, NDArray[np.int64]]) -> FeatureArray | None:
            chunk, inside = item
            n_bytes = manifest.chunk_bytes + _CHECKSUM_BYTES
            found = self.folder.gather(manifest.file_of_chunk(chunk), inside, manifest.row_bytes, n_bytes)
            return None if found is None else cast("FeatureArray", found.view(manifest.numpy_dtype))

        most = max((len(inside) for _, inside in wanted), default=0)
        is_whole = is_read_whole(most, manifest.chunk_rows)
        return self.folder.map(gather, wanted, manifest.chunk_bytes if is_whole else most * manifest.row_bytes)
