"""The manifest: what a store holds, with a digest of every part.

It is one JSON object in the attributes of the Zarr group and is written last, in one atomic replacement of the group's
metadata; a store without it is not a store.  It carries a digest of itself, so that a flipped bit in it is found too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from blake3 import blake3

from reid_dist.errors import DamagedStoreError, StoreError
from reid_dist.stores.rows import KEPT_DTYPES, Offenders

# Names become keys inside the store, and must not lead out of it.
_NAME = re.compile(r"\w+(/\w+)*")

FORMAT_VERSION = 1
"""Stores of a higher version are refused."""


@dataclass(frozen=True)
class LabelEntry:
    """One label array.

    Attributes
    ----------
    kind
        ``"int64"``, or ``"utf8"`` for text, which is kept as offsets and bytes.
    length
        Number of entries.
    digest
        BLAKE3 of its values, in hex.
    """

    kind: str
    length: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a store holds.

    Attributes
    ----------
    n_rows, dim
        Shape of the features.
    dtype
        ``"float32"`` or ``"float16"``.
    chunk_rows
        Rows per chunk; the last chunk may hold fewer.
    shard_rows
        Rows per shard, a multiple of `chunk_rows`, or None if every chunk is a file of its own.
    chunk_digests
        BLAKE3, in hex, of the rows of each chunk.
    labels
        The label arrays by name.
    allow_zero
        Whether rows of zeros are meant.
    zero_rows
        The rows of zeros.
    notes
        Changes made to the values before, one line each.
    source
        Where the rows came from and with which options; only for people.
    content_digest
        Of rows and labels, whatever their chunks.
    """

    n_rows: int
    dim: int
    dtype: str
    chunk_rows: int
    shard_rows: int | None
    chunk_digests: tuple[str, ...]
    labels: dict[str, LabelEntry]
    allow_zero: bool
    zero_rows: Offenders
    notes: tuple[str, ...]
    content_digest: str
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def n_chunks(self) -> int:
        """Number of chunks of features."""
        return -(-self.n_rows // self.chunk_rows)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype in which features are stored, little-endian."""
        return KEPT_DTYPES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * self.numpy_dtype.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the rows of a chunk; the last one is padded to this."""
        return self.chunk_rows * self.row_bytes

    def rows_of_chunk(self, index: int) -> range:
        """Return the rows that a chunk holds."""
        return range(index * self.chunk_rows, min((index + 1) * self.chunk_rows, self.n_rows))

    def file_of_chunk(self, index: int) -> str:
        """Return the key, relative to the store, of the file that holds a chunk of features."""
        rows_per_file = self.shard_rows or self.chunk_rows
        return f"features/c/{index * self.chunk_rows // rows_per_file}/0"

    def to_json(self) -> dict[str, Any]:
        """Return the attribute of a complete store."""
        entry = {
            "state": "complete",
            "format_version": FORMAT_VERSION,
            "shape": [self.n_rows, self.dim],
            "dtype": self.dtype,
            "chunk_rows": self.chunk_rows,
            "shard_rows": self.shard_rows,
            "content_digest": self.content_digest,
            "allow_zero": self.allow_zero,
            "zero_rows": {"count": self.zero_rows.count, "first": list(self.zero_rows.first)},
            "notes": list(self.notes),
            "source": self.source,
            "labels": {
                name: {"kind": label.kind, "length": label.length, "digest": label.digest}
                for name, label in self.labels.items()
            },
            "chunk_digests": list(self.chunk_digests),
        }
        return {**entry, "manifest_digest": _own_digest(entry)}

    @classmethod
    def from_json(cls, entry: dict[str, Any], uri: str) -> Manifest:
        """Read the attribute of a complete store.

        Raises
        ------
        StoreError
            If it was written by a newer version of the format.
        DamagedStoreError
            If it is not what was written.
        """
        version = entry.get("format_version")
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise StoreError(
                f"{uri} has format version {version} and this release reads up to {FORMAT_VERSION}; update reid-dist"
            )
        written = {key: value for key, value in entry.items() if key != "manifest_digest"}
        if entry.get("manifest_digest") != _own_digest(written):
            raise DamagedStoreError(
                f"{uri}: the manifest in zarr.json does not match its own digest: it was damaged or edited; "
                "ingest the source again"
            )
        leaving = [name for name in entry["labels"] if not _NAME.fullmatch(name)]
        if leaving:
            raise DamagedStoreError(
                f"{uri}: the manifest names {leaving[0]!r}, which is no label; ingest the source again"
            )
        n_rows, dim = entry["shape"]
        zero_rows = entry["zero_rows"]
        return cls(
            n_rows=n_rows,
            dim=dim,
            dtype=entry["dtype"],
            chunk_rows=entry["chunk_rows"],
            shard_rows=entry["shard_rows"],
            chunk_digests=tuple(entry["chunk_digests"]),
            labels={name: LabelEntry(**label) for name, label in entry["labels"].items()},
            allow_zero=entry["allow_zero"],
            zero_rows=Offenders(zero_rows["count"], tuple(zero_rows["first"])),
            notes=tuple(entry["notes"]),
            content_digest=entry["content_digest"],
            source=entry["source"],
        )


def _own_digest(entry: dict[str, Any]) -> str:
    return blake3(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
