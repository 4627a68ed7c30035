"""The manifest: what a store holds, with a digest of every part.

It is one JSON object in the attributes of the Zarr group and is written last, in one atomic replacement of the group's
metadata; a store without it is not a store.  It carries a digest of itself, so that a flipped bit in it is found too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from reid_dist.errors import DamagedStoreError, IncompleteStoreError, StoreError, StoreNotFoundError
from reid_dist.stores.digests import digest_json
from reid_dist.stores.kept_rows import KEPT_DTYPES, Offenders
from reid_dist.stores.locations import State, cut_short_note, read_marker, state_by

# Names become keys inside the store, and must not lead out of it.
_NAME = re.compile(r"\w+(/\w+)*")


@dataclass(frozen=True)
class StoreKind:
    """Label in messages, kind in manifests, newest version that can be read, and advice after damage."""

    label: str
    kind: str | None
    version: int
    advice: str


FEATURE_STORE = StoreKind("feature store", None, 1, "ingest the source again")
NEIGHBOUR_GRAPH = StoreKind("neighbour graph", "neighbour_graph", 1, "save the graph again")


@dataclass(frozen=True)
class LabelEntry:
    """One label array: kind (``int64``, or ``utf8`` for text), number of entries, BLAKE3 of its values in hex."""

    kind: str
    length: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a store holds.

    Every chunk is a file; the last one may hold fewer rows than `chunk_rows`.  `chunk_digests` are BLAKE3, in hex, of
    the rows of each chunk; `content_digest` is of rows and labels, whatever their chunks.  `allow_zero`: rows of zeros
    are meant.  `notes` are changes made to the values before, one line each; `source` is where the rows came from and
    with which options, for information.
    """

    n_rows: int
    dim: int
    dtype: str
    chunk_rows: int
    chunk_digests: tuple[str, ...]
    labels: dict[str, LabelEntry]
    allow_zero: bool
    zero_rows: Offenders
    notes: tuple[str, ...]
    content_digest: str
    source: dict[str, Any]

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
        return f"features/c/{index}/0"

    def to_json(self) -> dict[str, Any]:
        """Return the attribute of a complete store."""
        fields = asdict(self)
        shape = [fields.pop("n_rows"), fields.pop("dim")]
        # Earlier releases of this format read an entry on shards.
        return complete_marker(FEATURE_STORE, {"shape": shape, "shard_rows": None, **fields})

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], uri: str) -> Manifest:
        """Read the verified attribute of a complete store; DamagedStoreError if it is not what a writer writes.

        StoreError for the shards of an earlier release.
        """
        if entry.get("shard_rows") is not None:
            raise StoreError(
                f"{uri} keeps several chunks in one file (shards), which earlier releases alone read; ingest the "
                "source again"
            )
        try:
            fields = {name: entry[name] for name in cls.__dataclass_fields__ if name not in ("n_rows", "dim")}
            fields["n_rows"], fields["dim"] = entry["shape"]
            fields |= {name: tuple(entry[name]) for name in ("chunk_digests", "notes")}
            fields["labels"] = {name: LabelEntry(**label) for name, label in entry["labels"].items()}
            fields["zero_rows"] = Offenders(entry["zero_rows"]["count"], tuple(entry["zero_rows"]["first"]))
            leaving = [name for name in entry["labels"] if not _NAME.fullmatch(name)]
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedStoreError(f"{uri}: the manifest in zarr.json is not readable: {error!r}") from error
        if leaving:
            raise DamagedStoreError(
                f"{uri}: the manifest names {leaving[0]!r}, which is no label; ingest the source again"
            )
        return cls(**fields)


def complete_marker(of: StoreKind, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attribute of a complete store, with a digest of itself."""
    kind = {} if of.kind is None else {"kind": of.kind}
    written = {"state": "complete", **kind, "format_version": of.version, **entry}
    return {**written, "manifest_digest": digest_json(written)}


def read_complete(uri: str, of: StoreKind) -> dict[str, Any] | None:
    """Return the verified attribute of a complete store of a kind; None if something else is at a canonical URI.

    Errors: StoreNotFoundError, IncompleteStoreError, DamagedStoreError, and StoreError for a newer format.
    """
    marker = read_marker(uri)
    state = state_by(marker, uri)
    if state is State.NOTHING:
        raise StoreNotFoundError(f"no {of.label} at {uri}: nothing is there{cut_short_note(uri)}")
    if state is State.WRITING:
        raise IncompleteStoreError(
            f"{uri} has no commit marker: its writer was stopped, or is still running; {of.advice}"
        )
    if marker is None or marker.get("kind") != of.kind:
        return None
    found = marker.get("format_version")
    if isinstance(found, int) and found > of.version:
        raise StoreError(
            f"{uri} has format version {found} and this release reads up to {of.version}; update reid-dist"
        )
    written = {key: value for key, value in marker.items() if key != "manifest_digest"}
    if marker.get("manifest_digest") != digest_json(written):
        raise DamagedStoreError(
            f"{uri}: the manifest in zarr.json does not match its own digest: it was damaged or edited; {of.advice}"
        )
    return written
